-- The addresses to which reports about domains come. Rows of deleted domains are deleted with their reports by a sweep,
-- because one transaction could not delete all of them.
CREATE TABLE report_addresses (
	domain_id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	token TEXT NOT NULL, -- the local part
	noticed_at INTEGER NOT NULL,      -- when the team was last told of failing signatures of this installation
	dmarc TEXT NOT NULL,             -- the advised DMARC record; '' if it was never looked up
	dmarc_records INTEGER NOT NULL DEFAULT 0, -- number of records of the domain if it has several, of which none counts
	tls TEXT NOT NULL DEFAULT ''     -- the advised record for TLS reports; '' if it was never looked up
) STRICT;

CREATE UNIQUE INDEX report_addresses_token ON report_addresses (token);
CREATE INDEX report_addresses_team ON report_addresses (team_id);

-- What a domain received on a day, for limits.
CREATE TABLE report_days (
	domain_id BLOB NOT NULL,
	team_id BLOB NOT NULL,
	day INTEGER NOT NULL,
	reports INTEGER NOT NULL,         -- proven ones
	others INTEGER NOT NULL,
	stored_rows INTEGER NOT NULL,     -- of proven reports
	other_rows INTEGER NOT NULL,
	bytes INTEGER NOT NULL,           -- of files
	dropped INTEGER NOT NULL,         -- reports beyond the limits
	PRIMARY KEY (domain_id, day)
) STRICT, WITHOUT ROWID;

-- DMARC aggregate reports and TLS reports.
CREATE TABLE received_reports (
	id BLOB PRIMARY KEY,
	team_id BLOB NOT NULL,
	domain_id BLOB NOT NULL,
	dedupe TEXT NOT NULL,   -- recognizes a repetition; '' if the report does not count
	kind TEXT NOT NULL,                 -- dmarc, tls, or '' if no report was found
	state TEXT NOT NULL,
	reason TEXT NOT NULL,               -- why it does not count
	proven INTEGER NOT NULL,            -- whether the sender is authenticated
	reporter TEXT NOT NULL, -- domain of the sender
	organization TEXT NOT NULL,
	report_id TEXT NOT NULL,
	policy_domain TEXT NOT NULL,
	begins INTEGER NOT NULL,
	ends INTEGER NOT NULL,
	messages INTEGER NOT NULL,           -- or sessions
	failed INTEGER NOT NULL,
	report_rows INTEGER NOT NULL,
	repeats INTEGER NOT NULL,
	size INTEGER NOT NULL,
	blob_key TEXT NOT NULL, -- of the file; '' if there is none
	own_messages INTEGER NOT NULL,       -- from addresses of this installation
	own_failed INTEGER NOT NULL,         -- of them, those whose signature failed; 0 if the report is not proven
	received_at INTEGER NOT NULL
) STRICT;

CREATE INDEX received_reports_domain ON received_reports (domain_id, id);
CREATE UNIQUE INDEX received_reports_dedupe ON received_reports (domain_id, dedupe) WHERE dedupe <> '';
CREATE INDEX received_reports_reporter ON received_reports (domain_id, kind, reporter, begins);
CREATE INDEX received_reports_blob ON received_reports (blob_key) WHERE blob_key <> '';
CREATE INDEX received_reports_files ON received_reports (domain_id, id) WHERE blob_key <> '';
CREATE INDEX received_reports_own ON received_reports (id) WHERE own_failed > 0;

-- Messages of DMARC reports, added up by day, reporter, source and results.
CREATE TABLE received_dmarc_rows (
	domain_id BLOB NOT NULL,
	team_id BLOB NOT NULL,
	day INTEGER NOT NULL,
	digest TEXT NOT NULL,   -- of the columns below except messages
	proven INTEGER NOT NULL,
	reporter TEXT NOT NULL,
	source TEXT NOT NULL,   -- IP address; '' for rows beyond the limits, which have only results
	own INTEGER NOT NULL,               -- whether the source was an address of this installation
	header_from TEXT NOT NULL,
	disposition TEXT NOT NULL,
	dkim INTEGER NOT NULL,              -- whether an aligned signature passed
	spf INTEGER NOT NULL,
	dkim_domain TEXT NOT NULL,          -- of the most important aligned signature
	selector TEXT NOT NULL,
	dkim_result TEXT NOT NULL,
	spf_domain TEXT NOT NULL,
	spf_result TEXT NOT NULL,
	messages INTEGER NOT NULL,
	PRIMARY KEY (domain_id, day, digest)
) STRICT, WITHOUT ROWID;

-- Sessions of TLS reports.
CREATE TABLE received_tls_rows (
	domain_id BLOB NOT NULL,
	team_id BLOB NOT NULL,
	day INTEGER NOT NULL,
	digest TEXT NOT NULL,
	proven INTEGER NOT NULL,
	reporter TEXT NOT NULL,
	policy_type TEXT NOT NULL,
	policy_domain TEXT NOT NULL,
	result TEXT NOT NULL,               -- '' means success
	host TEXT NOT NULL,                 -- the mail host
	sessions INTEGER NOT NULL,
	PRIMARY KEY (domain_id, day, digest)
) STRICT, WITHOUT ROWID;
