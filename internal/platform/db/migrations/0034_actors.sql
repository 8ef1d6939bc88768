-- What the actor is whose id is in api_key_id: a key, a user, a grant or the system. The column has kept its name so
-- that a node of an older release goes on working beside newer ones; what it writes, and all that was written before, is of
-- keys.
ALTER TABLE emails ADD COLUMN actor_kind TEXT NOT NULL DEFAULT 'key';

ALTER TABLE request_logs ADD COLUMN actor_kind TEXT NOT NULL DEFAULT 'key';
