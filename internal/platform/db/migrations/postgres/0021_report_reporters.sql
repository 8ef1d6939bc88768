-- What a domain received on a day from one reporter, for limits. Only authenticated reporters have a row.
CREATE TABLE report_reporters (
	domain_id UUID NOT NULL,
	team_id UUID NOT NULL,
	day BIGINT NOT NULL,
	reporter TEXT NOT NULL, -- organizational domain
	reports BIGINT NOT NULL,
	stored_rows BIGINT NOT NULL,
	bytes BIGINT NOT NULL,           -- of files
	PRIMARY KEY (domain_id, day, reporter)
);
