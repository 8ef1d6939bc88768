package automations

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
)

// listOfApps returns the automations of a team for which the given grants are responsible. A team has at most MaxTeam
// automations.
func listOfApps(ctx context.Context, r db.Reader, teamID string, grantIDs []string) ([]AppAutomation, error) {
	rows, err := r.Query(ctx, `SELECT a.id, a.name, p.grant_id, a.status, p.halted_at FROM automation_apps p
		JOIN automations a ON a.id = p.automation_id AND a.team_id = p.team_id AND a.deleted_at = 0
		WHERE p.team_id = $1 AND p.grant_id = ANY($2) ORDER BY p.automation_id LIMIT $3`, db.ID(teamID), db.IDs(grantIDs),
		MaxTeam)
	return db.Collect(rows, err, func(r db.Row) (a AppAutomation, err error) {
		var status Status
		var halted int64
		err = r.Scan((*db.ID)(&a.ID), &a.Name, (*db.ID)(&a.GrantID), &status, &halted)
		a.Enabled = status == Enabled
		a.Halted = halted > 0 && !a.Enabled
		return a, err
	})
}

// appOf returns the grant of the connected app that is responsible for an automation, or ErrNoRows if no app is.
func appOf(ctx context.Context, r db.Reader, teamID, automationID string) (grantID string, err error) {
	err = r.QueryRow(ctx,
		`SELECT grant_id FROM automation_apps WHERE automation_id = $1 AND COALESCE(team_id, team_id) = $2`,
		db.ID(automationID), db.ID(teamID)).Scan((*db.ID)(&grantID))
	return grantID, err
}

func saveApp(ctx context.Context, tx *db.Tx, teamID, automationID, grantID string) {
	tx.Queue(ctx, `INSERT INTO automation_apps (automation_id, team_id, grant_id, halted_at) VALUES ($1, $2, $3, 0)
		ON CONFLICT (automation_id) DO UPDATE SET grant_id = excluded.grant_id, halted_at = 0`, db.ID(automationID),
		db.ID(teamID), db.ID(grantID))
}

func deleteApp(ctx context.Context, tx *db.Tx, teamID, automationID string) {
	tx.Queue(ctx, `DELETE FROM automation_apps WHERE automation_id = $1 AND COALESCE(team_id, team_id) = $2`,
		db.ID(automationID), db.ID(teamID))
}

func markHalted(ctx context.Context, tx *db.Tx, teamID, automationID string) {
	tx.Queue(ctx,
		`UPDATE automation_apps SET halted_at = $3 WHERE automation_id = $1 AND COALESCE(team_id, team_id) = $2`,
		db.ID(automationID), db.ID(teamID), tx.Now().UnixMicro())
}
