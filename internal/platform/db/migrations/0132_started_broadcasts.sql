-- The broadcasts that have started, which the usage of a team counts.
CREATE INDEX broadcasts_started ON broadcasts (team_id, id) WHERE started_at > 0;
