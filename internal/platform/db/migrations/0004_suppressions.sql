-- Addresses that a team does not mail.
CREATE TABLE suppressions (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	address TEXT NOT NULL,           -- lower case
	origin TEXT NOT NULL,            -- bounce, complaint or manual
	source_id TEXT NOT NULL,         -- the email that caused it, '' when none
	created_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX suppressions_address ON suppressions (team_id, address);

CREATE INDEX suppressions_team ON suppressions (team_id, id);
