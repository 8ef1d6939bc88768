package automations

import (
	"context"
	"errors"
	"time"

	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
)

const (
	// maxStepsAtOnce is how many steps of a run one transaction does. On SQLite the transaction blocks all other
	// writes.
	maxStepsAtOnce = 20
	// maxTurns is how many transactions a run gets in a row before other runs may have its worker.
	maxTurns = 10
	// suspendedWait is how long a run waits before it checks again whether its team may send.
	suspendedWait = 5 * time.Minute
	maxQuotaWait  = time.Hour
)

// quotaWait returns how long a run waits before it checks its team's quota again. A run waits until the quota resets,
// but at most maxQuotaWait, because the operator may raise the quota earlier.
func quotaWait(now time.Time, k fault.Kind) time.Duration {
	return min(quotas.Resets(k, now).Sub(now), maxQuotaWait)
}

// waits are the delays after consecutive errors of the database.
var waits = []time.Duration{time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute}

// Kinds returns the kinds of jobs of this package.
func (s *Service) Kinds() []jobs.Kind {
	team := func(lane string) string { return lane }
	return []jobs.Kind{
		{Name: runKind, Handle: s.advance, Workers: 32, Owner: team, Schedule: waits, Endless: true},
		{Name: callKind, Handle: s.call, Workers: 32, PerLane: 8, Owner: callTeam, Lease: callLease, Schedule: waits,
			Endless: true},
		{Name: wakeKind, Handle: s.wakeQueued, Workers: 4, Schedule: waits, Endless: true},
		{Name: beginKind, Handle: s.deliverQueued, Workers: 4, Schedule: waits, Endless: true},
		{Name: endKind, Handle: s.endStoppedRuns, Workers: 4, Schedule: waits, Endless: true},
		{Name: deletedContactKind, Handle: s.endDeletedContact, Workers: 4, Schedule: waits, Endless: true},
	}
}

// advance is the handler of the jobs of runKind. It advances a run until the run waits or has ended. If an event or a
// cancellation changes the run first, advance reads it again.
func (s *Service) advance(ctx context.Context, j jobs.Job) error {
	for range maxTurns {
		more, err := s.advanceOnce(ctx, j)
		if errors.Is(err, errRunChanged) {
			continue
		}
		if err != nil || !more {
			return err
		}
	}
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		s.p.Queue.Wait(ctx, tx, j, tx.Now(), "")
		return nil
	})
}

// advanceOnce does the steps of a run that fit into one transaction. It returns false when the job has ended or waits.
func (s *Service) advanceOnce(ctx context.Context, j jobs.Job) (more bool, err error) {
	r, found, err := getRow(ctx, s.p.DB.Reader, j.TeamID, j.Payload)
	if err != nil {
		return false, err
	}
	if !found || r.status != Running {
		return false, s.p.Queue.End(ctx, j)
	}
	at, err := s.loadRunState(ctx, &r)
	if err != nil {
		return false, err
	}
	if at.cancelReason != "" {
		return false, s.cancelOne(ctx, j, &r, at.cancelReason)
	}
	if r.waitUntil.Before(s.p.DB.Now()) { // also true if the run does not wait
		if err := s.prepareEmails(ctx, at); err != nil {
			return false, err
		}
	}
	// The transaction must not be a shared one, in which runs of the same contacts would deadlock.
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		w := at.walk(s, tx)
		if err := w.runSteps(ctx); err != nil {
			return err
		}
		more = w.end == walkContinues
		return w.finish(ctx, j)
	})
	return more && err == nil, err
}

// runState is a run at a step with the data that was read for it outside of a transaction.
type runState struct {
	row          row
	run          *engine.Run
	version      *version
	contact      *contacts.Member // nil if the run itself deleted the contact
	cancelReason Reason           // why the run must be cancelled; "" if it continues
	prepared     map[string]*prepared
}

// loadRunState reads what a run needs for its next steps.
func (s *Service) loadRunState(ctx context.Context, r *row) (*runState, error) {
	at := &runState{row: *r, cancelReason: r.stale()}
	if at.cancelReason != "" {
		return at, nil
	}
	var err error
	if at.version, err = s.versions.get(ctx, s.p.DB.Reader, r.teamID, r.versionID); err != nil {
		return nil, err
	}
	if at.run, err = r.run(); err != nil {
		return nil, err
	}
	m, err := s.p.Contacts.MemberIn(ctx, s.p.DB.Reader, r.teamID, r.contactID)
	switch {
	case err == nil:
		at.contact = &m
		return at, nil
	case fault.KindOf(err) != fault.NotFound:
		return nil, err
	}
	if !r.contactGone {
		at.cancelReason = ContactDeleted
	}
	return at, nil
}

// facts returns the facts about a contact as it was read. m may be nil.
func (s *Service) facts(ctx context.Context, r db.Reader, now time.Time, m *contacts.Member) engine.Facts {
	f := engine.Facts{Now: now}
	if m == nil {
		return f
	}
	f.Contact = &engine.Contact{ID: m.ID, Address: m.Address, FirstName: m.FirstName, LastName: m.LastName,
		Unsubscribed: m.Unsubscribed, CreatedAt: m.CreatedAt, Properties: m.Properties}
	f.Fields = func(rule *filter.Rule) (filter.Schema, func(string) filter.Value, error) {
		schema, err := s.p.Contacts.FilterSchema(ctx, r, m.TeamID, rule)
		if err != nil {
			return schema, nil, err
		}
		values, err := s.p.Contacts.FilterValues(ctx, r, &m.Contact, schema, rule)
		return schema, values, err
	}
	return f
}

// walkResult is how a walk ends.
type walkResult int

const (
	walkContinues walkResult = iota // the run continues in another transaction
	walkWaits                       // the run waits until a time
	walkCalls                       // the next step is a webhook, for which there is another job
	walkEnded                       // the run has ended
	walkSuspended                   // the team is suspended
	walkOverQuota                   // the team's quota is used up
	walkYields                      // other runs may use the worker
)

// walk moves a run through its steps in one transaction. If the transaction is repeated, the repetition has a new walk.
type walk struct {
	s       *Service
	tx      *db.Tx
	row     row
	run     *engine.Run
	version *version
	contact *contacts.Member
	ready   map[string]*prepared

	opened bool       // the current step has a row
	end    walkResult // set by runSteps
	until  time.Time  // for walkWaits
	lane   string     // lane of the job that calls a webhook
	quota  fault.Kind // the quota that is used up
}

func (at *runState) walk(s *Service, tx *db.Tx) *walk {
	run := *at.run
	return &walk{s: s, tx: tx, row: at.row, run: &run, version: at.version, contact: at.contact, ready: at.prepared,
		opened: run.Waits != nil}
}

// runSteps does steps until the run waits, ends, or needs something that must be prepared outside of a transaction.
// After that, runSteps saves the run.
func (w *walk) runSteps(ctx context.Context) error {
	waited := w.row.waitFor
	var failed *engine.Failure
	steps := 0
	for ; w.run.At != "" && failed == nil; steps++ {
		if steps == maxStepsAtOnce {
			w.end = walkYields
			break
		}
		f := w.s.facts(ctx, w.tx.Reader, w.tx.Now(), w.contact)
		a, err := w.version.Plan(w.run, f)
		if err != nil {
			return err
		}
		if a.Wait != nil {
			if err := w.pause(ctx, a, f); err != nil {
				return err
			}
			break
		}
		out, stops, err := w.do(ctx, &a)
		if err != nil {
			return err
		}
		if stops {
			break
		}
		rec := w.version.Done(w.run, a, out, f)
		if err := w.record(ctx, &rec); err != nil {
			return err
		}
		if rec.Status == engine.StepFailed {
			failed = rec.Failure
		}
	}
	if waited != "" && (w.run.Waits == nil || w.run.Waits.Event != waited) {
		deleteWait(ctx, w.tx, &w.row, waited)
	}
	w.row.setProgress(w.run)
	switch {
	case failed != nil:
		w.end = walkEnded
		endRow(ctx, w.tx, &w.row, Failed, Reason(failed.Reason))
	case w.run.At == "":
		w.end = walkEnded
		endRow(ctx, w.tx, &w.row, Completed, "")
	default:
		saveRow(ctx, w.tx, &w.row)
	}
	return nil
}

// pause makes the run wait at its step, unless it waits already.
func (w *walk) pause(ctx context.Context, a engine.Action, f engine.Facts) error {
	w.end, w.until = walkWaits, a.Wait.Until
	if w.opened {
		return nil
	}
	w.opened = true
	if a.Wait.Event != "" {
		insertWait(ctx, w.tx, &w.row, a.Wait.Event)
	}
	rec := w.version.Done(w.run, a, engine.Outcome{}, f)
	return insertStep(ctx, w.tx, &w.row, &rec)
}

// record writes the record of a step.
func (w *walk) record(ctx context.Context, rec *engine.Record) error {
	if w.opened {
		w.opened = false
		return updateStep(ctx, w.tx, &w.row, rec)
	}
	return insertStep(ctx, w.tx, &w.row, rec)
}

// finish ends the job of the run or makes it wait, depending on how the walk ended.
func (w *walk) finish(ctx context.Context, j jobs.Job) error {
	q := w.s.p.Queue
	switch w.end {
	case walkWaits:
		q.Wait(ctx, w.tx, j, w.until, "")
	case walkEnded:
		q.Finish(ctx, w.tx, j)
	case walkSuspended:
		q.Wait(ctx, w.tx, j, w.tx.Now().Add(jobs.Jitter(suspendedWait)), "the team is suspended")
	case walkOverQuota:
		q.Wait(ctx, w.tx, j, w.tx.Now().Add(jobs.Jitter(quotaWait(w.tx.Now(), w.quota))),
			"the team's quota of emails is used up")
	case walkYields:
		q.Wait(ctx, w.tx, j, w.tx.Now(), "")
	case walkCalls:
		q.Finish(ctx, w.tx, j)
		q.Insert(ctx, w.tx, jobs.New{Kind: callKind, Lane: w.lane, TeamID: w.row.teamID, Dedupe: w.row.id,
			Payload: w.row.id})
	}
	return nil
}
