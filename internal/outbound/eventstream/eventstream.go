// Package eventstream streams a team's events as they happen, with the same payloads that webhook endpoints receive.
// The event stream helps developers to build and test webhook receivers.
//
// # How it works
//
// A team is watched while one of its tails is open, and for up to [leaseTime] after its last tail was closed. The
// method [Service.Recorded] inserts the payloads of a watched team's events in the transaction that records the events.
// For teams without a tail, Recorded only checks a map in memory. Tails read the payloads when a notification wakes
// them, and at least every second. Because payloads are stored in the database, a tail shows events from all nodes, and
// an interrupted tail can continue on any node.
//
// # Invariants
//
// A tail shows an event at least once, if the event's transaction takes less than [overlap], less the difference between
// the clocks of the nodes. Events appear roughly in order. Transactions may commit in a different order than they began, so a tail rereads the messages of the last
// [overlap]. For a slow reader, a tail holds at most one batch in memory. On each node, a team has at most [tailsMax]
// tails.
//
// # Failures
//
// A lost notification delays events by a second. After a tail opens, other nodes notice within [refreshInterval] that
// the team is watched; until then, the tail misses the events that they record. Tails also miss events that are
// recorded after the lease has expired; [Tail.Missed] reports whether a tail resumed after its lease had expired. If
// rendering or inserting a payload fails, the transaction that records the event is rolled back.
//
// # Out of scope
//
// Package eventstream does not deliver webhooks or keep a history; package webhooks does both.
package eventstream

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
)

const (
	leaseTime       = 5 * time.Minute
	renewInterval   = time.Minute // interval at which an open tail renews its lease
	refreshInterval = 2 * time.Second
	pollInterval    = time.Second
	readInterval    = 100 * time.Millisecond // minimum time between two reads by a tail
	overlap         = 10 * time.Second
	batch           = 100
	tailsMax        = 5
	hintTopic       = "live"
	watchPrefix     = "watch " // prefix of the notification that a team is now watched
	sweepRows       = 500
)

// Message is an event in the form that webhook endpoints receive.
type Message struct {
	ID      string // id of the webhook message
	Type    events.Type
	Payload string
}

// Render is called in the transaction that records an event, and returns the event's message. Tails do not show
// messages without an id.
type Render func(ctx context.Context, tx *db.Tx, e *events.Event) (Message, error)

// Service manages the open tails on this node.
type Service struct {
	d      *db.DB
	log    *slog.Logger
	render Render
	closed chan struct{}
	once   sync.Once

	mu      sync.Mutex
	learned bool                 // whether watched has been loaded from the database
	watched map[string]time.Time // time until which each team is watched
	tails   map[string][]*Tail
}

// New returns the event stream service. Register the Service as a listener of the event recorder, and call Run. Create
// the Service after the teams service, which must handle each change notification first, because readers of tails query
// that service.
func New(d *db.DB, log *slog.Logger, render Render) *Service {
	s := &Service{d: d, log: log, render: render, closed: make(chan struct{}), watched: map[string]time.Time{},
		tails: map[string][]*Tail{}}
	d.OnHint(hintTopic, s.hint)
	d.OnHint(teams.HintTopic, func(string) { s.wakeAll() })
	return s
}

// wakeAll makes all waiting calls to Tail.Next return. When a team or an API key has changed, the callers of Next must
// recheck their access.
func (s *Service) wakeAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, all := range s.tails {
		for _, t := range all {
			select {
			case t.changed <- struct{}{}:
			default:
			}
		}
	}
}

// hint handles a notification: it wakes the tails of a team that has new messages, or records that a team is watched.
func (s *Service) hint(payload string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if team := payload[min(len(watchPrefix), len(payload)):]; payload == watchPrefix+team {
		s.watched[team] = s.d.Now().Add(leaseTime)
		return
	}
	for _, t := range s.tails[payload] {
		select {
		case t.wake <- struct{}{}:
		default:
		}
	}
}

// Until ctx ends, Run polls the database to learn which teams are watched on other nodes.
func (s *Service) Run(ctx context.Context) error {
	every := refreshInterval
	if s.d.Alone() {
		every = time.Minute // this is the only node with tails
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		if err := s.refreshWatched(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("could not read which teams are watched, will retry", "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

func (s *Service) refreshWatched(ctx context.Context) error { return s.readWatched(ctx, s.d.Reader) }

func (s *Service) readWatched(ctx context.Context, r db.Reader) error {
	now := s.d.Now()
	found, err := watchedTeams(ctx, r, now)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.learned = true
	for team, until := range s.watched {
		if until.Before(now) {
			delete(s.watched, team)
		}
	}
	for team, until := range found {
		if s.watched[team].Before(until) {
			s.watched[team] = until
		}
	}
	return nil
}

// ensureLearned loads the watched teams from the database, once per start of the node.
func (s *Service) ensureLearned(ctx context.Context, tx *db.Tx) error {
	s.mu.Lock()
	learned := s.learned
	s.mu.Unlock()
	if learned {
		return nil
	}
	return s.readWatched(ctx, tx.Reader)
}

func (s *Service) isWatched(teamID string, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.watched[teamID].After(now)
}

// Recorded inserts messages for the events of watched teams.
func (s *Service) Recorded(ctx context.Context, tx *db.Tx, all []events.Event) error {
	if err := s.ensureLearned(ctx, tx); err != nil {
		return fmt.Errorf("read which teams are watched: %w", err)
	}
	var hinted []string
	for i := range all {
		e := &all[i]
		if !s.isWatched(e.TeamID, tx.Now()) {
			continue
		}
		m, err := s.render(ctx, tx, e)
		if err != nil {
			return fmt.Errorf("render an event %s: %w", e.Type, err)
		}
		if m.ID == "" {
			continue
		}
		insert(ctx, tx, e.TeamID, &m)
		if !slices.Contains(hinted, e.TeamID) {
			team := e.TeamID
			hinted = append(hinted, team)
			tx.AfterCommit(func() { s.d.Hint(hintTopic, team) })
		}
	}
	return nil
}

// Close ends all tails on this node; their calls to Next return ErrClosed.
func (s *Service) Close() { s.once.Do(func() { close(s.closed) }) }

// Open opens a tail of a team's events of the given types, or of all types if types is empty. The parameter after is
// the id of the last message that an interrupted tail showed, or "" for a new tail. The caller must close the tail. If
// the team has too many tails, the error is a TooFast fault.
func (s *Service) Open(ctx context.Context, teamID string, types []events.Type, after string) (*Tail, error) {
	t := &Tail{s: s, team: teamID, types: types, wake: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		seen: map[string]time.Time{}}
	s.mu.Lock()
	full := len(s.tails[teamID]) >= tailsMax
	if !full {
		s.tails[teamID] = append(s.tails[teamID], t)
	}
	s.mu.Unlock()
	if full {
		return nil, fault.New(fault.TooFast, "",
			"This team watches its events %d times already. Close one of those and try again.", tailsMax)
	}
	if err := t.begin(ctx, after); err != nil {
		t.Close()
		return nil, fmt.Errorf("watch events: %w", err)
	}
	return t, nil
}

// Sweep deletes messages that are too old for any tail, and expired leases.
func (s *Service) Sweep(ctx context.Context) error {
	now := s.d.Now()
	for more := true; more; {
		err := s.d.Update(ctx, func(tx *db.Tx) error {
			n, err := deleteOld(ctx, tx, firstAt(now.Add(-2*leaseTime)), sweepRows)
			deleteTails(ctx, tx, now.Add(-leaseTime))
			more = n == sweepRows
			return err
		})
		if err != nil {
			return fmt.Errorf("delete old messages of the event stream: %w", err)
		}
	}
	return nil
}
