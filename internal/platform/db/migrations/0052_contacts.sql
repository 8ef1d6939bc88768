-- Whom a team writes to: an address is one contact. source_id is the email by whose link unsubscribed was last changed,
-- '' when it was changed otherwise.
CREATE TABLE contacts (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	address TEXT NOT NULL,           -- lower case
	first_name TEXT NOT NULL,
	last_name TEXT NOT NULL,
	unsubscribed BOOLEAN NOT NULL,
	source_id TEXT NOT NULL,
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX contacts_address ON contacts (team_id, address);

CREATE INDEX contacts_team ON contacts (team_id, id);

-- What a team writes about. The subscriptions of a deleted one are deleted in steps, and then its row.
CREATE TABLE topics (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	name TEXT NOT NULL,
	description TEXT NOT NULL,
	default_subscription TEXT NOT NULL, -- opt_in or opt_out: of those who have chosen neither
	visibility TEXT NOT NULL,        -- public or private
	created_at BIGINT NOT NULL,
	deleted_at BIGINT NOT NULL       -- 0 when it is not deleted
);

CREATE INDEX topics_team ON topics (team_id, id);

CREATE INDEX topics_deleted ON topics (id) WHERE deleted_at <> 0;

-- What was chosen for a contact and a topic, from either side. source_id is the email by whose link it was chosen, ''
-- when it was chosen otherwise.
CREATE TABLE contact_topics (
	team_id TEXT NOT NULL,
	contact_id TEXT NOT NULL,
	topic_id TEXT NOT NULL,
	subscription TEXT NOT NULL,      -- opt_in or opt_out
	source_id TEXT NOT NULL,
	updated_at BIGINT NOT NULL,
	PRIMARY KEY (team_id, contact_id, topic_id)
);

CREATE INDEX contact_topics_topic ON contact_topics (topic_id, contact_id);
