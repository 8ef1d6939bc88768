-- How many domains of a team are not verified is counted for each that is added.
CREATE INDEX domains_unproved ON domains (team_id) WHERE status IN ('not_started', 'pending', 'failed');
