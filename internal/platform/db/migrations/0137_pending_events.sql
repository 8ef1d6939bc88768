-- Events for a waiting run that arrived while its graph was not cached: a JSON list, '' for none. A run with such events
-- has a row in automation_waits for each event that its graph waits for anywhere, so that later events are appended.
ALTER TABLE automation_runs ADD COLUMN pending TEXT NOT NULL DEFAULT '';

-- The events that the graph waits for, as a JSON list; '' if a node of the previous release inserted the version.
ALTER TABLE automation_versions ADD COLUMN wait_events TEXT NOT NULL DEFAULT '';
