-- Filters of lists that members saved for themselves. They are deleted with the membership.
CREATE TABLE saved_filters (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	user_id BLOB NOT NULL,
	list TEXT NOT NULL,              -- emails, receiving, logs or suppressions
	name TEXT NOT NULL,
	query TEXT NOT NULL,             -- the query parameters of the list's address
	created_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX saved_filters_name ON saved_filters (team_id, user_id, list, name);
