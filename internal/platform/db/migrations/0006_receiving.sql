-- Emails that came in. What lists show stands in columns; bodies, headers and files are read out of the raw message each
-- time they are asked for, so that accepting writes two rows and no more.
CREATE TABLE received_emails (
	team_id TEXT NOT NULL,
	id TEXT NOT NULL,
	domain_id TEXT NOT NULL,         -- '' at the managed domain and for the operator's own addresses
	sender TEXT NOT NULL,            -- the bare address of From
	subject TEXT NOT NULL,
	message_id TEXT NOT NULL,        -- with angle brackets, '' when it had none
	recipients TEXT NOT NULL,        -- JSON: to, cc, bcc, reply_to of the header
	received_for TEXT NOT NULL,      -- JSON list: the envelope recipients that are this team's
	files TEXT NOT NULL,             -- JSON list of the attachments without their content, '' when none
	thread_id TEXT NOT NULL,
	origin TEXT NOT NULL,            -- JSON: envelope sender and client
	authentication TEXT NOT NULL,    -- JSON, '' when not evaluated
	spam TEXT NOT NULL,              -- JSON, '' when no filter was asked
	size BIGINT NOT NULL,            -- octets of the raw message
	blob_key TEXT NOT NULL,          -- of a large raw message; '' when it is in received_raws
	created_at BIGINT NOT NULL,
	PRIMARY KEY (team_id, id)
);

CREATE INDEX received_emails_message ON received_emails (team_id, message_id);

CREATE INDEX received_emails_thread ON received_emails (team_id, thread_id, id);

CREATE INDEX received_emails_blob ON received_emails (blob_key) WHERE blob_key <> '';

-- Small raw messages: many of them share one commit, where each blob would cost an fsync of its own.
CREATE TABLE received_raws (
	team_id TEXT NOT NULL,
	email_id TEXT NOT NULL,
	content BYTEA NOT NULL,
	PRIMARY KEY (team_id, email_id)
);
