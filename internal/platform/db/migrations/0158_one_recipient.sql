-- The envelope address of the email's only recipient, whose state is the email's. '' if email_recipients has the
-- recipients.
ALTER TABLE emails ADD COLUMN recipient TEXT NOT NULL DEFAULT '';

-- When the state of the only recipient changed.
ALTER TABLE emails ADD COLUMN updated_at BIGINT NOT NULL DEFAULT 0;
