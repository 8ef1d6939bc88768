-- The search index of sent emails. A segment has the terms of a range of a team's emails, in the rows that package
-- termindex makes. The row with the empty term is the header of its segment; the columns after it are NULL in all others.
CREATE TABLE email_terms (
	team_id UUID NOT NULL,
	last_id UUID NOT NULL,           -- the last email that the segment covers
	from_id UUID,                    -- the segment covers all emails with ids from this one on
	emails INTEGER,                  -- number of emails in the segment
	gen SMALLINT NOT NULL,           -- greater in a segment that replaces others with the same last email
	state SMALLINT,                  -- see emails.segmentState
	term BYTEA NOT NULL,
	data BYTEA NOT NULL,
	PRIMARY KEY (team_id, last_id, gen, term)
) PARTITION BY RANGE (last_id);

CREATE TABLE email_terms_default PARTITION OF email_terms DEFAULT;

-- The headers. SQLite would read all rows of a segment to find the next header if the index had not all of its columns.
CREATE INDEX email_terms_segments ON email_terms (team_id, last_id, gen, from_id, emails, state)
	WHERE from_id IS NOT NULL;
-- Segments that the job of the index has not finished.
CREATE INDEX email_terms_open ON email_terms (team_id, last_id) WHERE state <> 1;
-- The default partition is normally empty. Its rows are moved in the order of their ids.
CREATE INDEX email_terms_default_last ON email_terms_default (last_id);

-- The table joins the family of emails, so it has the partitions that emails have already.
DO $$ DECLARE p RECORD; BEGIN
	FOR p IN SELECT c.relname, PG_GET_EXPR(c.relpartbound, c.oid) AS bound FROM pg_inherits i
		JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'emails'::regclass
		AND PG_GET_EXPR(c.relpartbound, c.oid) <> 'DEFAULT' LOOP
		EXECUTE FORMAT('CREATE TABLE %I PARTITION OF email_terms %s', REPLACE(p.relname, 'emails_', 'email_terms_'), p.bound); --
	END LOOP; --
END $$;
