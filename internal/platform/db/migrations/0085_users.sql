-- People. A user belongs to no team; package members says of which teams one is a member.
CREATE TABLE users (
	id TEXT PRIMARY KEY,
	email TEXT NOT NULL,             -- as message.Address.Key has it
	name TEXT NOT NULL,
	password TEXT NOT NULL,          -- a hash by argon2id with its parameters, '' for none
	disabled BOOLEAN NOT NULL,
	totp_secret BYTEA NOT NULL,      -- sealed, empty for none
	totp_step BIGINT NOT NULL,       -- of the last code that was used, 0 before the first
	handle BYTEA NOT NULL,           -- by which passkeys name the user: random, and never an address
	created_at BIGINT NOT NULL,
	last_sign_in_at BIGINT NOT NULL  -- 0 before the first
);

CREATE UNIQUE INDEX users_email ON users (email);

CREATE UNIQUE INDEX users_handle ON users (handle);

-- Codes that stand in for those of a lost second factor, each once.
CREATE TABLE user_recovery_codes (
	user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	hash TEXT NOT NULL,
	PRIMARY KEY (user_id, hash)
);

CREATE TABLE user_passkeys (
	id TEXT PRIMARY KEY,
	user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	credential TEXT NOT NULL,        -- the authenticator's id of it, base64url
	name TEXT NOT NULL,
	record TEXT NOT NULL,            -- JSON: the public key and what is compared at each use
	created_at BIGINT NOT NULL,
	last_used_at BIGINT NOT NULL     -- 0 before the first use
);

CREATE UNIQUE INDEX user_passkeys_credential ON user_passkeys (credential);

CREATE INDEX user_passkeys_user ON user_passkeys (user_id, id);

-- Accounts at OIDC providers that sign a user in.
CREATE TABLE user_identities (
	id TEXT PRIMARY KEY,
	issuer TEXT NOT NULL,
	subject TEXT NOT NULL,
	user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	email TEXT NOT NULL,             -- what the provider said when it was linked, to be shown
	created_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX user_identities_subject ON user_identities (issuer, subject);

CREATE INDEX user_identities_user ON user_identities (user_id, id);

CREATE TABLE user_sessions (
	id TEXT PRIMARY KEY,
	user_id TEXT NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	hash TEXT NOT NULL,              -- of the token that the browser has
	last_team TEXT NOT NULL,         -- that was looked at last, '' for none
	address TEXT NOT NULL,           -- of the client that signed in
	user_agent TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	used_at BIGINT NOT NULL,         -- to the minute
	proved_at BIGINT NOT NULL        -- when the user last gave a password or a passkey
);

CREATE UNIQUE INDEX user_sessions_hash ON user_sessions (hash);

CREATE INDEX user_sessions_user ON user_sessions (user_id, id);

CREATE INDEX user_sessions_used ON user_sessions (used_at);

-- What may be used once, until it expires: links by mail, sign-ins that wait for a second factor, and the marks of
-- challenges that were used.
CREATE TABLE user_tokens (
	hash TEXT PRIMARY KEY,
	kind TEXT NOT NULL,              -- setup, reset, factor or used
	user_id TEXT NOT NULL,           -- '' for none
	tries BIGINT NOT NULL,           -- wrong codes so far
	expires_at BIGINT NOT NULL
);

CREATE INDEX user_tokens_user ON user_tokens (kind, user_id);

CREATE INDEX user_tokens_expires ON user_tokens (expires_at);

-- Attempts within an hour from the first, for each account and for each network of clients.
CREATE TABLE user_attempts (
	name TEXT PRIMARY KEY,           -- what is counted, of which account (by id or hashed address) or network
	since BIGINT NOT NULL,
	n BIGINT NOT NULL
);

CREATE INDEX user_attempts_since ON user_attempts (since);
