-- Blobs have keys that are made when they are written, before there is an email: the rows alone say whose they are. Large messages
-- of before have no row here; their blob is named by the email.
ALTER TABLE email_messages ADD COLUMN blob_key TEXT NOT NULL DEFAULT '';

CREATE INDEX email_messages_blob ON email_messages (blob_key) WHERE blob_key <> '';

CREATE INDEX email_attachments_blob ON email_attachments (blob_key) WHERE blob_key <> '';
