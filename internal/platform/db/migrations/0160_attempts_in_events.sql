-- An event that a try to deliver has caused says how the try went. If a try has several events, the first one with an
-- outcome says it. The columns of the try are NULL in all other events. Columns of a fixed size come first, because
-- PostgreSQL aligns them, and long texts come last.
DROP TABLE email_attempts;

CREATE TABLE email_events_with_attempts (
	created_at BIGINT NOT NULL,
	started_at BIGINT,               -- of the try
	duration BIGINT,                 -- microseconds
	next_at BIGINT,                  -- when it is tried again; NULL when it is not
	email_id TEXT NOT NULL,
	id TEXT NOT NULL,
	team_id TEXT NOT NULL,
	domain_id TEXT NOT NULL,
	broadcast_id TEXT NOT NULL,
	type TEXT NOT NULL,              -- without the "email." before it
	detail TEXT NOT NULL,            -- a bounce's type in lower case
	recipient TEXT NOT NULL,         -- '' when it is of the whole email
	outcome TEXT,                    -- delivered, delayed, bounced, mixed or unknown
	destination TEXT,                -- NULL when it is the domain of the event's recipient
	recipients TEXT,                 -- JSON list; NULL when it is the event's recipient
	host TEXT,                       -- name and address spoken to, '' when none was reached
	tls TEXT,                        -- version, cipher and whether the certificate was verified; '' when in the clear
	data TEXT NOT NULL,              -- JSON, '' when none
	reply TEXT,                      -- the reply that decided, or the error
	conversation TEXT,
	PRIMARY KEY (email_id, id)
);

INSERT INTO email_events_with_attempts (created_at, email_id, id, team_id, domain_id, broadcast_id, type, detail,
	recipient, data) SELECT created_at, email_id, id, team_id, domain_id, broadcast_id, type, detail, recipient, data
	FROM email_events;

DROP TABLE email_events;

ALTER TABLE email_events_with_attempts RENAME TO email_events;

CREATE INDEX email_events_time ON email_events (team_id, created_at);

CREATE INDEX email_events_hits ON email_events (email_id, type, recipient, detail, created_at, id)
	WHERE type IN ('opened', 'clicked');
