-- Emails that a program wants to send, of which a person decides.
CREATE TABLE approvals (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	actor_kind TEXT NOT NULL,       -- who asks
	actor_id TEXT NOT NULL,
	actor_name TEXT NOT NULL,       -- as it was then
	request TEXT NOT NULL,          -- the email in JSON, with its files; '' once it is decided
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
	email_id TEXT NOT NULL          -- of the email that was sent, otherwise ''
);

CREATE INDEX approvals_team ON approvals (team_id, id);

CREATE INDEX approvals_state ON approvals (team_id, state, id);

CREATE INDEX approvals_actor ON approvals (team_id, actor_id, created_at);

CREATE INDEX approvals_pending ON approvals (expires_at, id) WHERE state = 'pending';

CREATE INDEX approvals_decided ON approvals (decided_at, id) WHERE decided_at > 0;
