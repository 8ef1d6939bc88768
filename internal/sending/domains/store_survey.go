package domains

import (
	"context"

	"github.com/postrider/postrider/internal/platform/db"
)

const (
	established = ` FROM domains WHERE status IN ('verified', 'partially_verified', 'partially_failed')
		AND NOT placeholder`
	selectEstablished = `SELECT ` + columns + established + ` AND team_id <> $1 ORDER BY checked_at LIMIT $2`
	selectOfTeam      = `SELECT ` + columns + established + ` AND team_id = $1 ORDER BY id LIMIT $2`
)

// establishedDomains returns domains of one team, or of all teams if teamID is "".
func establishedDomains(ctx context.Context, r db.Reader, teamID string, limit int) ([]Domain, error) {
	query, team := selectOfTeam, teamID
	if teamID == "" {
		query, team = selectEstablished, system
	}
	rows, err := r.Query(ctx, query, db.ID(team), limit)
	return db.Collect(rows, err, scan)
}
