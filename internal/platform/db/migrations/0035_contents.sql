-- What many emails share: a broadcast's text, or that of a template's version. It never changes. What is large comes last,
-- because the rest is read without it.
CREATE TABLE contents (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	kept BOOLEAN NOT NULL,           -- somebody may send by it again; otherwise it goes when the last email of it does
	used_at BIGINT NOT NULL,         -- when an email of it was entered last, up to an hour behind
	created_at BIGINT NOT NULL,
	parts BIGINT NOT NULL,           -- bits: 1 html was given, 2 text was given
	sender TEXT NOT NULL,            -- From; this and what follows are templates
	subject TEXT NOT NULL,
	reply_to TEXT NOT NULL,          -- JSON, '' when none
	headers TEXT NOT NULL,           -- JSON, '' when none
	html TEXT NOT NULL,
	body_text TEXT NOT NULL
);

CREATE INDEX contents_team ON contents (team_id, id);

CREATE INDEX contents_unused ON contents (team_id, used_at) WHERE NOT kept;

-- '' is an email with a body of its own.
ALTER TABLE emails ADD COLUMN content_id TEXT NOT NULL DEFAULT '';

-- JSON: what stands in the content's placeholders in this email, '' when nothing does.
ALTER TABLE emails ADD COLUMN variables TEXT NOT NULL DEFAULT '';

-- For the oldest email of a team that shares a content: an older content is not needed any more.
CREATE INDEX emails_shared ON emails (team_id, id) WHERE content_id <> '';
