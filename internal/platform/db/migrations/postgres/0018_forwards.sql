-- Rules that forward the mail of receiving domains. A rule has either an address or a URL.
CREATE TABLE forwards (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	domain_id UUID NOT NULL REFERENCES domains (id) ON DELETE CASCADE,
	local TEXT COLLATE "C" NOT NULL,       -- local part in lower case, or *
	address TEXT NOT NULL,                 -- '' if the rule has a URL
	target TEXT COLLATE "C" NOT NULL,      -- key of the address, or the URL
	enabled BOOLEAN NOT NULL,
	created_at BIGINT NOT NULL,
	forwarded BIGINT NOT NULL,             -- messages so far
	failed BIGINT NOT NULL,                -- bounces, complaints and failed calls
	stopped BIGINT NOT NULL,               -- messages that were not forwarded on purpose
	reason TEXT NOT NULL,                  -- of the last failure or stop
	reason_at BIGINT NOT NULL,             -- 0 if there is none
	failing_since BIGINT NOT NULL,         -- first permanent failure since the last success; 0 if none
	hour BIGINT NOT NULL,                  -- start of the hour that hour_count counts
	hour_count INTEGER NOT NULL
);

CREATE UNIQUE INDEX forwards_rule ON forwards (domain_id, local, target);
CREATE INDEX forwards_team ON forwards (team_id, target);

-- Addresses to which teams forward, with the consent of their owners. A refused address stays, so that its owner is not
-- asked again.
CREATE TABLE forward_targets (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	target TEXT COLLATE "C" NOT NULL,      -- key of the address
	address TEXT NOT NULL,
	state SMALLINT NOT NULL,
	asked_at BIGINT NOT NULL,              -- of the last confirmation mail; 0 if none was sent
	changed_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX forward_targets_of ON forward_targets (team_id, target);
CREATE INDEX forward_targets_changed ON forward_targets (changed_at);

-- When an address was last asked by any team, by a keyed hash of the address.
CREATE TABLE forward_asks (
	address TEXT COLLATE "C" PRIMARY KEY,
	asked_at BIGINT NOT NULL
);

CREATE INDEX forward_asks_at ON forward_asks (asked_at);
