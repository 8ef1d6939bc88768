-- What the DMARC record of a domain asks of receivers, '' if it was never looked up, and since when, so that the next step
-- waits for reports about it. The time 0 means since before the first look-up.
ALTER TABLE report_addresses ADD COLUMN dmarc_asks TEXT NOT NULL DEFAULT '';
ALTER TABLE report_addresses ADD COLUMN asks_since INTEGER NOT NULL DEFAULT 0;
