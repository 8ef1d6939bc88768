-- The search index of sent emails. A segment has the terms of a range of a team's emails, in the rows that package
-- termindex makes. The row with the empty term is the header of its segment; the columns after it are NULL in all others.
CREATE TABLE email_terms (
	team_id BLOB NOT NULL,
	last_id BLOB NOT NULL,           -- the last email that the segment covers
	gen INTEGER NOT NULL,            -- greater in a segment that replaces others with the same last email
	term BLOB NOT NULL,
	from_id BLOB,                    -- the segment covers all emails with ids from this one on
	emails INTEGER,                  -- number of emails in the segment
	state INTEGER,                   -- see emails.segmentState
	data BLOB NOT NULL,
	PRIMARY KEY (team_id, last_id, gen, term)
) STRICT, WITHOUT ROWID;

-- The headers. SQLite would read all rows of a segment to find the next header if the index had not all of its columns.
CREATE INDEX email_terms_segments ON email_terms (team_id, last_id, gen, from_id, emails, state)
	WHERE from_id IS NOT NULL;
-- Segments that the job of the index has not finished.
CREATE INDEX email_terms_open ON email_terms (team_id, last_id) WHERE state <> 1;
