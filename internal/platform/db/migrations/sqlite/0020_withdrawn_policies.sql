-- A policy outlives its domain, because senders have copies of it. Until they expire, a policy of mode none is served.
CREATE TABLE served_policies_new (
	domain_id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	mode TEXT NOT NULL,               -- testing, enforce or none
	max_age INTEGER NOT NULL,         -- lifetime in seconds
	hosts TEXT NOT NULL,              -- JSON: the mail hosts, and when the MX records last led to them
	body TEXT NOT NULL,               -- the text that is served
	policy_id TEXT NOT NULL,          -- of the text
	former_id TEXT NOT NULL,          -- belongs in the domain's record until announce_at; '' if there was none
	announce_at INTEGER NOT NULL,
	obsolete_at INTEGER NOT NULL,     -- when the last copy of an earlier policy expires at a sender
	testing_since INTEGER NOT NULL,   -- 0 if the mode is not testing
	leads_here INTEGER NOT NULL,      -- boolean: the host of the policy leads to this installation
	check_at INTEGER NOT NULL,        -- time of the next check
	checked_at INTEGER NOT NULL,
	changed_at INTEGER NOT NULL,      -- when the team last changed the mode
	watch TEXT NOT NULL,              -- JSON: what the checks have found
	name TEXT NOT NULL                -- of the domain
) STRICT;
INSERT INTO served_policies_new SELECT p.*, d.name FROM served_policies p JOIN domains d ON d.id = p.domain_id;
DROP TABLE served_policies;
ALTER TABLE served_policies_new RENAME TO served_policies;
CREATE INDEX served_policies_check ON served_policies (check_at);
CREATE INDEX served_policies_name ON served_policies (name);
