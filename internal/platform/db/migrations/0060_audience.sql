-- What a team notes of its contacts besides their names. The values of a deleted property are deleted in steps, and
-- then its row.
CREATE TABLE contact_properties (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	name TEXT NOT NULL,              -- the key, as contacts and placeholders name it
	type TEXT NOT NULL,              -- string or number
	fallback TEXT NOT NULL,          -- of contacts without a value; a number is written in decimal
	has_fallback BOOLEAN NOT NULL,
	created_at BIGINT NOT NULL,
	deleted_at BIGINT NOT NULL       -- 0 when it is not deleted
);

CREATE UNIQUE INDEX contact_properties_name ON contact_properties (team_id, name) WHERE deleted_at = 0;

CREATE INDEX contact_properties_team ON contact_properties (team_id, id);

CREATE INDEX contact_properties_deleted ON contact_properties (id) WHERE deleted_at <> 0;

-- Values of string properties, and of number properties. Filters use the second index of each.
CREATE TABLE contact_texts (
	team_id TEXT NOT NULL,
	contact_id TEXT NOT NULL,
	property_id TEXT NOT NULL,
	value TEXT NOT NULL,
	PRIMARY KEY (contact_id, property_id)
);

CREATE INDEX contact_texts_value ON contact_texts (property_id, value, contact_id);

CREATE TABLE contact_numbers (
	team_id TEXT NOT NULL,
	contact_id TEXT NOT NULL,
	property_id TEXT NOT NULL,
	value DOUBLE PRECISION NOT NULL,
	PRIMARY KEY (contact_id, property_id)
);

CREATE INDEX contact_numbers_value ON contact_numbers (property_id, value, contact_id);

-- Named sets of contacts: those that were added, or those that a filter finds. The memberships of a deleted segment are
-- deleted in steps, and then its row.
CREATE TABLE segments (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	name TEXT NOT NULL,
	filter TEXT NOT NULL,            -- JSON, '' when contacts are added by hand
	created_at BIGINT NOT NULL,
	deleted_at BIGINT NOT NULL       -- 0 when it is not deleted
);

CREATE INDEX segments_team ON segments (team_id, id);

CREATE INDEX segments_deleted ON segments (id) WHERE deleted_at <> 0;

CREATE TABLE contact_segments (
	team_id TEXT NOT NULL,
	segment_id TEXT NOT NULL,
	contact_id TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	PRIMARY KEY (segment_id, contact_id)
);

CREATE INDEX contact_segments_contact ON contact_segments (contact_id, segment_id);

-- How a contact answers what it is sent. A contact that was never mailed and did nothing has no row.
CREATE TABLE contact_engagement (
	contact_id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	mailed BIGINT NOT NULL,          -- emails of broadcasts and automations
	opened BIGINT NOT NULL,          -- opens by people
	clicked BIGINT NOT NULL,
	mailed_at BIGINT NOT NULL,       -- 0 when never
	opened_at BIGINT NOT NULL,
	clicked_at BIGINT NOT NULL
);
