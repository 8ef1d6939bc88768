-- Filters find what contacts chose of a topic in the index alone.
CREATE INDEX contact_topics_choice ON contact_topics (topic_id, contact_id, subscription);

DROP INDEX contact_topics_topic;

-- Filters find who is unsubscribed, and leave out these, without reading all contacts.
CREATE INDEX contacts_unsubscribed ON contacts (team_id, id) WHERE unsubscribed;

-- Filters find who opened or followed something, and when. They are written with opens and clicks, and not with each
-- email, as one of mailed_at would be.
CREATE INDEX contact_engagement_opened ON contact_engagement (team_id, opened_at, contact_id) WHERE opened_at <> 0;

CREATE INDEX contact_engagement_clicked ON contact_engagement (team_id, clicked_at, contact_id) WHERE clicked_at <> 0;
