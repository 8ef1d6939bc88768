-- Whether an open or a click is the first of its recipient is asked for each of them, and there may be very many of one
-- email. Other events do not pay for it.
CREATE INDEX email_events_hits ON email_events (email_id, type, recipient, detail, created_at, id)
	WHERE type IN ('opened', 'clicked');
