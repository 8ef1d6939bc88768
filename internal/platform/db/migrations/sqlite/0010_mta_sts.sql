-- MTA-STS policies of recipient domains, which all nodes share. A domain without an MTA-STS record has no row.
CREATE TABLE mta_sts_policies (
	domain TEXT PRIMARY KEY,
	id TEXT NOT NULL,                -- of the DNS record with which the policy was fetched
	prior_id TEXT NOT NULL,          -- the id before
	policy TEXT NOT NULL,            -- '' if none was fetched yet
	fetched_at INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,
	used_at INTEGER NOT NULL,         -- with an error of up to a day
	refresh_at INTEGER NOT NULL,      -- when the policy is fetched again, or the row is deleted
	claimed_until INTEGER NOT NULL,   -- end of the time in which only one node fetches the policy; 0 if none does
	failed_id TEXT NOT NULL,         -- id of the last fetch, if it failed
	failure TEXT NOT NULL,           -- result type of TLS reports
	reason TEXT NOT NULL,
	failed_at INTEGER NOT NULL,
	retry_at INTEGER NOT NULL         -- no node fetches with failed_id before this time
) STRICT;

CREATE INDEX mta_sts_policies_refresh ON mta_sts_policies (refresh_at);
