-- What people, keys, programs and the system did. An entry never changes.
CREATE TABLE audit_log (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,           -- '' for what concerns no team, such as a failed sign-in
	actor_kind TEXT NOT NULL,        -- key, user, grant, system, or '' for somebody unknown
	actor_id TEXT NOT NULL,
	actor_name TEXT NOT NULL,        -- at that time
	action TEXT NOT NULL,            -- such as domain.created
	target TEXT NOT NULL,            -- the id of what it was done to
	detail TEXT NOT NULL,
	address TEXT NOT NULL,           -- the network address that it came from
	user_agent TEXT NOT NULL,
	request_id TEXT NOT NULL,
	at BIGINT NOT NULL
);

CREATE INDEX audit_log_team ON audit_log (team_id, id);

CREATE INDEX audit_log_actor ON audit_log (team_id, actor_id, id);

CREATE INDEX audit_log_action ON audit_log (team_id, action, id);
