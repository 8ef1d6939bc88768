-- Forwarded emails, which are deleted with the received emails that they copy. Rows of deleted emails stay until then.
CREATE TABLE forwarded_copies (
	team_id UUID NOT NULL,
	received_id UUID NOT NULL,
	email_id UUID NOT NULL,
	PRIMARY KEY (team_id, received_id, email_id)
);
