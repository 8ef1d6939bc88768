// Package privacy does what people may ask of a team about their own address: to have all that is stored about it, and
// to have it erased.
//
// # An erasure
//
//	Erase ──► queued ──► in_progress ──► completed
//
// An erasure is a row and a job. No index finds an address in all that is stored, so the job reads a team's data from
// end to end, by the erasers of the packages that own it (see package erasure); the row says what each of them found.
// The first pass begins a minute after it was asked for, so that requests that had begun by then have written what they
// write. Further passes follow while there is something that can only be erased a few minutes later.
//
// # Invariants
//
// An erasure touches the data of its own team alone. A team has one erasure of an address under way at most. The row
// has the address only until the erasure has ended.
//
// # When it fails
//
// The job is tried again without end. It goes on with the eraser that was interrupted, which erases what is left; what
// that had erased before the interruption is not in the counts. Emails that are still to be delivered are left, and
// counted as left.
//
// # What it does not do
//
// It owns no data besides erasures, and decides nothing about who may ask. Backups, logs of the program, and what
// teams' own programs were sent by webhooks are out of its reach.
package privacy

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// State is how far an erasure is.
type State string

const (
	Queued     State = "queued"
	InProgress State = "in_progress"
	Completed  State = "completed"
)

// Erasure is an erasure of an address, which it does not name.
type Erasure struct {
	ID          string
	TeamID      string
	ContactID   string // empty when the address was of no contact
	Refusals    bool   // what keeps the address from being mailed is erased too
	DryRun      bool   // nothing is changed
	State       State
	Report      []Part
	CreatedAt   time.Time
	CompletedAt time.Time // zero until it has ended

	address    string
	pass, done int
}

// Part is what one eraser found.
type Part struct {
	Name  string         `json:"name"`
	Found erasure.Report `json:"found"`
}

// Limits.
const (
	maxUnderWay = 100                  // erasures of a team
	settle      = time.Minute          // before the first pass
	passWait    = 5 * time.Minute      // before another one
	maxPasses   = 4                    // after which what is left soon is left
	keep        = 400 * 24 * time.Hour // how long ended erasures are kept, as evidence
	sweepRows   = 500
	eraseLease  = 12 * time.Hour // for one pass over the largest tables
)

// Parts are what the service works with.
type Parts struct {
	DB           *db.DB
	Queue        *jobs.Queue
	Contacts     *contacts.Service
	Emails       *emails.Service
	Suppressions *suppressions.Service
	Erasers      []erasure.Eraser
	Received     Received
	Broadcasts   Broadcasts
	Automations  Automations
}

// Service answers what people ask.
type Service struct{ p Parts }

// New returns the service.
func New(p Parts) *Service { return &Service{p} }

// subject is whom a request names: an address, which may be that of a contact.
type subject struct {
	erasure.Address
	contact contacts.Contact // without an id if there is none
}

// subject finds whom an id of a contact or an address names. An address need not be of a contact.
func (s *Service) subject(ctx context.Context, teamID, idOrAddress string) (of subject, err error) {
	of.contact, err = s.p.Contacts.Get(ctx, teamID, idOrAddress)
	address := of.contact.Address
	if fault.KindOf(err) == fault.NotFound && !id.Valid(idOrAddress) {
		of.contact, address, err = contacts.Contact{}, idOrAddress, nil
	}
	if err == nil {
		of.Address, err = erasure.Parse(address)
	}
	return of, err
}

// Options are how an address is erased.
type Options struct{ Refusals, DryRun bool }

// Erase begins to erase an address, named by itself or by the id of its contact. If its erasure is under way, it
// returns that; it is a Locked fault if that has other options.
func (s *Service) Erase(ctx context.Context, teamID, idOrAddress string, o Options) (Erasure, error) {
	of, err := s.subject(ctx, teamID, idOrAddress)
	if err != nil {
		return Erasure{}, err
	}
	var e Erasure
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		n, err := countUnderWay(ctx, tx.Reader, teamID)
		if err != nil {
			return err
		}
		e = Erasure{ID: id.At(tx.Now()), TeamID: teamID, ContactID: of.contact.ID, Refusals: o.Refusals, DryRun: o.DryRun,
			State: Queued, CreatedAt: tx.Now(), address: of.Key()}
		if n >= maxUnderWay {
			return fault.New(fault.TooFast, "", "The team has %d erasures under way. Wait until some have ended.", n)
		}
		added, err := insertErasure(ctx, tx, &e)
		if err != nil {
			return err
		}
		if !added {
			e, err = underWay(ctx, tx.Reader, teamID, of.Key())
			if err == nil && (e.Refusals != o.Refusals || e.DryRun != o.DryRun) {
				err = fault.New(fault.Locked, "", "This address is being erased with other options, as erasure %s. Wait until "+
					"that has ended.", e.ID)
			}
			return err
		}
		begin := tx.Now()
		if !o.DryRun {
			begin = begin.Add(settle)
		}
		s.p.Queue.Insert(ctx, tx, jobs.New{Kind: Kind, Lane: teamID, TeamID: teamID, Dedupe: e.ID, Payload: e.ID,
			RunAt: begin})
		return nil
	})
	return e, err
}

// Get returns an erasure.
func (s *Service) Get(ctx context.Context, teamID, erasureID string) (Erasure, error) {
	return get(ctx, s.p.DB.Reader, teamID, erasureID)
}

// List returns a page of a team's erasures, newest first.
func (s *Service) List(ctx context.Context, teamID string, p page.Page) ([]Erasure, bool, error) {
	return list(ctx, s.p.DB.Reader, teamID, p)
}

// Kind is the kind of the jobs of erasures.
const Kind = "privacy.erase"

// Kind returns the kind of the jobs. Teams take turns.
func (s *Service) Kind() jobs.Kind {
	return jobs.Kind{Name: Kind, Workers: 2, PerLane: 1, Lease: eraseLease, Endless: true,
		Schedule: []time.Duration{time.Minute, 10 * time.Minute, time.Hour}, Handle: s.handle}
}

// handle makes one pass, or goes on with one.
func (s *Service) handle(ctx context.Context, j jobs.Job) error {
	e, err := get(ctx, s.p.DB.Reader, j.TeamID, j.Payload)
	if fault.KindOf(err) == fault.NotFound || err == nil && e.State == Completed {
		return s.p.Queue.End(ctx, j)
	}
	if err != nil {
		return err
	}
	a, err := erasure.Parse(e.address)
	if err != nil {
		return fmt.Errorf("read the address of erasure %s: %w", e.ID, err)
	}
	scope := erasure.Scope{Teams: []string{e.TeamID}, DryRun: e.DryRun, Refusals: e.Refusals}
	for e.done < len(s.p.Erasers) {
		x := s.p.Erasers[e.done]
		found, err := x.Erase(ctx, a, scope)
		if err != nil {
			return fmt.Errorf("erasure %s: %s: %w", e.ID, x.Name, err)
		}
		before := e
		e.add(x.Name, found)
		e.done++
		e.State = InProgress
		if err := s.p.DB.Update(ctx, func(tx *db.Tx) error { return save(ctx, tx, &before, &e) }); err != nil {
			return fmt.Errorf("erasure %s: write what was done: %w", e.ID, err)
		}
	}
	return s.end(ctx, j, e)
}

// end ends an erasure, or has another pass follow.
func (s *Service) end(ctx context.Context, j jobs.Job, e Erasure) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		to := e
		if !e.DryRun && e.leaves(erasure.LeftSoon) && e.pass+1 < maxPasses {
			to.pass, to.done = e.pass+1, 0
			s.p.Queue.Retry(ctx, tx, j, tx.Now().Add(passWait), "something is too recent to be erased")
		} else {
			to.State, to.CompletedAt, to.address = Completed, tx.Now(), ""
			s.p.Queue.Finish(ctx, tx, j)
		}
		return save(ctx, tx, &e, &to)
	})
}

// add adds what an eraser found. What it leaves now replaces what it left in the pass before.
func (e *Erasure) add(name string, found erasure.Report) {
	for i := range e.Report {
		p := &e.Report[i]
		if p.Name != name {
			continue
		}
		var before erasure.Report
		for _, c := range p.Found {
			if c.Left == "" {
				before = append(before, c)
			}
		}
		before.Merge(found)
		p.Found = before
		return
	}
	e.Report = append(e.Report, Part{name, found})
}

func (e *Erasure) leaves(left erasure.Left) bool {
	for _, p := range e.Report {
		for _, c := range p.Found {
			if c.Left == left {
				return true
			}
		}
	}
	return false
}

// Sweep deletes erasures that ended long ago.
func (s *Service) Sweep(ctx context.Context) error {
	before := id.First(s.p.DB.Now().Add(-keep))
	err := s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteEnded(ctx, tx, before, sweepRows) })
	if err != nil {
		return fmt.Errorf("delete old erasures: %w", err)
	}
	return nil
}

// EraseTeam deletes the erasures of a team.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	err := s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteOfTeam(ctx, tx, teamID, sweepRows) })
	if err != nil {
		return fmt.Errorf("delete the erasures of team %s: %w", teamID, err)
	}
	return nil
}
