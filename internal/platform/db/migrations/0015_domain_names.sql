-- The names that domains have in DNS and that their teams have proved to be theirs: each belongs to one team.
CREATE TABLE domain_names (
	name TEXT PRIMARY KEY,           -- ASCII, lower case
	domain_id TEXT NOT NULL REFERENCES domains (id) ON DELETE CASCADE,
	team_id TEXT NOT NULL,
	host BOOLEAN NOT NULL            -- of return paths or tracked links; otherwise the domain's own name
);

CREATE INDEX domain_names_domain ON domain_names (domain_id);

INSERT INTO domain_names (name, domain_id, team_id, host)
	SELECT name, id, team_id, FALSE FROM domains WHERE NOT placeholder
	AND (checks LIKE '%"dkim":{"status":"verified"%' OR checks LIKE '%"dkim":{"status":"temporary_failure"%')
	ON CONFLICT DO NOTHING;

INSERT INTO domain_names (name, domain_id, team_id, host)
	SELECT return_path || '.' || name, id, team_id, TRUE FROM domains WHERE NOT placeholder AND sending
	AND (checks LIKE '%"dkim":{"status":"verified"%' OR checks LIKE '%"dkim":{"status":"temporary_failure"%')
	AND (checks LIKE '%"mx":{"status":"verified"%' OR checks LIKE '%"mx":{"status":"temporary_failure"%')
	ON CONFLICT DO NOTHING;
