-- The broadcasts that are being sent or are paused, which a suspension, a deleted key or a change to a domain may stop
-- or continue.
CREATE INDEX broadcasts_active ON broadcasts (team_id, id) WHERE status IN ('queued', 'paused');
