-- Domains that teams send from and receive at. Their DNS records follow from the row and the configuration; what is
-- stored of a record is only what the last look-ups found.
CREATE TABLE domains (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,           -- 'system' for the sandbox domains
	name TEXT NOT NULL,              -- ASCII, lower case
	region TEXT NOT NULL,
	return_path TEXT NOT NULL,       -- label
	tracking_subdomain TEXT NOT NULL,
	old_tracking TEXT NOT NULL,      -- labels that were in use before, comma-separated: their links go on working
	tls TEXT NOT NULL,
	open_tracking BOOLEAN NOT NULL,
	click_tracking BOOLEAN NOT NULL,
	sending BOOLEAN NOT NULL,
	receiving BOOLEAN NOT NULL,
	status TEXT NOT NULL,
	checks TEXT NOT NULL,            -- JSON: of each record, its status and since when
	rsa_key BYTEA NOT NULL,          -- sealed
	ed25519_key BYTEA NOT NULL,      -- sealed
	rsa_record TEXT NOT NULL,
	ed25519_record TEXT NOT NULL,
	placeholder BOOLEAN NOT NULL,    -- stands for a claim on a domain that another team has
	verify_since BIGINT NOT NULL,    -- when the present verification began; 0 when none did
	checked_at BIGINT NOT NULL,
	created_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX domains_name ON domains (name) WHERE NOT placeholder;

CREATE INDEX domains_team ON domains (team_id, id);

CREATE INDEX domains_checked ON domains (checked_at);

CREATE TABLE domain_claims (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	domain_id TEXT NOT NULL,         -- the placeholder
	name TEXT NOT NULL,
	token TEXT NOT NULL,
	request TEXT NOT NULL,           -- JSON: what was asked, to tell a repetition from another claim
	status TEXT NOT NULL,
	blocked_reason TEXT NOT NULL,
	failure_reason TEXT NOT NULL,
	warned_at BIGINT NOT NULL,       -- when the grace period of the owner began
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL
);

CREATE INDEX domain_claims_domain ON domain_claims (domain_id);

CREATE INDEX domain_claims_team ON domain_claims (team_id, name);
