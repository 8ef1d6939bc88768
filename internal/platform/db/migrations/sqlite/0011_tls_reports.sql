-- TLS reports (RFC 8460) about the sessions of a UTC day. A row is deleted when its report was sent, is not wanted, or
-- could not be sent within a day. All nodes share the rows.
CREATE TABLE tls_reports (
	day INTEGER NOT NULL,             -- the beginning of the day
	domain TEXT NOT NULL,             -- its record asks for the report
	report_id TEXT NOT NULL,
	send_at INTEGER NOT NULL,         -- time of the next try
	tries INTEGER NOT NULL,
	expires_at INTEGER NOT NULL,      -- no try begins after this time; 0 before the first try
	targets TEXT NOT NULL,            -- JSON; '' before the record was found
	PRIMARY KEY (day, domain)
) STRICT, WITHOUT ROWID;

CREATE INDEX tls_reports_due ON tls_reports (send_at);

-- The policies that applied to the sessions.
CREATE TABLE tls_report_policies (
	day INTEGER NOT NULL,
	domain TEXT NOT NULL,
	digest TEXT NOT NULL,             -- of the policy
	policy TEXT NOT NULL,             -- JSON
	PRIMARY KEY (day, domain, digest)
) STRICT, WITHOUT ROWID;

-- Numbers of sessions. Successful sessions have an empty result and no host and address.
CREATE TABLE tls_report_sessions (
	day INTEGER NOT NULL,
	domain TEXT NOT NULL,
	digest TEXT NOT NULL,
	result TEXT NOT NULL,
	host TEXT NOT NULL,               -- name of the mail host
	address TEXT NOT NULL,            -- of the node that sent
	sessions INTEGER NOT NULL,
	PRIMARY KEY (day, domain, digest, result, host, address)
) STRICT, WITHOUT ROWID;
