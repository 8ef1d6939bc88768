-- Rules that forward the mail of receiving domains. A rule has either an address or a URL.
CREATE TABLE forwards (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	domain_id BLOB NOT NULL REFERENCES domains (id) ON DELETE CASCADE,
	local TEXT NOT NULL,       -- local part in lower case, or *
	address TEXT NOT NULL,                 -- '' if the rule has a URL
	target TEXT NOT NULL,      -- key of the address, or the URL
	enabled INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	forwarded INTEGER NOT NULL,             -- messages so far
	failed INTEGER NOT NULL,                -- bounces, complaints and failed calls
	stopped INTEGER NOT NULL,               -- messages that were not forwarded on purpose
	reason TEXT NOT NULL,                  -- of the last failure or stop
	reason_at INTEGER NOT NULL,             -- 0 if there is none
	failing_since INTEGER NOT NULL,         -- first permanent failure since the last success; 0 if none
	hour INTEGER NOT NULL,                  -- start of the hour that hour_count counts
	hour_count INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX forwards_rule ON forwards (domain_id, local, target);
CREATE INDEX forwards_team ON forwards (team_id, target);

-- Addresses to which teams forward, with the consent of their owners. A refused address stays, so that its owner is not
-- asked again.
CREATE TABLE forward_targets (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	target TEXT NOT NULL,      -- key of the address
	address TEXT NOT NULL,
	state INTEGER NOT NULL,
	asked_at INTEGER NOT NULL,              -- of the last confirmation mail; 0 if none was sent
	changed_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX forward_targets_of ON forward_targets (team_id, target);
CREATE INDEX forward_targets_changed ON forward_targets (changed_at);

-- When an address was last asked by any team, by a keyed hash of the address.
CREATE TABLE forward_asks (
	address TEXT PRIMARY KEY,
	asked_at INTEGER NOT NULL
) STRICT;

CREATE INDEX forward_asks_at ON forward_asks (asked_at);
