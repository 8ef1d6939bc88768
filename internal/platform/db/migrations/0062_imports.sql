-- Files of contacts that are imported. One of a team is in progress at a time, in the order of ids. The counts, the
-- position and the rows that failed are written together with the contacts of a batch.
CREATE TABLE contact_imports (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	status TEXT NOT NULL,            -- queued, in_progress, completed or failed
	filename TEXT NOT NULL,
	size BIGINT NOT NULL,            -- of the file, in octets
	plan TEXT NOT NULL,              -- JSON: how the file is written, its columns, segments and topics
	position BIGINT NOT NULL,        -- the octet of the file from which to go on
	lines BIGINT NOT NULL,           -- of the file before the position
	created BIGINT NOT NULL,         -- rows by what became of them
	updated BIGINT NOT NULL,
	skipped BIGINT NOT NULL,
	failed BIGINT NOT NULL,
	kept BIGINT NOT NULL,            -- failed rows that contact_import_failures has
	reason TEXT NOT NULL,            -- why it failed
	created_at BIGINT NOT NULL,
	started_at BIGINT NOT NULL,      -- 0 when it has not been
	finished_at BIGINT NOT NULL
);

CREATE INDEX contact_imports_team ON contact_imports (team_id, id);

CREATE INDEX contact_imports_status ON contact_imports (team_id, status, id);

CREATE INDEX contact_imports_kept ON contact_imports (finished_at) WHERE kept > 0;

CREATE TABLE contact_import_failures (
	import_id TEXT NOT NULL,
	line BIGINT NOT NULL,            -- of the file, on which the row begins
	team_id TEXT NOT NULL,
	reason TEXT NOT NULL,
	fields TEXT NOT NULL,            -- JSON, '' when the row was too long to be kept
	PRIMARY KEY (import_id, line)
);
