package broadcasts

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/platform/db"
)

// activeMax is the maximum number of broadcasts that CountActive counts.
const activeMax = 10_000

// CountActive returns how many broadcasts of all teams are being sent, and how many are paused, of at most 10,000.
func (s *Service) CountActive(ctx context.Context) (sending, paused int64, err error) {
	rows, err := s.p.DB.Query(ctx, `SELECT status, COUNT(*) FROM (SELECT status FROM broadcasts
		WHERE status IN ('queued', 'paused') ORDER BY team_id, id LIMIT $1) x GROUP BY status`, activeMax)
	_, err = db.Collect(rows, err, func(r db.Row) (struct{}, error) {
		var status string
		var n int64
		err := r.Scan(&status, &n)
		if status == string(Paused) {
			paused = n
		} else {
			sending = n
		}
		return struct{}{}, err
	})
	if err != nil {
		return 0, 0, fmt.Errorf("count the active broadcasts: %w", err)
	}
	return sending, paused, nil
}
