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
	// maxStepsAtOnce is the maximum number of steps of a run that one transaction carries out. The limit on steps is low
	// because the transaction blocks all other writes on SQLite.
	maxStepsAtOnce = 20
	// maxTurns is the maximum number of consecutive transactions for one run before its worker may serve other runs.
	maxTurns = 10
	// suspendedWait is the interval at which a run of a suspended team checks whether the team may send again.
	suspendedWait = 5 * time.Minute
	maxQuotaWait  = time.Hour
)

// quotaWait returns how long a run waits after its team has used up a quota. The run waits until the quota resets, but
// no longer than maxQuotaWait, because the operator may raise the quota in the meantime.
func quotaWait(now time.Time, k fault.Kind) time.Duration {
	return min(quotas.Resets(k, now).Sub(now), maxQuotaWait)
}

// waits are the delays before successive retries after database errors.
var waits = []time.Duration{time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute}

// Kinds returns the job kinds of this package.
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

// advance handles jobs of the kind runKind: it carries out a run's steps until the run waits or has ended. If an event
// or a cancellation changes the run concurrently, advance reads the run again and retries.
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

// advanceOnce carries out a run's next steps in one transaction. The result is true if another transaction must
// continue the run, and false if the run's job has ended or is waiting.
func (s *Service) advanceOnce(ctx context.Context, j jobs.Job) (more bool, err error) {
	runID, wait := decodeRunPayload(j.Payload)
	r, found, err := getRow(ctx, s.p.DB.Reader, j.TeamID, runID)
	if err != nil {
		return false, err
	}
	if !found || r.status != Running {
		return false, s.p.Queue.End(ctx, j)
	}
	if halted, err := s.haltIfRefused(ctx, &r); err != nil || halted {
		return halted, err // when the run is read again, its automation is stopped
	}
	at, err := s.loadRunState(ctx, &r)
	if err != nil {
		return false, err
	}
	if at.cancelReason != "" {
		return false, s.cancelOne(ctx, j, &r, at.cancelReason)
	}
	if r.pending != "" {
		return true, s.receivePending(ctx, at)
	}
	if r.waitUntil.Before(s.p.DB.Now()) { // also true if the run is not waiting, because waitUntil is then zero
		if err := s.prepareEmails(ctx, at); err != nil {
			return false, err
		}
	}
	// Use a separate transaction, because shared transactions would deadlock if they contained runs of the same contacts.
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		w := at.walk(s, tx)
		w.domainWait = wait
		if err := w.runSteps(ctx); err != nil {
			return err
		}
		more = w.end == walkContinues
		return w.finish(ctx, j)
	})
	return more && err == nil, err
}

// runState contains a run, and the data for its next steps that was read before the transaction began.
type runState struct {
	row          row
	run          *engine.Run
	version      *version
	contact      *contacts.Member // nil if the run itself deleted the contact
	cancelReason Reason           // why the run must be cancelled; "" if it continues
	prepared     map[string]*prepared
}

// loadRunState reads the data that a run needs for its next steps.
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

// facts converts a contact into the facts that the engine needs. If there is no contact, the facts contain only the
// time.
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

// walkResult says why a walk stopped and what happens to the run's job.
type walkResult int

const (
	walkContinues   walkResult = iota // the run continues in another transaction
	walkWaits                         // the run waits until a given time
	walkCalls                         // the next step is a webhook, which needs a job of kind callKind
	walkEnded                         // the run has ended
	walkSuspended                     // the team is suspended
	walkOverQuota                     // the team's quota is used up
	walkLacksDomain                   // the team may not send from the sender's domain
	walkYields                        // the run must let other runs use its worker
)

// walk carries out a run's steps in one transaction. Each retry of the transaction uses a new walk.
type walk struct {
	s       *Service
	tx      *db.Tx
	row     row
	run     *engine.Run
	version *version
	contact *contacts.Member
	ready   map[string]*prepared

	opened bool       // whether the current step already has a database row
	end    walkResult // set by runSteps
	until  time.Time  // for walkWaits
	lane   string     // lane of the job that calls the webhook
	quota  fault.Kind // which quota is used up, for walkOverQuota
	domain string     // for walkLacksDomain

	domainWait domainWait
}

func (at *runState) walk(s *Service, tx *db.Tx) *walk {
	run := *at.run
	return &walk{s: s, tx: tx, row: at.row, run: &run, version: at.version, contact: at.contact, ready: at.prepared,
		opened: run.Waits != nil}
}

// runSteps carries out steps until the run waits, ends, reaches maxStepsAtOnce, or needs data that must be prepared
// outside the transaction. Before it returns, runSteps saves the run.
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

// pause makes a run wait at its current step, unless the run is already waiting there.
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

// record stores the record of a completed step.
func (w *walk) record(ctx context.Context, rec *engine.Record) error {
	if w.opened {
		w.opened = false
		return updateStep(ctx, w.tx, &w.row, rec)
	}
	return insertStep(ctx, w.tx, &w.row, rec)
}

// finish ends the run's job or schedules its next execution, depending on the result of the walk.
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
	case walkLacksDomain:
		j.Payload = w.domainWait.payload(w.row.id)
		w.s.p.Emails.Withhold(ctx, w.tx, j, w.domain, w.domainWait.until)
	case walkYields:
		q.Wait(ctx, w.tx, j, w.tx.Now(), "")
	case walkCalls:
		q.Finish(ctx, w.tx, j)
		q.Insert(ctx, w.tx, jobs.New{Kind: callKind, Lane: w.lane, TeamID: w.row.teamID, Dedupe: w.row.id,
			Payload: w.row.id})
	}
	return nil
}
