-- DKIM keys of domains other than those that sign, which are in the table domains. A rotation makes a key, publishes it,
-- moves it into the table domains, and keeps the record of the key before for a while. One step of a rotation changes
-- all rows of a domain in one transaction.
CREATE TABLE domain_keys (
	id BLOB PRIMARY KEY,
	domain_id BLOB NOT NULL REFERENCES domains (id) ON DELETE CASCADE,
	team_id BLOB NOT NULL,
	selector TEXT NOT NULL,
	algorithm TEXT NOT NULL,          -- rsa-sha256 or ed25519-sha256
	state TEXT NOT NULL,              -- next, retired or revoked
	private_key BLOB NOT NULL,        -- sealed; empty if the key does not sign any more
	record TEXT NOT NULL,             -- with the public key
	emergency INTEGER NOT NULL,       -- shorter waiting times
	reused INTEGER NOT NULL,          -- resolvers may still have another key's record at this selector
	created_at INTEGER NOT NULL,
	state_at INTEGER NOT NULL,        -- when the state began
	seen_at INTEGER NOT NULL,         -- since when all servers show the record of the next key; 0 if they do not
	stepped_at INTEGER NOT NULL,      -- last step of the rotation
	waited INTEGER NOT NULL,          -- microseconds that the steps have counted in this state; of the next key, since seen_at
	ttl INTEGER NOT NULL              -- seconds for which resolvers keep the record or its absence; 0 if unknown
) STRICT;

CREATE UNIQUE INDEX domain_keys_selector ON domain_keys (domain_id, selector);
-- A domain has at most one rotation at a time.
CREATE UNIQUE INDEX domain_keys_next ON domain_keys (domain_id, algorithm) WHERE state = 'next';
CREATE INDEX domain_keys_team ON domain_keys (team_id, domain_id);
-- Rotations whose steps have stopped are found by it.
CREATE INDEX domain_keys_stepped ON domain_keys (stepped_at);

-- The selectors of the keys that sign: '' stands for those of the settings.
ALTER TABLE domains ADD COLUMN rsa_selector TEXT NOT NULL DEFAULT '';
ALTER TABLE domains ADD COLUMN ed25519_selector TEXT NOT NULL DEFAULT '';
-- Since when the present RSA key signs; 0 for the key with which the domain was added.
ALTER TABLE domains ADD COLUMN keys_since INTEGER NOT NULL DEFAULT 0;
-- When it is next examined whether the keys are old enough for a rotation.
ALTER TABLE domains ADD COLUMN rotate_at INTEGER NOT NULL DEFAULT 0;

CREATE INDEX domains_rotate ON domains (rotate_at) WHERE NOT placeholder;
