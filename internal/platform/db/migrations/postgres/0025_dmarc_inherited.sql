-- Whether the advised DMARC record of a domain comes from the records above the domain, so that it follows them while the
-- domain is delegated. The records of earlier look-ups count as the owner's, because they may be.
ALTER TABLE report_addresses ADD COLUMN dmarc_inherited BOOLEAN NOT NULL DEFAULT FALSE;
