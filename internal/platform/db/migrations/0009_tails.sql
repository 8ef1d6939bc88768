-- Teams whose events somebody watches, and what they are shown. Both are kept for minutes only.
CREATE TABLE live_tails (
	team_id TEXT PRIMARY KEY,
	until BIGINT NOT NULL            -- renewed while somebody watches
);

CREATE TABLE live_messages (
	team_id TEXT NOT NULL,
	id TEXT NOT NULL,                -- msg_ and the id of the event, so ordered by time
	type TEXT NOT NULL,
	payload TEXT NOT NULL,
	PRIMARY KEY (team_id, id)
);
