-- How often what happened to emails, by quarter hours since 1970, counted from email_events by internal/sending/metrics.
CREATE TABLE email_counts (
	team_id TEXT NOT NULL,
	slot BIGINT NOT NULL,            -- the quarter hour
	domain_id TEXT NOT NULL,
	broadcast_id TEXT NOT NULL,
	type TEXT NOT NULL,
	detail TEXT NOT NULL,
	events BIGINT NOT NULL,
	recipients BIGINT NOT NULL,
	PRIMARY KEY (team_id, slot, domain_id, broadcast_id, type, detail)
);

-- Up to when a team's events are counted. The version changes with every change of its counts.
CREATE TABLE email_counts_until (
	team_id TEXT PRIMARY KEY,
	until BIGINT NOT NULL,
	version BIGINT NOT NULL
);

-- Events that came when their time had perhaps been counted.
CREATE TABLE email_counts_late (
	team_id TEXT NOT NULL,
	id TEXT NOT NULL,
	email_id TEXT NOT NULL,          -- '' when the counts of no other time can depend on it
	at BIGINT NOT NULL,
	PRIMARY KEY (team_id, id)
);
