-- The addresses to which reports about domains come. Rows of deleted domains are deleted with their reports by a sweep,
-- because one transaction could not delete all of them.
CREATE TABLE report_addresses (
	domain_id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	token TEXT COLLATE "C" NOT NULL, -- the local part
	noticed_at BIGINT NOT NULL,      -- when the team was last told of failing signatures of this installation
	dmarc TEXT NOT NULL,             -- the advised DMARC record; '' if it was never looked up
	dmarc_records BIGINT NOT NULL DEFAULT 0, -- number of records of the domain if it has several, of which none counts
	tls TEXT NOT NULL DEFAULT ''     -- the advised record for TLS reports; '' if it was never looked up
);

CREATE UNIQUE INDEX report_addresses_token ON report_addresses (token);
CREATE INDEX report_addresses_team ON report_addresses (team_id);

-- What a domain received on a day, for limits.
CREATE TABLE report_days (
	domain_id UUID NOT NULL,
	team_id UUID NOT NULL,
	day BIGINT NOT NULL,
	reports BIGINT NOT NULL,         -- proven ones
	others BIGINT NOT NULL,
	stored_rows BIGINT NOT NULL,     -- of proven reports
	other_rows BIGINT NOT NULL,
	bytes BIGINT NOT NULL,           -- of files
	dropped BIGINT NOT NULL,         -- reports beyond the limits
	PRIMARY KEY (domain_id, day)
);

-- DMARC aggregate reports and TLS reports.
CREATE TABLE received_reports (
	id UUID PRIMARY KEY,
	team_id UUID NOT NULL,
	domain_id UUID NOT NULL,
	dedupe TEXT COLLATE "C" NOT NULL,   -- recognizes a repetition; '' if the report does not count
	kind TEXT NOT NULL,                 -- dmarc, tls, or '' if no report was found
	state TEXT NOT NULL,
	reason TEXT NOT NULL,               -- why it does not count
	proven BOOLEAN NOT NULL,            -- whether the sender is authenticated
	reporter TEXT COLLATE "C" NOT NULL, -- domain of the sender
	organization TEXT NOT NULL,
	report_id TEXT NOT NULL,
	policy_domain TEXT NOT NULL,
	begins BIGINT NOT NULL,
	ends BIGINT NOT NULL,
	messages BIGINT NOT NULL,           -- or sessions
	failed BIGINT NOT NULL,
	report_rows BIGINT NOT NULL,
	repeats BIGINT NOT NULL,
	size BIGINT NOT NULL,
	blob_key TEXT COLLATE "C" NOT NULL, -- of the file; '' if there is none
	own_messages BIGINT NOT NULL,       -- from addresses of this installation
	own_failed BIGINT NOT NULL,         -- of them, those whose signature failed; 0 if the report is not proven
	received_at BIGINT NOT NULL
);

CREATE INDEX received_reports_domain ON received_reports (domain_id, id);
CREATE UNIQUE INDEX received_reports_dedupe ON received_reports (domain_id, dedupe) WHERE dedupe <> '';
CREATE INDEX received_reports_reporter ON received_reports (domain_id, kind, reporter, begins);
CREATE INDEX received_reports_blob ON received_reports (blob_key) WHERE blob_key <> '';
CREATE INDEX received_reports_files ON received_reports (domain_id, id) WHERE blob_key <> '';
CREATE INDEX received_reports_own ON received_reports (id) WHERE own_failed > 0;

-- Messages of DMARC reports, added up by day, reporter, source and results.
CREATE TABLE received_dmarc_rows (
	domain_id UUID NOT NULL,
	team_id UUID NOT NULL,
	day BIGINT NOT NULL,
	digest TEXT COLLATE "C" NOT NULL,   -- of the columns below except messages
	proven BOOLEAN NOT NULL,
	reporter TEXT COLLATE "C" NOT NULL,
	source TEXT COLLATE "C" NOT NULL,   -- IP address; '' for rows beyond the limits, which have only results
	own BOOLEAN NOT NULL,               -- whether the source was an address of this installation
	header_from TEXT NOT NULL,
	disposition TEXT NOT NULL,
	dkim BOOLEAN NOT NULL,              -- whether an aligned signature passed
	spf BOOLEAN NOT NULL,
	dkim_domain TEXT NOT NULL,          -- of the most important aligned signature
	selector TEXT NOT NULL,
	dkim_result TEXT NOT NULL,
	spf_domain TEXT NOT NULL,
	spf_result TEXT NOT NULL,
	messages BIGINT NOT NULL,
	PRIMARY KEY (domain_id, day, digest)
);

-- Sessions of TLS reports.
CREATE TABLE received_tls_rows (
	domain_id UUID NOT NULL,
	team_id UUID NOT NULL,
	day BIGINT NOT NULL,
	digest TEXT COLLATE "C" NOT NULL,
	proven BOOLEAN NOT NULL,
	reporter TEXT COLLATE "C" NOT NULL,
	policy_type TEXT NOT NULL,
	policy_domain TEXT NOT NULL,
	result TEXT NOT NULL,               -- '' means success
	host TEXT NOT NULL,                 -- the mail host
	sessions BIGINT NOT NULL,
	PRIMARY KEY (domain_id, day, digest)
);
