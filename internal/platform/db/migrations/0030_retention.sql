-- For how long a team keeps what it has, in microseconds; 0 takes the configuration's.
ALTER TABLE teams ADD COLUMN email_retention BIGINT NOT NULL DEFAULT 0;

ALTER TABLE teams ADD COLUMN body_retention BIGINT NOT NULL DEFAULT 0;

ALTER TABLE teams ADD COLUMN received_retention BIGINT NOT NULL DEFAULT 0;

ALTER TABLE teams ADD COLUMN event_retention BIGINT NOT NULL DEFAULT 0;

-- How far the bodies of a team's emails are deleted, and the emails before that point that were not settled then.
CREATE TABLE email_bodies_until (
	team_id TEXT PRIMARY KEY,
	email_id TEXT NOT NULL
);

CREATE TABLE email_bodies_left (
	team_id TEXT NOT NULL,
	email_id TEXT NOT NULL,
	PRIMARY KEY (team_id, email_id)
);

-- What deleted events counted, as email_counts has it. It is part of those counters, and of what they are corrected to.
CREATE TABLE email_counts_kept (
	team_id TEXT NOT NULL,
	slot BIGINT NOT NULL,
	domain_id TEXT NOT NULL,
	broadcast_id TEXT NOT NULL,
	type TEXT NOT NULL,
	detail TEXT NOT NULL,
	events BIGINT NOT NULL,
	recipients BIGINT NOT NULL,
	PRIMARY KEY (team_id, slot, domain_id, broadcast_id, type, detail)
);
