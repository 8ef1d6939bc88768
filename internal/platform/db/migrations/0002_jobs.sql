-- Work to be done. run_at is also the lease: a claim moves it into the future. attempt is the fence.
CREATE TABLE jobs (
	id TEXT PRIMARY KEY,
	kind TEXT NOT NULL,
	lane TEXT NOT NULL,
	team_id TEXT NOT NULL,
	dedupe TEXT NOT NULL,            -- '' when any number of the same may wait
	payload TEXT NOT NULL,
	run_at BIGINT NOT NULL,
	attempt BIGINT NOT NULL,
	holder TEXT NOT NULL,            -- the node that has it in hand, '' when none
	parked BOOLEAN NOT NULL,         -- gave up; waits for an operator
	last_error TEXT NOT NULL,
	created_at BIGINT NOT NULL
);

CREATE INDEX jobs_due ON jobs (kind, lane, run_at);

CREATE UNIQUE INDEX jobs_dedupe ON jobs (kind, dedupe) WHERE dedupe <> '';

CREATE INDEX jobs_parked ON jobs (id) WHERE parked;

-- Processes that hold jobs, for noticing the death of one.
CREATE TABLE nodes (
	id TEXT PRIMARY KEY,
	beat BIGINT NOT NULL,
	started_at BIGINT NOT NULL
);
