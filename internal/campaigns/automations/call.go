package automations

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// callKind is the kind of job that carries out webhook steps. While a run is at a webhook step, it has a job of kind
// callKind instead of runKind, so that slow hosts do not occupy the workers that other runs need.
const callKind = "automations.call"

// callLease is the maximum duration of one webhook call, including its database writes.
const callLease = 2 * time.Minute

// callWaits are the delays before successive retries of a failed webhook call.
var callWaits = []time.Duration{10 * time.Second, time.Minute, 10 * time.Minute, time.Hour, 3 * time.Hour}

// callLane returns the job lane for a team's webhook calls to the host of a URL.
func callLane(teamID, address string) string {
	host := ""
	if u, err := url.Parse(address); err == nil {
		host = strings.ToLower(u.Host)
	}
	return teamID + "|" + host
}

func callTeam(lane string) string {
	teamID, _, _ := strings.Cut(lane, "|")
	return teamID
}

// call handles jobs of the kind callKind: it calls the URL of a run's current webhook step.
func (s *Service) call(ctx context.Context, j jobs.Job) error {
	r, found, err := getRow(ctx, s.p.DB.Reader, j.TeamID, j.Payload)
	if err != nil {
		return err
	}
	if !found || r.status != Running {
		return s.p.Queue.End(ctx, j)
	}
	at, err := s.loadRunState(ctx, &r)
	if err != nil {
		return err
	}
	if at.cancelReason != "" {
		return s.cancelOne(ctx, j, &r, at.cancelReason)
	}
	team, err := s.p.Teams.Get(ctx, j.TeamID)
	if err != nil {
		return err
	}
	if team.Suspended {
		return s.postponeCall(ctx, j, suspendedWait, "the team is suspended")
	}
	facts := s.facts(ctx, s.p.DB.Reader, s.p.DB.Now(), at.contact)
	a, err := at.version.Plan(at.run, facts)
	if err != nil {
		return err
	}
	var out engine.Outcome
	if c, ok := a.Effect.(*engine.Call); ok {
		if err := j.Sure(ctx); err != nil {
			return err
		}
		status, err := s.p.Call(ctx, j.TeamID, fmt.Sprintf("%s_%d", r.id, r.steps-1), c.URL, c.Headers, c.Body)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if fault.KindOf(err) == fault.Unavailable {
			return s.postponeCall(ctx, j, callWaits[0], err.Error())
		}
		verdict := judge(status, err)
		if verdict.retry && j.Tries < len(callWaits) {
			return s.retryCall(ctx, j, at, &verdict)
		}
		out = verdict.outcome()
	}
	return s.finishCall(ctx, j, at, &a, out)
}

// verdict says whether a webhook call succeeded and whether it may be retried.
type verdict struct {
	retry   bool // whether a retry may succeed
	status  int  // 0 if there was no response
	failure *engine.Failure
}

func (v *verdict) outcome() engine.Outcome {
	out := engine.Outcome{Failure: v.failure}
	if v.status != 0 {
		out.Output = map[string]any{"status": v.status}
	}
	return out
}

// judge returns the verdict on a webhook call, based on the response status, or on the error if there was no response.
func judge(status int, err error) verdict {
	v := verdict{status: status}
	switch {
	case err != nil && !fault.Ours(err):
		v.failure = &engine.Failure{Reason: "webhook_refused", Message: err.Error()}
	case err != nil:
		v.retry = true
		v.failure = &engine.Failure{Reason: "webhook_failed",
			Message: "There was no answer: " + db.Text(err.Error(), 500) + "."}
	case status/100 == 2:
	case status < 100:
		v.retry = true
		v.failure = &engine.Failure{Reason: "webhook_failed", Message: "There was no answer."}
	case status/100 == 5, status == 408, status == 425, status == 429:
		v.retry = true
		fallthrough
	default:
		v.failure = &engine.Failure{Reason: "webhook_failed", Message: fmt.Sprintf("The address answered with the "+
			"status %d. It must answer with one from 200 to 299.", status)}
	}
	return v
}

// postponeCall reschedules a webhook job without counting an attempt.
func (s *Service) postponeCall(ctx context.Context, j jobs.Job, wait time.Duration, why string) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		s.p.Queue.Wait(ctx, tx, j, tx.Now().Add(jobs.Jitter(wait)), why)
		return nil
	})
}

// retryCall schedules a retry of a webhook call, and stores the last call's failure in the step.
func (s *Service) retryCall(ctx context.Context, j jobs.Job, at *runState, v *verdict) error {
	wait := jobs.Jitter(callWaits[j.Tries])
	return s.p.Queue.Record(ctx, func(tx *db.Tx) error {
		recordTry(ctx, tx, &at.row, fmt.Sprintf("%s Call %d of %d failed; the next one is at %s.", v.failure.Message,
			j.Tries+1, len(callWaits)+1, tx.Now().Add(wait).Format(time.RFC3339)))
		s.p.Queue.Retry(ctx, tx, j, tx.Now().Add(wait), v.failure.Message)
		return nil
	})
}

// finishCall stores the result of a webhook step and advances the run to the next step. If the run has ended during the
// call, finishCall only ends the job. If the run's automation has been stopped, finishCall cancels the run.
func (s *Service) finishCall(ctx context.Context, j jobs.Job, at *runState, a *engine.Action,
	out engine.Outcome) error {
	err := s.p.DB.Update(ctx, func(tx *db.Tx) error {
		w := at.walk(s, tx)
		w.opened = true
		rec := w.version.Done(w.run, *a, out, engine.Facts{Now: tx.Now()})
		if err := w.record(ctx, &rec); err != nil {
			return err
		}
		w.row.setProgress(w.run)
		s.p.Queue.Finish(ctx, tx, j)
		switch {
		case rec.Status == engine.StepFailed:
			endRow(ctx, tx, &w.row, Failed, Reason(rec.Failure.Reason))
		case w.run.At == "":
			endRow(ctx, tx, &w.row, Completed, "")
		default:
			saveRow(ctx, tx, &w.row)
			s.p.Queue.Insert(ctx, tx, runJob(&w.row))
		}
		return nil
	})
	if !errors.Is(err, errRunChanged) {
		return err
	}
	r, found, err := getRow(ctx, s.p.DB.Reader, j.TeamID, j.Payload)
	switch {
	case err != nil:
		return err
	case !found || r.status != Running:
		return s.p.Queue.End(ctx, j)
	case r.stale() != "":
		return s.cancelOne(ctx, j, &r, r.stale())
	}
	return fmt.Errorf("run %s has left its webhook step", r.id)
}
