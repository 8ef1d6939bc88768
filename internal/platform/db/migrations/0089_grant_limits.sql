-- What a person has limited a program to: addresses that one email may go to and emails in a day of UTC, 0 for none,
-- and whether a person decides of each email.
ALTER TABLE oauth_grants ADD COLUMN recipients_per_email BIGINT NOT NULL DEFAULT 0;
ALTER TABLE oauth_grants ADD COLUMN emails_a_day BIGINT NOT NULL DEFAULT 0;
ALTER TABLE oauth_grants ADD COLUMN approval BOOLEAN NOT NULL DEFAULT FALSE;

ALTER TABLE oauth_codes ADD COLUMN recipients_per_email BIGINT NOT NULL DEFAULT 0;
ALTER TABLE oauth_codes ADD COLUMN emails_a_day BIGINT NOT NULL DEFAULT 0;
ALTER TABLE oauth_codes ADD COLUMN approval BOOLEAN NOT NULL DEFAULT FALSE;

-- How many emails a grant has sent on the last day on which it did, one for each address.
CREATE TABLE grant_volumes (
	team_id TEXT NOT NULL,
	grant_id TEXT NOT NULL,
	day BIGINT NOT NULL,            -- days since 1970 in UTC
	used BIGINT NOT NULL,
	PRIMARY KEY (team_id, grant_id)
);
