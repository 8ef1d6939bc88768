-- Teams own everything; an API key acts for its team.
CREATE TABLE teams (
	id TEXT PRIMARY KEY,
	name TEXT NOT NULL,
	email TEXT NOT NULL,             -- the owner's address, '' when none
	rate_limit BIGINT NOT NULL,      -- requests a second; 0 takes the configuration's
	suspended BOOLEAN NOT NULL,
	created_at BIGINT NOT NULL
);

CREATE TABLE api_keys (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
	name TEXT NOT NULL,
	hash TEXT NOT NULL,              -- SHA-256 of the token, in hex
	prefix TEXT NOT NULL,            -- what people may see of the token
	permission TEXT NOT NULL,
	domain_id TEXT NOT NULL,         -- '' when not restricted
	created_at BIGINT NOT NULL,
	last_used_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX api_keys_hash ON api_keys (hash);

CREATE INDEX api_keys_team ON api_keys (team_id, id);
