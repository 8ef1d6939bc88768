-- set_at is when run_at was set, by the clock of that moment, or 0 when run_at is a time that somebody chose. A job whose wait began in
-- the future tells that the clock has stepped back since.
ALTER TABLE jobs ADD COLUMN set_at BIGINT NOT NULL DEFAULT 0;

UPDATE jobs SET set_at = created_at WHERE kind <> 'emails.release';
