package domains

import (
	"context"
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// trusting returns a service with TrustDomains enabled and two verified domains.
func trusting(t *testing.T) (s *Service, one, two Domain) {
	t.Helper()
	return trustingIn(t, dbtest.SQLite(t))
}

// trustingIn is like trusting, in the given database.
func trustingIn(t *testing.T, d *db.DB) (s *Service, one, two Domain) {
	t.Helper()
	keys, err := keyring.New(make([]byte, 32))
	if err != nil {
		t.Fatal(err)
	}
	s = newService(Config{TrustDomains: true}, Deps{DB: d, Queue: jobs.NewQueue(d), Recorder: &events.Recorder{},
		OnSendingLost: func(context.Context, *db.Tx, string, string) error { return nil },
		OnSendingBack: func(context.Context, *db.Tx, string, string) error { return nil },
		Keys:          keys, DNS: resolve.Fake{}, Log: slog.New(slog.DiscardHandler)})
	key, err := dkim.GenerateRSA()
	if err != nil {
		t.Fatal(err)
	}
	s.GenerateRSA = func() (*dkim.Key, error) { return key, nil }
	on := true
	for i, dst := range []*Domain{&one, &two} {
		n := NewDomain{Name: fmt.Sprintf("d%d.example", i), Capabilities: Capabilities{Receiving: &on}}
		if *dst, err = s.AddVerified(t.Context(), dbtest.ID("team"), n); err != nil {
			t.Fatal(err)
		}
	}
	return s, one, two
}

// asks returns, by name, the methods of the service that cache their results.
func asks(ctx context.Context, s *Service) map[string]struct {
	ask  func(d Domain) (found bool, err error)
	fill func(n int)
	size func() int
	last time.Duration // how long the method's result is cached
} {
	type one = struct {
		ask  func(d Domain) (found bool, err error)
		fill func(n int)
		size func() int
		last time.Duration
	}
	return map[string]one{
		"Sender": {func(d Domain) (bool, error) {
			from, err := s.Sender(ctx, d.TeamID, d.Name)
			return from.DomainID == d.ID, err
		}, func(n int) { fill(s.senders, n) }, func() int { return len(s.senders) }, time.Second},
		"Signing": {func(d Domain) (bool, error) {
			g, err := s.Signing(ctx, d.ID)
			return g.Name == d.Name, err
		}, func(n int) { fill(s.signing, n) }, func() int { return len(s.signing) }, 30 * time.Second},
		"Receiver": {func(d Domain) (bool, error) {
			to, err := s.Receiver(ctx, d.Name)
			return to.DomainID == d.ID, err
		}, func(n int) { fill(s.receivers, n) }, func() int { return len(s.receivers) }, time.Second},
	}
}

func fill[T any](m map[string]cached[T], n int) {
	clear(m)
	for i := range n {
		m[fmt.Sprint(i)] = cached[T]{}
	}
}

// Each cache has a maximum size and is cleared when a new entry would exceed it.
func TestMemoryIsBounded(t *testing.T) {
	s, one, two := trusting(t)
	for name, a := range asks(t.Context(), s) {
		a.fill(cacheMax - 1)
		for i, d := range []Domain{one, two} {
			if found, err := a.ask(d); err != nil || !found {
				t.Fatalf("%s: %v, %v", name, found, err)
			}
			if want := []int{cacheMax, 1}[i]; a.size() != want {
				t.Errorf("%s remembers %d, want %d", name, a.size(), want)
			}
		}
	}
}

// If a node misses the hint about a change on another node, it returns the cached value until the cache entry expires.
func TestMemoryEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, one, _ := trusting(t)
		exec := func(text, teamID string) {
			t.Helper()
			err := s.DB.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), text, db.ID(one.ID), db.ID(teamID))
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		for name, a := range asks(t.Context(), s) {
			is := func(after time.Duration, want bool) {
				t.Helper()
				time.Sleep(after)
				if found, _ := a.ask(one); found != want {
					t.Errorf("%s: found %v", name, found)
				}
			}
			is(0, true)
			exec(`UPDATE domains SET team_id = $2, name = 'gone.example' WHERE id = $1`, dbtest.ID("gone"))
			is(a.last-1, true)
			is(1, false)
			exec(`UPDATE domains SET team_id = $2, name = 'd0.example' WHERE id = $1`, dbtest.ID("team"))
			time.Sleep(a.last)
		}
	})
}

// If a domain changes while it is looked up, the outdated result of the look-up is not cached. Otherwise, a node would
// go on signing a deleted domain's mail for half a minute.
func TestChangeDuringALookUp(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, one, _ := trustingIn(t, d)
		g, err := look(s, s.signing, one.ID, 30*cacheFor, func() (Signing, error) {
			g, err := s.lookUpSigning(t.Context(), one.ID)
			if err := s.Delete(t.Context(), dbtest.ID("team"), one.ID); err != nil {
				t.Fatal(err)
			}
			return g, err
		}, always)
		if err != nil || g.Name != one.Name {
			t.Fatalf("%+v, %v", g, err)
		}
		if g, err := s.Signing(t.Context(), one.ID); fault.KindOf(err) != fault.NotFound {
			t.Errorf("a deleted domain signs: %+v, %v", g, err)
		}
	})
}

// If a node's connection for hints is lost, hints are lost too. When the node listens again, it forgets what it has
// cached about domains.
func TestMemoryEndsWithTheConnection(t *testing.T) {
	d := dbtest.Postgres(t)
	s, one, _ := trustingIn(t, d)
	listening := make(chan struct{}, 1)
	d.OnListening(func() { listening <- struct{}{} })
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- d.Run(ctx) }()
	<-listening
	if g, err := s.Signing(ctx, one.ID); err != nil || !g.MaySend {
		t.Fatalf("%+v, %v", g, err)
	}
	if err := d.Update(ctx, func(tx *db.Tx) error { // as another node does; its hint is lost
		tx.Queue(ctx, `UPDATE domains SET sending = FALSE WHERE id = $1`, db.ID(one.ID))
		_, err := tx.Exec(ctx, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'LISTEN %'
			AND datname = current_database()`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	<-listening
	if g, err := s.Signing(ctx, one.ID); err != nil || g.MaySend {
		t.Errorf("a domain that may no longer send signs: %+v, %v", g, err)
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
