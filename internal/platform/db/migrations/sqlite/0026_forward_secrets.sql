-- The signing secrets of forwarding rules with a URL, encrypted. Rules of earlier programs have none: their requests
-- are signed with the team's secret until somebody reads or rotates the secret of the rule.
ALTER TABLE forwards ADD COLUMN secret BLOB NOT NULL DEFAULT x'';
ALTER TABLE forwards ADD COLUMN old_secret BLOB NOT NULL DEFAULT x'';
ALTER TABLE forwards ADD COLUMN old_until INTEGER NOT NULL DEFAULT 0;
