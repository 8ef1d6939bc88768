package cli

import "github.com/postrider/postrider/internal/platform/db/dbtest"

// Reasons for which statements need no condition on a team.
const (
	claims   = "a node claims, releases and schedules the jobs of all teams"
	attempt  = "the id and the attempt identify the job that the node has claimed, and jobs of no team exist"
	sweeps   = "a sweep deletes the old rows of all teams"
	schedule = "recurring work has jobs of no team"
	byIndex  = "the caller has read the segment by its team, and only the index is read, which has no team"
	finds    = "it finds the rows of all teams that need work, and returns their teams"
	bySecret = "a secret that only its owner knows identifies the row, and the row tells the team"
	figures  = "the operator sees figures of the whole installation"
	byName   = "the name of a domain is unique for all teams, or claimed by several"
)

// ofAllTeams lists the statements that read or change rows of teams without a condition on the team.
var ofAllTeams = []dbtest.Allowed{
	{Text: "DELETE FROM jobs WHERE id = $1 AND attempt = $2", Reason: attempt},
	{Text: "jobs.id = u.id AND jobs.attempt = u.attempt", Reason: attempt, Only: "postgres"},
	{Text: "holder = NULL, last_error = $4, failures = 0 WHERE id = $1 AND attempt = $2", Reason: attempt},
	{Text: "holder = NULL, last_error = $4, tries = tries + 1, failures = 0 WHERE id = $1 AND attempt = $2",
		Reason: attempt},
	{Text: "UPDATE jobs SET run_at = $3, set_at = $4, holder = NULL, held = $5,", Reason: attempt},
	{Text: "UPDATE jobs SET run_at = $4, set_at = $5, holder = NULL WHERE id = $1 AND attempt = $2", Reason: attempt,
		Seldom: true}, // a node gives a job back that it cannot run
	{Text: "DELETE FROM jobs WHERE kind = $1 AND dedupe <> '' AND dedupe <> ALL($2)", Reason: schedule},
	{Text: "UPDATE jobs SET run_at = $2, set_at = $4, parked = $3 WHERE kind = $1", Reason: schedule},
	{Text: "FROM jobs WHERE kind = $1 AND lane = $2 AND holder IS NULL LIMIT $3", Reason: claims},
	{Text: "FROM jobs WHERE held = $1 AND held <> ''",
		Reason: "the id of a broadcast is the event for which its jobs wait"},
	{Text: "FROM jobs WHERE TRUE AND id > $1", Reason: claims},
	{Text: "UPDATE jobs SET run_at = $1, attempt = attempt + 1, holder = $2", Reason: claims},
	{Text: "UPDATE jobs SET run_at = $1, set_at = $2, holder = NULL WHERE holder IS NOT NULL", Reason: claims,
		Only: "sqlite"},
	{Text: "UPDATE jobs SET run_at = $2, set_at = $3, holder = NULL WHERE holder = $1", Reason: claims},
	{Text: "WITH x AS (SELECT lane, run_at FROM jobs WHERE kind = $1", Reason: figures},
	{Text: "SELECT kind, COUNT(*) FROM (SELECT kind FROM jobs WHERE parked", Reason: figures},
	{Text: "SELECT status, COUNT(*) FROM (SELECT status FROM broadcasts", Reason: figures},
	{Text: "SELECT run_at, set_at FROM jobs WHERE kind = $1 AND lane = $2", Reason: figures, Seldom: true},
	{Text: "WITH RECURSIVE k (kind) AS", Reason: claims},
	{Text: "WITH RECURSIVE l (lane) AS", Reason: claims},
	{Text: "WITH RECURSIVE l (lane, run_at) AS", Reason: claims, Only: "postgres"},
	{Text: "FROM l JOIN jobs j ON", Reason: claims, Only: "sqlite"},
	{Text: "(SELECT MIN(j.run_at) FROM jobs j WHERE j.kind = $1 AND j.lane = l.lane AND j.run_at < $2", Reason: claims,
		Only: "sqlite"},

	{Text: "DELETE FROM approvals WHERE id IN (SELECT id FROM approvals WHERE decided_at > 0", Reason: sweeps},
	{Text: "UPDATE approvals SET state = 'expired'", Reason: "approvals of all teams expire"},
	{Text: "DELETE FROM audit_log WHERE id <=", Reason: sweeps},
	{Text: "DELETE FROM erasures WHERE id IN", Reason: sweeps},
	{Text: "DELETE FROM idempotency_keys WHERE created_at < $1", Reason: sweeps},
	{Text: "DELETE FROM invitations WHERE expires_at <=", Reason: sweeps},
	{Text: "DELETE FROM live_messages WHERE id <=", Reason: sweeps},
	{Text: "DELETE FROM live_tails WHERE until < $1", Reason: sweeps},
	{Text: "FROM live_tails WHERE until > $1", Reason: "a node keeps in memory which teams are watched"},
	{Text: "DELETE FROM oauth_codes WHERE hash IN", Reason: sweeps},
	{Text: "UPDATE oauth_grants SET revoked_at = $1, revoked_reason = $2 WHERE id IN (SELECT id FROM oauth_grants",
		Reason: "grants of all teams expire"},
	{Text: "_default WHERE", Reason: "a job moves rows of all teams from the default partitions", Only: "postgres"},

	{Text: "SELECT id, team_id FROM contact_properties WHERE deleted_at <> 0", Reason: finds},
	{Text: "SELECT id, team_id FROM segments WHERE deleted_at <> 0", Reason: finds},
	{Text: "SELECT id, team_id FROM templates WHERE deleted", Reason: finds},
	{Text: "SELECT id, team_id FROM topics WHERE deleted_at <> 0", Reason: finds},
	{Text: "FROM contact_imports WHERE finished_at < $1", Reason: finds},
	{Text: "SELECT team_id FROM email_events WHERE email_id = $1", Reason: "a report that names no team has only the id"},

	{Text: "FROM contact_segments WHERE segment_id = $1 LIMIT $2", Reason: byIndex},
	{Text: "FROM contact_segments m WHERE m.segment_id = $1", Reason: byIndex},
	{Text: "FROM contact_texts v WHERE v.property_id = $1",
		Reason: "the filter names a property of the team, and only the index is read, which has no team"},

	{Text: "FROM served_policies WHERE check_at <= $1", Reason: "one job checks the policies of all teams"},
	{Text: "FROM served_policies p WHERE p.name = $1 AND p.leads_here", Reason: byName},
	{Text: "FROM served_policies p WHERE p.domain_id > $1 AND p.leads_here", Reason: "one reading makes the zones of all teams"},
	{Text: "FROM domain_claims WHERE name = $1 AND created_at > $2", Reason: byName},
	{Text: "FROM domains WHERE name = $1 AND NOT placeholder", Reason: byName},
	{Text: "FROM domains WHERE NOT placeholder AND name = ANY($1)", Reason: byName},
	{Text: "SELECT id, team_id FROM domains WHERE NOT placeholder AND rotate_at", Reason: finds},
	{Text: "SELECT domain_id, team_id FROM domain_keys WHERE stepped_at", Reason: finds},
	{Text: "SELECT id, team_id FROM domains WHERE former_setup <> ''", Reason: finds},
	{Text: "FROM domains d LEFT JOIN report_addresses a ON a.domain_id = d.id WHERE d.id > $1", Reason: finds},
	{Text: "FROM report_addresses a LEFT JOIN domains d ON d.id = a.domain_id WHERE a.domain_id > $1", Reason: finds},
	{Text: "FROM received_reports WHERE id > $1 AND own_failed > 0", Reason: figures},
	{Text: "FROM domains WHERE id = $1", Reason: "all teams send from the sandbox domains, which belong to no team"},
	{Text: "FROM oauth_codes WHERE hash = $1", Reason: bySecret},
	{Text: "UPDATE oauth_codes SET used_at = $2 WHERE hash = $1", Reason: bySecret},
}
