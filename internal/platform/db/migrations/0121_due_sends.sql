-- The time since which a grant has a daily limit, 0 if it has had the limit from the start. An email that was scheduled
-- earlier counts on the day on which it is sent.
ALTER TABLE oauth_grants ADD COLUMN daily_since BIGINT NOT NULL DEFAULT 0;

-- Whether an email was approved, which decides whether it may still be sent at its scheduled time.
CREATE INDEX approvals_email ON approvals (email_id) WHERE email_id <> '';

-- Templates whose newest version is not published, which the page of connected apps offers to publish.
CREATE INDEX templates_unpublished ON templates (team_id, id) WHERE NOT deleted AND current_id <> published_id;
