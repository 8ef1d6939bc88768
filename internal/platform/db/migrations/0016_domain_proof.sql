-- A domain receives only while the record of its own key is there. Those that received without it go on for 72 hours after they are
-- looked at next, which dates the entry.
UPDATE domains SET checks = REPLACE(checks, '"receiving":{', '"unproved":{"status":"temporary_failure"},"receiving":{')
	WHERE receiving AND NOT placeholder
	AND (checks LIKE '%"receiving":{"status":"verified"%' OR checks LIKE '%"receiving":{"status":"temporary_failure"%')
	AND checks NOT LIKE '%"dkim":{"status":"verified"%' AND checks NOT LIKE '%"dkim":{"status":"temporary_failure"%';
