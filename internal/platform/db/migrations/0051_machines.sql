-- Of opens and clicks, the recipients that did it for the first time as people: email_events.detail is 'machine' otherwise.
ALTER TABLE email_counts ADD COLUMN people BIGINT NOT NULL DEFAULT 0;

ALTER TABLE email_counts_kept ADD COLUMN people BIGINT NOT NULL DEFAULT 0;
