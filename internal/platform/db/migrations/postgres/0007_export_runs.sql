-- Files that members download or have downloaded, with their progress. A row has nothing of the file and of its filter. Rows
-- are deleted with the membership, and after a day when the member begins another export.
CREATE TABLE export_runs (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	user_id UUID NOT NULL,
	list TEXT NOT NULL,              -- emails, suppressions or logs
	filters INTEGER NOT NULL,        -- how many filters are set
	state SMALLINT NOT NULL,
	items BIGINT NOT NULL,           -- so far
	started_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	oldest BIGINT NOT NULL,          -- no item was created before; 0 if unknown
	reached BIGINT NOT NULL          -- when the last item so far was created; 0 before the first one
);

CREATE INDEX export_runs_of ON export_runs (team_id, user_id, started_at);
