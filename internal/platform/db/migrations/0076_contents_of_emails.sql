-- An email of a broadcast costs less without an index that says that it has a shared content. In its place a content
-- knows which emails may have it. The index goes first: nodes of the release before may be running, and take their locks
-- in this order.
DROP INDEX emails_shared;

-- No email with a lesser id has the content. used_at is when a use of it was noted last: an email with it was accepted
-- at most an hour later. A node of the release before does not write it; then all emails of the team may have it.
ALTER TABLE contents ADD COLUMN from_id TEXT NOT NULL DEFAULT '';

UPDATE contents SET from_id = e.first FROM (SELECT content_id, MIN(id) AS first FROM emails WHERE content_id <> ''
	GROUP BY content_id) e WHERE e.content_id = contents.id;

-- No email has these yet, and those that will are made after them.
UPDATE contents SET from_id = id WHERE from_id = '';

-- It has all that is asked of a content that may go: from_id stands behind the texts, which are large.
DROP INDEX contents_unused;

CREATE INDEX contents_unused ON contents (team_id, used_at, id, from_id) WHERE NOT kept;
