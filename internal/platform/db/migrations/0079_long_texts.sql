-- PostgreSQL keeps at most 2,704 octets in a row of an index, and a value may have 8,000. The index has the first 500
-- characters instead, which are at most 2,000 octets. They are a column of their own, because PostgreSQL reads an index
-- over an expression together with the table, which takes ten times as long. The table is copied once.
-- only: postgres
DROP INDEX contact_texts_value;

-- only: postgres
ALTER TABLE contact_texts ADD COLUMN head TEXT NOT NULL GENERATED ALWAYS AS (SUBSTR(value, 1, 500)) STORED;

-- only: postgres
CREATE INDEX contact_texts_value ON contact_texts (property_id, head, contact_id);
