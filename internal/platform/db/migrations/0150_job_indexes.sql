-- jobs_due has no jobs that a node holds. A look for lanes therefore reads no entries of jobs that have ended, other than
-- the entry under which each job was due.
DROP INDEX jobs_due;

CREATE INDEX jobs_due ON jobs (kind, lane, run_at) WHERE holder = '';

-- The jobs that a node holds, which become due when the node stops or dies.
CREATE INDEX jobs_holder ON jobs (holder) WHERE holder <> '';
