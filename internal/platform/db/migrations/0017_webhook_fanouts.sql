-- Messages that are still to be entered for some of their team's endpoints, for teams with many.
CREATE TABLE webhook_fanouts (
	team_id TEXT NOT NULL,
	chain TEXT NOT NULL,
	message_id TEXT NOT NULL,
	type TEXT NOT NULL,
	after TEXT NOT NULL,             -- the last endpoint that has it; '' when none
	created_at BIGINT NOT NULL,
	PRIMARY KEY (team_id, chain, message_id)
);

-- Since when an endpoint takes no new messages, because too much waits for it; 0 while it takes them.
ALTER TABLE webhooks ADD COLUMN full_since BIGINT NOT NULL DEFAULT 0;

-- When the team was told last that it is full.
ALTER TABLE webhooks ADD COLUMN full_told BIGINT NOT NULL DEFAULT 0;
