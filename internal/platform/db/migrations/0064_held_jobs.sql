-- What a job waits for instead of a time, such as the broadcast that is paused; '' when it does not. Then its run_at
-- never comes, and set_at is since when it waits.
ALTER TABLE jobs ADD COLUMN held TEXT NOT NULL DEFAULT '';

CREATE INDEX jobs_held ON jobs (held, id) WHERE held <> '';
