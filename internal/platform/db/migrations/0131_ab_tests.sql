-- When the broadcast was paused, in microseconds since 1970, or 0. A pause does not count toward the time after which
-- the winner of an A/B test is chosen.
ALTER TABLE broadcasts ADD COLUMN paused_at BIGINT NOT NULL DEFAULT 0;

-- Whether the winner of the A/B test differed significantly from the other variants: 1 or 0, or -1 if this is not known
-- because no winner was chosen or a person chose it.
ALTER TABLE broadcasts ADD COLUMN significant INT NOT NULL DEFAULT -1;
