-- An email that was not scheduled was queued when it was accepted. Its timeline says so without a row.
DELETE FROM email_events WHERE type = 'queued' AND EXISTS (SELECT 1 FROM emails e WHERE e.id = email_events.email_id
	AND e.scheduled_at = 0);
