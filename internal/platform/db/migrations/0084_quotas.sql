-- How many emails a team may send and receive in a day and in a month; 0 is without a limit.
ALTER TABLE teams ADD COLUMN daily_quota BIGINT NOT NULL DEFAULT 0;

ALTER TABLE teams ADD COLUMN monthly_quota BIGINT NOT NULL DEFAULT 0;

-- What a team with a quota has used of it, in parts that are counted apart. A part may be used up to its room without
-- a look at the others; the rooms of all parts are within the quota. On PostgreSQL there are 16 parts, one for each
-- group of connections, so that transactions seldom wait for each other; on SQLite one. Teams without a quota have no
-- rows.
CREATE TABLE team_volumes (
	team_id TEXT NOT NULL REFERENCES teams (id) ON DELETE CASCADE,
	part BIGINT NOT NULL,
	day BIGINT NOT NULL,             -- since 1970, UTC; the same in all parts, as month is
	day_used BIGINT NOT NULL,
	day_room BIGINT NOT NULL,
	day_told BIGINT NOT NULL,        -- twice the day in which 80 % were told; one more when 100 % were
	month BIGINT NOT NULL,           -- since the year 0, UTC
	month_used BIGINT NOT NULL,
	month_room BIGINT NOT NULL,
	month_told BIGINT NOT NULL,
	PRIMARY KEY (team_id, part)
);
