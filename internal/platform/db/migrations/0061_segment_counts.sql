-- How many contacts large segments had when they were counted last. segment_id is the team's id for all its contacts.
CREATE TABLE segment_counts (
	segment_id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	contacts BIGINT NOT NULL,
	counted_at BIGINT NOT NULL
);

CREATE INDEX segment_counts_team ON segment_counts (team_id, segment_id);
