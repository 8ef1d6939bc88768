-- Templates. What a template says is in its versions, which never change; each has a content of its own.
CREATE TABLE templates (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	name TEXT NOT NULL,
	alias TEXT NOT NULL,             -- '' for none
	current_id TEXT NOT NULL,        -- the newest version
	published_id TEXT NOT NULL,      -- the version that emails are sent with, '' for none
	versions BIGINT NOT NULL,        -- the number of the newest version
	revision BIGINT NOT NULL,        -- greater after each change
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	published_at BIGINT NOT NULL,    -- when the published version was published, 0 for never
	deleted BOOLEAN NOT NULL         -- the row remains until its versions are deleted
);

CREATE INDEX templates_team ON templates (team_id, id);

CREATE UNIQUE INDEX templates_alias ON templates (team_id, alias) WHERE alias <> '';

CREATE INDEX templates_deleted ON templates (id) WHERE deleted;

CREATE TABLE template_versions (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	template_id TEXT NOT NULL,
	number BIGINT NOT NULL,          -- from 1, without gaps
	content_id TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	published_at BIGINT NOT NULL,    -- when it was published last, 0 for never
	variables TEXT NOT NULL          -- JSON, '' when none
);

CREATE UNIQUE INDEX template_versions_number ON template_versions (team_id, template_id, number);

CREATE INDEX template_versions_list ON template_versions (team_id, template_id, id);
