-- The key that signs links to the pages of DNS providers. The table has at most one row.
CREATE TABLE domain_connect_keys (
	id BLOB PRIMARY KEY,
	private BLOB NOT NULL, -- PKCS #8, encrypted by the keyring
	created_at INTEGER NOT NULL
) STRICT;
