-- On PostgreSQL, an email's own body is part of its row: PostgreSQL keeps long texts apart, and reads them only for
-- statements that name them. On SQLite, a list of emails would read all of the bodies' pages, so they stay in their table.
-- Columns of a fixed size come first, because PostgreSQL aligns them. The columns that delivery updates come last: the log
-- of an update has what differs between the first and the last difference of the two rows. The new row is written to the
-- same page, without new entries in indexes, if the page has room, which the fillfactor leaves.
-- only: postgres
CREATE TABLE emails_with_bodies (
	created_at BIGINT NOT NULL,
	scheduled_at BIGINT NOT NULL,
	parts SMALLINT,                  -- bits: 1 html was given, 2 text was given, ...; NULL without a body of its own
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	api_key_id TEXT NOT NULL,        -- of the actor
	actor_kind TEXT NOT NULL DEFAULT 'key',
	domain_id TEXT NOT NULL,         -- of the sender
	message_id TEXT NOT NULL,
	sender TEXT NOT NULL,            -- From as the caller wrote it
	subject TEXT NOT NULL,
	recipient TEXT NOT NULL DEFAULT '',  -- envelope address of the only recipient
	recipients TEXT NOT NULL,        -- JSON: to, cc, bcc, reply_to as the caller wrote them; '' if recipient says the same
	tags TEXT NOT NULL,              -- JSON, '' when none
	topic_id TEXT NOT NULL,
	template_id TEXT NOT NULL,
	broadcast_id TEXT NOT NULL,
	contact_id TEXT NOT NULL DEFAULT '',
	content_id TEXT NOT NULL DEFAULT '',
	variables TEXT NOT NULL DEFAULT '',
	headers TEXT,                    -- JSON, '' when none
	html TEXT,
	body_text TEXT,
	updated_at BIGINT NOT NULL DEFAULT 0,  -- when the state of the only recipient changed
	rank SMALLINT NOT NULL,          -- of last_event; it only rises
	last_event TEXT NOT NULL
) WITH (fillfactor = 80);

-- only: postgres
INSERT INTO emails_with_bodies (id, team_id, api_key_id, actor_kind, domain_id, message_id, sender, subject, recipient,
	recipients, tags, topic_id, template_id, broadcast_id, contact_id, content_id, variables, last_event, rank,
	scheduled_at, created_at, updated_at, parts, headers, html, body_text)
	SELECT e.id, e.team_id, e.api_key_id, e.actor_kind, e.domain_id, e.message_id, e.sender, e.subject, e.recipient,
	e.recipients, e.tags, e.topic_id, e.template_id, e.broadcast_id, e.contact_id, e.content_id, e.variables,
	e.last_event, e.rank, e.scheduled_at, e.created_at, e.updated_at, b.parts, b.headers, b.html, b.body_text
	FROM emails e LEFT JOIN email_bodies b ON b.email_id = e.id;

-- only: postgres
DROP TABLE emails;

-- only: postgres
DROP TABLE email_bodies;

-- only: postgres
ALTER TABLE emails_with_bodies RENAME TO emails;

-- only: postgres
ALTER INDEX emails_with_bodies_pkey RENAME TO emails_pkey;

-- only: postgres
CREATE INDEX emails_team ON emails (team_id, id);

-- Statements that read or delete bodies are the same on both engines.
-- only: postgres
CREATE VIEW email_bodies AS SELECT id AS email_id, team_id, parts, headers, html, body_text FROM emails
	WHERE parts IS NOT NULL;

-- only: postgres
CREATE RULE email_bodies_delete AS ON DELETE TO email_bodies DO INSTEAD UPDATE emails SET parts = NULL, headers = NULL,
	html = NULL, body_text = NULL WHERE id = OLD.email_id;
