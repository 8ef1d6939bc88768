-- Teams own everything; an API key acts for its team.
CREATE TABLE teams (
	id BLOB PRIMARY KEY,
	short_id INTEGER NOT NULL,       -- stands for the team in tokens that must be short; from 1 to 2^31 - 1
	name TEXT NOT NULL,
	email TEXT NOT NULL,             -- the owner's address, '' when none
	rate_limit INTEGER NOT NULL,     -- requests a second; 0 takes the configuration's
	suspended INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	-- When a team was deleted, 0 while it is not: it is nobody from that instant, and its rows are taken away by a job.
	deleted_at INTEGER NOT NULL DEFAULT 0,
	-- For how long a team keeps what it has, in microseconds; 0 takes the configuration's.
	email_retention INTEGER NOT NULL DEFAULT 0,
	body_retention INTEGER NOT NULL DEFAULT 0,
	received_retention INTEGER NOT NULL DEFAULT 0,
	event_retention INTEGER NOT NULL DEFAULT 0,
	-- How many emails a team may send and receive in a day and in a month; 0 is without a limit.
	daily_quota INTEGER NOT NULL DEFAULT 0,
	monthly_quota INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE UNIQUE INDEX teams_short_id ON teams (short_id);
-- The shortest and the longest retention of emails of all teams are at its ends.
CREATE INDEX teams_email_retention ON teams (email_retention);

CREATE TABLE api_keys (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
	name TEXT NOT NULL,
	hash TEXT NOT NULL,              -- SHA-256 of the token, in hex
	prefix TEXT NOT NULL,            -- the part of the token that lists show
	permission TEXT NOT NULL,
	domain_id BLOB,                  -- the only domain that the key may send from, NULL for all domains
	created_at INTEGER NOT NULL,
	last_used_at INTEGER NOT NULL    -- 0 before the first use
) STRICT;

CREATE UNIQUE INDEX api_keys_hash ON api_keys (hash);
CREATE INDEX api_keys_team ON api_keys (team_id, id);

-- The use of a team's quota, in parts that are counted separately. A transaction may use a part up to its room without
-- reading the others; the rooms of all parts together are within the quota. On PostgreSQL there are 16 parts, one for
-- each group of connections, so that transactions seldom wait for each other; on SQLite one. Teams without a quota have
-- no rows.
CREATE TABLE team_volumes (
	team_id BLOB NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
	part INTEGER NOT NULL,
	day INTEGER NOT NULL,            -- since 1970, UTC; the same in all parts, as month is
	day_used INTEGER NOT NULL,
	day_room INTEGER NOT NULL,
	day_told INTEGER NOT NULL,       -- twice the day in which 80 % were told; one more when 100 % were
	month INTEGER NOT NULL,          -- since the year 0, UTC
	month_used INTEGER NOT NULL,
	month_room INTEGER NOT NULL,
	month_told INTEGER NOT NULL,
	PRIMARY KEY (team_id, part)
) STRICT;

-- Users can be members of several teams (see the table memberships).
CREATE TABLE users (
	id BLOB PRIMARY KEY,
	email TEXT NOT NULL,             -- in the form of message.Address.Key
	name TEXT NOT NULL,
	password TEXT NOT NULL,          -- an argon2id hash with its parameters, '' for none
	disabled INTEGER NOT NULL,
	totp_secret BLOB NOT NULL,       -- encrypted, empty for none
	totp_step INTEGER NOT NULL,      -- the time step of the last code that was used, 0 before the first
	handle BLOB NOT NULL,            -- a random value that identifies the user to passkeys (WebAuthn user handle)
	created_at INTEGER NOT NULL,
	last_sign_in_at INTEGER NOT NULL -- 0 before the first
) STRICT;

CREATE UNIQUE INDEX users_email ON users (email);
CREATE UNIQUE INDEX users_handle ON users (handle);

-- One-time codes that replace a lost second factor.
CREATE TABLE user_recovery_codes (
	user_id BLOB NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	hash TEXT NOT NULL,
	PRIMARY KEY (user_id, hash)
) STRICT;

CREATE TABLE user_passkeys (
	id BLOB PRIMARY KEY,
	user_id BLOB NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	credential TEXT NOT NULL,        -- the credential id that the authenticator chose, in base64url
	name TEXT NOT NULL,
	record TEXT NOT NULL,            -- JSON: the public key, the signature counter and flags
	created_at INTEGER NOT NULL,
	last_used_at INTEGER NOT NULL    -- 0 before the first use
) STRICT;

CREATE UNIQUE INDEX user_passkeys_credential ON user_passkeys (credential);
CREATE INDEX user_passkeys_user ON user_passkeys (user_id, id);

-- Accounts at OIDC providers with which users sign in.
CREATE TABLE user_identities (
	id BLOB PRIMARY KEY,
	issuer TEXT NOT NULL,
	subject TEXT NOT NULL,
	user_id BLOB NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	email TEXT NOT NULL,             -- the address that the provider sent when the account was linked; only displayed
	created_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX user_identities_subject ON user_identities (issuer, subject);
CREATE INDEX user_identities_user ON user_identities (user_id, id);

CREATE TABLE user_sessions (
	id BLOB PRIMARY KEY,
	user_id BLOB NOT NULL REFERENCES users (id) ON DELETE CASCADE,
	hash TEXT NOT NULL,              -- the hash of the token in the browser's cookie
	last_team BLOB,                  -- the team that was viewed last, NULL for none
	address TEXT NOT NULL,           -- the address of the client that signed in
	user_agent TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	used_at INTEGER NOT NULL,        -- up to a minute behind
	proved_at INTEGER NOT NULL       -- when the user last entered a password or used a passkey
) STRICT;

CREATE UNIQUE INDEX user_sessions_hash ON user_sessions (hash);
CREATE INDEX user_sessions_user ON user_sessions (user_id, id);
CREATE INDEX user_sessions_used ON user_sessions (used_at);

-- One-time tokens: links in emails, sign-ins that wait for a second factor, and marks of used challenges.
CREATE TABLE user_tokens (
	hash TEXT PRIMARY KEY,
	kind TEXT NOT NULL,              -- setup, reset, factor or used
	user_id BLOB NOT NULL,           -- all zeros for none
	tries INTEGER NOT NULL,          -- the number of wrong codes so far
	expires_at INTEGER NOT NULL
) STRICT;

CREATE INDEX user_tokens_user ON user_tokens (kind, user_id);
CREATE INDEX user_tokens_expires ON user_tokens (expires_at);

-- Counters of attempts to sign in, for each account and for each network of clients. A counter restarts an hour after
-- its first attempt.
CREATE TABLE user_attempts (
	name TEXT PRIMARY KEY,           -- the counted action, with the account (its id or hashed address) or the network
	since INTEGER NOT NULL,
	n INTEGER NOT NULL
) STRICT;

CREATE INDEX user_attempts_since ON user_attempts (since);

-- The members of each team, and their roles.
CREATE TABLE memberships (
	team_id BLOB NOT NULL,
	user_id BLOB NOT NULL,
	role TEXT NOT NULL,              -- owner, admin, member or viewer
	created_at INTEGER NOT NULL,
	PRIMARY KEY (team_id, user_id)
) STRICT;

CREATE INDEX memberships_user ON memberships (user_id, team_id);

-- Invitations to join a team. Accepted and revoked ones stay for a while, because they count toward the limit of
-- invitations.
CREATE TABLE invitations (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	email TEXT NOT NULL,             -- in lower case
	role TEXT NOT NULL,
	token_hash TEXT NOT NULL,        -- the hash of the token in the newest link
	state TEXT NOT NULL,             -- open, accepted or revoked
	actor_kind TEXT NOT NULL,        -- the kind of the actor that invited
	actor_id BLOB,                   -- NULL for the system
	sends INTEGER NOT NULL,          -- how many times the invitation was sent
	created_at INTEGER NOT NULL,
	sent_at INTEGER NOT NULL,        -- when it was last sent
	expires_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX invitations_token ON invitations (token_hash);
-- An address has one open invitation to a team.
CREATE UNIQUE INDEX invitations_email ON invitations (team_id, email) WHERE state = 'open';
CREATE INDEX invitations_state ON invitations (team_id, state, id);
CREATE INDEX invitations_sent ON invitations (team_id, sent_at);
CREATE INDEX invitations_expires ON invitations (expires_at);

-- Actions of users, API keys, connected apps and the system. An entry never changes.
CREATE TABLE audit_log (
	id BLOB PRIMARY KEY,
	team_id BLOB,                    -- NULL for what concerns no team, such as a failed sign-in
	actor_kind TEXT NOT NULL,        -- key, user, grant or system; '' if the actor is unknown
	actor_id BLOB,                   -- NULL for none
	actor_name TEXT NOT NULL,        -- the name that the actor had at that time
	action TEXT NOT NULL,            -- such as domain.created
	target TEXT NOT NULL,            -- the id of the object that the action changed, '' for none
	detail TEXT NOT NULL,
	address TEXT NOT NULL,           -- the client's network address
	user_agent TEXT NOT NULL,
	request_id TEXT NOT NULL,
	at INTEGER NOT NULL
) STRICT;

CREATE INDEX audit_log_team ON audit_log (team_id, id);
CREATE INDEX audit_log_actor ON audit_log (team_id, actor_id, id);
CREATE INDEX audit_log_action ON audit_log (team_id, action, id);

-- Apps that can ask users for access to a team (RFC 7591). Clients belong to no team.
CREATE TABLE oauth_clients (
	id BLOB PRIMARY KEY,
	name TEXT NOT NULL,
	redirect_uris TEXT NOT NULL,     -- separated by spaces; no URI contains a space
	scope TEXT NOT NULL,             -- the scopes for which the client may ask
	client_uri TEXT NOT NULL,
	logo_uri TEXT NOT NULL,
	address TEXT NOT NULL,           -- the address from which it was registered; '' for the built-in client
	created_at INTEGER NOT NULL,
	used_at INTEGER NOT NULL         -- when a user first consented to a request of the client; 0 before
) STRICT;

CREATE INDEX oauth_clients_address ON oauth_clients (address, created_at) WHERE address <> '';
CREATE INDEX oauth_clients_unused ON oauth_clients (created_at, id) WHERE used_at = 0;

-- The official command-line program does not register.
INSERT INTO oauth_clients (id, name, redirect_uris, scope, client_uri, logo_uri, address, created_at, used_at)
	VALUES (x'7136aa0b625c4c9c8820e9784c8eb141', 'Resend CLI', 'http://127.0.0.1/oauth/callback', 'full_access',
	'', '', '', 1763856000000000, 1763856000000000);

-- The keys that sign access tokens, with ES256. A key is published before it is first used and after it was last used.
CREATE TABLE oauth_keys (
	id BLOB PRIMARY KEY,             -- the kid of tokens
	private BLOB NOT NULL,           -- PKCS #8, encrypted by the keyring
	signs_at INTEGER NOT NULL        -- when the key may first sign; the newest key whose time has come signs
) STRICT;

-- Authorization codes: a user consented, and the client has not exchanged the code yet. Only a hash of the code is
-- stored.
CREATE TABLE oauth_codes (
	hash TEXT PRIMARY KEY,
	grant_id BLOB NOT NULL,          -- the id of the grant that is made when the code is exchanged
	team_id BLOB NOT NULL,
	user_id BLOB,                    -- the user who consented, NULL if it was an API key
	client_id BLOB NOT NULL,
	scope TEXT NOT NULL,
	resource TEXT NOT NULL,
	redirect_uri TEXT NOT NULL,
	challenge TEXT NOT NULL,         -- the PKCE challenge, by S256 (RFC 7636)
	expires_at INTEGER NOT NULL,
	used_at INTEGER NOT NULL,        -- 0 before
	-- The limits of the grant (see oauth_grants).
	recipients_per_email INTEGER NOT NULL DEFAULT 0,
	emails_a_day INTEGER NOT NULL DEFAULT 0,
	approval INTEGER NOT NULL DEFAULT FALSE,
	key_id BLOB                      -- the API key that consented, in development; NULL if a user consented
) STRICT;

CREATE INDEX oauth_codes_team ON oauth_codes (team_id, user_id, hash);
CREATE INDEX oauth_codes_key ON oauth_codes (team_id, key_id) WHERE key_id IS NOT NULL;
CREATE INDEX oauth_codes_expiry ON oauth_codes (expires_at, hash);

-- The access that users gave to clients. Refresh tokens have no rows: each is signed and contains its generation.
CREATE TABLE oauth_grants (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	user_id BLOB,                    -- the user who consented, NULL if it was an API key
	client_id BLOB NOT NULL,
	scope TEXT NOT NULL,
	resource TEXT NOT NULL,          -- the resource of the tokens (RFC 8707); '' for all
	created_at INTEGER NOT NULL,
	used_at INTEGER NOT NULL,        -- when the grant was last used, up to a few minutes behind
	expires_at INTEGER NOT NULL,     -- when the newest refresh token expires
	generation INTEGER NOT NULL,     -- the generation of the newest refresh token, counted from 1
	retried INTEGER NOT NULL,        -- the generation that was exchanged for the newest one; 0 before the first exchange
	rotated_at INTEGER NOT NULL,     -- when that generation was first exchanged
	revoked_at INTEGER NOT NULL,     -- 0 while the grant is active
	revoked_reason TEXT NOT NULL,    -- '' while the grant is active
	recipients_per_email INTEGER NOT NULL DEFAULT 0, -- the maximum number of addresses of one email, 0 for no limit
	emails_a_day INTEGER NOT NULL DEFAULT 0, -- the maximum number of emails in a day (UTC), 0 for no limit
	approval INTEGER NOT NULL DEFAULT FALSE, -- whether a user must approve each email
	-- The API key that consented, in development; NULL if a user consented. The grant ends when the key is deleted.
	key_id BLOB,
	-- The time since which a grant has a daily limit, 0 if it has had the limit from the start. An email that was
	-- scheduled earlier counts on the day on which it is sent.
	daily_since INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX oauth_grants_team ON oauth_grants (team_id, id);
CREATE INDEX oauth_grants_active ON oauth_grants (team_id, user_id, id) WHERE revoked_reason = '';
CREATE INDEX oauth_grants_key ON oauth_grants (team_id, key_id) WHERE key_id IS NOT NULL;
CREATE INDEX oauth_grants_expiry ON oauth_grants (expires_at, id) WHERE revoked_at = 0;

-- The number of emails that each grant sent on its latest day, counted by recipient.
CREATE TABLE grant_volumes (
	team_id BLOB NOT NULL,
	grant_id BLOB NOT NULL,
	day INTEGER NOT NULL,            -- days since 1970 in UTC
	used INTEGER NOT NULL,
	PRIMARY KEY (team_id, grant_id)
) STRICT;

-- Processes that hold jobs, for noticing the death of one.
CREATE TABLE nodes (
	id BLOB PRIMARY KEY,
	beat INTEGER NOT NULL,
	started_at INTEGER NOT NULL
) STRICT;

-- Work to be done. run_at is also the lease: a claim moves it into the future. attempt is the fence.
CREATE TABLE jobs (
	id BLOB PRIMARY KEY,
	kind TEXT NOT NULL,
	lane TEXT NOT NULL,
	team_id BLOB,                    -- NULL when the job is of no team
	dedupe TEXT NOT NULL,            -- '' when any number of the same may wait
	payload TEXT NOT NULL,
	run_at INTEGER NOT NULL,
	attempt INTEGER NOT NULL,
	holder BLOB,                     -- the node that has it in hand, NULL when none
	parked INTEGER NOT NULL,         -- gave up; waits for an operator
	last_error TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	-- attempt is the fence and nothing else: it only grows. Errors of ours in a row are failures, tries that came to an
	-- end are tries.
	failures INTEGER NOT NULL DEFAULT 0,
	tries INTEGER NOT NULL DEFAULT 0,
	-- set_at is when run_at was set, by the clock of that moment, or 0 when run_at is a time that somebody chose. A job
	-- whose wait began in the future tells that the clock has stepped back since.
	set_at INTEGER NOT NULL DEFAULT 0,
	-- The event that a job waits for instead of a time, such as the end of a broadcast's pause; '' for none. While a job
	-- waits, its run_at never comes, and set_at is the time at which the wait began.
	held TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE UNIQUE INDEX jobs_dedupe ON jobs (kind, dedupe) WHERE dedupe <> '';
CREATE INDEX jobs_parked ON jobs (id) WHERE parked;
CREATE INDEX jobs_held ON jobs (held, id) WHERE held <> '';
-- The index has the holder, because SQLite would otherwise look it up in the table.
CREATE INDEX jobs_due ON jobs (kind, lane, run_at, holder) WHERE holder IS NULL;
-- The jobs that a node holds, which become due when the node stops or dies.
CREATE INDEX jobs_holder ON jobs (holder) WHERE holder IS NOT NULL;

-- The share of each node in a limit of all nodes. Only the node writes its row, which is deleted with the node.
CREATE TABLE quotas (
	key TEXT NOT NULL,               -- the limit: its kind and name
	node BLOB NOT NULL REFERENCES nodes (id) ON DELETE CASCADE,
	want REAL NOT NULL,              -- what the node could use
	used REAL NOT NULL,              -- what it cannot give back at once
	held REAL NOT NULL,              -- the most that it uses until it writes otherwise
	PRIMARY KEY (key, node)
) STRICT;

CREATE INDEX quotas_node ON quotas (node);

-- Hints of other processes, such as the command line, to the node that runs on the file. PostgreSQL has NOTIFY.
CREATE TABLE hints (
	id INTEGER PRIMARY KEY,
	topic TEXT NOT NULL,
	payload TEXT NOT NULL
) STRICT;

CREATE TABLE idempotency_keys (
	team_id BLOB NOT NULL,
	scope TEXT NOT NULL,             -- method and path
	idempotency_key TEXT NOT NULL,
	payload_hash TEXT NOT NULL,
	response TEXT NOT NULL,          -- JSON: what was answered
	created_at INTEGER NOT NULL,
	PRIMARY KEY (team_id, scope, idempotency_key)
) STRICT;

CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);

-- Requests to the API. The key begins with the team and ends with the time that an id begins with: one index serves
-- the list, the single entry and the sweep.
CREATE TABLE request_logs (
	team_id BLOB NOT NULL,
	id BLOB NOT NULL,
	actor_id BLOB,                   -- NULL for none
	request_id TEXT NOT NULL,        -- what the answer's x-request-id said
	method TEXT NOT NULL,
	endpoint TEXT NOT NULL,          -- the path, without host and query
	status INTEGER NOT NULL,
	user_agent TEXT NOT NULL,        -- '' when none was sent
	duration INTEGER NOT NULL,       -- microseconds
	request_body TEXT NOT NULL,      -- JSON without secrets, '' when none
	response_body TEXT NOT NULL,     -- the same
	created_at INTEGER NOT NULL,
	actor_kind TEXT NOT NULL DEFAULT 'key',
	-- The ids of the emails whose stored bodies a logged request refers to, in the order of the request's emails,
	-- separated by commas: empty for an email that has none. '' if the request is stored with all its text.
	email_ids TEXT NOT NULL DEFAULT '',
	PRIMARY KEY (team_id, id)
) STRICT;

-- Domains that teams send from and receive at. Their DNS records follow from the row and the configuration; what is
-- stored of a record is only what the last look-ups found.
CREATE TABLE domains (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,           -- a reserved id for the sandbox domains
	name TEXT NOT NULL,              -- ASCII, lower case
	region TEXT NOT NULL,
	return_path TEXT NOT NULL,       -- label
	tracking_subdomain TEXT NOT NULL,
	old_tracking TEXT NOT NULL,      -- labels that were in use before, comma-separated: their links go on working
	tls TEXT NOT NULL,
	open_tracking INTEGER NOT NULL,
	click_tracking INTEGER NOT NULL,
	sending INTEGER NOT NULL,
	receiving INTEGER NOT NULL,
	status TEXT NOT NULL,
	checks TEXT NOT NULL,            -- JSON: of each record, its status and since when
	rsa_key BLOB NOT NULL,           -- sealed
	ed25519_key BLOB NOT NULL,       -- sealed
	rsa_record TEXT NOT NULL,
	ed25519_record TEXT NOT NULL,
	placeholder INTEGER NOT NULL,    -- stands for a claim on a domain that another team has
	verify_since INTEGER NOT NULL,   -- when the present verification began; 0 when none did
	checked_at INTEGER NOT NULL,
	created_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX domains_name ON domains (name) WHERE NOT placeholder;
CREATE INDEX domains_team ON domains (team_id, id);
CREATE INDEX domains_checked ON domains (checked_at);
-- How many domains of a team are not verified is counted for each that is added.
CREATE INDEX domains_unproved ON domains (team_id) WHERE status IN ('not_started', 'pending', 'failed');

-- The names that domains have in DNS and that their teams have proved to be theirs: each belongs to one team.
CREATE TABLE domain_names (
	name TEXT PRIMARY KEY,           -- ASCII, lower case
	domain_id BLOB NOT NULL REFERENCES domains (id) ON DELETE CASCADE,
	team_id BLOB NOT NULL,
	host INTEGER NOT NULL            -- of return paths or tracked links; otherwise the domain's own name
) STRICT;

CREATE INDEX domain_names_domain ON domain_names (domain_id);

CREATE TABLE domain_claims (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	domain_id BLOB NOT NULL,         -- the placeholder
	name TEXT NOT NULL,
	token TEXT NOT NULL,
	request TEXT NOT NULL,           -- JSON: what was asked, to tell a repetition from another claim
	status TEXT NOT NULL,
	blocked_reason TEXT NOT NULL,
	failure_reason TEXT NOT NULL,
	warned_at INTEGER NOT NULL,      -- when the grace period of the owner began
	created_at INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,
	-- A claim that was proven in time is not ended by its expiry, and the owner is told a day before the end.
	proven_at INTEGER NOT NULL DEFAULT 0,
	reminded_at INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX domain_claims_domain ON domain_claims (domain_id);
CREATE INDEX domain_claims_team ON domain_claims (team_id, name);
-- For each claim, earlier claims of the same name are looked up.
CREATE INDEX domain_claims_name ON domain_claims (name, created_at);

-- Text that many emails share: that of a broadcast, or of a version of a template. A row never changes. Large columns
-- come last, because most statements do not read them.
CREATE TABLE contents (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	kept INTEGER NOT NULL,           -- somebody may send by it again; otherwise it goes when the last email of it does
	used_at INTEGER NOT NULL,        -- when an email with it was last accepted, up to an hour behind
	created_at INTEGER NOT NULL,
	parts INTEGER NOT NULL,          -- bits: 1 html was given, 2 text was given
	sender TEXT NOT NULL,            -- From; this and the following columns can have placeholders
	subject TEXT NOT NULL,
	reply_to TEXT NOT NULL,          -- JSON, '' when none
	headers TEXT NOT NULL,           -- JSON, '' when none
	html TEXT NOT NULL,
	body_text TEXT NOT NULL,
	-- No email with a smaller id has the content. An email with it may have been accepted up to an hour after used_at.
	from_id BLOB NOT NULL
) STRICT;

CREATE INDEX contents_team ON contents (team_id, id);
CREATE INDEX contents_unused ON contents (team_id, used_at, id, from_id) WHERE NOT kept;

-- Sent emails. What delivery touches often stands apart from what is large and read once.
CREATE TABLE emails (
	id BLOB NOT NULL,
	team_id BLOB NOT NULL,
	actor_id BLOB,                   -- NULL for the system
	domain_id BLOB,                  -- of the sender, NULL for none
	message_id TEXT NOT NULL,
	sender TEXT NOT NULL,            -- From as the caller wrote it
	subject TEXT NOT NULL,
	recipients TEXT NOT NULL,        -- JSON: to, cc, bcc, reply_to as the caller wrote them; '' if recipient says the same
	tags TEXT NOT NULL,              -- JSON, '' when none
	topic_id BLOB,
	template_id BLOB,
	broadcast_id BLOB,
	last_event INTEGER NOT NULL,     -- the state (see emails.states)
	rank INTEGER NOT NULL,           -- of last_event; it only rises
	scheduled_at INTEGER,            -- NULL for none
	created_at INTEGER NOT NULL,
	actor_kind INTEGER NOT NULL,     -- of the actor in actor_id (see teams.ActorKinds)
	content_id BLOB,                 -- NULL if the email has only a body of its own
	-- JSON: the values of the content's placeholders in this email, '' for none.
	variables TEXT NOT NULL DEFAULT '',
	-- The contact to whom a broadcast sent the email, NULL for other emails. Events of the email count for the contact.
	contact_id BLOB,
	recipient TEXT NOT NULL DEFAULT '', -- envelope address of the only recipient
	updated_at INTEGER,              -- when the state of the only recipient changed; NULL while it has not
	PRIMARY KEY (team_id, id)
) STRICT, WITHOUT ROWID;

CREATE TABLE email_bodies (
	email_id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	parts INTEGER NOT NULL,          -- bits: 1 html was given, 2 text was given, 4 it has attachments
	headers TEXT NOT NULL,           -- JSON, '' when none
	html TEXT NOT NULL,
	body_text TEXT NOT NULL
) STRICT;

-- SQLite keeps rows with a text as their key in two trees, of which the second has the key again: a quarter of these
-- small tables, and a second place to write for each recipient. They are copied once.
CREATE TABLE email_recipients (
	updated_at INTEGER NOT NULL,
	email_id BLOB NOT NULL,
	team_id BLOB NOT NULL,
	position INTEGER NOT NULL,
	rank INTEGER NOT NULL,
	kind INTEGER NOT NULL,      -- see emails.recipientKinds
	state INTEGER NOT NULL,     -- see emails.states
	address TEXT NOT NULL,           -- as it stands in the envelope
	domain TEXT NOT NULL,            -- its destination
	PRIMARY KEY (email_id, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE email_attachments (
	email_id BLOB NOT NULL,
	id BLOB NOT NULL,
	team_id BLOB NOT NULL,
	filename TEXT NOT NULL,
	content_type TEXT NOT NULL,
	content_id TEXT NOT NULL,
	size INTEGER NOT NULL,
	blob_key TEXT NOT NULL,          -- '' until the path is fetched
	path TEXT NOT NULL,
	PRIMARY KEY (email_id, id)
) STRICT;

CREATE INDEX email_attachments_blob ON email_attachments (blob_key) WHERE blob_key <> '';

-- Small messages that callers composed, as they are sent: many of them share one commit, where each blob would cost
-- an fsync of its own.
CREATE TABLE email_messages (
	email_id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	content BLOB NOT NULL,
	-- Blobs have keys that are made when they are written, before there is an email: the rows alone say whose they are.
	blob_key TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX email_messages_blob ON email_messages (blob_key) WHERE blob_key <> '';

-- The events of emails. An event of one recipient names the recipient. The key begins with the email, because events
-- are always looked up by their email, and each further index would cost a write for each event.
CREATE TABLE email_events (
	created_at INTEGER NOT NULL,
	started_at INTEGER,              -- of the try
	duration INTEGER,                -- microseconds
	next_at INTEGER,                 -- when it is tried again; NULL when it is not
	type INTEGER NOT NULL,           -- see events.Types
	outcome INTEGER,                 -- see events.outcomes; NULL without a try
	email_id BLOB NOT NULL,
	id BLOB NOT NULL,
	team_id BLOB NOT NULL,
	domain_id BLOB,                  -- NULL for none
	broadcast_id BLOB,
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
) STRICT;

CREATE INDEX email_events_time ON email_events (team_id, created_at);
-- For each open (6) or click (7), earlier ones of the same recipient are looked up, and an email may have very many. Other
-- events are not in this index.
CREATE INDEX email_events_hits ON email_events (email_id, type, recipient, detail, created_at, id)
	WHERE type IN (6, 7);

-- Addresses to which a team sends no emails.
CREATE TABLE suppressions (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	address TEXT NOT NULL,           -- lower case
	origin TEXT NOT NULL,            -- bounce, complaint or manual
	source_id BLOB,                  -- the email that caused it, NULL for none
	created_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX suppressions_address ON suppressions (team_id, address);
CREATE INDEX suppressions_team ON suppressions (team_id, id);
-- Lists of suppressions with one origin, which may be few of a team's suppressions.
CREATE INDEX suppressions_origin ON suppressions (team_id, origin, id);

-- Emails for which a user's approval was requested. A decided row stays for a while.
CREATE TABLE approvals (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	actor_kind TEXT NOT NULL,        -- the kind of the actor that requested the approval: key, user or grant
	actor_id BLOB NOT NULL,
	actor_name TEXT NOT NULL,        -- the name that the actor had at that time
	sender TEXT NOT NULL,
	recipients INTEGER NOT NULL,     -- the number of addresses in To, Cc and Bcc together
	subject TEXT NOT NULL,
	state TEXT NOT NULL,             -- pending at first; approved, rejected, expired or failed at the end
	created_at INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,
	decided_at INTEGER NOT NULL,     -- 0 while it is pending
	decided_by_kind TEXT NOT NULL,   -- '' if nobody decided
	decided_by_id BLOB,              -- NULL for none
	reason TEXT NOT NULL,            -- why the approval was rejected, or why the email could not be sent
	email_id BLOB,                   -- the email that was sent, NULL for none
	request TEXT NOT NULL            -- the email in JSON, with its files; '' once it is decided
) STRICT;

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
	team_id BLOB PRIMARY KEY,
	email_id BLOB NOT NULL
) STRICT;

CREATE TABLE email_bodies_left (
	team_id BLOB NOT NULL,
	email_id BLOB NOT NULL,
	PRIMARY KEY (team_id, email_id)
) STRICT;

-- How often what happened to emails, by quarter hours since 1970, counted from email_events and received_emails by
-- internal/sending/metrics.
CREATE TABLE email_counts (
	team_id BLOB NOT NULL,
	slot INTEGER NOT NULL,           -- the quarter hour
	domain_id BLOB NOT NULL,         -- all zeros for none
	broadcast_id BLOB NOT NULL,
	type INTEGER NOT NULL,
	detail TEXT NOT NULL,
	events INTEGER NOT NULL,
	recipients INTEGER NOT NULL,
	-- Of opens and clicks, the recipients that did it for the first time as people: email_events.detail is 'machine'
	-- otherwise.
	people INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (team_id, slot, domain_id, broadcast_id, type, detail)
) STRICT;

-- The counts of deleted events. They are part of the counters in email_counts, also after these are corrected.
CREATE TABLE email_counts_kept (
	team_id BLOB NOT NULL,
	slot INTEGER NOT NULL,
	domain_id BLOB NOT NULL,         -- all zeros for none
	broadcast_id BLOB NOT NULL,
	type INTEGER NOT NULL,
	detail TEXT NOT NULL,
	events INTEGER NOT NULL,
	recipients INTEGER NOT NULL,
	people INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (team_id, slot, domain_id, broadcast_id, type, detail)
) STRICT;

-- Up to when a team's events are counted. The version changes with every change of its counts.
CREATE TABLE email_counts_until (
	team_id BLOB PRIMARY KEY,
	until INTEGER NOT NULL,
	version INTEGER NOT NULL
) STRICT;

-- The first quarter hour whose counts are not final (see internal/sending/metrics), in one row, or none.
CREATE TABLE email_counts_final (
	slot INTEGER PRIMARY KEY
) STRICT;

-- Events that came when their time had perhaps been counted.
CREATE TABLE email_counts_late (
	team_id BLOB NOT NULL,
	id BLOB NOT NULL,
	email_id BLOB,                   -- NULL when the counts of no other time can depend on it
	at INTEGER NOT NULL,
	PRIMARY KEY (team_id, id)
) STRICT;

-- Templates. Each version of a template has a content of its own. Versions never change.
CREATE TABLE templates (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	name TEXT NOT NULL,
	alias TEXT NOT NULL,             -- '' for none
	current_id BLOB NOT NULL,        -- the newest version
	published_id BLOB,               -- the version that emails are sent with, NULL for none
	versions INTEGER NOT NULL,       -- the number of the newest version
	revision INTEGER NOT NULL,       -- greater after each change
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	published_at INTEGER NOT NULL,   -- when the published version was published, 0 for never
	deleted INTEGER NOT NULL         -- the row remains until its versions are deleted
) STRICT;

CREATE INDEX templates_team ON templates (team_id, id);
CREATE UNIQUE INDEX templates_alias ON templates (team_id, alias) WHERE alias <> '';
CREATE INDEX templates_deleted ON templates (id) WHERE deleted;
-- Templates whose newest version is not published, which the page of connected apps offers to publish.
CREATE INDEX templates_unpublished ON templates (team_id, id)
	WHERE NOT deleted AND current_id IS DISTINCT FROM published_id;

CREATE TABLE template_versions (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	template_id BLOB NOT NULL,
	number INTEGER NOT NULL,         -- from 1, without gaps
	content_id BLOB NOT NULL,
	created_at INTEGER NOT NULL,
	published_at INTEGER NOT NULL,   -- when it was published last, 0 for never
	variables TEXT NOT NULL          -- JSON, '' when none
) STRICT;

CREATE UNIQUE INDEX template_versions_number ON template_versions (team_id, template_id, number);
CREATE INDEX template_versions_list ON template_versions (team_id, template_id, id);

-- The contacts of teams. Each address is one contact. source_id is the email whose unsubscribe link last changed the
-- column unsubscribed, NULL if something else changed it.
CREATE TABLE contacts (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	address TEXT NOT NULL,           -- lower case
	first_name TEXT NOT NULL,
	last_name TEXT NOT NULL,
	unsubscribed INTEGER NOT NULL,
	source_id BLOB,
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX contacts_address ON contacts (team_id, address);
CREATE INDEX contacts_team ON contacts (team_id, id);
-- Filters find unsubscribed contacts without reading all contacts.
CREATE INDEX contacts_unsubscribed ON contacts (team_id, id) WHERE unsubscribed;

-- The properties that a team defines for its contacts. The values of a deleted property are deleted in steps, and then
-- its row.
CREATE TABLE contact_properties (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	name TEXT NOT NULL,              -- the key, as contacts and placeholders name it
	type TEXT NOT NULL,              -- string or number
	fallback TEXT NOT NULL,          -- of contacts without a value; a number is written in decimal
	has_fallback INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	deleted_at INTEGER NOT NULL      -- 0 when it is not deleted
) STRICT;

CREATE UNIQUE INDEX contact_properties_name ON contact_properties (team_id, name) WHERE deleted_at = 0;
CREATE INDEX contact_properties_team ON contact_properties (team_id, id);
CREATE INDEX contact_properties_deleted ON contact_properties (id) WHERE deleted_at <> 0;

-- Values of string properties, and of number properties. Filters use the second index of each.
CREATE TABLE contact_texts (
	team_id BLOB NOT NULL,
	contact_id BLOB NOT NULL,
	property_id BLOB NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY (contact_id, property_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX contact_texts_value ON contact_texts (property_id, value, contact_id);

CREATE TABLE contact_numbers (
	team_id BLOB NOT NULL,
	contact_id BLOB NOT NULL,
	property_id BLOB NOT NULL,
	value REAL NOT NULL,
	PRIMARY KEY (contact_id, property_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX contact_numbers_value ON contact_numbers (property_id, value, contact_id);

-- Topics that contacts subscribe to. The subscriptions of a deleted topic are deleted in steps, and then its row.
CREATE TABLE topics (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	name TEXT NOT NULL,
	description TEXT NOT NULL,
	default_subscription TEXT NOT NULL, -- opt_in or opt_out: for contacts without a subscription of their own
	visibility TEXT NOT NULL,        -- public or private
	created_at INTEGER NOT NULL,
	deleted_at INTEGER NOT NULL      -- 0 when it is not deleted
) STRICT;

CREATE INDEX topics_team ON topics (team_id, id);
CREATE INDEX topics_deleted ON topics (id) WHERE deleted_at <> 0;

-- The subscriptions of contacts to topics, as the contact or the team chose. source_id is the email whose link the
-- contact used, NULL for none.
CREATE TABLE contact_topics (
	team_id BLOB NOT NULL,
	contact_id BLOB NOT NULL,
	topic_id BLOB NOT NULL,
	subscription TEXT NOT NULL,      -- opt_in or opt_out
	source_id BLOB,
	updated_at INTEGER NOT NULL,
	PRIMARY KEY (team_id, contact_id, topic_id)
) STRICT, WITHOUT ROWID;

-- Filters find the subscriptions to a topic in the index alone.
CREATE INDEX contact_topics_choice ON contact_topics (topic_id, contact_id, subscription);

-- Named sets of contacts: those that were added, or those that a filter finds. The memberships of a deleted segment
-- are deleted in steps, and then its row.
CREATE TABLE segments (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	name TEXT NOT NULL,
	filter TEXT NOT NULL,            -- JSON, '' when contacts are added by hand
	created_at INTEGER NOT NULL,
	deleted_at INTEGER NOT NULL      -- 0 when it is not deleted
) STRICT;

CREATE INDEX segments_team ON segments (team_id, id);
CREATE INDEX segments_deleted ON segments (id) WHERE deleted_at <> 0;

CREATE TABLE contact_segments (
	team_id BLOB NOT NULL,
	segment_id BLOB NOT NULL,
	contact_id BLOB NOT NULL,
	created_at INTEGER NOT NULL,
	PRIMARY KEY (segment_id, contact_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX contact_segments_contact ON contact_segments (contact_id, segment_id);

-- How many contacts large segments had when they were counted last. segment_id is 16 zeros for all of a team's
-- contacts.
CREATE TABLE segment_counts (
	segment_id BLOB NOT NULL,
	team_id BLOB NOT NULL,
	contacts INTEGER NOT NULL,
	counted_at INTEGER NOT NULL,
	PRIMARY KEY (team_id, segment_id)
) STRICT;

-- The count of a deleted segment, which the sweep deletes.
CREATE INDEX segment_counts_segment ON segment_counts (segment_id);

-- How a contact answers what it is sent. A contact that was never mailed and did nothing has no row.
CREATE TABLE contact_engagement (
	mailed_at INTEGER,               -- NULL when never, as the other times
	opened_at INTEGER,
	clicked_at INTEGER,
	contact_id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	mailed INTEGER NOT NULL,         -- emails of broadcasts and automations
	opened INTEGER NOT NULL,         -- opens by people
	clicked INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Filters find who opened or followed something, and when. They are written with opens and clicks, and not with each
-- email, as one of mailed_at would be.
CREATE INDEX contact_engagement_opened ON contact_engagement (team_id, opened_at, contact_id) WHERE opened_at IS NOT NULL;
CREATE INDEX contact_engagement_clicked ON contact_engagement (team_id, clicked_at, contact_id) WHERE clicked_at IS NOT NULL;

-- Files of contacts that are imported. One of a team is in progress at a time, in the order of ids. The counts, the
-- position and the rows that failed are written together with the contacts of a batch.
CREATE TABLE contact_imports (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	status TEXT NOT NULL,            -- queued, in_progress, completed or failed
	filename TEXT NOT NULL,
	size INTEGER NOT NULL,           -- of the file, in octets
	plan TEXT NOT NULL,              -- JSON: how the file is written, its columns, segments and topics
	position INTEGER NOT NULL,       -- the octet of the file from which to go on
	lines INTEGER NOT NULL,          -- of the file before the position
	created INTEGER NOT NULL,        -- rows by what became of them
	updated INTEGER NOT NULL,
	skipped INTEGER NOT NULL,
	failed INTEGER NOT NULL,
	kept INTEGER NOT NULL,           -- failed rows that contact_import_failures has
	reason TEXT NOT NULL,            -- why it failed
	created_at INTEGER NOT NULL,
	started_at INTEGER NOT NULL,     -- 0 when it has not been
	finished_at INTEGER NOT NULL
) STRICT;

CREATE INDEX contact_imports_team ON contact_imports (team_id, id);
CREATE INDEX contact_imports_status ON contact_imports (team_id, status, id);
-- Imports are deleted some time after they ended, with the rows that failed.
CREATE INDEX contact_imports_ended ON contact_imports (finished_at) WHERE finished_at > 0;

CREATE TABLE contact_import_failures (
	import_id BLOB NOT NULL,
	line INTEGER NOT NULL,           -- of the file, on which the row begins
	team_id BLOB NOT NULL,
	reason TEXT NOT NULL,
	fields TEXT NOT NULL,            -- JSON, '' when the row was too long to be kept
	PRIMARY KEY (import_id, line)
) STRICT;

-- Emails to an audience. The columns from position on are the progress of sending; the transaction that inserts the
-- emails of a page of recipients updates them.
CREATE TABLE broadcasts (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	name TEXT NOT NULL,
	segment_id BLOB NOT NULL,
	topic_id BLOB,                   -- NULL for none
	preview_text TEXT NOT NULL,
	content_id BLOB NOT NULL,        -- the broadcast's own text, before variants change it
	options TEXT NOT NULL,           -- JSON: pace, A/B test, limits
	status TEXT NOT NULL,            -- draft, scheduled, queued, paused, canceled, sent or failed
	reason TEXT NOT NULL,            -- why it is paused or failed, '' otherwise
	guarded INTEGER NOT NULL,        -- it pauses when bounces or complaints pass a limit
	actor_kind TEXT NOT NULL,        -- the kind of the actor that sent it, '' before
	actor_id BLOB,                   -- NULL for none
	revision INTEGER NOT NULL,       -- counts the changes of a draft
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	scheduled_at INTEGER NOT NULL,
	started_at INTEGER NOT NULL,     -- contacts that were added later are not mailed
	sent_at INTEGER NOT NULL,
	position BLOB,                   -- the contact up to which the audience was walked
	phase TEXT NOT NULL,             -- all, test, wait, rest or settle; '' before it starts
	winner INTEGER NOT NULL,         -- the variant that won, -1 while none has
	next_at INTEGER NOT NULL,        -- when the next page is due by the pace, or the winner is chosen
	entered INTEGER NOT NULL,        -- contacts that got an email
	left_out INTEGER NOT NULL,       -- contacts that got none
	-- When the broadcast was paused, in microseconds since 1970, or 0. A pause does not count toward the time after
	-- which the winner of an A/B test is chosen.
	paused_at INTEGER NOT NULL DEFAULT 0,
	-- Whether the winner of the A/B test differed significantly from the other variants: 1 or 0, or -1 if this is not
	-- known because no winner was chosen or a person chose it.
	significant INTEGER NOT NULL DEFAULT -1
) STRICT;

CREATE INDEX broadcasts_team ON broadcasts (team_id, id);
-- The broadcasts that are being sent or are paused, which a suspension, a deleted key or a change to a domain may
-- stop or continue.
CREATE INDEX broadcasts_active ON broadcasts (team_id, id) WHERE status IN ('queued', 'paused');
-- The broadcasts that have started, which the usage of a team counts.
CREATE INDEX broadcasts_started ON broadcasts (team_id, id) WHERE started_at > 0;

-- The variants of a broadcast, with the fields that they override. A broadcast without an A/B test has only the variant
-- 0, which is inserted when sending starts.
CREATE TABLE broadcast_variants (
	broadcast_id BLOB NOT NULL,
	number INTEGER NOT NULL,
	team_id BLOB NOT NULL,
	content_id BLOB,                 -- the content that is sent; NULL before sending starts
	given INTEGER NOT NULL,          -- bits: 1 from, 2 subject, 4 preview text, 8 html, 16 text
	sender TEXT NOT NULL,
	subject TEXT NOT NULL,
	preview_text TEXT NOT NULL,
	html TEXT NOT NULL,
	body_text TEXT NOT NULL,
	PRIMARY KEY (broadcast_id, number)
) STRICT;

-- The same, without a second tree for the key.
CREATE TABLE broadcast_recipients (
	broadcast_id BLOB NOT NULL,
	contact_id BLOB NOT NULL,
	email_id BLOB,                   -- NULL when left out
	opens INTEGER NOT NULL,
	clicks INTEGER NOT NULL,
	variant INTEGER NOT NULL,
	state INTEGER NOT NULL,          -- see broadcasts.states
	bounce INTEGER NOT NULL,         -- 0 when it did not bounce; see broadcasts.bounceTypes
	opened INTEGER NOT NULL,         -- by a person
	clicked INTEGER NOT NULL,        -- by a person
	complained INTEGER NOT NULL,
	unsubscribed INTEGER NOT NULL,
	reason TEXT NOT NULL,            -- why it was left out, '' otherwise
	address TEXT NOT NULL,
	PRIMARY KEY (broadcast_id, contact_id)
) STRICT, WITHOUT ROWID;

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
	broadcast_id BLOB NOT NULL,
	variant INTEGER NOT NULL,
	part INTEGER NOT NULL,
	team_id BLOB NOT NULL,
	sent INTEGER NOT NULL,           -- emails in the state; those that are in none of these wait
	delivered INTEGER NOT NULL,
	bounced INTEGER NOT NULL,
	hard INTEGER NOT NULL,           -- of those that bounced, for good
	failed INTEGER NOT NULL,
	suppressed INTEGER NOT NULL,
	canceled INTEGER NOT NULL,
	opened INTEGER NOT NULL,         -- by a person
	clicked INTEGER NOT NULL,        -- by a person
	complained INTEGER NOT NULL,
	unsubscribed INTEGER NOT NULL,
	-- The number of contacts that were deleted before their email was sent. These contacts count as left out. The
	-- trigger counts them when it moves a recipient to the state left_out; contacts without an email are counted in
	-- broadcast_entered.
	left_out INTEGER NOT NULL DEFAULT 0,
	PRIMARY KEY (broadcast_id, variant, part)
) STRICT;

CREATE TRIGGER broadcast_recipients_count AFTER UPDATE OF state, opened, clicked, complained, unsubscribed
ON broadcast_recipients WHEN OLD.state <> NEW.state OR OLD.opened <> NEW.opened OR OLD.clicked <> NEW.clicked
	OR OLD.complained <> NEW.complained OR OLD.unsubscribed <> NEW.unsubscribed
BEGIN
	UPDATE broadcast_counts SET
		sent = sent + (NEW.state = 2) - (OLD.state = 2),
		delivered = delivered + (NEW.state = 3) - (OLD.state = 3),
		bounced = bounced + (NEW.state = 4) - (OLD.state = 4),
		hard = hard + (NEW.state = 4 AND NEW.bounce = 1)
			- (OLD.state = 4 AND OLD.bounce = 1),
		failed = failed + (NEW.state = 5) - (OLD.state = 5),
		suppressed = suppressed + (NEW.state = 6) - (OLD.state = 6),
		canceled = canceled + (NEW.state = 7) - (OLD.state = 7),
		left_out = left_out + (NEW.state = 8) - (OLD.state = 8),
		opened = opened + NEW.opened - OLD.opened, clicked = clicked + NEW.clicked - OLD.clicked,
		complained = complained + NEW.complained - OLD.complained,
		unsubscribed = unsubscribed + NEW.unsubscribed - OLD.unsubscribed
	WHERE broadcast_id = NEW.broadcast_id AND variant = NEW.variant AND part = 0; END;

-- How many contacts got an email, and how many were left out for what reason, as the transactions of pages add them.
CREATE TABLE broadcast_entered (
	broadcast_id BLOB NOT NULL,
	variant INTEGER NOT NULL,
	reason TEXT NOT NULL,            -- '' for those that got an email
	team_id BLOB NOT NULL,
	contacts INTEGER NOT NULL,
	PRIMARY KEY (broadcast_id, variant, reason)
) STRICT;

-- The links of a broadcast that were followed, and by whom. A link is known by a hash, because a target may be longer
-- than an index takes.
CREATE TABLE broadcast_links (
	broadcast_id BLOB NOT NULL,
	link TEXT NOT NULL,
	team_id BLOB NOT NULL,
	url TEXT NOT NULL,
	clicks INTEGER NOT NULL,
	recipients INTEGER NOT NULL,     -- how many followed it
	PRIMARY KEY (broadcast_id, link)
) STRICT;

CREATE INDEX broadcast_links_clicks ON broadcast_links (broadcast_id, clicks, link);

CREATE TABLE broadcast_clicks (
	broadcast_id BLOB NOT NULL,
	contact_id BLOB NOT NULL,
	link TEXT NOT NULL,
	team_id BLOB NOT NULL,
	clicks INTEGER NOT NULL,
	PRIMARY KEY (broadcast_id, contact_id, link)
) STRICT;

-- Events that callers define: a name by which they send them, and what their payloads look like.
CREATE TABLE custom_events (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	name TEXT NOT NULL,
	fields TEXT NOT NULL,            -- JSON: the types of the payload's members by their names; '' for no schema
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL      -- 0 when it was never updated
) STRICT;

CREATE UNIQUE INDEX custom_events_name ON custom_events (team_id, name);
CREATE INDEX custom_events_team ON custom_events (team_id, id);

-- Automations. epoch counts how often one was stopped: a run of an older epoch is cancelled, whatever its row says
-- yet.
CREATE TABLE automations (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	name TEXT NOT NULL,
	status TEXT NOT NULL,            -- enabled or disabled
	reentry TEXT NOT NULL,           -- always, once_at_a_time or once
	version_id BLOB NOT NULL,        -- with which runs begin
	epoch INTEGER NOT NULL,
	revision INTEGER NOT NULL,       -- counts the changes
	created_at INTEGER NOT NULL,
	updated_at INTEGER NOT NULL,
	deleted_at INTEGER NOT NULL      -- 0 when it is not deleted
) STRICT;

CREATE INDEX automations_team ON automations (team_id, id) WHERE deleted_at = 0;
CREATE INDEX automations_deleted ON automations (team_id, id) WHERE deleted_at <> 0;

-- The graphs that an automation has, and had when its runs began. They never change.
CREATE TABLE automation_versions (
	id BLOB PRIMARY KEY,
	automation_id BLOB NOT NULL,
	team_id BLOB NOT NULL,
	number INTEGER NOT NULL,         -- from 1
	used INTEGER NOT NULL,           -- 1 once the automation was enabled with it: runs can have begun with it
	created_at INTEGER NOT NULL,
	steps TEXT NOT NULL,             -- JSON; large, and therefore behind what is read of many
	connections TEXT NOT NULL,       -- JSON
	-- The events that the graph waits for, as a JSON list; '' if a node of the previous release inserted the version.
	wait_events TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE UNIQUE INDEX automation_versions_number ON automation_versions (automation_id, number);

-- Which events begin runs: rows of enabled automations alone. They have what the transaction of an event needs to
-- begin a run, so that it reads no graph.
CREATE TABLE automation_triggers (
	team_id BLOB NOT NULL,
	event_name TEXT NOT NULL,
	automation_id BLOB NOT NULL,
	version_id BLOB NOT NULL,
	epoch INTEGER NOT NULL,
	reentry TEXT NOT NULL,
	step TEXT NOT NULL,              -- the key of the trigger
	next_step TEXT NOT NULL,         -- the key of the step behind it, '' for none
	wait_event TEXT NOT NULL,        -- the event that the next step waits for, '' if it does not
	wait_timeout INTEGER NOT NULL,   -- how long, in microseconds, 0 for the longest
	PRIMARY KEY (team_id, event_name, automation_id)
) STRICT;

CREATE INDEX automation_triggers_automation ON automation_triggers (automation_id);

-- The automations whose steps a connected app wrote or that it enabled last. Such an automation stops when the app
-- may no longer change automations.
CREATE TABLE automation_apps (
	automation_id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	grant_id BLOB NOT NULL,
	halted_at INTEGER NOT NULL       -- when it stopped because of the app, 0 if it has not
) STRICT;

CREATE INDEX automation_apps_grant ON automation_apps (team_id, grant_id, automation_id);

-- A contact on its way through a version. A run that is running has a job.
CREATE TABLE automation_runs (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	automation_id BLOB NOT NULL,
	version_id BLOB NOT NULL,
	contact_id BLOB NOT NULL,
	contact_gone INTEGER NOT NULL,   -- 1 once the contact was deleted: then nothing is kept of it when the run ends
	epoch INTEGER NOT NULL,
	status TEXT NOT NULL,            -- running, completed, failed or cancelled
	reason TEXT NOT NULL,            -- why it failed or was cancelled, '' otherwise
	event TEXT NOT NULL,             -- the name of the event that began it
	payload TEXT NOT NULL,           -- JSON of that, '' for none
	received TEXT NOT NULL,          -- JSON of the events that its waits received, '' for none
	step TEXT NOT NULL,              -- the key of the step it is at, '' once it has ended
	waits_until INTEGER NOT NULL,    -- 0 when it does not wait
	waits_for TEXT NOT NULL,         -- the name of an event, '' for none
	depth INTEGER NOT NULL,          -- how many runs led to the event that began it
	revision INTEGER NOT NULL,       -- counts the steps; the fence
	steps INTEGER NOT NULL,          -- rows of automation_run_steps
	event_at INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	ended_at INTEGER NOT NULL,
	-- Events for a waiting run that arrived while its graph was not cached: a JSON list, '' for none. A run with such
	-- events has a row in automation_waits for each event that its graph waits for anywhere, so that later events are
	-- appended.
	pending TEXT NOT NULL DEFAULT ''
) STRICT;

CREATE INDEX automation_runs_automation ON automation_runs (automation_id, id);
CREATE INDEX automation_runs_status ON automation_runs (automation_id, status, id);
CREATE INDEX automation_runs_contact ON automation_runs (contact_id, id);
CREATE INDEX automation_runs_live ON automation_runs (contact_id, id) WHERE ended_at = 0;
CREATE INDEX automation_runs_ended ON automation_runs (team_id, ended_at, id) WHERE ended_at > 0;

-- The result of each step of a run.
CREATE TABLE automation_run_steps (
	run_id BLOB NOT NULL,
	position INTEGER NOT NULL,       -- from 0
	team_id BLOB NOT NULL,
	step TEXT NOT NULL,              -- the key
	status TEXT NOT NULL,            -- waiting, running, completed, failed or skipped
	output TEXT NOT NULL,            -- JSON, '' for none
	reason TEXT NOT NULL,            -- why it failed, '' otherwise
	message TEXT NOT NULL,           -- the same as a sentence
	started_at INTEGER NOT NULL,
	completed_at INTEGER NOT NULL,   -- 0 before
	PRIMARY KEY (run_id, position)
) STRICT;

-- Runs that wait for an event.
CREATE TABLE automation_waits (
	team_id BLOB NOT NULL,
	event_name TEXT NOT NULL,
	contact_id BLOB NOT NULL,
	run_id BLOB NOT NULL,
	PRIMARY KEY (team_id, event_name, contact_id, run_id)
) STRICT;

CREATE INDEX automation_waits_run ON automation_waits (run_id);

-- The runs of a contact in an automation, in short, by which the rules of entry are applied. Each transaction that
-- begins or ends a run changes the row.
CREATE TABLE automation_contacts (
	automation_id BLOB NOT NULL,
	contact_id BLOB NOT NULL,
	team_id BLOB NOT NULL,
	epoch INTEGER NOT NULL,          -- whose runs active counts: those of older ones are canceled
	active INTEGER NOT NULL,         -- runs that have not ended
	begun INTEGER NOT NULL,          -- runs in all
	hour_from INTEGER NOT NULL,      -- when the hour began in which hour_begun were begun
	hour_begun INTEGER NOT NULL,
	last_run_id BLOB NOT NULL,       -- the run that began last
	limited_at INTEGER NOT NULL,     -- when a run last said that a limit was reached, 0 never
	limited_run_id BLOB,             -- that run, NULL for none
	PRIMARY KEY (automation_id, contact_id)
) STRICT;

CREATE INDEX automation_contacts_contact ON automation_contacts (contact_id);

-- Received emails. The columns hold the values that lists show. Bodies, headers and files are read from the raw message
-- for each request, so that accepting a message writes only two rows.
CREATE TABLE received_emails (
	team_id BLOB NOT NULL,
	id BLOB NOT NULL,
	domain_id BLOB,                  -- NULL at the managed domain and for the operator's own addresses
	sender TEXT NOT NULL,            -- the bare address of From
	subject TEXT NOT NULL,
	message_id TEXT NOT NULL,        -- with angle brackets, '' when it had none
	recipients TEXT NOT NULL,        -- JSON: to, cc, bcc, reply_to of the header
	received_for TEXT NOT NULL,      -- JSON list: the envelope recipients that are this team's
	files TEXT NOT NULL,             -- JSON list of the attachments without their content, '' when none
	thread_id BLOB NOT NULL,
	origin TEXT NOT NULL,            -- JSON: envelope sender and client
	authentication TEXT NOT NULL,    -- JSON, '' when not evaluated
	spam TEXT NOT NULL,              -- JSON, '' when no filter was asked
	size INTEGER NOT NULL,           -- octets of the raw message
	blob_key TEXT NOT NULL,          -- of a large raw message; '' when it is in received_raws
	created_at INTEGER NOT NULL,
	PRIMARY KEY (team_id, id)
) STRICT;

CREATE INDEX received_emails_thread ON received_emails (team_id, thread_id, id);
CREATE INDEX received_emails_blob ON received_emails (blob_key) WHERE blob_key <> '';
CREATE INDEX received_emails_message ON received_emails (team_id, message_id, id);
-- internal/sending/metrics counts received emails by their time and their domain.
CREATE INDEX received_emails_time ON received_emails (team_id, created_at, domain_id);

-- Small raw messages: many of them share one commit, where each blob would cost an fsync of its own.
CREATE TABLE received_raws (
	team_id BLOB NOT NULL,
	email_id BLOB NOT NULL,
	content BLOB NOT NULL,
	PRIMARY KEY (team_id, email_id)
) STRICT;

-- The URLs to which a team's events are sent. A deleted endpoint stays until the sweep has deleted its deliveries.
CREATE TABLE webhooks (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	url TEXT NOT NULL,
	events TEXT NOT NULL,            -- types, comma-separated; '' for all
	status TEXT NOT NULL,            -- enabled, disabled or deleted
	secret BLOB NOT NULL,            -- encrypted
	old_secret BLOB NOT NULL,        -- encrypted; also signs until old_until
	old_until INTEGER NOT NULL,
	failing_since INTEGER NOT NULL,  -- the first failure after the last known success, 0 for none
	warned INTEGER NOT NULL,         -- whether the team was notified of the failures
	disabled_reason TEXT NOT NULL,   -- '' unless the program disabled it
	disabled_at INTEGER NOT NULL,
	created_at INTEGER NOT NULL,
	-- When the endpoint reached the limit of waiting messages; 0 while it accepts messages.
	full_since INTEGER NOT NULL DEFAULT 0,
	full_told INTEGER NOT NULL DEFAULT 0, -- when the team was last notified that the endpoint is full
	open_since BLOB NOT NULL         -- no unfinished delivery has a message with a lower id
) STRICT;

CREATE INDEX webhooks_team ON webhooks (team_id, id);
CREATE INDEX webhooks_deleted ON webhooks (id) WHERE status = 'deleted';

-- Events as they are sent: the bytes that are signed, stored once for all endpoints.
CREATE TABLE webhook_messages (
	id BLOB PRIMARY KEY,             -- the id of the event; receivers see msg_ and the id without hyphens
	team_id BLOB NOT NULL,
	type TEXT NOT NULL,
	created_at INTEGER NOT NULL,
	payload TEXT NOT NULL
) STRICT;

-- Erasing a team or an address reads the messages of one team.
CREATE INDEX webhook_messages_team ON webhook_messages (team_id, id);

-- Messages of teams with many endpoints for which not all deliveries are inserted yet.
CREATE TABLE webhook_fanouts (
	team_id BLOB NOT NULL,
	chain TEXT NOT NULL,             -- as in webhook_deliveries
	message_id BLOB NOT NULL,
	type TEXT NOT NULL,
	after BLOB NOT NULL,             -- the last endpoint that has a delivery; all zeros for none
	created_at INTEGER NOT NULL,
	PRIMARY KEY (team_id, chain, message_id)
) STRICT;

-- The messages of each endpoint. Those of one chain, such as one email, are delivered in order.
CREATE TABLE webhook_deliveries (
	webhook_id BLOB NOT NULL,
	message_id BLOB NOT NULL,
	team_id BLOB NOT NULL,
	chain TEXT NOT NULL,             -- an id or a suppressed address
	status TEXT NOT NULL,            -- pending, attempting, success or failed
	tries INTEGER NOT NULL,          -- the number of attempts since the schedule began
	next_at INTEGER NOT NULL,        -- the time of the next attempt; 0 if it is due or no attempt follows
	finished_at INTEGER NOT NULL,    -- 0 while pending or attempting
	PRIMARY KEY (webhook_id, message_id)
) STRICT;

CREATE INDEX webhook_deliveries_open ON webhook_deliveries (webhook_id, chain, message_id)
	WHERE status IN ('pending', 'attempting');
CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (webhook_id, message_id) WHERE status = 'failed';

CREATE TABLE webhook_attempts (
	webhook_id BLOB NOT NULL,
	message_id BLOB NOT NULL,
	id BLOB NOT NULL,                -- the API shows atmpt_ and the id without hyphens
	team_id BLOB NOT NULL,
	status_code INTEGER NOT NULL,    -- 0 without a response
	response TEXT NOT NULL,          -- the beginning of the response's body
	error TEXT NOT NULL,             -- why the attempt failed, '' after a success
	started_at INTEGER NOT NULL,
	duration INTEGER NOT NULL,       -- microseconds
	PRIMARY KEY (webhook_id, message_id, id)
) STRICT;

-- Teams whose events are watched (see internal/outbound/eventstream).
CREATE TABLE live_tails (
	team_id BLOB PRIMARY KEY,
	until INTEGER NOT NULL           -- extended while a client watches
) STRICT;

-- The events of these teams, which are kept for minutes only.
CREATE TABLE live_messages (
	team_id BLOB NOT NULL,
	id BLOB NOT NULL,                -- the id of the event; clients see msg_ and the id without hyphens
	type TEXT NOT NULL,
	payload TEXT NOT NULL,
	PRIMARY KEY (team_id, id)
) STRICT;

-- The sweep deletes the old messages of all teams.
CREATE INDEX live_messages_id ON live_messages (id);

-- Requests to erase an address, and their results. A completed row no longer contains the address.
CREATE TABLE erasures (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	contact_id BLOB,                 -- NULL if no contact had the address
	address TEXT NOT NULL,           -- '' once the erasure is completed
	refusals INTEGER NOT NULL,       -- whether the suppression and unsubscriptions of the address are erased too
	dry_run INTEGER NOT NULL,
	state TEXT NOT NULL,             -- queued, in_progress or completed
	pass INTEGER NOT NULL,           -- passes through all tables, counted from 0
	done INTEGER NOT NULL,           -- the number of erasers that have ended in this pass
	report TEXT NOT NULL,            -- JSON: the result of each eraser
	created_at INTEGER NOT NULL,
	completed_at INTEGER NOT NULL    -- 0 until it is completed
) STRICT;

CREATE UNIQUE INDEX erasures_address ON erasures (team_id, address) WHERE address <> '';
CREATE INDEX erasures_team ON erasures (team_id, id);
