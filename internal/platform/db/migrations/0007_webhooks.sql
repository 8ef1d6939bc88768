-- Endpoints that teams are told at. A deleted one stays until the sweep has taken away what it was told.
CREATE TABLE webhooks (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	url TEXT NOT NULL,
	events TEXT NOT NULL,            -- types, comma-separated; '' for all
	status TEXT NOT NULL,            -- enabled, disabled or deleted
	secret BYTEA NOT NULL,           -- sealed
	old_secret BYTEA NOT NULL,       -- sealed; signs too until old_until
	old_until BIGINT NOT NULL,
	failing_since BIGINT NOT NULL,   -- the first failure after the last success that is known of; 0 when none
	warned BOOLEAN NOT NULL,         -- the team has been told that it fails
	disabled_reason TEXT NOT NULL,   -- '' unless the program disabled it
	disabled_at BIGINT NOT NULL,
	created_at BIGINT NOT NULL
);

CREATE INDEX webhooks_team ON webhooks (team_id, id);

-- What was told, once for all endpoints: the bytes that are signed and sent.
CREATE TABLE webhook_messages (
	id TEXT PRIMARY KEY,             -- msg_ and the id of the event, so ordered by time
	team_id TEXT NOT NULL,
	type TEXT NOT NULL,
	payload TEXT NOT NULL,
	created_at BIGINT NOT NULL
);

-- A message at an endpoint. Those of one chain, such as one email, are delivered in order.
CREATE TABLE webhook_deliveries (
	webhook_id TEXT NOT NULL,
	message_id TEXT NOT NULL,
	team_id TEXT NOT NULL,
	chain TEXT NOT NULL,
	status TEXT NOT NULL,            -- pending, attempting, success or failed
	tries BIGINT NOT NULL,           -- of the present run of the schedule
	next_at BIGINT NOT NULL,         -- of the next try; 0 when it is due or there is none
	finished_at BIGINT NOT NULL,     -- 0 while pending or attempting
	PRIMARY KEY (webhook_id, message_id)
);

CREATE INDEX webhook_deliveries_open ON webhook_deliveries (webhook_id, chain, message_id)
	WHERE status IN ('pending', 'attempting');

CREATE INDEX webhook_deliveries_failed ON webhook_deliveries (webhook_id, message_id) WHERE status = 'failed';

CREATE TABLE webhook_attempts (
	webhook_id TEXT NOT NULL,
	message_id TEXT NOT NULL,
	id TEXT NOT NULL,                -- atmpt_ and more, ordered by time
	team_id TEXT NOT NULL,
	status_code BIGINT NOT NULL,     -- 0 when there was no answer
	response TEXT NOT NULL,          -- the body of the answer, bounded
	error TEXT NOT NULL,             -- why it failed; '' when it did not
	started_at BIGINT NOT NULL,
	duration BIGINT NOT NULL,        -- microseconds
	PRIMARY KEY (webhook_id, message_id, id)
);
