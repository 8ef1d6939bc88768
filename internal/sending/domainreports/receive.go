package domainreports

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// Store stores the reports of a message in the transaction after which the message is accepted. If the domain was
// erased since its address was looked up, Store stores nothing.
func (s *Service) Store(ctx context.Context, tx *db.Tx, d *Draft) error {
	if err := lockReports(ctx, tx, d.target.DomainID); err != nil {
		return err
	}
	token, err := tokenOf(ctx, tx.Reader, d.target.TeamID, d.target.DomainID)
	if err != nil {
		return fmt.Errorf("look whether %s still has an address for reports: %w", d.target.Domain, err)
	}
	if token == "" {
		return nil
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
	if x.isDropped {
		c.dropped++
		return nil
	}
	r := x.Report // a copy, because the transaction may run again
	by, err := usageOf(ctx, tx.Reader, t, c.day, x.by)
	if err != nil {
		return err
	}
	defer saveUsage(ctx, tx, t, c.day, x.by, &by)
	if repeated, err := s.storeRepeat(ctx, tx, t, c, x, &by); err != nil || repeated {
		return err
	}
	proven := r.Proven && r.State == Counted
	switch {
	case !c.admits(x, &by):
		c.dropped++
		return nil
	case proven:
		c.reports++
	default:
		c.others++
	}
	// Anybody can forward genuine reports of a well-known reporter about another domain. They leave its limit as it is.
	if proven || x.by == "" || !isWellKnown(x.Reporter) {
		by.reports++
	}
	if r.blobKey != "" {
		if c.keeps(x, &by) {
			c.bytes, by.bytes = c.bytes+r.Size, by.bytes+r.Size
		} else {
			r.blobKey = "" // the sweep deletes the file
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
	left := c.rowsLeft(x, &by)
	addRows(ctx, tx, t, day, r.Reporter, r.Proven, fold(x.rows, left))
	addSessions(ctx, tx, t, day, r.Reporter, r.Proven, foldSessions(x.sessions, left))
	added := int64(min(len(x.rows)+len(x.sessions), left))
	by.rows += added
	if !r.Proven {
		c.otherRows += added
		return nil
	}
	c.rows += added
	return s.notice(ctx, tx, t, &r)
}

// storeRepeat counts a repetition. It returns false if the report is new. Repetitions use up limits of the day, except
// those of a signed file. Anybody can repeat signed files, and recognizing them costs little.
func (s *Service) storeRepeat(ctx context.Context, tx *db.Tx, t *Target, c *dayCounts, x *draft, by *usage) (
	bool, error) {
	var repeated bool
	var err error
	switch {
	case x.isRepeat:
		repeated, err = true, noteKnownFile(ctx, tx, t, x.fingerprint)
	case x.dedupe != "":
		repeated, err = noteRepeat(ctx, tx, t, x.dedupe)
	}
	if err != nil || !repeated {
		return false, err
	}
	switch {
	case x.by == "":
		c.others++
	case !x.isRepeat:
		by.reports++
	}
	return true, nil
}

// notice tells the team if reports of the last two days confirm that signatures of this installation fail, at most once
// a week. The last of these reports is r.
func (s *Service) notice(ctx context.Context, tx *db.Tx, t *Target, r *Report) error {
	if c := (claim{r.Reporter, r.ownFailed, r.ownMessages}); !c.isDefect() {
		return nil
	}
	at, err := noticedAt(ctx, tx.Reader, t)
	if err != nil || db.Time(at).After(s.c.Now().Add(-noticeEvery)) {
		return err
	}
	all, err := claimsAbout(ctx, tx.Reader, t, id.First(s.c.Now().Add(-defectTime)))
	if err != nil {
		return err
	}
	sum, ok := confirmed(all)
	if !ok {
		return nil
	}
	saveNotice(ctx, tx, t, s.c.Now())
	return s.p.Notify(ctx, tx, t.TeamID, "DKIM signatures of "+t.Domain+" fail",
		fmt.Sprintf("Reports of the last two days say that the DKIM signature of %d of %d messages from %s failed, "+
			"although this service sent them. Reporters: %d. The last report is of %s and covers %s to %s (UTC).\n\n"+
			"Look at the DNS records of the domain first: a DKIM record that was changed or removed is the most frequent "+
			"cause. The operator of this service is told too.\n", sum.failed, sum.messages, t.Domain, sum.reporters,
			r.Reporter, r.Begin.UTC().Format("2006-01-02 15:04"), r.End.UTC().Format("2006-01-02 15:04")))
}

// Defects returns the domains of which reports of the last two days confirm that signatures of this installation fail,
// those with the most failures first. It covers all teams, because it is for the operator.
func (s *Service) Defects(ctx context.Context) ([]Defect, error) {
	all, err := recentClaims(ctx, s.p.DB.Reader, id.First(s.c.Now().Add(-defectTime)))
	if err != nil {
		return nil, err
	}
	var some []Defect
	for on, claims := range all {
		if sum, ok := confirmed(claims); ok {
			some = append(some, Defect{on.TeamID, on.Domain, sum.failed, sum.messages, sum.reporters})
		}
	}
	slices.SortFunc(some, func(a, b Defect) int {
		return cmp.Or(cmp.Compare(b.Failed, a.Failed), cmp.Compare(a.Domain, b.Domain), cmp.Compare(a.TeamID, b.TeamID))
	})
	return some[:min(len(some), defectsMax)], nil
}
