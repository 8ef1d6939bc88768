-- The suppressions of one origin, however few of a team's have it.
CREATE INDEX suppressions_origin ON suppressions (team_id, origin, id);

-- The messages of one team, which are erased with the team, and in which its job looks for an address.
CREATE INDEX webhook_messages_team ON webhook_messages (team_id, id);
