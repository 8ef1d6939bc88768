-- Sent emails. What delivery touches often stands apart from what is large and read once.
CREATE TABLE emails (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	api_key_id TEXT NOT NULL,
	domain_id TEXT NOT NULL,         -- of the sender
	message_id TEXT NOT NULL,
	sender TEXT NOT NULL,            -- From as the caller wrote it
	subject TEXT NOT NULL,
	recipients TEXT NOT NULL,        -- JSON: to, cc, bcc, reply_to as the caller wrote them
	tags TEXT NOT NULL,              -- JSON, '' when none
	topic_id TEXT NOT NULL,
	template_id TEXT NOT NULL,
	broadcast_id TEXT NOT NULL,
	last_event TEXT NOT NULL,
	rank BIGINT NOT NULL,            -- of last_event; it only rises
	scheduled_at BIGINT NOT NULL,
	created_at BIGINT NOT NULL
);

CREATE INDEX emails_team ON emails (team_id, id);

CREATE TABLE email_bodies (
	email_id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	html TEXT NOT NULL,
	body_text TEXT NOT NULL,
	parts BIGINT NOT NULL,           -- bits: 1 html was given, 2 text was given, 4 it has attachments
	headers TEXT NOT NULL            -- JSON, '' when none
);

CREATE TABLE email_recipients (
	email_id TEXT NOT NULL,
	position BIGINT NOT NULL,
	team_id TEXT NOT NULL,
	kind TEXT NOT NULL,              -- to, cc or bcc
	address TEXT NOT NULL,           -- as it stands in the envelope
	domain TEXT NOT NULL,            -- its destination
	state TEXT NOT NULL,
	rank BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	PRIMARY KEY (email_id, position)
);

CREATE TABLE email_attachments (
	email_id TEXT NOT NULL,
	id TEXT NOT NULL,
	team_id TEXT NOT NULL,
	filename TEXT NOT NULL,
	content_type TEXT NOT NULL,
	content_id TEXT NOT NULL,
	size BIGINT NOT NULL,
	blob_key TEXT NOT NULL,          -- '' until the path is fetched
	path TEXT NOT NULL,
	PRIMARY KEY (email_id, id)
);

-- What happened, per recipient where it happened to one. The key begins with the email: each index is paid for with every
-- event, and an event is only ever looked up as one of its email.
CREATE TABLE email_events (
	email_id TEXT NOT NULL,
	id TEXT NOT NULL,
	team_id TEXT NOT NULL,
	domain_id TEXT NOT NULL,
	broadcast_id TEXT NOT NULL,
	type TEXT NOT NULL,              -- without the "email." before it
	detail TEXT NOT NULL,            -- a bounce's type in lower case
	recipient TEXT NOT NULL,         -- '' when it is of the whole email
	data TEXT NOT NULL,              -- JSON, '' when none
	created_at BIGINT NOT NULL,
	PRIMARY KEY (email_id, id)
);

CREATE INDEX email_events_time ON email_events (team_id, created_at);

-- Tries to deliver, with the conversation.
CREATE TABLE email_attempts (
	email_id TEXT NOT NULL,
	id TEXT NOT NULL,
	team_id TEXT NOT NULL,
	destination TEXT NOT NULL,
	recipients TEXT NOT NULL,        -- JSON list of addresses
	host TEXT NOT NULL,              -- name and address spoken to, '' when none was reached
	tls TEXT NOT NULL,               -- version, cipher and whether the certificate was verified; '' when in the clear
	outcome TEXT NOT NULL,           -- delivered, delayed, bounced, mixed or unknown
	reply TEXT NOT NULL,             -- the reply that decided, or the error
	conversation TEXT NOT NULL,
	started_at BIGINT NOT NULL,
	duration BIGINT NOT NULL,        -- microseconds
	next_at BIGINT NOT NULL,         -- when it is tried again; 0 when it is not
	PRIMARY KEY (email_id, id)
);

CREATE TABLE idempotency_keys (
	team_id TEXT NOT NULL,
	scope TEXT NOT NULL,             -- method and path
	idempotency_key TEXT NOT NULL,
	payload_hash TEXT NOT NULL,
	response TEXT NOT NULL,          -- JSON: what was answered
	created_at BIGINT NOT NULL,
	PRIMARY KEY (team_id, scope, idempotency_key)
);

CREATE INDEX idempotency_keys_age ON idempotency_keys (created_at);
