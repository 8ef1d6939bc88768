-- Which people belong to which teams, and what they may do there.
CREATE TABLE memberships (
	team_id TEXT NOT NULL,
	user_id TEXT NOT NULL,
	role TEXT NOT NULL,              -- owner, admin, member or viewer
	created_at BIGINT NOT NULL,
	PRIMARY KEY (team_id, user_id)
);

CREATE INDEX memberships_user ON memberships (user_id, team_id);

-- Who was asked to join a team. What has ended stays for a while, because it counts for how many may be sent.
CREATE TABLE invitations (
	id TEXT PRIMARY KEY,
	team_id TEXT NOT NULL,
	email TEXT NOT NULL,             -- in lower case
	role TEXT NOT NULL,
	token_hash TEXT NOT NULL,        -- of the link that was sent last
	state TEXT NOT NULL,             -- open, accepted or revoked
	actor_kind TEXT NOT NULL,        -- who invited
	actor_id TEXT NOT NULL,
	sends BIGINT NOT NULL,           -- how often it was sent
	created_at BIGINT NOT NULL,
	sent_at BIGINT NOT NULL,         -- last
	expires_at BIGINT NOT NULL
);

CREATE UNIQUE INDEX invitations_token ON invitations (token_hash);

-- An address has one open invitation to a team.
CREATE UNIQUE INDEX invitations_email ON invitations (team_id, email) WHERE state = 'open';

CREATE INDEX invitations_state ON invitations (team_id, state, id);

CREATE INDEX invitations_sent ON invitations (team_id, sent_at);

CREATE INDEX invitations_expires ON invitations (expires_at);
