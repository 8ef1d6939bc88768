package dmarcreports

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/dailyreports"
)

// WaitingMax is the maximum number of domains that [WaitingToday] counts.
const WaitingMax = 1000

// Waiting describes what was counted today for the reports that are sent after midnight UTC. It lacks the counts of the
// last minute, which nodes keep in memory.
type Waiting struct {
	Messages int64 // all received messages
	Domains  int   // domains that ask for a report, at most WaitingMax
}

// WaitingToday returns what was counted on the day of now.
func WaitingToday(ctx context.Context, r db.Reader, now time.Time) (w Waiting, err error) {
	today := dailyreports.DayOf(now)
	err = r.QueryRow(ctx, `SELECT messages FROM dmarc_report_days WHERE day = $1`, today).Scan(&w.Messages)
	if err == nil || errors.Is(err, db.ErrNoRows) {
		err = r.QueryRow(ctx, `SELECT COUNT(*) FROM (SELECT 1 FROM dmarc_reports WHERE day = $1 LIMIT $2) AS counted`, today,
			WaitingMax).Scan(&w.Domains)
	}
	if err != nil {
		return w, fmt.Errorf("read what waits for DMARC reports: %w", err)
	}
	return w, nil
}
