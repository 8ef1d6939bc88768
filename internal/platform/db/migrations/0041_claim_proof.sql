-- A claim that was proven in time is not ended by its expiry, and the owner is told a day before the end.
ALTER TABLE domain_claims ADD COLUMN proven_at BIGINT NOT NULL DEFAULT 0;

ALTER TABLE domain_claims ADD COLUMN reminded_at BIGINT NOT NULL DEFAULT 0;

UPDATE domain_claims SET proven_at = warned_at WHERE warned_at > 0;

UPDATE domain_claims SET reminded_at = warned_at WHERE warned_at > 0;

-- Whether somebody has claimed a name lately is asked for each claim.
CREATE INDEX domain_claims_name ON domain_claims (name, created_at);
