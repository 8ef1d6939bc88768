-- Requests to the API. The key begins with the team and ends with the time that an id begins with: one index serves the list, the
-- single entry and the sweep.
CREATE TABLE request_logs (
	team_id TEXT NOT NULL,
	id TEXT NOT NULL,
	api_key_id TEXT NOT NULL,
	request_id TEXT NOT NULL,        -- what the answer's x-request-id said
	method TEXT NOT NULL,
	endpoint TEXT NOT NULL,          -- the path, without host and query
	status BIGINT NOT NULL,
	user_agent TEXT NOT NULL,        -- '' when none was sent
	duration BIGINT NOT NULL,        -- microseconds
	request_body TEXT NOT NULL,      -- JSON without secrets, '' when none
	response_body TEXT NOT NULL,     -- the same
	created_at BIGINT NOT NULL,
	PRIMARY KEY (team_id, id)
);
