-- Certificates from an ACME authority, their keys, the account at the authority, and challenges in progress, as a store
-- of values by path. All values are sealed with the secret key. All nodes share them.
CREATE TABLE certificate_values (
	path TEXT PRIMARY KEY,
	value BLOB NOT NULL,             -- sealed; the path is the context
	changed_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Locks that keep nodes from requesting the same certificate at the same time. The holder extends its lock, so that a
-- lock ends by itself soon after its holder was killed.
CREATE TABLE certificate_locks (
	name TEXT PRIMARY KEY,
	holder TEXT NOT NULL,            -- a random value
	expires_at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Hosts for which the last request for a certificate failed.
CREATE TABLE certificate_failures (
	host TEXT PRIMARY KEY,
	failures INTEGER NOT NULL,       -- consecutive
	reason TEXT NOT NULL,
	failed_at INTEGER NOT NULL,
	retry_at INTEGER NOT NULL        -- no node makes another request before this time
) STRICT, WITHOUT ROWID;
