-- Small messages that callers composed, as they are sent: many of them share one commit, where each blob would cost an fsync
-- of its own.
CREATE TABLE email_messages (
	email_id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	content BYTEA NOT NULL
);
