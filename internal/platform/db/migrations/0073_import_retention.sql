-- Imports are deleted some time after they ended, with the rows that failed.
CREATE INDEX contact_imports_ended ON contact_imports (finished_at) WHERE finished_at > 0;

DROP INDEX contact_imports_kept;
