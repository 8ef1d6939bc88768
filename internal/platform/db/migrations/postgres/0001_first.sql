-- Teams own everything; an API key acts for its team.
CREATE TABLE teams (
	id UUID PRIMARY KEY,
	short_id INTEGER NOT NULL,       -- stands for the team in tokens that must be short; from 1 to 2^31 - 1
	name TEXT NOT NULL,
	email TEXT NOT NULL,             -- the owner's address, '' when none
	rate_limit BIGINT NOT NULL,      -- requests a second; 0 takes the configuration's
	suspended BOOLEAN NOT NULL,
	created_at BIGINT NOT NULL,
	-- When a team was deleted, 0 while it is not: it is nobody from that instant, and its rows are taken away by a job.
	deleted_at BIGINT NOT NULL DEFAULT 0,
	-- For how long a team keeps what it has, in microseconds; 0 takes the configuration's.
	email_retention BIGINT NOT NULL DEFAULT 0,
	body_retention BIGINT NOT NULL DEFAULT 0,
	received_retention BIGINT NOT NULL DEFAULT 0,
	event_retention BIGINT NOT NULL DEFAULT 0,
	-- How many emails a team may send and receive in a day and in a month; 0 is without a limit.
	daily_quota BIGINT NOT NULL DEFAULT 0,
	monthly_quota BIGINT NOT NULL DEFAULT 0
);

CREATE UNIQUE INDEX teams_short_id ON teams (short_id);
-- The shortest and the longest retention of emails of all teams are at its ends.
CREATE INDEX teams_email_retention ON teams (email_retention);

CREATE TABLE api_keys (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
	name TEXT NOT NULL,
	hash TEXT NOT NULL,              -- SHA-256 of the token, in hex
	prefix TEXT NOT NULL,            -- the part of the token that lists show
	permission TEXT NOT NULL,
	domain_id UUID,                  -- the only domain that the key may send from, NULL for all domains
	created_at BIGINT NOT NULL,
	last_used_at BIGINT NOT NULL     -- 0 before the first use
);

CREATE UNIQUE INDEX api_keys_hash ON api_keys (hash);
CREATE INDEX api_keys_team ON api_keys (team_id, id);

-- The use of a team's quota, in parts that are counted separately. A transaction may use a part up to its room without
-- reading the others; the rooms of all parts together are within the quota. On PostgreSQL there are 16 parts, one for
-- each group of connections, so that transactions seldom wait for each other; on SQLite one. Teams without a quota have
-- no rows.
CREATE TABLE team_volumes (
	team_id UUID NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
	part BIGINT NOT NULL,
	day BIGINT NOT NULL,             -- since 1970, UTC; the same in all parts, as month is
	day_used BIGINT NOT NULL,
	day_room BIGINT NOT NULL,
	day_told BIGINT NOT NULL,        -- twice the day in which 80 % were told; one more when 100 % were
	month BIGINT NOT NULL,           -- since the year 0, UTC
	month_used BIGINT NOT NULL,
	month_room BIGINT NOT NULL,
	month_told BIGINT NOT NULL,
	PRIMARY KEY (team_id, part)
);

-- Users can be members of several teams (see the table memberships).
CREATE TABLE users (
	id UUID PRIMARY KEY,
	email TEXT NOT NULL,             -- in the form of message.Address.Key
	name TEXT NOT NULL,
	password TEXT NOT NULL,          -- an argon2id hash with its parameters, '' for none
	disabled BOOLEAN NOT NULL,
	totp_secret BYTEA NOT NULL,      -- encrypted, empty for none
	totp_step BIGINT NOT NULL,       -- the time step of the last code that was used, 0 before the first
	handle BYTEA NOT NULL,           -- a random value that identifies the user to passkeys (WebAuthn user handle)
	created_at BIGINT NOT NULL,
	last_sign_in_at BIGINT NOT NULL  -- 0 before the first
);

CREATE UNIQUE INDEX users_email ON users (email);
CREATE UNIQUE INDEX users_handle ON users (handle);

-- One-time codes that replace a lost second factor.
CREATE TABLE user_recovery_codes (
	user_id UUID NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	hash TEXT NOT NULL,
	PRIMARY KEY (user_id, hash)
);

CREATE TABLE user_passkeys (
	id UUID PRIMARY KEY,
	user_id UUID NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	credential TEXT NOT NULL,        -- the credential id that the authenticator chose, in base64url
	name TEXT NOT NULL,
	record TEXT NOT NULL,            -- JSON: the public key, the signature counter and flags
	created_at BIGINT NOT NULL,
	last_used_at BIGINT NOT NULL     -- 0 before the first use
);

CREATE UNIQUE INDEX user_passkeys_credential ON user_passkeys (credential);
CREATE INDEX user_passkeys_user ON user_passkeys (user_id, id);

-- Accounts at OIDC providers with which users sign in.
CREATE TABLE user_identities (
	id UUID PRIMARY KEY,
	issuer TEXT NOT NULL,
	subject TEXT NOT NULL,
	user_id UUID NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	email TEXT NOT NULL,             -- the address that the provider sent when the account was linked; only displayed
	created_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX user_identities_subject ON user_identities (issuer, subject);
CREATE INDEX user_identities_user ON user_identities (user_id, id);

CREATE TABLE user_sessions (
	id UUID PRIMARY KEY,
	user_id UUID NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	hash TEXT NOT NULL,              -- the hash of the token in the browser's cookie
	last_team UUID,                  -- the team that was viewed last, NULL for none
	address TEXT NOT NULL,           -- the address of the client that signed in
	user_agent TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	used_at BIGINT NOT NULL,         -- up to a minute behind
	proved_at BIGINT NOT NULL        -- when the user last entered a password or used a passkey
);

CREATE UNIQUE INDEX user_sessions_hash ON user_sessions (hash);
CREATE INDEX user_sessions_user ON user_sessions (user_id, id);
CREATE INDEX user_sessions_used ON user_sessions (used_at);

-- One-time tokens: links in emails, sign-ins that wait for a second factor, and marks of used challenges.
CREATE TABLE user_tokens (
	hash TEXT PRIMARY KEY,
	kind TEXT NOT NULL,              -- setup, reset, factor or used
	user_id UUID NOT NULL,           -- all zeros for none
	tries BIGINT NOT NULL,           -- the number of wrong codes so far
	expires_at BIGINT NOT NULL
);

CREATE INDEX user_tokens_user ON user_tokens (kind, user_id);
CREATE INDEX user_tokens_expires ON user_tokens (expires_at);

-- Counters of attempts to sign in, for each account and for each network of clients. A counter restarts an hour after
-- its first attempt.
CREATE TABLE user_attempts (
	name TEXT PRIMARY KEY,           -- the counted action, with the account (its id or hashed address) or the network
	since BIGINT NOT NULL,
	n BIGINT NOT NULL
);

CREATE INDEX user_attempts_since ON user_attempts (since);

-- The members of each team, and their roles.
CREATE TABLE memberships (
	team_id UUID NOT NULL,
	user_id UUID NOT NULL,
	role TEXT NOT NULL,              -- owner, admin, member or viewer
	created_at BIGINT NOT NULL,
	PRIMARY KEY (team_id, user_id)
);

CREATE INDEX memberships_user ON memberships (user_id, team_id);

-- Invitations to join a team. Accepted and revoked ones stay for a while, because they count toward the limit of
-- invitations.
CREATE TABLE invitations (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	email TEXT NOT NULL,             -- in lower case
	role TEXT NOT NULL,
	token_hash TEXT NOT NULL,        -- the hash of the token in the newest link
	state TEXT NOT NULL,             -- open, accepted or revoked
	actor_kind TEXT NOT NULL,        -- the kind of the actor that invited
	actor_id UUID,                   -- NULL for the system
	sends BIGINT NOT NULL,           -- how many times the invitation was sent
	created_at BIGINT NOT NULL,
	sent_at BIGINT NOT NULL,         -- when it was last sent
	expires_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX invitations_token ON invitations (token_hash);
-- An address has one open invitation to a team.
CREATE UNIQUE INDEX invitations_email ON invitations (team_id, email) WHERE state = 'open';
CREATE INDEX invitations_state ON invitations (team_id, state, id);
CREATE INDEX invitations_sent ON invitations (team_id, sent_at);
CREATE INDEX invitations_expires ON invitations (expires_at);

-- Actions of users, API keys, connected apps and the system. An entry never changes.
CREATE TABLE audit_log (
	id UUID PRIMARY KEY,
	team_id UUID,                    -- NULL for what concerns no team, such as a failed sign-in
	actor_kind TEXT NOT NULL,        -- key, user, grant or system; '' if the actor is unknown
	actor_id UUID,                   -- NULL for none
	actor_name TEXT NOT NULL,        -- the name that the actor had at that time
	action TEXT NOT NULL,            -- such as domain.created
	target TEXT NOT NULL,            -- the id of the object that the action changed, '' for none
	detail TEXT NOT NULL,
	address TEXT NOT NULL,           -- the client's network address
	user_agent TEXT NOT NULL,
	request_id TEXT NOT NULL,
	at BIGINT NOT NULL
);

CREATE INDEX audit_log_team ON audit_log (team_id, id);
CREATE INDEX audit_log_actor ON audit_log (team_id, actor_id, id);
CREATE INDEX audit_log_action ON audit_log (team_id, action, id);

-- Apps that can ask users for access to a team (RFC 7591). Clients belong to no team.
CREATE TABLE oauth_clients (
	id UUID PRIMARY KEY,
	name TEXT NOT NULL,
	redirect_uris TEXT NOT NULL,     -- separated by spaces; no URI contains a space
	scope TEXT NOT NULL,             -- the scopes for which the client may ask
	client_uri TEXT NOT NULL,
	logo_uri TEXT NOT NULL,
	address TEXT NOT NULL,           -- the address from which it was registered; '' for the built-in client
	created_at BIGINT NOT NULL,
	used_at BIGINT NOT NULL          -- when a user first consented to a request of the client; 0 before
);

CREATE INDEX oauth_clients_address ON oauth_clients (address, created_at) WHERE address <> '';
CREATE INDEX oauth_clients_unused ON oauth_clients (created_at, id) WHERE used_at = 0;

-- The official command-line program does not register.
INSERT INTO oauth_clients (id, name, redirect_uris, scope, client_uri, logo_uri, address, created_at, used_at)
	VALUES ('7136aa0b-625c-4c9c-8820-e9784c8eb141', 'Resend CLI', 'http://127.0.0.1/oauth/callback', 'full_access',
	'', '', '', 1763856000000000, 1763856000000000);

-- The keys that sign access tokens, with ES256. A key is published before it is first used and after it was last used.
CREATE TABLE oauth_keys (
	id UUID PRIMARY KEY,             -- the kid of tokens
	private BYTEA NOT NULL,          -- PKCS #8, encrypted by the keyring
	signs_at BIGINT NOT NULL         -- when the key may first sign; the newest key whose time has come signs
);

-- Authorization codes: a user consented, and the client has not exchanged the code yet. Only a hash of the code is
-- stored.
CREATE TABLE oauth_codes (
	hash TEXT PRIMARY KEY,
	grant_id UUID NOT NULL,          -- the id of the grant that is made when the code is exchanged
	team_id UUID NOT NULL,
	user_id UUID,                    -- the user who consented, NULL if it was an API key
	client_id UUID NOT NULL,
	scope TEXT NOT NULL,
	resource TEXT NOT NULL,
	redirect_uri TEXT NOT NULL,
	challenge TEXT NOT NULL,         -- the PKCE challenge, by S256 (RFC 7636)
	expires_at BIGINT NOT NULL,
	used_at BIGINT NOT NULL,         -- 0 before
	-- The limits of the grant (see oauth_grants).
	recipients_per_email BIGINT NOT NULL DEFAULT 0,
	emails_a_day BIGINT NOT NULL DEFAULT 0,
	approval BOOLEAN NOT NULL DEFAULT false,
	key_id UUID                      -- the API key that consented, in development; NULL if a user consented
);

CREATE INDEX oauth_codes_team ON oauth_codes (team_id, user_id, hash);
CREATE INDEX oauth_codes_key ON oauth_codes (team_id, key_id) WHERE key_id IS NOT NULL;
CREATE INDEX oauth_codes_expiry ON oauth_codes (expires_at, hash);

-- The access that users gave to clients. Refresh tokens have no rows: each is signed and contains its generation.
CREATE TABLE oauth_grants (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	user_id UUID,                    -- the user who consented, NULL if it was an API key
	client_id UUID NOT NULL,
	scope TEXT NOT NULL,
	resource TEXT NOT NULL,          -- the resource of the tokens (RFC 8707); '' for all
	created_at BIGINT NOT NULL,
	used_at BIGINT NOT NULL,         -- when the grant was last used, up to a few minutes behind
	expires_at BIGINT NOT NULL,      -- when the newest refresh token expires
	generation BIGINT NOT NULL,      -- the generation of the newest refresh token, counted from 1
	retried BIGINT NOT NULL,         -- the generation that was exchanged for the newest one; 0 before the first exchange
	rotated_at BIGINT NOT NULL,      -- when that generation was first exchanged
	revoked_at BIGINT NOT NULL,      -- 0 while the grant is active
	revoked_reason TEXT NOT NULL,    -- '' while the grant is active
	recipients_per_email BIGINT NOT NULL DEFAULT 0, -- the maximum number of addresses of one email, 0 for no limit
	emails_a_day BIGINT NOT NULL DEFAULT 0, -- the maximum number of emails in a day (UTC), 0 for no limit
	approval BOOLEAN NOT NULL DEFAULT false, -- whether a user must approve each email
	-- The API key that consented, in development; NULL if a user consented. The grant ends when the key is deleted.
	key_id UUID,
	-- The time since which a grant has a daily limit, 0 if it has had the limit from the start. An email that was
	-- scheduled earlier counts on the day on which it is sent.
	daily_since BIGINT NOT NULL DEFAULT 0
);

CREATE INDEX oauth_grants_team ON oauth_grants (team_id, id);
CREATE INDEX oauth_grants_active ON oauth_grants (team_id, user_id, id) WHERE revoked_reason = '';
CREATE INDEX oauth_grants_key ON oauth_grants (team_id, key_id) WHERE key_id IS NOT NULL;
CREATE INDEX oauth_grants_expiry ON oauth_grants (expires_at, id) WHERE revoked_at = 0;

-- The number of emails that each grant sent on its latest day, counted by recipient.
CREATE TABLE grant_volumes (
	team_id UUID NOT NULL,
	grant_id UUID NOT NULL,
	day BIGINT NOT NULL,             -- days since 1970 in UTC
	used BIGINT NOT NULL,
	PRIMARY KEY (team_id, grant_id)
);

-- Processes that hold jobs, for noticing the death of one.
CREATE TABLE nodes (
	id UUID PRIMARY KEY,
	beat BIGINT NOT NULL,
	started_at BIGINT NOT NULL
);

-- Work to be done. run_at is also the lease: a claim moves it into the future. The columns that claims update stand
-- together: the log of an update has what differs between the first and the last difference of the two rows.
CREATE TABLE jobs (
	created_at BIGINT NOT NULL,
	id UUID PRIMARY KEY,
	kind TEXT NOT NULL,
	lane TEXT NOT NULL,
	team_id UUID,                    -- NULL when the job is of no team
	dedupe TEXT NOT NULL,            -- '' when any number of the same may wait
	payload TEXT NOT NULL,
	-- set_at is when run_at was set, by the clock of that moment, or 0 when run_at is a time that somebody chose. A job
	-- whose wait began in the future tells that the clock has stepped back since.
	set_at BIGINT NOT NULL DEFAULT 0,
	run_at BIGINT NOT NULL,
	-- attempt is the fence and nothing else: it only grows. Errors of ours in a row are failures, tries that came to an
	-- end are tries.
	attempt INTEGER NOT NULL,
	holder UUID,                     -- the node that has it in hand, NULL when none
	failures INTEGER NOT NULL DEFAULT 0,
	tries INTEGER NOT NULL DEFAULT 0,
	parked BOOLEAN NOT NULL,         -- gave up; waits for an operator
	last_error TEXT NOT NULL,
	-- The event that a job waits for instead of a time, such as the end of a broadcast's pause; '' for none. While a job
	-- waits, its run_at never comes, and set_at is the time at which the wait began.
	held TEXT NOT NULL DEFAULT ''
);

CREATE UNIQUE INDEX jobs_dedupe ON jobs (kind, dedupe) WHERE dedupe <> '';
CREATE INDEX jobs_parked ON jobs (id) WHERE parked;
CREATE INDEX jobs_held ON jobs (held, id) WHERE held <> '';
CREATE INDEX jobs_due ON jobs (kind, lane, run_at) WHERE holder IS NULL;
-- The jobs that a node holds, which become due when the node stops or dies.
CREATE INDEX jobs_holder ON jobs (holder) WHERE holder IS NOT NULL;

-- The share of each node in a limit of all nodes. Only the node writes its row, which is deleted with the node.
CREATE TABLE quotas (
	key TEXT NOT NULL,               -- the limit: its kind and name
	node UUID NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
	want DOUBLE PRECISION NOT NULL,  -- what the node could use
	used DOUBLE PRECISION NOT NULL,  -- what it cannot give back at once
	held DOUBLE PRECISION NOT NULL,  -- the most that it uses until it writes otherwise
	PRIMARY KEY (key, node)
);

CREATE INDEX quotas_node ON quotas (node);

CREATE TABLE idempotency_keys (
	team_id UUID NOT NULL,
	scope TEXT NOT NULL,             -- method and path
	idempotency_key TEXT NOT NULL,
	payload_hash TEXT NOT NULL,
	response TEXT NOT NULL,          -- JSON: what was answered
	created_at BIGINT NOT NULL,
	PRIMARY KEY (team_id, scope, idempotency_key)
);

CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- Requests to the API. The key begins with the team and ends with the time that an id begins with: one index serves
-- the list, the single entry and the sweep.
CREATE TABLE request_logs (
	team_id UUID NOT NULL,
	id UUID NOT NULL,
	actor_id UUID,                   -- NULL for none
	request_id TEXT NOT NULL,        -- what the answer's x-request-id said
	method TEXT NOT NULL,
	endpoint TEXT NOT NULL,          -- the path, without host and query
	status BIGINT NOT NULL,
	user_agent TEXT NOT NULL,        -- '' when none was sent
	duration BIGINT NOT NULL,        -- microseconds
	request_body TEXT NOT NULL,      -- JSON without secrets, '' when none
	response_body TEXT NOT NULL,     -- the same
	created_at BIGINT NOT NULL,
	actor_kind TEXT NOT NULL DEFAULT 'key',
	-- The ids of the emails whose stored bodies a logged request refers to, in the order of the request's emails,
	-- separated by commas: empty for an email that has none. '' if the request is stored with all its text.
	email_ids TEXT NOT NULL DEFAULT '',
	PRIMARY KEY (team_id, id)
) PARTITION BY RANGE (id);

CREATE TABLE request_logs_default PARTITION OF request_logs DEFAULT;

-- As for emails, rows are moved out of the default partition in the order of their ids.
CREATE INDEX request_logs_default_id ON request_logs_default (id);

-- Domains that teams send from and receive at. Their DNS records follow from the row and the configuration; what is
-- stored of a record is only what the last look-ups found.
CREATE TABLE domains (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,           -- a reserved id for the sandbox domains
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
-- How many domains of a team are not verified is counted for each that is added.
CREATE INDEX domains_unproved ON domains (team_id) WHERE status IN ('not_started', 'pending', 'failed');

-- The names that domains have in DNS and that their teams have proved to be theirs: each belongs to one team.
CREATE TABLE domain_names (
	name TEXT PRIMARY KEY,           -- ASCII, lower case
	domain_id UUID NOT NULL REFERENCES domains (id) ON DELETE CASCADE,
	team_id UUID NOT NULL,
	host BOOLEAN NOT NULL            -- of return paths or tracked links; otherwise the domain's own name
);

CREATE INDEX domain_names_domain ON domain_names (domain_id);

CREATE TABLE domain_claims (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	domain_id UUID NOT NULL,         -- the placeholder
	name TEXT NOT NULL,
	token TEXT NOT NULL,
	request TEXT NOT NULL,           -- JSON: what was asked, to tell a repetition from another claim
	status TEXT NOT NULL,
	blocked_reason TEXT NOT NULL,
	failure_reason TEXT NOT NULL,
	warned_at BIGINT NOT NULL,       -- when the grace period of the owner began
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	-- A claim that was proven in time is not ended by its expiry, and the owner is told a day before the end.
	proven_at BIGINT NOT NULL DEFAULT 0,
	reminded_at BIGINT NOT NULL DEFAULT 0
);

CREATE INDEX domain_claims_domain ON domain_claims (domain_id);
CREATE INDEX domain_claims_team ON domain_claims (team_id, name);
-- For each claim, earlier claims of the same name are looked up.
CREATE INDEX domain_claims_name ON domain_claims (name, created_at);

-- Text that many emails share: that of a broadcast, or of a version of a template. A row never changes. Large columns
-- come last, because most statements do not read them.
CREATE TABLE contents (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	kept BOOLEAN NOT NULL,           -- somebody may send by it again; otherwise it goes when the last email of it does
	used_at BIGINT NOT NULL,         -- when an email with it was last accepted, up to an hour behind
	created_at BIGINT NOT NULL,
	parts BIGINT NOT NULL,           -- bits: 1 html was given, 2 text was given
	sender TEXT NOT NULL,            -- From; this and the following columns can have placeholders
	subject TEXT NOT NULL,
	reply_to TEXT NOT NULL,          -- JSON, '' when none
	headers TEXT NOT NULL,           -- JSON, '' when none
	html TEXT NOT NULL,
	body_text TEXT NOT NULL,
	-- No email with a smaller id has the content. An email with it may have been accepted up to an hour after used_at.
	from_id UUID NOT NULL
);

CREATE INDEX contents_team ON contents (team_id, id);
CREATE INDEX contents_unused ON contents (team_id, used_at, id, from_id) WHERE NOT kept;

-- On PostgreSQL, an email's own body is part of its row: PostgreSQL keeps long texts apart, and reads them only for
-- statements that name them. On SQLite, a list of emails would read all of the bodies' pages, so they stay in their
-- table. Columns of a fixed size come first, because PostgreSQL aligns them. The columns that delivery updates come
-- last: the log of an update has what differs between the first and the last difference of the two rows. The new row
-- is written to the same page, without new entries in indexes, if the page has room, which the fillfactor leaves.
CREATE TABLE emails (
	created_at BIGINT NOT NULL,
	scheduled_at BIGINT,             -- NULL for none
	parts SMALLINT,                  -- bits: 1 html was given, 2 text was given, ...; NULL without a body of its own
	actor_kind SMALLINT NOT NULL,    -- of the actor (see teams.ActorKinds)
	id UUID NOT NULL,
	team_id UUID NOT NULL,
	actor_id UUID,                   -- NULL for the system
	domain_id UUID,                  -- of the sender, NULL for none
	message_id TEXT NOT NULL,
	sender TEXT NOT NULL,            -- From as the caller wrote it
	subject TEXT NOT NULL,
	recipient TEXT NOT NULL DEFAULT '', -- envelope address of the only recipient
	recipients TEXT NOT NULL,        -- JSON: to, cc, bcc, reply_to as the caller wrote them; '' if recipient says the same
	tags TEXT NOT NULL,              -- JSON, '' when none
	topic_id UUID,
	template_id UUID,
	broadcast_id UUID,
	-- The contact to whom a broadcast sent the email, NULL for other emails. Events of the email count for the contact.
	contact_id UUID,
	content_id UUID,                 -- NULL if the email has only a body of its own
	-- JSON: the values of the content's placeholders in this email, '' for none.
	variables TEXT NOT NULL DEFAULT '',
	headers TEXT,                    -- JSON, '' when none
	html TEXT,
	body_text TEXT,
	updated_at BIGINT,               -- when the state of the only recipient changed; NULL while it has not
	rank SMALLINT NOT NULL,          -- of last_event; it only rises
	last_event SMALLINT NOT NULL,    -- the state (see emails.states)
	PRIMARY KEY (team_id, id)
) PARTITION BY RANGE (id);

-- The tables of emails are divided by the time in their ids (see internal/platform/partitions). The default partitions
-- take the rows for which there is no other partition.
CREATE TABLE emails_default PARTITION OF emails DEFAULT WITH (fillfactor = 80);

-- Statements that read the emails of all teams in a range of time use this index. It has one entry for many pages,
-- because the emails of a range are next to each other.
CREATE INDEX emails_range ON emails USING BRIN (id);
-- The default partition is normally empty. Its rows are moved in the order of their ids.
CREATE INDEX emails_default_id ON emails_default (id);

-- Statements that read or delete bodies are the same on both engines.
CREATE VIEW email_bodies AS SELECT id AS email_id, team_id, parts, headers, html, body_text FROM emails
	WHERE parts IS NOT NULL;

CREATE RULE email_bodies_delete AS ON DELETE TO email_bodies DO INSTEAD UPDATE emails SET parts = NULL, headers = NULL,
	html = NULL, body_text = NULL WHERE team_id = OLD.team_id AND id = OLD.email_id;

-- SQLite keeps rows with a text as their key in two trees, of which the second has the key again: a quarter of these
-- small tables, and a second place to write for each recipient. They are copied once.
CREATE TABLE email_recipients (
	updated_at BIGINT NOT NULL,
	email_id UUID NOT NULL,
	team_id UUID NOT NULL,
	position SMALLINT NOT NULL,
	rank SMALLINT NOT NULL,
	kind SMALLINT NOT NULL,          -- see emails.recipientKinds
	state SMALLINT NOT NULL,         -- see emails.states
	address TEXT NOT NULL,           -- as it stands in the envelope
	domain TEXT NOT NULL,            -- its destination
	PRIMARY KEY (email_id, "position")
) PARTITION BY RANGE (email_id);

CREATE TABLE email_recipients_default PARTITION OF email_recipients DEFAULT;

CREATE TABLE email_attachments (
	email_id UUID NOT NULL,
	id UUID NOT NULL,
	team_id UUID NOT NULL,
	filename TEXT NOT NULL,
	content_type TEXT NOT NULL,
	content_id TEXT NOT NULL,
	size BIGINT NOT NULL,
	blob_key TEXT NOT NULL,          -- '' until the path is fetched
	path TEXT NOT NULL,
	PRIMARY KEY (email_id, id)
) PARTITION BY RANGE (email_id);

CREATE TABLE email_attachments_default PARTITION OF email_attachments DEFAULT;

CREATE INDEX email_attachments_blob ON email_attachments (blob_key) WHERE blob_key <> '';

-- Small messages that callers composed, as they are sent: many of them share one commit, where each blob would cost
-- an fsync of its own.
CREATE TABLE email_messages (
	email_id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	content BYTEA NOT NULL,
	-- Blobs have keys that are made when they are written, before there is an email: the rows alone say whose they are.
	blob_key TEXT NOT NULL DEFAULT ''
) PARTITION BY RANGE (email_id);

CREATE TABLE email_messages_default PARTITION OF email_messages DEFAULT;

CREATE INDEX email_messages_blob ON email_messages (blob_key) WHERE blob_key <> '';

-- The events of emails. An event of one recipient names the recipient. The key begins with the email, because events
-- are always looked up by their email, and each further index would cost a write for each event.
CREATE TABLE email_events (
	created_at BIGINT NOT NULL,
	started_at BIGINT,               -- of the try
	duration BIGINT,                 -- microseconds
	next_at BIGINT,                  -- when it is tried again; NULL when it is not
	type SMALLINT NOT NULL,          -- see events.Types
	outcome SMALLINT,                -- see events.outcomes; NULL without a try
	email_id UUID NOT NULL,
	id UUID NOT NULL,
	team_id UUID NOT NULL,
	domain_id UUID,                  -- NULL for none
	broadcast_id UUID,
	detail TEXT NOT NULL,            -- a bounce's type in lower case
	recipient TEXT NOT NULL,         -- '' when it is of the whole email
	destination TEXT,                -- NULL when it is the domain of the event's recipient
	recipients TEXT,                 -- JSON list; NULL when it is the event's recipient
	host TEXT,                       -- name and address spoken to, '' when none was reached
	tls TEXT,                        -- version, cipher and whether the certificate was verified; '' when in the clear
	data TEXT NOT NULL,              -- JSON, '' when none
	reply TEXT,                      -- the reply that decided, or the error
	conversation TEXT,
	PRIMARY KEY (email_id, id)
) PARTITION BY RANGE (email_id);

CREATE TABLE email_events_default PARTITION OF email_events DEFAULT;

CREATE INDEX email_events_time ON email_events (team_id, created_at);
-- For each open (6) or click (7), earlier ones of the same recipient are looked up, and an email may have very many. Other
-- events are not in this index.
CREATE INDEX email_events_hits ON email_events (email_id, type, recipient, detail, created_at, id)
	WHERE type IN (6, 7);

-- Addresses to which a team sends no emails.
CREATE TABLE suppressions (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	address TEXT NOT NULL,           -- lower case
	origin TEXT NOT NULL,            -- bounce, complaint or manual
	source_id UUID,                  -- the email that caused it, NULL for none
	created_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX suppressions_address ON suppressions (team_id, address);
CREATE INDEX suppressions_team ON suppressions (team_id, id);
-- Lists of suppressions with one origin, which may be few of a team's suppressions.
CREATE INDEX suppressions_origin ON suppressions (team_id, origin, id);

-- Emails for which a user's approval was requested. A decided row stays for a while.
CREATE TABLE approvals (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	actor_kind TEXT NOT NULL,        -- the kind of the actor that requested the approval: key, user or grant
	actor_id UUID NOT NULL,
	actor_name TEXT NOT NULL,        -- the name that the actor had at that time
	request TEXT NOT NULL,           -- the email in JSON, with its files; '' once it is decided
	sender TEXT NOT NULL,
	recipients BIGINT NOT NULL,      -- the number of addresses in To, Cc and Bcc together
	subject TEXT NOT NULL,
	state TEXT NOT NULL,             -- pending at first; approved, rejected, expired or failed at the end
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	decided_at BIGINT NOT NULL,      -- 0 while it is pending
	decided_by_kind TEXT NOT NULL,   -- '' if nobody decided
	decided_by_id UUID,              -- NULL for none
	reason TEXT NOT NULL,            -- why the approval was rejected, or why the email could not be sent
	email_id UUID                    -- the email that was sent, NULL for none
);

CREATE INDEX approvals_team ON approvals (team_id, id);
CREATE INDEX approvals_state ON approvals (team_id, state, id);
CREATE INDEX approvals_actor ON approvals (team_id, actor_id, created_at);
CREATE INDEX approvals_pending ON approvals (expires_at, id) WHERE state = 'pending';
CREATE INDEX approvals_decided ON approvals (decided_at, id) WHERE decided_at > 0;
CREATE INDEX approvals_own ON approvals (team_id, actor_id, id);
CREATE INDEX approvals_own_state ON approvals (team_id, actor_id, state, id);
-- A scheduled email is sent only if its approval is found.
CREATE INDEX approvals_email ON approvals (email_id) WHERE email_id IS NOT NULL;

-- How far the bodies of a team's emails are deleted, and the emails before that point that were not settled then.
CREATE TABLE email_bodies_until (
	team_id UUID PRIMARY KEY,
	email_id UUID NOT NULL
);

CREATE TABLE email_bodies_left (
	team_id UUID NOT NULL,
	email_id UUID NOT NULL,
	PRIMARY KEY (team_id, email_id)
);

-- How often what happened to emails, by quarter hours since 1970, counted from email_events and received_emails by
-- internal/sending/metrics.
CREATE TABLE email_counts (
	team_id UUID NOT NULL,
	slot BIGINT NOT NULL,            -- the quarter hour
	domain_id UUID NOT NULL,         -- all zeros for none
	broadcast_id UUID NOT NULL,
	type SMALLINT NOT NULL,
	detail TEXT NOT NULL,
	events BIGINT NOT NULL,
	recipients BIGINT NOT NULL,
	-- Of opens and clicks, the recipients that did it for the first time as people: email_events.detail is 'machine'
	-- otherwise.
	people BIGINT NOT NULL DEFAULT 0,
	PRIMARY KEY (team_id, slot, domain_id, broadcast_id, type, detail)
);

-- The counts of deleted events. They are part of the counters in email_counts, also after these are corrected.
CREATE TABLE email_counts_kept (
	team_id UUID NOT NULL,
	slot BIGINT NOT NULL,
	domain_id UUID NOT NULL,         -- all zeros for none
	broadcast_id UUID NOT NULL,
	type SMALLINT NOT NULL,
	detail TEXT NOT NULL,
	events BIGINT NOT NULL,
	recipients BIGINT NOT NULL,
	people BIGINT NOT NULL DEFAULT 0,
	PRIMARY KEY (team_id, slot, domain_id, broadcast_id, type, detail)
);

-- Up to when a team's events are counted. The version changes with every change of its counts.
CREATE TABLE email_counts_until (
	team_id UUID PRIMARY KEY,
	until BIGINT NOT NULL,
	version BIGINT NOT NULL
);

-- The first quarter hour whose counts are not final (see internal/sending/metrics), in one row, or none.
CREATE TABLE email_counts_final (
	slot BIGINT PRIMARY KEY
);

-- Events that came when their time had perhaps been counted.
CREATE TABLE email_counts_late (
	team_id UUID NOT NULL,
	id UUID NOT NULL,
	email_id UUID,                   -- NULL when the counts of no other time can depend on it
	at BIGINT NOT NULL,
	PRIMARY KEY (team_id, id)
);

-- Templates. Each version of a template has a content of its own. Versions never change.
CREATE TABLE templates (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	name TEXT NOT NULL,
	alias TEXT NOT NULL,             -- '' for none
	current_id UUID NOT NULL,        -- the newest version
	published_id UUID,               -- the version that emails are sent with, NULL for none
	versions BIGINT NOT NULL,        -- the number of the newest version
	revision BIGINT NOT NULL,        -- greater after each change
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	published_at BIGINT NOT NULL,    -- when the published version was published, 0 for never
	deleted BOOLEAN NOT NULL         -- the row remains until its versions are deleted
);

CREATE INDEX templates_team ON templates (team_id, id);
CREATE UNIQUE INDEX templates_alias ON templates (team_id, alias) WHERE alias <> '';
CREATE INDEX templates_deleted ON templates (id) WHERE deleted;
-- Templates whose newest version is not published, which the page of connected apps offers to publish.
CREATE INDEX templates_unpublished ON templates (team_id, id)
	WHERE NOT deleted AND current_id IS DISTINCT FROM published_id;

CREATE TABLE template_versions (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	template_id UUID NOT NULL,
	number BIGINT NOT NULL,          -- from 1, without gaps
	content_id UUID NOT NULL,
	created_at BIGINT NOT NULL,
	published_at BIGINT NOT NULL,    -- when it was published last, 0 for never
	variables TEXT NOT NULL          -- JSON, '' when none
);

CREATE UNIQUE INDEX template_versions_number ON template_versions (team_id, template_id, number);
CREATE INDEX template_versions_list ON template_versions (team_id, template_id, id);

-- The contacts of teams. Each address is one contact. source_id is the email whose unsubscribe link last changed the
-- column unsubscribed, NULL if something else changed it.
CREATE TABLE contacts (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	address TEXT NOT NULL,           -- lower case
	first_name TEXT NOT NULL,
	last_name TEXT NOT NULL,
	unsubscribed BOOLEAN NOT NULL,
	source_id UUID,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX contacts_address ON contacts (team_id, address);
CREATE INDEX contacts_team ON contacts (team_id, id);
-- Filters find unsubscribed contacts without reading all contacts.
CREATE INDEX contacts_unsubscribed ON contacts (team_id, id) WHERE unsubscribed;

-- The properties that a team defines for its contacts. The values of a deleted property are deleted in steps, and then
-- its row.
CREATE TABLE contact_properties (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	name TEXT NOT NULL,              -- the key, as contacts and placeholders name it
	type TEXT NOT NULL,              -- string or number
	fallback TEXT NOT NULL,          -- of contacts without a value; a number is written in decimal
	has_fallback BOOLEAN NOT NULL,
	created_at BIGINT NOT NULL,
	deleted_at BIGINT NOT NULL       -- 0 when it is not deleted
);

CREATE UNIQUE INDEX contact_properties_name ON contact_properties (team_id, name) WHERE deleted_at = 0;
CREATE INDEX contact_properties_team ON contact_properties (team_id, id);
CREATE INDEX contact_properties_deleted ON contact_properties (id) WHERE deleted_at <> 0;

-- Values of string properties, and of number properties. Filters use the second index of each.
CREATE TABLE contact_texts (
	team_id UUID NOT NULL,
	contact_id UUID NOT NULL,
	property_id UUID NOT NULL,
	value TEXT NOT NULL,
	head TEXT NOT NULL GENERATED ALWAYS AS (SUBSTR(value, 1, 500)) STORED,
	PRIMARY KEY (contact_id, property_id)
);

CREATE INDEX contact_texts_value ON contact_texts (property_id, head, contact_id);

CREATE TABLE contact_numbers (
	team_id UUID NOT NULL,
	contact_id UUID NOT NULL,
	property_id UUID NOT NULL,
	value DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (contact_id, property_id)
);

CREATE INDEX contact_numbers_value ON contact_numbers (property_id, value, contact_id);

-- Topics that contacts subscribe to. The subscriptions of a deleted topic are deleted in steps, and then its row.
CREATE TABLE topics (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	name TEXT NOT NULL,
	description TEXT NOT NULL,
	default_subscription TEXT NOT NULL, -- opt_in or opt_out: for contacts without a subscription of their own
	visibility TEXT NOT NULL,        -- public or private
	created_at BIGINT NOT NULL,
	deleted_at BIGINT NOT NULL       -- 0 when it is not deleted
);

CREATE INDEX topics_team ON topics (team_id, id);
CREATE INDEX topics_deleted ON topics (id) WHERE deleted_at <> 0;

-- The subscriptions of contacts to topics, as the contact or the team chose. source_id is the email whose link the
-- contact used, NULL for none.
CREATE TABLE contact_topics (
	team_id UUID NOT NULL,
	contact_id UUID NOT NULL,
	topic_id UUID NOT NULL,
	subscription TEXT NOT NULL,      -- opt_in or opt_out
	source_id UUID,
	updated_at BIGINT NOT NULL,
	PRIMARY KEY (team_id, contact_id, topic_id)
);

-- Filters find the subscriptions to a topic in the index alone.
CREATE INDEX contact_topics_choice ON contact_topics (topic_id, contact_id, subscription);

-- Named sets of contacts: those that were added, or those that a filter finds. The memberships of a deleted segment
-- are deleted in steps, and then its row.
CREATE TABLE segments (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	name TEXT NOT NULL,
	filter TEXT NOT NULL,            -- JSON, '' when contacts are added by hand
	created_at BIGINT NOT NULL,
	deleted_at BIGINT NOT NULL       -- 0 when it is not deleted
);

CREATE INDEX segments_team ON segments (team_id, id);
CREATE INDEX segments_deleted ON segments (id) WHERE deleted_at <> 0;

CREATE TABLE contact_segments (
	team_id UUID NOT NULL,
	segment_id UUID NOT NULL,
	contact_id UUID NOT NULL,
	created_at BIGINT NOT NULL,
	PRIMARY KEY (segment_id, contact_id)
);

CREATE INDEX contact_segments_contact ON contact_segments (contact_id, segment_id);

-- How many contacts large segments had when they were counted last. segment_id is 16 zeros for all of a team's
-- contacts.
CREATE TABLE segment_counts (
	segment_id UUID NOT NULL,
	team_id UUID NOT NULL,
	contacts BIGINT NOT NULL,
	counted_at BIGINT NOT NULL,
	PRIMARY KEY (team_id, segment_id)
);

-- The count of a deleted segment, which the sweep deletes.
CREATE INDEX segment_counts_segment ON segment_counts (segment_id);

-- How a contact answers what it is sent. A contact that was never mailed and did nothing has no row.
CREATE TABLE contact_engagement (
	mailed_at BIGINT,                -- NULL when never, as the other times
	opened_at BIGINT,
	clicked_at BIGINT,
	contact_id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	mailed INTEGER NOT NULL,         -- emails of broadcasts and automations
	opened INTEGER NOT NULL,         -- opens by people
	clicked INTEGER NOT NULL
);

-- Filters find who opened or followed something, and when. They are written with opens and clicks, and not with each
-- email, as one of mailed_at would be.
CREATE INDEX contact_engagement_opened ON contact_engagement (team_id, opened_at, contact_id) WHERE opened_at IS NOT NULL;
CREATE INDEX contact_engagement_clicked ON contact_engagement (team_id, clicked_at, contact_id) WHERE clicked_at IS NOT NULL;

-- Files of contacts that are imported. One of a team is in progress at a time, in the order of ids. The counts, the
-- position and the rows that failed are written together with the contacts of a batch.
CREATE TABLE contact_imports (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	status TEXT NOT NULL,            -- queued, in_progress, completed or failed
	filename TEXT NOT NULL,
	size BIGINT NOT NULL,            -- of the file, in octets
	plan TEXT NOT NULL,              -- JSON: how the file is written, its columns, segments and topics
	position BIGINT NOT NULL,        -- the octet of the file from which to go on
	lines BIGINT NOT NULL,           -- of the file before the position
	created BIGINT NOT NULL,         -- rows by what became of them
	updated BIGINT NOT NULL,
	skipped BIGINT NOT NULL,
	failed BIGINT NOT NULL,
	kept BIGINT NOT NULL,            -- failed rows that contact_import_failures has
	reason TEXT NOT NULL,            -- why it failed
	created_at BIGINT NOT NULL,
	started_at BIGINT NOT NULL,      -- 0 when it has not been
	finished_at BIGINT NOT NULL
);

CREATE INDEX contact_imports_team ON contact_imports (team_id, id);
CREATE INDEX contact_imports_status ON contact_imports (team_id, status, id);
-- Imports are deleted some time after they ended, with the rows that failed.
CREATE INDEX contact_imports_ended ON contact_imports (finished_at) WHERE finished_at > 0;

CREATE TABLE contact_import_failures (
	import_id UUID NOT NULL,
	line BIGINT NOT NULL,            -- of the file, on which the row begins
	team_id UUID NOT NULL,
	reason TEXT NOT NULL,
	fields TEXT NOT NULL,            -- JSON, '' when the row was too long to be kept
	PRIMARY KEY (import_id, line)
);

-- Emails to an audience. The columns from position on are the progress of sending; the transaction that inserts the
-- emails of a page of recipients updates them.
CREATE TABLE broadcasts (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	name TEXT NOT NULL,
	segment_id UUID NOT NULL,
	topic_id UUID,                   -- NULL for none
	preview_text TEXT NOT NULL,
	content_id UUID NOT NULL,        -- the broadcast's own text, before variants change it
	options TEXT NOT NULL,           -- JSON: pace, A/B test, limits
	status TEXT NOT NULL,            -- draft, scheduled, queued, paused, canceled, sent or failed
	reason TEXT NOT NULL,            -- why it is paused or failed, '' otherwise
	guarded BOOLEAN NOT NULL,        -- it pauses when bounces or complaints pass a limit
	actor_kind TEXT NOT NULL,        -- the kind of the actor that sent it, '' before
	actor_id UUID,                   -- NULL for none
	revision BIGINT NOT NULL,        -- counts the changes of a draft
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	scheduled_at BIGINT NOT NULL,
	started_at BIGINT NOT NULL,      -- contacts that were added later are not mailed
	sent_at BIGINT NOT NULL,
	position UUID,                   -- the contact up to which the audience was walked
	phase TEXT NOT NULL,             -- all, test, wait, rest or settle; '' before it starts
	winner BIGINT NOT NULL,          -- the variant that won, -1 while none has
	next_at BIGINT NOT NULL,         -- when the next page is due by the pace, or the winner is chosen
	entered BIGINT NOT NULL,         -- contacts that got an email
	left_out BIGINT NOT NULL,        -- contacts that got none
	-- When the broadcast was paused, in microseconds since 1970, or 0. A pause does not count toward the time after
	-- which the winner of an A/B test is chosen.
	paused_at BIGINT NOT NULL DEFAULT 0,
	-- Whether the winner of the A/B test differed significantly from the other variants: 1 or 0, or -1 if this is not
	-- known because no winner was chosen or a person chose it.
	significant INTEGER NOT NULL DEFAULT '-1'::integer
);

CREATE INDEX broadcasts_team ON broadcasts (team_id, id);
-- The broadcasts that are being sent or are paused, which a suspension, a deleted key or a change to a domain may
-- stop or continue.
CREATE INDEX broadcasts_active ON broadcasts (team_id, id) WHERE status IN ('queued', 'paused');
-- The broadcasts that have started, which the usage of a team counts.
CREATE INDEX broadcasts_started ON broadcasts (team_id, id) WHERE started_at > 0;

-- The variants of a broadcast, with the fields that they override. A broadcast without an A/B test has only the variant
-- 0, which is inserted when sending starts.
CREATE TABLE broadcast_variants (
	broadcast_id UUID NOT NULL,
	number BIGINT NOT NULL,
	team_id UUID NOT NULL,
	content_id UUID,                 -- the content that is sent; NULL before sending starts
	given BIGINT NOT NULL,           -- bits: 1 from, 2 subject, 4 preview text, 8 html, 16 text
	sender TEXT NOT NULL,
	subject TEXT NOT NULL,
	preview_text TEXT NOT NULL,
	html TEXT NOT NULL,
	body_text TEXT NOT NULL,
	PRIMARY KEY (broadcast_id, number)
);

-- The same, without a second tree for the key.
CREATE TABLE broadcast_recipients (
	broadcast_id UUID NOT NULL,
	contact_id UUID NOT NULL,
	email_id UUID,                   -- NULL when left out
	opens INTEGER NOT NULL,
	clicks INTEGER NOT NULL,
	variant SMALLINT NOT NULL,
	state SMALLINT NOT NULL,         -- see broadcasts.states
	bounce SMALLINT NOT NULL,        -- 0 when it did not bounce; see broadcasts.bounceTypes
	opened BOOLEAN NOT NULL,         -- by a person
	clicked BOOLEAN NOT NULL,        -- by a person
	complained BOOLEAN NOT NULL,
	unsubscribed BOOLEAN NOT NULL,
	reason TEXT NOT NULL,            -- why it was left out, '' otherwise
	address TEXT NOT NULL,
	PRIMARY KEY (broadcast_id, contact_id)
);

CREATE INDEX broadcast_recipients_opens ON broadcast_recipients (broadcast_id, contact_id) WHERE opens > 0;
CREATE INDEX broadcast_recipients_clicks ON broadcast_recipients (broadcast_id, contact_id) WHERE clicks > 0;
CREATE INDEX broadcast_recipients_complained ON broadcast_recipients (broadcast_id, contact_id) WHERE complained;
CREATE INDEX broadcast_recipients_unsubscribed ON broadcast_recipients (broadcast_id, contact_id) WHERE unsubscribed;
CREATE INDEX broadcast_recipients_state ON broadcast_recipients (broadcast_id, state, contact_id)
	WHERE state <> 1 AND state <> 3;
CREATE INDEX broadcast_recipients_reason ON broadcast_recipients (broadcast_id, reason, contact_id)
	WHERE reason <> '';
CREATE INDEX broadcast_recipients_bounce ON broadcast_recipients (broadcast_id, bounce, contact_id)
	WHERE bounce <> 0;

-- The results of a broadcast, counted by variant. A trigger counts each change of a recipient (its states are named
-- in broadcasts.states) in the transaction that makes it, so that results and limits need not read the recipients. On PostgreSQL many
-- transactions change recipients of one broadcast at once; so that they seldom wait for each other, each counts in
-- one of 16 parts. SQLite has one writer, and one part.
CREATE TABLE broadcast_counts (
	broadcast_id UUID NOT NULL,
	variant BIGINT NOT NULL,
	part BIGINT NOT NULL,
	team_id UUID NOT NULL,
	sent BIGINT NOT NULL,            -- emails in the state; those that are in none of these wait
	delivered BIGINT NOT NULL,
	bounced BIGINT NOT NULL,
	hard BIGINT NOT NULL,            -- of those that bounced, for good
	failed BIGINT NOT NULL,
	suppressed BIGINT NOT NULL,
	canceled BIGINT NOT NULL,
	opened BIGINT NOT NULL,          -- by a person
	clicked BIGINT NOT NULL,         -- by a person
	complained BIGINT NOT NULL,
	unsubscribed BIGINT NOT NULL,
	-- The number of contacts that were deleted before their email was sent. These contacts count as left out. The
	-- trigger counts them when it moves a recipient to the state left_out; contacts without an email are counted in
	-- broadcast_entered.
	left_out BIGINT NOT NULL DEFAULT 0,
	PRIMARY KEY (broadcast_id, variant, part)
);

CREATE FUNCTION broadcast_recipients_count() RETURNS TRIGGER LANGUAGE plpgsql AS $$ BEGIN
	PERFORM pg_advisory_xact_lock(1886352997, pg_backend_pid() % 16); UPDATE broadcast_counts SET
		sent = sent + (NEW.state = 2)::INT - (OLD.state = 2)::INT,
		delivered = delivered + (NEW.state = 3)::INT - (OLD.state = 3)::INT,
		bounced = bounced + (NEW.state = 4)::INT - (OLD.state = 4)::INT,
		hard = hard + (NEW.state = 4 AND NEW.bounce = 1)::INT
			- (OLD.state = 4 AND OLD.bounce = 1)::INT,
		failed = failed + (NEW.state = 5)::INT - (OLD.state = 5)::INT,
		suppressed = suppressed + (NEW.state = 6)::INT - (OLD.state = 6)::INT,
		canceled = canceled + (NEW.state = 7)::INT - (OLD.state = 7)::INT,
		left_out = left_out + (NEW.state = 8)::INT - (OLD.state = 8)::INT,
		opened = opened + NEW.opened::INT - OLD.opened::INT, clicked = clicked + NEW.clicked::INT - OLD.clicked::INT,
		complained = complained + NEW.complained::INT - OLD.complained::INT,
		unsubscribed = unsubscribed + NEW.unsubscribed::INT - OLD.unsubscribed::INT
	WHERE broadcast_id = NEW.broadcast_id AND variant = NEW.variant AND part = pg_backend_pid() % 16; RETURN NULL; END $$;

CREATE TRIGGER broadcast_recipients_count AFTER UPDATE OF state, opened, clicked, complained, unsubscribed
ON broadcast_recipients FOR EACH ROW WHEN (OLD.state <> NEW.state OR OLD.opened <> NEW.opened
	OR OLD.clicked <> NEW.clicked OR OLD.complained <> NEW.complained OR OLD.unsubscribed <> NEW.unsubscribed)
EXECUTE FUNCTION broadcast_recipients_count();

-- How many contacts got an email, and how many were left out for what reason, as the transactions of pages add them.
CREATE TABLE broadcast_entered (
	broadcast_id UUID NOT NULL,
	variant BIGINT NOT NULL,
	reason TEXT NOT NULL,            -- '' for those that got an email
	team_id UUID NOT NULL,
	contacts BIGINT NOT NULL,
	PRIMARY KEY (broadcast_id, variant, reason)
);

-- The links of a broadcast that were followed, and by whom. A link is known by a hash, because a target may be longer
-- than an index takes.
CREATE TABLE broadcast_links (
	broadcast_id UUID NOT NULL,
	link TEXT NOT NULL,
	team_id UUID NOT NULL,
	url TEXT NOT NULL,
	clicks BIGINT NOT NULL,
	recipients BIGINT NOT NULL,      -- how many followed it
	PRIMARY KEY (broadcast_id, link)
);

CREATE INDEX broadcast_links_clicks ON broadcast_links (broadcast_id, clicks, link);

CREATE TABLE broadcast_clicks (
	broadcast_id UUID NOT NULL,
	contact_id UUID NOT NULL,
	link TEXT NOT NULL,
	team_id UUID NOT NULL,
	clicks BIGINT NOT NULL,
	PRIMARY KEY (broadcast_id, contact_id, link)
);

-- Events that callers define: a name by which they send them, and what their payloads look like.
CREATE TABLE custom_events (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	name TEXT NOT NULL,
	fields TEXT NOT NULL,            -- JSON: the types of the payload's members by their names; '' for no schema
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL       -- 0 when it was never updated
);

CREATE UNIQUE INDEX custom_events_name ON custom_events (team_id, name);
CREATE INDEX custom_events_team ON custom_events (team_id, id);

-- Automations. epoch counts how often one was stopped: a run of an older epoch is cancelled, whatever its row says
-- yet.
CREATE TABLE automations (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	name TEXT NOT NULL,
	status TEXT NOT NULL,            -- enabled or disabled
	reentry TEXT NOT NULL,           -- always, once_at_a_time or once
	version_id UUID NOT NULL,        -- with which runs begin
	epoch BIGINT NOT NULL,
	revision BIGINT NOT NULL,        -- counts the changes
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	deleted_at BIGINT NOT NULL       -- 0 when it is not deleted
);

CREATE INDEX automations_team ON automations (team_id, id) WHERE deleted_at = 0;
CREATE INDEX automations_deleted ON automations (team_id, id) WHERE deleted_at <> 0;

-- The graphs that an automation has, and had when its runs began. They never change.
CREATE TABLE automation_versions (
	id UUID PRIMARY KEY,
	automation_id UUID NOT NULL,
	team_id UUID NOT NULL,
	number BIGINT NOT NULL,          -- from 1
	used BIGINT NOT NULL,            -- 1 once the automation was enabled with it: runs can have begun with it
	created_at BIGINT NOT NULL,
	steps TEXT NOT NULL,             -- JSON; large, and therefore behind what is read of many
	connections TEXT NOT NULL,       -- JSON
	-- The events that the graph waits for, as a JSON list; '' if a node of the previous release inserted the version.
	wait_events TEXT NOT NULL DEFAULT ''
);

CREATE UNIQUE INDEX automation_versions_number ON automation_versions (automation_id, number);

-- Which events begin runs: rows of enabled automations alone. They have what the transaction of an event needs to
-- begin a run, so that it reads no graph.
CREATE TABLE automation_triggers (
	team_id UUID NOT NULL,
	event_name TEXT NOT NULL,
	automation_id UUID NOT NULL,
	version_id UUID NOT NULL,
	epoch BIGINT NOT NULL,
	reentry TEXT NOT NULL,
	step TEXT NOT NULL,              -- the key of the trigger
	next_step TEXT NOT NULL,         -- the key of the step behind it, '' for none
	wait_event TEXT NOT NULL,        -- the event that the next step waits for, '' if it does not
	wait_timeout BIGINT NOT NULL,    -- how long, in microseconds, 0 for the longest
	PRIMARY KEY (team_id, event_name, automation_id)
);

CREATE INDEX automation_triggers_automation ON automation_triggers (automation_id);

-- The automations whose steps a connected app wrote or that it enabled last. Such an automation stops when the app
-- may no longer change automations.
CREATE TABLE automation_apps (
	automation_id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	grant_id UUID NOT NULL,
	halted_at BIGINT NOT NULL        -- when it stopped because of the app, 0 if it has not
);

CREATE INDEX automation_apps_grant ON automation_apps (team_id, grant_id, automation_id);

-- A contact on its way through a version. A run that is running has a job.
CREATE TABLE automation_runs (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	automation_id UUID NOT NULL,
	version_id UUID NOT NULL,
	contact_id UUID NOT NULL,
	contact_gone BIGINT NOT NULL,    -- 1 once the contact was deleted: then nothing is kept of it when the run ends
	epoch BIGINT NOT NULL,
	status TEXT NOT NULL,            -- running, completed, failed or cancelled
	reason TEXT NOT NULL,            -- why it failed or was cancelled, '' otherwise
	event TEXT NOT NULL,             -- the name of the event that began it
	payload TEXT NOT NULL,           -- JSON of that, '' for none
	received TEXT NOT NULL,          -- JSON of the events that its waits received, '' for none
	step TEXT NOT NULL,              -- the key of the step it is at, '' once it has ended
	waits_until BIGINT NOT NULL,     -- 0 when it does not wait
	waits_for TEXT NOT NULL,         -- the name of an event, '' for none
	depth BIGINT NOT NULL,           -- how many runs led to the event that began it
	revision BIGINT NOT NULL,        -- counts the steps; the fence
	steps BIGINT NOT NULL,           -- rows of automation_run_steps
	event_at BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	ended_at BIGINT NOT NULL,
	-- Events for a waiting run that arrived while its graph was not cached: a JSON list, '' for none. A run with such
	-- events has a row in automation_waits for each event that its graph waits for anywhere, so that later events are
	-- appended.
	pending TEXT NOT NULL DEFAULT ''
);

CREATE INDEX automation_runs_automation ON automation_runs (automation_id, id);
CREATE INDEX automation_runs_status ON automation_runs (automation_id, status, id);
CREATE INDEX automation_runs_contact ON automation_runs (contact_id, id);
CREATE INDEX automation_runs_live ON automation_runs (contact_id, id) WHERE ended_at = 0;
CREATE INDEX automation_runs_ended ON automation_runs (team_id, ended_at, id) WHERE ended_at > 0;

-- The result of each step of a run.
CREATE TABLE automation_run_steps (
	run_id UUID NOT NULL,
	position BIGINT NOT NULL,        -- from 0
	team_id UUID NOT NULL,
	step TEXT NOT NULL,              -- the key
	status TEXT NOT NULL,            -- waiting, running, completed, failed or skipped
	output TEXT NOT NULL,            -- JSON, '' for none
	reason TEXT NOT NULL,            -- why it failed, '' otherwise
	message TEXT NOT NULL,           -- the same as a sentence
	started_at BIGINT NOT NULL,
	completed_at BIGINT NOT NULL,    -- 0 before
	PRIMARY KEY (run_id, "position")
);

-- Runs that wait for an event.
CREATE TABLE automation_waits (
	team_id UUID NOT NULL,
	event_name TEXT NOT NULL,
	contact_id UUID NOT NULL,
	run_id UUID NOT NULL,
	PRIMARY KEY (team_id, event_name, contact_id, run_id)
);

CREATE INDEX automation_waits_run ON automation_waits (run_id);

-- The runs of a contact in an automation, in short, by which the rules of entry are applied. Each transaction that
-- begins or ends a run changes the row.
CREATE TABLE automation_contacts (
	automation_id UUID NOT NULL,
	contact_id UUID NOT NULL,
	team_id UUID NOT NULL,
	epoch BIGINT NOT NULL,           -- whose runs active counts: those of older ones are canceled
	active BIGINT NOT NULL,          -- runs that have not ended
	begun BIGINT NOT NULL,           -- runs in all
	hour_from BIGINT NOT NULL,       -- when the hour began in which hour_begun were begun
	hour_begun BIGINT NOT NULL,
	last_run_id UUID NOT NULL,       -- the run that began last
	limited_at BIGINT NOT NULL,      -- when a run last said that a limit was reached, 0 never
	limited_run_id UUID,             -- that run, NULL for none
	PRIMARY KEY (automation_id, contact_id)
);

CREATE INDEX automation_contacts_contact ON automation_contacts (contact_id);

-- Received emails. The columns hold the values that lists show. Bodies, headers and files are read from the raw message
-- for each request, so that accepting a message writes only two rows.
CREATE TABLE received_emails (
	team_id UUID NOT NULL,
	id UUID NOT NULL,
	domain_id UUID,                  -- NULL at the managed domain and for the operator's own addresses
	sender TEXT NOT NULL,            -- the bare address of From
	subject TEXT NOT NULL,
	message_id TEXT NOT NULL,        -- with angle brackets, '' when it had none
	recipients TEXT NOT NULL,        -- JSON: to, cc, bcc, reply_to of the header
	received_for TEXT NOT NULL,      -- JSON list: the envelope recipients that are this team's
	files TEXT NOT NULL,             -- JSON list of the attachments without their content, '' when none
	thread_id UUID NOT NULL,
	origin TEXT NOT NULL,            -- JSON: envelope sender and client
	authentication TEXT NOT NULL,    -- JSON, '' when not evaluated
	spam TEXT NOT NULL,              -- JSON, '' when no filter was asked
	size BIGINT NOT NULL,            -- octets of the raw message
	blob_key TEXT NOT NULL,          -- of a large raw message; '' when it is in received_raws
	created_at BIGINT NOT NULL,
	PRIMARY KEY (team_id, id)
);

CREATE INDEX received_emails_thread ON received_emails (team_id, thread_id, id);
CREATE INDEX received_emails_blob ON received_emails (blob_key) WHERE blob_key <> '';
CREATE INDEX received_emails_message ON received_emails (team_id, message_id, id);
-- internal/sending/metrics counts received emails by their time and their domain.
CREATE INDEX received_emails_time ON received_emails (team_id, created_at, domain_id);

-- Small raw messages: many of them share one commit, where each blob would cost an fsync of its own.
CREATE TABLE received_raws (
	team_id UUID NOT NULL,
	email_id UUID NOT NULL,
	content BYTEA NOT NULL,
	PRIMARY KEY (team_id, email_id)
);

-- The URLs to which a team's events are sent. A deleted endpoint stays until the sweep has deleted its deliveries.
CREATE TABLE webhooks (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	url TEXT NOT NULL,
	events TEXT NOT NULL,            -- types, comma-separated; '' for all
	status TEXT NOT NULL,            -- enabled, disabled or deleted
	secret BYTEA NOT NULL,           -- encrypted
	old_secret BYTEA NOT NULL,       -- encrypted; also signs until old_until
	old_until BIGINT NOT NULL,
	failing_since BIGINT NOT NULL,   -- the first failure after the last known success, 0 for none
	warned BOOLEAN NOT NULL,         -- whether the team was notified of the failures
	disabled_reason TEXT NOT NULL,   -- '' unless the program disabled it
	disabled_at BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	-- When the endpoint reached the limit of waiting messages; 0 while it accepts messages.
	full_since BIGINT NOT NULL DEFAULT 0,
	full_told BIGINT NOT NULL DEFAULT 0, -- when the team was last notified that the endpoint is full
	open_since UUID NOT NULL         -- no unfinished delivery has a message with a lower id
);

CREATE INDEX webhooks_team ON webhooks (team_id, id);
CREATE INDEX webhooks_deleted ON webhooks (id) WHERE status = 'deleted';

-- Events as they are sent: the bytes that are signed, stored once for all endpoints.
CREATE TABLE webhook_messages (
	id UUID PRIMARY KEY,             -- the id of the event; receivers see msg_ and the id without hyphens
	team_id UUID NOT NULL,
	type TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	payload TEXT NOT NULL
) PARTITION BY RANGE (id);

CREATE TABLE webhook_messages_default PARTITION OF webhook_messages DEFAULT;

-- Erasing a team or an address reads the messages of one team.
CREATE INDEX webhook_messages_team ON webhook_messages (team_id, id);

-- Messages of teams with many endpoints for which not all deliveries are inserted yet.
CREATE TABLE webhook_fanouts (
	team_id UUID NOT NULL,
	chain TEXT NOT NULL,             -- as in webhook_deliveries
	message_id UUID NOT NULL,
	type TEXT NOT NULL,
	after UUID NOT NULL,             -- the last endpoint that has a delivery; all zeros for none
	created_at BIGINT NOT NULL,
	PRIMARY KEY (team_id, chain, message_id)
);

-- The messages of each endpoint. Those of one chain, such as one email, are delivered in order.
CREATE TABLE webhook_deliveries (
	webhook_id UUID NOT NULL,
	message_id UUID NOT NULL,
	team_id UUID NOT NULL,
	chain TEXT NOT NULL,             -- an id or a suppressed address
	status TEXT NOT NULL,            -- pending, attempting, success or failed
	tries BIGINT NOT NULL,           -- the number of attempts since the schedule began
	next_at BIGINT NOT NULL,         -- the time of the next attempt; 0 if it is due or no attempt follows
	finished_at BIGINT NOT NULL,     -- 0 while pending or attempting
	PRIMARY KEY (webhook_id, message_id)
) PARTITION BY RANGE (message_id);

CREATE TABLE webhook_deliveries_default PARTITION OF webhook_deliveries DEFAULT;
CREATE INDEX webhook_deliveries_default_id ON webhook_deliveries_default (message_id);

CREATE INDEX webhook_deliveries_open ON webhook_deliveries (webhook_id, chain, message_id)
	WHERE status IN ('pending', 'attempting');
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (webhook_id, message_id) WHERE status = 'failed';

CREATE TABLE webhook_attempts (
	webhook_id UUID NOT NULL,
	message_id UUID NOT NULL,
	id UUID NOT NULL,                -- the API shows atmpt_ and the id without hyphens
	team_id UUID NOT NULL,
	status_code BIGINT NOT NULL,     -- 0 without a response
	response TEXT NOT NULL,          -- the beginning of the response's body
	error TEXT NOT NULL,             -- why the attempt failed, '' after a success
	started_at BIGINT NOT NULL,
	duration BIGINT NOT NULL,        -- microseconds
	PRIMARY KEY (webhook_id, message_id, id)
) PARTITION BY RANGE (message_id);

CREATE TABLE webhook_attempts_default PARTITION OF webhook_attempts DEFAULT;
CREATE INDEX webhook_attempts_default_id ON webhook_attempts_default (message_id);

-- Teams whose events are watched (see internal/outbound/eventstream).
CREATE TABLE live_tails (
	team_id UUID PRIMARY KEY,
	until BIGINT NOT NULL            -- extended while a client watches
);

-- The events of these teams, which are kept for minutes only.
CREATE TABLE live_messages (
	team_id UUID NOT NULL,
	id UUID NOT NULL,                -- the id of the event; clients see msg_ and the id without hyphens
	type TEXT NOT NULL,
	payload TEXT NOT NULL,
	PRIMARY KEY (team_id, id)
);

-- The sweep deletes the old messages of all teams.
CREATE INDEX live_messages_id ON live_messages (id);

-- Requests to erase an address, and their results. A completed row no longer contains the address.
CREATE TABLE erasures (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	contact_id UUID,                 -- NULL if no contact had the address
	address TEXT NOT NULL,           -- '' once the erasure is completed
	refusals BOOLEAN NOT NULL,       -- whether the suppression and unsubscriptions of the address are erased too
	dry_run BOOLEAN NOT NULL,
	state TEXT NOT NULL,             -- queued, in_progress or completed
	pass INTEGER NOT NULL,           -- passes through all tables, counted from 0
	done INTEGER NOT NULL,           -- the number of erasers that have ended in this pass
	report TEXT NOT NULL,            -- JSON: the result of each eraser
	created_at BIGINT NOT NULL,
	completed_at BIGINT NOT NULL     -- 0 until it is completed
);

CREATE UNIQUE INDEX erasures_address ON erasures (team_id, address) WHERE address <> '';
CREATE INDEX erasures_team ON erasures (team_id, id);

-- Compressing an HTML of 10 KB by lz4 takes a tenth of the time that the server's default method takes. A server that
-- was built without lz4 keeps its default. Partitions that are made later inherit the method.
DO $$ DECLARE c RECORD; BEGIN
	FOR c IN SELECT a.attrelid::REGCLASS AS t, a.attname AS n FROM pg_attribute a JOIN pg_class k ON k.oid = a.attrelid
		WHERE k.relnamespace = current_schema()::REGNAMESPACE AND k.relkind IN ('r', 'p') AND a.attnum > 0
		AND NOT a.attisdropped AND a.atttypid IN ('TEXT'::REGTYPE, 'BYTEA'::REGTYPE)
	LOOP EXECUTE format('ALTER TABLE %s ALTER %I SET COMPRESSION lz4', c.t, c.n); END LOOP; EXCEPTION
	WHEN feature_not_supported THEN NULL; END $$;
