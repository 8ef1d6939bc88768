-- The ids of the emails whose stored bodies a logged request refers to, in the order of the request's emails, separated
-- by commas: empty for an email that has none. '' if the request is stored with all its text.
ALTER TABLE request_logs ADD COLUMN email_ids TEXT NOT NULL DEFAULT '';
