-- The sweep of what was shown live goes by time, over all teams.
CREATE INDEX live_messages_id ON live_messages (id);
