-- What a program asked for is listed by its id, also of one state. On SQLite the email, which may be large, stood before
-- what lists read, in the middle of the row, so that they read all of its pages: there it moves to the end.
-- only: sqlite
CREATE TABLE approvals_ordered (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	actor_kind TEXT NOT NULL,       -- who asks
	actor_id TEXT NOT NULL,
	actor_name TEXT NOT NULL,       -- as it was then
	sender TEXT NOT NULL,
	recipients BIGINT NOT NULL,     -- addresses in To, Cc and Bcc together
	subject TEXT NOT NULL,
	state TEXT NOT NULL,            -- pending, and then for good approved, rejected, expired or failed
	created_at BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,
	decided_at BIGINT NOT NULL,     -- 0 while it is pending
	decided_by_kind TEXT NOT NULL,  -- '' unless somebody decided
	decided_by_id TEXT NOT NULL,
	reason TEXT NOT NULL,           -- why it was rejected or could not be sent
	email_id TEXT NOT NULL,         -- of the email that was sent, otherwise ''
	request TEXT NOT NULL           -- the email in JSON, with its files; '' once it is decided
);

-- only: sqlite
INSERT INTO approvals_ordered (id, team_id, actor_kind, actor_id, actor_name, sender, recipients, subject, state,
	created_at, expires_at, decided_at, decided_by_kind, decided_by_id, reason, email_id, request)
	SELECT id, team_id, actor_kind, actor_id, actor_name, sender, recipients, subject, state, created_at, expires_at,
	decided_at, decided_by_kind, decided_by_id, reason, email_id, request FROM approvals ORDER BY id;

-- only: sqlite
DROP TABLE approvals;

-- only: sqlite
ALTER TABLE approvals_ordered RENAME TO approvals;

-- only: sqlite
CREATE INDEX approvals_team ON approvals (team_id, id);

-- only: sqlite
CREATE INDEX approvals_state ON approvals (team_id, state, id);

-- only: sqlite
CREATE INDEX approvals_actor ON approvals (team_id, actor_id, created_at);

-- only: sqlite
CREATE INDEX approvals_pending ON approvals (expires_at, id) WHERE state = 'pending';

-- only: sqlite
CREATE INDEX approvals_decided ON approvals (decided_at, id) WHERE decided_at > 0;

CREATE INDEX approvals_own ON approvals (team_id, actor_id, id);

CREATE INDEX approvals_own_state ON approvals (team_id, actor_id, state, id);

-- The API key that consented, in development: the grant ends with it.
ALTER TABLE oauth_grants ADD COLUMN key_id TEXT NOT NULL DEFAULT '';
ALTER TABLE oauth_codes ADD COLUMN key_id TEXT NOT NULL DEFAULT '';
