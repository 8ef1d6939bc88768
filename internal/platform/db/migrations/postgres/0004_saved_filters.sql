-- Filters of lists that members saved for themselves. They are deleted with the membership.
CREATE TABLE saved_filters (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	user_id UUID NOT NULL,
	list TEXT NOT NULL,              -- emails, receiving, logs or suppressions
	name TEXT NOT NULL,
	query TEXT NOT NULL,             -- the query parameters of the list's address
	created_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX saved_filters_name ON saved_filters (team_id, user_id, list, name);
