-- What an attempt to deliver recorded about its route, its times and the wait before it, packed by package evidence; NULL
-- without a try.
ALTER TABLE email_events ADD COLUMN evidence BLOB;
