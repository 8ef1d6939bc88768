-- MTA-STS policies (RFC 8461) that this installation serves for receiving domains. A row is deleted with its domain, or
-- after no sender can have a copy of the policy any more.
CREATE TABLE served_policies (
	domain_id UUID PRIMARY KEY REFERENCES domains (id) ON DELETE CASCADE,
	team_id UUID NOT NULL,
	mode TEXT NOT NULL,               -- testing, enforce or none
	max_age BIGINT NOT NULL,          -- lifetime in seconds
	hosts TEXT NOT NULL,              -- JSON: the mail hosts, and when the MX records last led to them
	body TEXT NOT NULL,               -- the text that is served
	policy_id TEXT NOT NULL,          -- of the text
	former_id TEXT NOT NULL,          -- belongs in the domain's record until announce_at; '' if there was none
	announce_at BIGINT NOT NULL,
	obsolete_at BIGINT NOT NULL,      -- when the last copy of an earlier policy expires at a sender
	testing_since BIGINT NOT NULL,    -- 0 if the mode is not testing
	leads_here BOOLEAN NOT NULL,      -- the host of the policy leads to this installation
	check_at BIGINT NOT NULL,         -- time of the next check
	checked_at BIGINT NOT NULL,
	changed_at BIGINT NOT NULL,       -- when the team last changed the mode
	watch TEXT NOT NULL               -- JSON: what the checks have found
);

CREATE INDEX served_policies_check ON served_policies (check_at);
