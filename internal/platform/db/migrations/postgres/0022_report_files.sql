-- The hash of a report's file and sender, by which a repetition is recognized before it is read. It is '' if a repetition
-- is read again.
ALTER TABLE received_reports ADD COLUMN fingerprint TEXT COLLATE "C" NOT NULL DEFAULT '';

CREATE INDEX received_reports_file ON received_reports (domain_id, fingerprint) WHERE fingerprint <> '';
