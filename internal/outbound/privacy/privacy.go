// Package privacy handles people's requests about their own address: it exports all data that a team has stored about
// an address, or erases that data.
//
// # An erasure
//
//	Erase ──► queued ──► in_progress ──► completed
//
// An erasure consists of a database row and a job. No index covers all stored data by address, so the job reads all
// data of the team. The erasure job calls the erasers of the packages that own the data (see package erasure). The
// erasure's row stores what each eraser found. The first pass starts one minute after the request, so that requests in
// progress have finished writing by then. More erasure passes follow if some data is still too recent to be erased.
//
// # Invariants
//
// An erasure changes only the requesting team's data. A team has at most one erasure per address in progress. The
// erasure's row contains the address only until the erasure ends.
//
// # Failures
//
// A failed erasure job is retried without limit. A retried erasure job resumes with the eraser that was interrupted.
// The erasure's counts do not include what an eraser erased before it was interrupted. Emails that are not yet
// delivered are not erased; the erasure's counts include them as remaining.
//
// # Out of scope
//
// Package privacy owns no data except erasures, and does not check who may request them. An erasure does not cover
// backups, the program's logs, or data that webhooks sent to a team's own systems.
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

// State is the state of an erasure.
type State string

const (
	Queued     State = "queued"
	InProgress State = "in_progress"
	Completed  State = "completed"
)

// Erasure is a request to erase an address, and its progress. An Erasure does not contain the address.
type Erasure struct {
	ID          string
	TeamID      string
	ContactID   string // empty if no contact had the address
	Refusals    bool   // also erases suppressions and opt-outs, which prevent further mail to the address
	DryRun      bool   // only counts the data and changes nothing
	State       State
	Report      []EraserReport
	CreatedAt   time.Time
	CompletedAt time.Time // zero until the erasure ends

	address    string
	pass, done int
}

// EraserReport is the result of one eraser.
type EraserReport struct {
	Name  string         `json:"name"`
	Found erasure.Report `json:"found"`
}

// Limits of erasures.
const (
	maxActive      = 100                  // maximum number of erasures in progress per team
	firstPassDelay = time.Minute          // delay between the request and the first pass
	passInterval   = 5 * time.Minute      // time between two passes
	maxPasses      = 4                    // maximum number of passes, after which data that is still too recent remains
	evidencePeriod = 400 * 24 * time.Hour // retention period of ended erasures, which are kept as evidence
	sweepRows      = 500
	eraseLease     = 12 * time.Hour // job lease, which must be long enough for one pass over the largest tables
)

// Deps holds the dependencies of a Service.
type Deps struct {
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

// Service exports and erases the data about an address.
type Service struct{ p Deps }

// New returns the privacy service. New fails if a required dependency is missing.
func New(d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	return &Service{d}, nil
}

// subject is the address that a request concerns, and its contact if there is one.
type subject struct {
	erasure.Address
	contact contacts.Contact // the zero Contact if the address has no contact
}

// subject finds the subject by a contact's id or by an address. The address need not belong to a contact.
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

// Options specifies how to erase an address.
type Options struct{ Refusals, DryRun bool }

// Erase starts the erasure of an address, which the caller identifies directly or by its contact's id. If an erasure of
// the same address is in progress, Erase returns that erasure, or a Locked fault if its options differ.
func (s *Service) Erase(ctx context.Context, teamID, idOrAddress string, o Options) (Erasure, error) {
	of, err := s.subject(ctx, teamID, idOrAddress)
	if err != nil {
		return Erasure{}, err
	}
	var e Erasure
	err = s.p.DB.Update(ctx, func(tx *db.Tx) error {
		n, err := countActive(ctx, tx.Reader, teamID)
		if err != nil {
			return err
		}
		e = Erasure{ID: id.At(tx.Now()), TeamID: teamID, ContactID: of.contact.ID, Refusals: o.Refusals, DryRun: o.DryRun,
			State: Queued, CreatedAt: tx.Now(), address: of.Key()}
		if n >= maxActive {
			return fault.New(fault.TooFast, "", "The team has %d erasures under way. Wait until some have ended.", n)
		}
		added, err := insertErasure(ctx, tx, &e)
		if err != nil {
			return err
		}
		if !added {
			e, err = activeErasure(ctx, tx.Reader, teamID, of.Key())
			if err == nil && (e.Refusals != o.Refusals || e.DryRun != o.DryRun) {
				err = fault.New(fault.Locked, "", "This address is being erased with other options, as erasure %s. Wait until "+
					"that has ended.", e.ID)
			}
			return err
		}
		begin := tx.Now()
		if !o.DryRun {
			begin = begin.Add(firstPassDelay)
		}
		s.p.Queue.Insert(ctx, tx, jobs.New{Kind: Kind, Lane: teamID, TeamID: teamID, Dedupe: e.ID, Payload: e.ID,
			RunAt: begin})
		return nil
	})
	return e, err
}

// Get returns an erasure by id.
func (s *Service) Get(ctx context.Context, teamID, erasureID string) (Erasure, error) {
	return get(ctx, s.p.DB.Reader, teamID, erasureID)
}

// List returns a page of a team's erasures, newest first.
func (s *Service) List(ctx context.Context, teamID string, p page.Page) ([]Erasure, bool, error) {
	return list(ctx, s.p.DB.Reader, teamID, p)
}

// Kind is the name of the job kind for erasures.
const Kind = "privacy.erase"

// Kind returns the settings of the job kind for erasures. Teams take turns.
func (s *Service) Kind() jobs.Kind {
	return jobs.Kind{Name: Kind, Workers: 2, PerLane: 1, Lease: eraseLease, Endless: true,
		Schedule: []time.Duration{time.Minute, 10 * time.Minute, time.Hour}, Handle: s.handle}
}

// handle runs one pass of an erasure, or continues an interrupted pass.
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
			return fmt.Errorf("erasure %s: store the progress: %w", e.ID, err)
		}
	}
	return s.end(ctx, j, e)
}

// end completes an erasure or schedules another pass.
func (s *Service) end(ctx context.Context, j jobs.Job, e Erasure) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		to := e
		if !e.DryRun && e.hasLeft(erasure.LeftSoon) && e.pass+1 < maxPasses {
			to.pass, to.done = e.pass+1, 0
			s.p.Queue.Retry(ctx, tx, j, tx.Now().Add(passInterval), "some data is too recent to be erased")
		} else {
			to.State, to.CompletedAt, to.address = Completed, tx.Now(), ""
			s.p.Queue.Finish(ctx, tx, j)
		}
		return save(ctx, tx, &e, &to)
	})
}

// add adds an eraser's report to the erasure. Counts of data that was not erased replace those of the previous pass.
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
	e.Report = append(e.Report, EraserReport{name, found})
}

func (e *Erasure) hasLeft(left erasure.Left) bool {
	for _, p := range e.Report {
		for _, c := range p.Found {
			if c.Left == left {
				return true
			}
		}
	}
	return false
}

// Sweep deletes erasures that ended longer ago than the retention period.
func (s *Service) Sweep(ctx context.Context) error {
	before := id.First(s.p.DB.Now().Add(-evidencePeriod))
	err := s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteEnded(ctx, tx, before, sweepRows) })
	if err != nil {
		return fmt.Errorf("delete old erasures: %w", err)
	}
	return nil
}

// EraseTeam deletes a team's erasures.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	err := s.p.DB.Repeat(ctx, func(tx *db.Tx) (int64, error) { return deleteOfTeam(ctx, tx, teamID, sweepRows) })
	if err != nil {
		return fmt.Errorf("delete the erasures of team %s: %w", teamID, err)
	}
	return nil
}
