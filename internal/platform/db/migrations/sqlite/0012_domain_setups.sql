-- Each domain has a set-up: the way in which its owner puts its records into the DNS.
ALTER TABLE domains ADD COLUMN setup TEXT NOT NULL DEFAULT 'records';
-- The set-up before, while its records are still in use; '' for none.
ALTER TABLE domains ADD COLUMN former_setup TEXT NOT NULL DEFAULT '';
-- The label of the names to which the owner's records point; '' until another set-up than 'records' was chosen.
ALTER TABLE domains ADD COLUMN setup_token TEXT NOT NULL DEFAULT '';
-- JSON: what look-ups of advised records found.
ALTER TABLE domains ADD COLUMN advised TEXT NOT NULL DEFAULT '';
-- Checksum and serial number of the domain's zone when this installation answers for it.
ALTER TABLE domains ADD COLUMN zone_checksum TEXT NOT NULL DEFAULT '';
ALTER TABLE domains ADD COLUMN zone_serial INTEGER NOT NULL DEFAULT 0;

CREATE UNIQUE INDEX domains_setup_token ON domains (setup_token) WHERE setup_token <> '';
-- The domains whose records may still change although their status says that they do not work.
CREATE INDEX domains_former_setup ON domains (checked_at) WHERE former_setup <> '';
