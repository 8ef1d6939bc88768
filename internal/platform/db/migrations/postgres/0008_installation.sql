-- Facts about the whole installation, such as the check value of its secret key.
CREATE TABLE installation (
	name TEXT PRIMARY KEY,
	value TEXT NOT NULL
);
