-- The contact to whom a broadcast sent the email, '' for all other emails: what happens to the email is noted of it.
ALTER TABLE emails ADD COLUMN contact_id TEXT NOT NULL DEFAULT '';
