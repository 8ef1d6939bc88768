-- Contacts are found by the beginning of their address or name. The order of the collation "C" does not depend on the
-- database, and strings with the same beginning are neighbors in it.
CREATE INDEX contacts_address_bytes ON contacts (team_id, address COLLATE "C");
CREATE INDEX contacts_name ON contacts (team_id, LOWER((first_name || ' ' || last_name) COLLATE "C"))
	WHERE first_name <> '';
CREATE INDEX contacts_last_name ON contacts (team_id, LOWER(last_name COLLATE "C")) WHERE last_name <> '';
