-- Files that members download or have downloaded, with their progress. A row has nothing of the file and of its filter. Rows
-- are deleted with the membership, and after a day when the member begins another export.
CREATE TABLE export_runs (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	user_id BLOB NOT NULL,
	list TEXT NOT NULL,              -- emails, suppressions or logs
	filters INTEGER NOT NULL,        -- how many filters are set
	state INTEGER NOT NULL,
	items INTEGER NOT NULL,           -- so far
	started_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	oldest INTEGER NOT NULL,          -- no item was created before; 0 if unknown
	reached INTEGER NOT NULL          -- when the last item so far was created; 0 before the first one
) STRICT;

CREATE INDEX export_runs_of ON export_runs (team_id, user_id, started_at);
