-- When a team was deleted, 0 while it is not: it is nobody from that instant, and its rows are taken away by a job.
ALTER TABLE teams ADD COLUMN deleted_at BIGINT NOT NULL DEFAULT 0;

-- Hints of other processes, such as the command line, to the node that runs on the file. PostgreSQL has NOTIFY.
-- only: sqlite
CREATE TABLE hints (
	id INTEGER PRIMARY KEY,
	topic TEXT NOT NULL,
	payload TEXT NOT NULL
);
