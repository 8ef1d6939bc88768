-- Forms that visitors submitted after their session had ended, until they have signed in again.
CREATE TABLE user_kept_forms (
	hash TEXT PRIMARY KEY,           -- the hash of the token in the browser's cookie
	page TEXT NOT NULL,              -- the path of the page that has the form
	action TEXT NOT NULL,            -- the address to which the form was submitted
	form TEXT NOT NULL,              -- what was typed, without secrets, encoded as in a URL
	expires_at INTEGER NOT NULL
) STRICT;

CREATE INDEX user_kept_forms_expires ON user_kept_forms (expires_at);
