// Package exportruns records the files that members download from lists, so that a page can show their progress.
//
// # Invariants
//
// A run belongs to one user in one team, and no other member sees it. A user has at most 20 runs in a team. A run
// stores neither the content nor the filter of its file, so it contains no personal data of others. Runs are shown for
// a day. They are deleted with the membership and with the team, and old ones when the user begins another export.
//
// # Failures
//
// A run without progress for two minutes counts as stopped, because its node has ended. Errors of the database are
// returned.
//
// # Out of scope
//
// The package neither reads data nor writes files; package exports does.
package exportruns

import (
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// These constants apply to the record of exports.
const (
	kept      = 24 * time.Hour   // how long a run is shown
	most      = 20               // runs of a member in a team that are kept
	silence   = 2 * time.Minute  // a run without progress for this long has ended
	step      = time.Second      // minimum time between two records of a run's progress
	endTime   = 10 * time.Second // maximum time for recording the end of a run
	eraseRows = 500              // rows deleted per transaction
)

// State is the state of a member's export.
type State string

// The states of an export. A stopped export is incomplete.
const (
	Running  State = "running"
	Complete State = "complete"
	Stopped  State = "stopped"
)

var states = db.NewNames("export_runs.state", map[State]int16{Running: 1, Complete: 2, Stopped: 3})

// Run is the record of a file that a member downloads, or has downloaded. It stores neither the content nor the filter
// of the file, so it contains no personal data of others.
type Run struct {
	ID        string
	List      string // the list that is exported, such as emails
	Filters   int    // number of filters that are set
	State     State
	Items     int       // items so far
	StartedAt time.Time // items that were created later are not in the file
	UpdatedAt time.Time
	Oldest    time.Time // no item is older
	Reached   time.Time // when the last item so far was created; zero before the first one
}

// Progress returns the share of the time from the start of the run back to the oldest possible item that the file
// covers so far, between 0 and 1. Lists are exported from the newest item to the oldest.
func (r *Run) Progress() float64 {
	whole := r.StartedAt.Sub(r.Oldest)
	switch {
	case r.State == Complete:
		return 1
	case r.Reached.IsZero() || r.Oldest.IsZero() || whole <= 0:
		return 0
	}
	return min(max(float64(r.StartedAt.Sub(r.Reached))/float64(whole), 0), 1)
}

// Service records the exports that members download.
type Service struct{ d *db.DB }

// New returns the record of exports.
func New(d *db.DB) *Service { return &Service{d} }

// List returns the actor's exports of the last day, newest first.
func (s *Service) List(ctx context.Context, by teams.ActorRef, teamID string) ([]Run, error) {
	all, err := list(ctx, s.d.Reader, teamID, by.ID, s.d.Now().Add(-kept))
	for i := range all {
		if all[i].State == Running && s.d.Now().Sub(all[i].UpdatedAt) > silence {
			all[i].State = Stopped // its node ended
		}
	}
	return all, err
}

// Recorder is an export that is being downloaded. It must not be used by several goroutines at once.
type Recorder struct {
	s              *Service
	teamID, userID string
	run            Run
}

// Begin records the start of an export by an actor.
func (s *Service) Begin(ctx context.Context, by teams.ActorRef, teamID, list string, filters int,
	oldest time.Time) (*Recorder, error) {
	x := &Recorder{s: s, teamID: teamID, userID: by.ID}
	err := s.d.Update(ctx, func(tx *db.Tx) error {
		now := tx.Now()
		x.run = Run{ID: id.At(now), List: list, Filters: filters, State: Running, StartedAt: now, UpdatedAt: now,
			Oldest: oldest}
		insert(ctx, tx, teamID, by.ID, &x.run)
		return removeOld(ctx, tx, teamID, by.ID, now.Add(-kept))
	})
	if err != nil {
		return nil, fmt.Errorf("record the start of an export: %w", err)
	}
	return x, nil
}

// Advance counts the items of a batch. The last one was created at the time reached, which is zero for a batch without
// items. Advance records the count at most once a second.
func (x *Recorder) Advance(ctx context.Context, items int, reached time.Time) error {
	if x.run.Items += items; !reached.IsZero() {
		x.run.Reached = reached
	}
	if now := x.s.d.Now(); now.Sub(x.run.UpdatedAt) < step {
		return nil
	}
	return x.record(ctx)
}

// End records the end of the export, also if the context is done. An error of the database only leaves the run without
// an end, so that it counts as stopped after two minutes.
func (x *Recorder) End(ctx context.Context, complete bool) error {
	if x.run.State = Stopped; complete {
		x.run.State = Complete
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), endTime)
	defer cancel()
	return x.record(ctx)
}

func (x *Recorder) record(ctx context.Context) error {
	err := x.s.d.Update(ctx, func(tx *db.Tx) error {
		x.run.UpdatedAt = tx.Now()
		update(ctx, tx, x.teamID, x.userID, &x.run)
		return nil
	})
	if err != nil {
		return fmt.Errorf("record the progress of an export: %w", err)
	}
	return nil
}

// OnMemberRemoved deletes a user's runs in a team, in the transaction that ends the membership.
func (s *Service) OnMemberRemoved(ctx context.Context, tx *db.Tx, teamID, userID string) error {
	return removeOf(ctx, tx, teamID, userID)
}

// EraseTeam deletes all runs of a team.
func (s *Service) EraseTeam(ctx context.Context, teamID string) error {
	err := s.d.Repeat(ctx, func(tx *db.Tx) (int64, error) { return removeSome(ctx, tx, teamID, eraseRows) })
	if err != nil {
		return fmt.Errorf("erase the exports of team %s: %w", teamID, err)
	}
	return nil
}
