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
	// stepsAtOnce is how many steps of a run one transaction does at most: on SQLite it blocks all other writes.
	stepsAtOnce = 20
	// turnMost is how many transactions of a run follow each other before other runs may have its worker.
	turnMost = 10
	// suspendedWait is after how long a run looks again whether its team may send.
	suspendedWait = 5 * time.Minute
	quotaWaitMost = time.Hour
)

// quotaWait is after how long a run looks again whether its team's quota has room: when it begins anew, or before, as
// the operator may have given more.
func quotaWait(now time.Time, k fault.Kind) time.Duration {
	return min(quotas.Resets(k, now).Sub(now), quotaWaitMost)
}

// waits are those after errors of the database, in a row.
var waits = []time.Duration{time.Second, 10 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute}

// Kinds returns the kinds of jobs of this package.
func (s *Service) Kinds() []jobs.Kind {
	team := func(lane string) string { return lane }
	return []jobs.Kind{
		{Name: runKind, Handle: s.advance, Workers: 32, Owner: team, Schedule: waits, Endless: true},
		{Name: callKind, Handle: s.call, Workers: 32, PerLane: 8, Owner: callTeam, Lease: callLease, Schedule: waits,
			Endless: true},
		{Name: wakeKind, Handle: s.wakeRest, Workers: 4, Schedule: waits, Endless: true},
		{Name: beginKind, Handle: s.tellRest, Workers: 4, Schedule: waits, Endless: true},
		{Name: endKind, Handle: s.endStale, Workers: 4, Schedule: waits, Endless: true},
		{Name: goneKind, Handle: s.endGone, Workers: 4, Schedule: waits, Endless: true},
	}
}

// advance is the handler of the jobs of runKind: it goes on with a run until that waits or has ended. When an event or a
// cancellation comes first, the run is read again.
func (s *Service) advance(ctx context.Context, j jobs.Job) error {
	for range turnMost {
		more, err := s.proceed(ctx, j)
		if errors.Is(err, errMoved) {
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

// proceed does the steps of a run that one transaction can do. It reports false when the job has ended or waits.
func (s *Service) proceed(ctx context.Context, j jobs.Job) (more bool, err error) {
	r, found, err := getRow(ctx, s.p.DB.Reader, j.TeamID, j.Payload)
	if err != nil {
		return false, err
	}
	if !found || r.status != Running {
		return false, s.p.Queue.End(ctx, j)
	}
	at, err := s.look(ctx, &r)
	if err != nil {
		return false, err
	}
	if at.over != "" {
		return false, s.cancelOne(ctx, j, &r, at.over)
	}
	if r.waitUntil.Before(s.p.DB.Now()) { // or it does not wait
		if err := s.prepareAhead(ctx, at); err != nil {
			return false, err
		}
	}
	// Of its own: in shared transactions, runs of the same contacts would wait for each other in a circle.
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		w := at.walk(s, tx)
		if err := w.goOn(ctx); err != nil {
			return err
		}
		more = w.end == goesOn
		return w.finish(ctx, j)
	})
	return more && err == nil, err
}

// place is a run at a step with what was looked up for it, outside of a transaction.
type place struct {
	row      row
	run      *engine.Run
	version  *version
	contact  *contacts.Member // nil if the run itself has deleted it
	over     Reason           // why the run does not go on, "" if it does
	prepared map[string]*prepared
}

// look looks up what a run needs for its next steps.
func (s *Service) look(ctx context.Context, r *row) (*place, error) {
	at := &place{row: *r, over: r.stale()}
	if at.over != "" {
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
	if !r.gone {
		at.over = ContactDeleted
	}
	return at, nil
}

// facts are those of a run's contact as it was looked up.
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

// ending is how a walk ends.
type ending int

const (
	goesOn  ending = iota // the run goes on in another transaction
	pauses                // it waits until a time
	calls                 // the next step is a webhook, which another job does
	isOver                // the run has ended
	mayNot                // the team may not send at present
	noQuota               // the team's quota is used up
	isAgain               // other runs are to have the worker
)

// walk is a run that goes through its steps within a transaction, which may run again with another walk.
type walk struct {
	s       *Service
	tx      *db.Tx
	row     row
	run     *engine.Run
	version *version
	contact *contacts.Member
	ready   map[string]*prepared

	opened bool       // the step at which it is has a row already
	end    ending     // only valid after goOn
	until  time.Time  // if it pauses
	lane   string     // of the job that calls
	quota  fault.Kind // that is used up
}

func (at *place) walk(s *Service, tx *db.Tx) *walk {
	run := *at.run
	return &walk{s: s, tx: tx, row: at.row, run: &run, version: at.version, contact: at.contact, ready: at.prepared,
		opened: run.Waits != nil}
}

// goOn does steps until the run waits, ends, or needs something that is to be prepared outside of the transaction, and
// writes how far it is.
func (w *walk) goOn(ctx context.Context) error {
	waited := w.row.waitFor
	var failed *engine.Failure
	steps := 0
	for ; w.run.At != "" && failed == nil; steps++ {
		if steps == stepsAtOnce {
			w.end = isAgain
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
	w.row.follow(w.run)
	switch {
	case failed != nil:
		w.end = isOver
		endRow(ctx, w.tx, &w.row, Failed, Reason(failed.Reason))
	case w.run.At == "":
		w.end = isOver
		endRow(ctx, w.tx, &w.row, Completed, "")
	default:
		saveRow(ctx, w.tx, &w.row)
	}
	return nil
}

// pause has the run wait at its step, unless it does already.
func (w *walk) pause(ctx context.Context, a engine.Action, f engine.Facts) error {
	w.end, w.until = pauses, a.Wait.Until
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

// record writes what a step did.
func (w *walk) record(ctx context.Context, rec *engine.Record) error {
	if w.opened {
		w.opened = false
		return updateStep(ctx, w.tx, &w.row, rec)
	}
	return insertStep(ctx, w.tx, &w.row, rec)
}

// finish ends the job of the run or has it wait, as the walk ended.
func (w *walk) finish(ctx context.Context, j jobs.Job) error {
	q := w.s.p.Queue
	switch w.end {
	case pauses:
		q.Wait(ctx, w.tx, j, w.until, "")
	case isOver:
		q.Finish(ctx, w.tx, j)
	case mayNot:
		q.Wait(ctx, w.tx, j, w.tx.Now().Add(jobs.Jitter(suspendedWait)), "the team may not send at present")
	case noQuota:
		q.Wait(ctx, w.tx, j, w.tx.Now().Add(jobs.Jitter(quotaWait(w.tx.Now(), w.quota))),
			"the team's quota of emails is used up")
	case isAgain:
		q.Wait(ctx, w.tx, j, w.tx.Now(), "")
	case calls:
		q.Finish(ctx, w.tx, j)
		q.Insert(ctx, w.tx, jobs.New{Kind: callKind, Lane: w.lane, TeamID: w.row.teamID, Dedupe: w.row.id,
			Payload: w.row.id})
	}
	return nil
}
