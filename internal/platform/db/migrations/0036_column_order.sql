-- Small columns come before large ones: SQLite keeps a large text in a chain of pages, and goes along all of it to read
-- what stands behind.
-- Nodes of the release before may be running: what they write while this copies would be lost.
-- only: postgres
LOCK TABLE email_bodies, webhook_messages IN ACCESS EXCLUSIVE MODE;

CREATE TABLE email_bodies_ordered (
	email_id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	parts BIGINT NOT NULL,           -- bits: 1 html was given, 2 text was given, 4 it has attachments
	headers TEXT NOT NULL,           -- JSON, '' when none
	html TEXT NOT NULL,
	body_text TEXT NOT NULL
);

INSERT INTO email_bodies_ordered (email_id, team_id, parts, headers, html, body_text)
	SELECT email_id, team_id, parts, headers, html, body_text FROM email_bodies;

DROP TABLE email_bodies;

ALTER TABLE email_bodies_ordered RENAME TO email_bodies;

CREATE TABLE webhook_messages_ordered (
	id TEXT PRIMARY KEY,             -- msg_ and the id of the event, so ordered by time
	team_id TEXT NOT NULL,
	type TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	payload TEXT NOT NULL
);

INSERT INTO webhook_messages_ordered (id, team_id, type, created_at, payload)
	SELECT id, team_id, type, created_at, payload FROM webhook_messages;

DROP TABLE webhook_messages;

ALTER TABLE webhook_messages_ordered RENAME TO webhook_messages;
