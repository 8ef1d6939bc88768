-- What a domain received on a day from one reporter, for limits. Only authenticated reporters have a row.
CREATE TABLE report_reporters (
	domain_id BLOB NOT NULL,
	team_id BLOB NOT NULL,
	day INTEGER NOT NULL,
	reporter TEXT NOT NULL, -- organizational domain
	reports INTEGER NOT NULL,
	stored_rows INTEGER NOT NULL,
	bytes INTEGER NOT NULL,           -- of files
	PRIMARY KEY (domain_id, day, reporter)
) STRICT, WITHOUT ROWID;
