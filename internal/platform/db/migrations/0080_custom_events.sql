-- Events that callers define: a name by which they send them, and what their payloads look like.
CREATE TABLE custom_events (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	name TEXT NOT NULL,
	fields TEXT NOT NULL,            -- JSON: the types of the payload's members by their names; '' for no schema
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL       -- 0 when it was never updated
);

CREATE UNIQUE INDEX custom_events_name ON custom_events (team_id, name);

CREATE INDEX custom_events_team ON custom_events (team_id, id);
