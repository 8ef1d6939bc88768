-- DMARC aggregate reports (RFC 9990) about the messages of a UTC day. A row is deleted when its report was sent, is not
-- wanted, or could not be sent within a day. All nodes share the rows.
CREATE TABLE dmarc_reports (
	day BIGINT NOT NULL,             -- the beginning of the day
	domain TEXT COLLATE "C" NOT NULL,             -- its record asks for the report
	report_id TEXT NOT NULL,
	published TEXT NOT NULL,          -- JSON; policy and targets in the record
	send_at BIGINT NOT NULL,         -- time of the next try
	tries BIGINT NOT NULL,
	expires_at BIGINT NOT NULL,      -- no try begins after this time; 0 before the first try
	targets TEXT NOT NULL,            -- JSON; '' before the targets were looked up
	PRIMARY KEY (day, domain)
);

CREATE INDEX dmarc_reports_due ON dmarc_reports (send_at);

-- Numbers of messages with the same origin and results.
CREATE TABLE dmarc_report_rows (
	day BIGINT NOT NULL,
	domain TEXT COLLATE "C" NOT NULL,
	digest TEXT COLLATE "C" NOT NULL,             -- of the identity
	identity TEXT NOT NULL,           -- JSON
	messages BIGINT NOT NULL,
	PRIMARY KEY (day, domain, digest)
);

-- Numbers of all received messages.
CREATE TABLE dmarc_report_days (
	day BIGINT NOT NULL PRIMARY KEY,
	messages BIGINT NOT NULL
);

-- Targets that refused the last reports.
CREATE TABLE dmarc_report_bounces (
	target TEXT COLLATE "C" NOT NULL PRIMARY KEY,
	bounces BIGINT NOT NULL,
	last_at BIGINT NOT NULL
);

CREATE INDEX dmarc_report_bounces_last ON dmarc_report_bounces (last_at);
