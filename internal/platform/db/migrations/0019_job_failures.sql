-- attempt is the fence and nothing else: it only grows. Errors of ours in a row are failures, tries that came to an end are tries.
ALTER TABLE jobs ADD COLUMN failures BIGINT NOT NULL DEFAULT 0;

ALTER TABLE jobs ADD COLUMN tries BIGINT NOT NULL DEFAULT 0;

UPDATE jobs SET tries = attempt WHERE holder = '';

UPDATE jobs SET tries = attempt - 1 WHERE holder <> '' AND attempt > 0;
