-- SQLite keeps rows with a text as their key in two trees, of which the second has the key again: a quarter of these
-- small tables, and a second place to write for each recipient. They are copied once.
-- only: sqlite
CREATE TABLE email_recipients_keyed (
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
) WITHOUT ROWID;

-- only: sqlite
INSERT INTO email_recipients_keyed (email_id, position, team_id, kind, address, domain, state, rank, updated_at)
	SELECT email_id, position, team_id, kind, address, domain, state, rank, updated_at FROM email_recipients
	ORDER BY email_id, position;

-- only: sqlite
DROP TABLE email_recipients;

-- only: sqlite
ALTER TABLE email_recipients_keyed RENAME TO email_recipients;

-- only: sqlite
CREATE TABLE contact_engagement_keyed (
	contact_id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	mailed BIGINT NOT NULL,          -- emails of broadcasts and automations
	opened BIGINT NOT NULL,          -- opens by people
	clicked BIGINT NOT NULL,
	mailed_at BIGINT NOT NULL,       -- 0 when never
	opened_at BIGINT NOT NULL,
	clicked_at BIGINT NOT NULL
) WITHOUT ROWID;

-- only: sqlite
INSERT INTO contact_engagement_keyed (contact_id, team_id, mailed, opened, clicked, mailed_at, opened_at, clicked_at)
	SELECT contact_id, team_id, mailed, opened, clicked, mailed_at, opened_at, clicked_at FROM contact_engagement
	ORDER BY contact_id;

-- only: sqlite
DROP TABLE contact_engagement;

-- only: sqlite
ALTER TABLE contact_engagement_keyed RENAME TO contact_engagement;

-- only: sqlite
CREATE INDEX contact_engagement_opened ON contact_engagement (team_id, opened_at, contact_id) WHERE opened_at <> 0;

-- only: sqlite
CREATE INDEX contact_engagement_clicked ON contact_engagement (team_id, clicked_at, contact_id) WHERE clicked_at <> 0;
