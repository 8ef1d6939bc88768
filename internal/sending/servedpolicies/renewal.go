package servedpolicies

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
)

// publishTime is how long the domain's owner has for publishing a new id. Until then, a former id is no breakage.
const publishTime = 24 * time.Hour

// recordFinding is what a look-up found in the record at _mta-sts.DOMAIN.
type recordFinding struct {
	texts []string
	known bool // the DNS has answered
}

// id returns the id in the record; "" if there is no valid one.
func (f recordFinding) id() string {
	id, err := mtasts.FindRecord(f.texts)
	if err != nil {
		return ""
	}
	return id
}

// lookUpRecord looks up the record with the id of a domain's policy.
func (s *Service) lookUpRecord(ctx context.Context, domain string) recordFinding {
	texts, err := s.p.DNS.TXT(ctx, mtasts.RecordName(domain))
	return recordFinding{texts, err == nil || errors.Is(err, resolve.ErrNotFound)}
}

// lookUpNow looks up, before a change, the MX records of a domain and the record with the id of its policy.
func (s *Service) lookUpNow(ctx context.Context, domain string) (mx []resolve.MX, found recordFinding) {
	if s.c.TrustRecords {
		return nil, recordFinding{known: true}
	}
	var wait sync.WaitGroup
	wait.Go(func() { mx = s.lookUpMX(ctx, domain) })
	wait.Go(func() { found = s.findRecord(ctx, domain, nil) })
	wait.Wait()
	return mx, found
}

// findRecord is like lookUpRecord, with a time limit. With TrustRecords, the record always has the right id.
func (s *Service) findRecord(ctx context.Context, domain string, p *row) recordFinding {
	if s.c.TrustRecords {
		return recordFinding{[]string{mtasts.Record(p.recordID(s.c.Now()))}, true}
	}
	ctx, cancel := context.WithTimeout(ctx, lookUpTime)
	defer cancel()
	return s.lookUpRecord(ctx, domain)
}

// note stores the id that a look-up found.
func (w *watch) note(f recordFinding) {
	if id := f.id(); id != "" {
		w.SeenID = id
	}
}

// restart returns the state of a policy that was not checked yet since its mode changed.
func (w *watch) restart() watch { return watch{SeenID: w.SeenID, PublishBy: w.PublishBy} }

// mayBeKnown reports whether senders may have found the policy, so that a changed text needs a new id. The parameter f
// is the last look-up of the record.
func (r *row) mayBeKnown(d *domains.Domain, f recordFinding) bool {
	return !f.known || f.id() != "" || r.Watch.SeenID != "" || r.Watch.Worked || d.Served()
}

// isStale reports whether the record had a former id when it was last seen, although it should have the new one.
func (r *row) isStale(now time.Time) bool {
	return r.Watch.SeenID != "" && r.Watch.SeenID != r.ID && !now.Before(r.AnnounceAt)
}

// isUpdating reports whether the record is expected to have a former id, because the policy was changed recently.
func (r *row) isUpdating(now time.Time) bool {
	return r.Watch.SeenID != r.ID && now.UnixMicro() < r.Watch.PublishBy
}

// allowTime gives the owner time for publishing the new id.
func (r *row) allowTime() {
	if r.FormerID != "" {
		r.Watch.PublishBy = db.Micros(r.AnnounceAt.Add(publishTime))
	}
}

// addStale adds the problem of a former id to those of the last check, as soon as the record should have the new id.
func (r *row) addStale(d *domains.Domain, x *Policy, now time.Time) {
	if r.isStale(now) && !x.Automatic {
		x.Problems = append(slices.Clip(x.Problems), staleRecord(d, r.Watch.SeenID, r.ID))
	}
}

// staleRecord returns the problem that the record has a former id.
func staleRecord(d *domains.Domain, found, want string) Problem {
	return Problem{RecordProblem, fmt.Sprintf("The TXT record at %s has the id %s, but the policy has changed. %s",
		mtasts.RecordName(d.Name), found, toPublish(d, want))}
}

// invalidRecord returns the problem of a record that is missing or invalid.
func invalidRecord(d *domains.Domain, err error, want string) Problem {
	if errors.Is(err, mtasts.ErrNoRecord) {
		return Problem{RecordProblem, fmt.Sprintf("%s has no TXT record. %s", mtasts.RecordName(d.Name),
			toPublish(d, want))}
	}
	return Problem{RecordProblem, fmt.Sprintf("The TXT record at %s is invalid: %v. %s", mtasts.RecordName(d.Name), err,
		toPublish(d, want))}
}

// toPublish says what to do about a wrong TXT record.
func toPublish(d *domains.Domain, want string) string {
	if d.Served() {
		return "The name servers of this installation publish " + mtasts.Record(want) + " Check the delegation of " +
			d.Name + "."
	}
	return "Publish: " + mtasts.Record(want)
}

// judgeEnding stores whether the record of a withdrawn policy leads senders to the withdrawal. A former id is found by
// isStale.
func (r *row) judgeEnding(d *domains.Domain, f recordFinding, now time.Time) {
	if !f.known {
		return
	}
	r.Watch.note(f)
	r.Watch.Problems = nil
	if _, err := mtasts.FindRecord(f.texts); err != nil && r.Watch.SeenID != "" {
		r.Watch.Problems = []Problem{invalidRecord(d, err, r.recordID(now))}
	}
}
