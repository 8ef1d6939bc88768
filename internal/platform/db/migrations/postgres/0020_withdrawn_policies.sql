-- A policy outlives its domain, because senders have copies of it. Until they expire, a policy of mode none is served.
ALTER TABLE served_policies DROP CONSTRAINT served_policies_domain_id_fkey, ADD COLUMN name TEXT NOT NULL DEFAULT '';
UPDATE served_policies SET name = d.name FROM domains d WHERE d.id = domain_id;
ALTER TABLE served_policies ALTER COLUMN name DROP DEFAULT;
CREATE INDEX served_policies_name ON served_policies (name);
