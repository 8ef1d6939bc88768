-- Contacts are found by the beginning of their name. An index of the address is there already.
CREATE INDEX contacts_name ON contacts (team_id, LOWER(first_name || ' ' || last_name)) WHERE first_name <> '';
CREATE INDEX contacts_last_name ON contacts (team_id, LOWER(last_name)) WHERE last_name <> '';
