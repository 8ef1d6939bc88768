package automations

import (
	"context"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// domainWait says until when a run waits at a step whose sender's domain may not send. The payload of the run's job
// contains the domainWait after the run's id. The zero value means that the run has not waited for a domain yet.
type domainWait struct {
	step  string
	until time.Time
}

// decodeRunPayload reads the payload of a job of the kind runKind.
func decodeRunPayload(payload string) (runID string, wait domainWait) {
	runID, rest, _ := strings.Cut(payload, " ")
	until, step, _ := strings.Cut(rest, " ")
	if us, err := strconv.ParseInt(until, 10, 64); err == nil {
		wait = domainWait{step, db.Time(us)}
	}
	return runID, wait
}

func (d domainWait) payload(runID string) string {
	return runID + " " + strconv.FormatInt(d.until.UnixMicro(), 10) + " " + d.step
}

// awaitDomain handles a step whose sender's domain may not send. The run waits at the step for at most a day; see
// [emails.WithholdFor]. After that, the step fails. If another team may send from the domain, the step fails
// immediately.
func (w *walk) awaitDomain(ctx context.Context, step string, p *prepared) (out engine.Outcome, stops bool, err error) {
	standing, _, err := w.s.p.Domains.LockStanding(ctx, w.tx, w.row.teamID, p.domain)
	if err != nil || standing == domains.Usable { // if the domain is back, the email is prepared again
		return out, true, err
	}
	now := w.tx.Now()
	if w.domainWait.step != step {
		w.domainWait = domainWait{step, now.Add(emails.WithholdFor)}
	}
	if standing == domains.TakenOver || !w.domainWait.until.After(now) {
		out.Failure = p.failure
		return out, false, nil
	}
	w.end, w.domain = walkLacksDomain, p.domain
	return out, true, nil
}
