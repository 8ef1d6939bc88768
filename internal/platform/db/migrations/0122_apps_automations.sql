-- The automations whose steps a connected app wrote or that it enabled last. Such an automation stops when the app may
-- no longer change automations.
CREATE TABLE automation_apps (
	automation_id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	grant_id TEXT NOT NULL,
	halted_at BIGINT NOT NULL        -- when it stopped because of the app, 0 if it has not
);

CREATE INDEX automation_apps_grant ON automation_apps (team_id, grant_id, automation_id);
