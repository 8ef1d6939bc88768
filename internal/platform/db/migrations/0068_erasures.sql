-- What was asked to be erased, and what was done about it. A row that has ended no longer has the address.
CREATE TABLE erasures (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	contact_id TEXT NOT NULL,       -- '' when the address was of no contact
	address TEXT NOT NULL,          -- '' once the erasure has ended
	refusals BOOLEAN NOT NULL,      -- what keeps the address from being mailed is erased too
	dry_run BOOLEAN NOT NULL,
	state TEXT NOT NULL,            -- queued, in_progress or completed
	pass INTEGER NOT NULL,          -- through all that is stored, counted from 0
	done INTEGER NOT NULL,          -- erasers that have ended in this pass
	report TEXT NOT NULL,           -- JSON: what each eraser found
	created_at BIGINT NOT NULL,
	completed_at BIGINT NOT NULL    -- 0 until it has ended
);

CREATE UNIQUE INDEX erasures_address ON erasures (team_id, address) WHERE address <> '';

CREATE INDEX erasures_team ON erasures (team_id, id);
