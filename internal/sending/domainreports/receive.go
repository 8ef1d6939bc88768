package domainreports

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// These are the limits from which failing signatures of this installation are a defect, and not the fault of one host
// that changed messages.
const (
	defectMessages = 10
	defectPercent  = 1
)

func isDefect(failed, messages int64) bool {
	return failed >= defectMessages && failed*100 >= messages*defectPercent
}

// Store stores the reports of a message in the transaction after which the message is accepted.
func (s *Service) Store(ctx context.Context, tx *db.Tx, d *Draft) error {
	if err := lockReports(ctx, tx, d.target.DomainID); err != nil {
		return err
	}
	day := today(s.c.Now())
	c, err := countsOf(ctx, tx.Reader, &d.target, day)
	if err != nil {
		return err
	}
	for _, x := range d.reports {
		if err := s.storeOne(ctx, tx, &d.target, &c, x); err != nil {
			return fmt.Errorf("store a report about %s: %w", d.target.Domain, err)
		}
	}
	saveCounts(ctx, tx, &d.target, day, &c)
	return nil
}

func (s *Service) storeOne(ctx context.Context, tx *db.Tx, t *Target, c *dayCounts, x *draft) error {
	if x.dedupe != "" {
		if repeated, err := noteRepeat(ctx, tx, t, x.dedupe); err != nil || repeated {
			return err
		}
	}
	r := x.Report // a copy, because the transaction may run again
	proven := r.Proven && r.State == Counted
	switch {
	case proven && c.reports >= maxDayReports, !proven && c.others >= maxDayUnproven:
		c.dropped++
		return nil
	case proven:
		c.reports++
	default:
		c.others++
	}
	if r.blobKey != "" {
		if c.bytes+r.Size > maxDayBytes {
			r.blobKey = "" // the sweep deletes the file
		} else {
			c.bytes += r.Size
		}
	}
	r.ID, r.ReceivedAt = id.At(tx.Now()), s.c.Now()
	if r.State == Counted {
		over, err := overlaps(ctx, tx.Reader, t, &r)
		if err != nil {
			return err
		}
		if over {
			r.State, r.Reason = Overlapping, "Another report of this reporter covers a part of the same time."
		}
	}
	if !r.Proven || r.State != Counted {
		r.ownFailed = 0
	}
	insertReport(ctx, tx, t, &r)
	if r.State != Counted {
		return nil
	}
	day := dayOf(r.Begin, r.End)
	stored, most := &c.rows, int64(maxDayRows)
	if !r.Proven {
		stored, most = &c.otherRows, maxDayOthers
	}
	left := int(max(most-*stored, 0))
	addRows(ctx, tx, t, day, r.Reporter, r.Proven, fold(x.rows, left))
	addSessions(ctx, tx, t, day, r.Reporter, r.Proven, foldSessions(x.sessions, left))
	*stored += int64(min(len(x.rows)+len(x.sessions), left))
	return s.notice(ctx, tx, t, &r)
}

// notice tells the team if a proven report says that signatures of this installation fail, at most once a week.
func (s *Service) notice(ctx context.Context, tx *db.Tx, t *Target, r *Report) error {
	if !isDefect(r.ownFailed, r.ownMessages) {
		return nil
	}
	at, err := noticedAt(ctx, tx.Reader, t)
	if err != nil || db.Time(at).After(s.c.Now().Add(-noticeEvery)) {
		return err
	}
	saveNotice(ctx, tx, t, s.c.Now())
	return s.p.Notify(ctx, tx, t.TeamID, "DKIM signatures of "+t.Domain+" fail",
		fmt.Sprintf("%s reports that the DKIM signature of %d of %d messages from %s failed, although this service "+
			"sent them. The report covers %s to %s (UTC).\n\nLook at the DNS records of the domain first: a DKIM record "+
			"that was changed or removed is the most frequent cause. The operator of this service is told too.\n", r.Reporter, r.ownFailed,
			r.ownMessages, t.Domain, r.Begin.UTC().Format("2006-01-02 15:04"), r.End.UTC().Format("2006-01-02 15:04")))
}

// Defects returns the domains of which proven reports of the last two days say that signatures of this installation
// fail. It covers all teams, because it is for the operator.
func (s *Service) Defects(ctx context.Context) ([]Defect, error) {
	all, err := recentDefects(ctx, s.p.DB.Reader, id.First(s.c.Now().Add(-2*oneDay)))
	if err != nil {
		return nil, err
	}
	var some []Defect
	for _, d := range all {
		if isDefect(d.Failed, d.Messages) {
			some = append(some, d)
		}
	}
	return some, nil
}
