-- The DMARC and BIMI records that a domain's owner has chosen; '' for the default of DMARC, and for no BIMI record.
ALTER TABLE domains ADD COLUMN dmarc_record TEXT NOT NULL DEFAULT '';
ALTER TABLE domains ADD COLUMN bimi_record TEXT NOT NULL DEFAULT '';
