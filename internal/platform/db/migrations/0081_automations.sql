-- Automations. epoch counts how often one was stopped: a run of an older epoch is cancelled, whatever its row says yet.
CREATE TABLE automations (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	name TEXT NOT NULL,
	status TEXT NOT NULL,            -- enabled or disabled
	reentry TEXT NOT NULL,           -- always, once_at_a_time or once
	version_id TEXT NOT NULL,        -- with which runs begin
	epoch BIGINT NOT NULL,
	revision BIGINT NOT NULL,        -- counts the changes
	created_at BIGINT NOT NULL,
	updated_at BIGINT NOT NULL,
	deleted_at BIGINT NOT NULL       -- 0 when it is not deleted
);

CREATE INDEX automations_team ON automations (team_id, id) WHERE deleted_at = 0;

CREATE INDEX automations_deleted ON automations (team_id, id) WHERE deleted_at <> 0;

-- The graphs that an automation has, and had when its runs began. They never change.
CREATE TABLE automation_versions (
	id TEXT PRIMARY KEY,
	automation_id TEXT NOT NULL,
	team_id TEXT NOT NULL,
	number BIGINT NOT NULL,          -- from 1
	used BIGINT NOT NULL,            -- 1 once the automation was enabled with it: runs can have begun with it
	created_at BIGINT NOT NULL,
	steps TEXT NOT NULL,             -- JSON; large, and therefore behind what is read of many
	connections TEXT NOT NULL        -- JSON
);

CREATE UNIQUE INDEX automation_versions_number ON automation_versions (automation_id, number);

-- Which events begin runs: rows of enabled automations alone. They have what the transaction of an event needs to begin
-- a run, so that it reads no graph.
CREATE TABLE automation_triggers (
	team_id TEXT NOT NULL,
	event_name TEXT NOT NULL,
	automation_id TEXT NOT NULL,
	version_id TEXT NOT NULL,
	epoch BIGINT NOT NULL,
	reentry TEXT NOT NULL,
	step TEXT NOT NULL,              -- the key of the trigger
	next_step TEXT NOT NULL,         -- the key of the step behind it, '' for none
	wait_event TEXT NOT NULL,        -- the event that the next step waits for, '' if it does not
	wait_timeout BIGINT NOT NULL,    -- how long, in microseconds, 0 for the longest
	PRIMARY KEY (team_id, event_name, automation_id)
);

CREATE INDEX automation_triggers_automation ON automation_triggers (automation_id);

-- A contact on its way through a version. A run that is running has a job.
CREATE TABLE automation_runs (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	automation_id TEXT NOT NULL,
	version_id TEXT NOT NULL,
	contact_id TEXT NOT NULL,
	contact_gone BIGINT NOT NULL,    -- 1 once the contact was deleted: then nothing is kept of it when the run ends
	epoch BIGINT NOT NULL,
	status TEXT NOT NULL,            -- running, completed, failed or cancelled
	reason TEXT NOT NULL,            -- why it failed or was cancelled, '' otherwise
	event TEXT NOT NULL,             -- the name of the event that began it
	payload TEXT NOT NULL,           -- JSON of that, '' for none
	received TEXT NOT NULL,          -- JSON of the events that its waits received, '' for none
	step TEXT NOT NULL,              -- the key of the step it is at, '' once it has ended
	waits_until BIGINT NOT NULL,     -- 0 when it does not wait
	waits_for TEXT NOT NULL,         -- the name of an event, '' for none
	depth BIGINT NOT NULL,           -- how many runs led to the event that began it
	revision BIGINT NOT NULL,        -- counts the steps; the fence
	steps BIGINT NOT NULL,           -- rows of automation_run_steps
	event_at BIGINT NOT NULL,
	created_at BIGINT NOT NULL,
	ended_at BIGINT NOT NULL
);

CREATE INDEX automation_runs_automation ON automation_runs (automation_id, id);

CREATE INDEX automation_runs_status ON automation_runs (automation_id, status, id);

CREATE INDEX automation_runs_contact ON automation_runs (contact_id, id);

CREATE INDEX automation_runs_live ON automation_runs (contact_id, id) WHERE ended_at = 0;

CREATE INDEX automation_runs_ended ON automation_runs (team_id, ended_at, id) WHERE ended_at > 0;

-- What each step of a run did.
CREATE TABLE automation_run_steps (
	run_id TEXT NOT NULL,
	position BIGINT NOT NULL,        -- from 0
	team_id TEXT NOT NULL,
	step TEXT NOT NULL,              -- the key
	status TEXT NOT NULL,            -- waiting, running, completed, failed or skipped
	output TEXT NOT NULL,            -- JSON, '' for none
	reason TEXT NOT NULL,            -- why it failed, '' otherwise
	message TEXT NOT NULL,           -- the same as a sentence
	started_at BIGINT NOT NULL,
	completed_at BIGINT NOT NULL,    -- 0 before
	PRIMARY KEY (run_id, position)
);

-- Runs that wait for an event.
CREATE TABLE automation_waits (
	team_id TEXT NOT NULL,
	event_name TEXT NOT NULL,
	contact_id TEXT NOT NULL,
	run_id TEXT NOT NULL,
	PRIMARY KEY (team_id, event_name, contact_id, run_id)
);

CREATE INDEX automation_waits_run ON automation_waits (run_id);

-- What a contact has done in an automation, by which rules of entry are decided: whoever begins or ends a run of it
-- changes its row.
CREATE TABLE automation_contacts (
	automation_id TEXT NOT NULL,
	contact_id TEXT NOT NULL,
	team_id TEXT NOT NULL,
	epoch BIGINT NOT NULL,           -- whose runs active counts: those of older ones are canceled
	active BIGINT NOT NULL,          -- runs that have not ended
	begun BIGINT NOT NULL,           -- runs in all
	hour_from BIGINT NOT NULL,       -- when the hour began in which hour_begun were begun
	hour_begun BIGINT NOT NULL,
	last_run_id TEXT NOT NULL,       -- the run that began last
	limited_at BIGINT NOT NULL,      -- when a run last said that a limit was reached, 0 never
	limited_run_id TEXT NOT NULL,    -- that run, '' for none
	PRIMARY KEY (automation_id, contact_id)
);

CREATE INDEX automation_contacts_contact ON automation_contacts (contact_id);
