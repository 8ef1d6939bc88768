-- The signing secrets of forwarding rules with a URL, encrypted. Rules of earlier programs have none: their requests
-- are signed with the team's secret until somebody reads or rotates the secret of the rule.
ALTER TABLE forwards ADD COLUMN secret BYTEA NOT NULL DEFAULT '';
ALTER TABLE forwards ADD COLUMN old_secret BYTEA NOT NULL DEFAULT '';
ALTER TABLE forwards ADD COLUMN old_until BIGINT NOT NULL DEFAULT 0;
