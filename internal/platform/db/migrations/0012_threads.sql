-- The first email of each Message-ID is found without reading the others that bear it.
DROP INDEX received_emails_message;

CREATE INDEX received_emails_message ON received_emails (team_id, message_id, id);
