-- Programs that may ask people to let them act for a team (RFC 7591). They belong to no team.
CREATE TABLE oauth_clients (
	id TEXT PRIMARY KEY,
	name TEXT NOT NULL,
	redirect_uris TEXT NOT NULL,    -- separated by spaces, which none of them has
	scope TEXT NOT NULL,            -- what it may ask for at most
	client_uri TEXT NOT NULL,
	logo_uri TEXT NOT NULL,
	address TEXT NOT NULL,          -- that it was registered from; '' for those that are known from the start
	created_at BIGINT NOT NULL,
	used_at BIGINT NOT NULL         -- when somebody first consented to what it asks for; 0 before
);

CREATE INDEX oauth_clients_address ON oauth_clients (address, created_at) WHERE address <> '';

CREATE INDEX oauth_clients_unused ON oauth_clients (created_at, id) WHERE used_at = 0;

-- The official command-line program does not register.
INSERT INTO oauth_clients (id, name, redirect_uris, scope, client_uri, logo_uri, address, created_at, used_at)
	VALUES ('7136aa0b-625c-4c9c-8820-e9784c8eb141', 'Resend CLI', 'http://127.0.0.1/oauth/callback', 'full_access',
	'', '', '', 1763856000000000, 1763856000000000);

-- What a client was granted. Its refresh tokens have no rows: each carries its generation, and is signed.
CREATE TABLE oauth_grants (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	user_id TEXT NOT NULL,          -- who granted it; '' if it was an API key
	client_id TEXT NOT NULL,
	scope TEXT NOT NULL,
	resource TEXT NOT NULL,         -- the address that it is for (RFC 8707); '' for all
	created_at BIGINT NOT NULL,
	used_at BIGINT NOT NULL,        -- when it was last given tokens
	expires_at BIGINT NOT NULL,     -- of the newest refresh token
	generation BIGINT NOT NULL,     -- of the newest refresh token, counted from 1
	retried BIGINT NOT NULL,        -- the generation whose use made the newest; 0 before the first use
	rotated_at BIGINT NOT NULL,     -- when that was first used
	revoked_at BIGINT NOT NULL,     -- 0 while it is active
	revoked_reason TEXT NOT NULL    -- '' while it is active
);

CREATE INDEX oauth_grants_team ON oauth_grants (team_id, id);

CREATE INDEX oauth_grants_active ON oauth_grants (team_id, user_id, id) WHERE revoked_reason = '';

CREATE INDEX oauth_grants_expiry ON oauth_grants (expires_at, id) WHERE revoked_at = 0;

-- What a person has consented to and the client has not collected yet. The code itself is not stored.
CREATE TABLE oauth_codes (
	hash TEXT PRIMARY KEY,
	grant_id TEXT NOT NULL,         -- that it becomes when it is used
	team_id TEXT NOT NULL,
	user_id TEXT NOT NULL,
	client_id TEXT NOT NULL,
	scope TEXT NOT NULL,
	resource TEXT NOT NULL,
	redirect_uri TEXT NOT NULL,
	challenge TEXT NOT NULL,        -- of PKCE, by S256 (RFC 7636)
	expires_at BIGINT NOT NULL,
	used_at BIGINT NOT NULL         -- 0 before
);

CREATE INDEX oauth_codes_team ON oauth_codes (team_id, user_id, hash);

CREATE INDEX oauth_codes_expiry ON oauth_codes (expires_at, hash);

-- The keys by which access tokens are signed, with ES256. Each is published before it signs and after it has.
CREATE TABLE oauth_keys (
	id TEXT PRIMARY KEY,            -- kid
	private BYTEA NOT NULL,         -- PKCS #8, sealed by the keyring
	signs_at BIGINT NOT NULL        -- from when on; the newest that has come to that signs
);
