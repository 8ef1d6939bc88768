package teams_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/page"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const ownDomain = "01990000-0000-7000-8000-000000000001"

var errLookup = errors.New("no look-up")

// oneTeam returns a service with one team, whose only domain is ownDomain.
func oneTeam(t *testing.T, d *db.DB) (*teams.Service, teams.Team) {
	t.Helper()
	s := testTeams(d, slog.New(slog.DiscardHandler), func(_ context.Context, _, domainID string) (bool, error) {
		if strings.HasSuffix(domainID, "f") {
			return false, errLookup
		}
		return domainID == ownDomain, nil
	})
	team, err := s.Create(t.Context(), "Acme", "Owner@Example.org")
	if err != nil {
		t.Fatal(err)
	}
	return s, team
}

func newKey(t *testing.T, s *teams.Service, teamID, name string) (teams.Key, string) {
	t.Helper()
	k, token, err := s.CreateKey(t.Context(), teams.System(teamID), teams.NewKey{Name: name})
	if err != nil {
		t.Fatal(err)
	}
	return k, token
}

func TestTeam(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, team := oneTeam(t, d)
		got, err := s.Get(t.Context(), team.ID)
		if diff := cmp.Diff(team, got); err != nil || diff != "" || got.Email != "owner@example.org" {
			t.Errorf("error %v, difference %s", err, diff)
		}
		if _, err := s.Get(t.Context(), id.New()); err == nil || fault.KindOf(err) != fault.NotFound {
			t.Errorf("unknown team: %v", err)
		}
	})
}

func TestCreateKeyRules(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, team := oneTeam(t, d)
		taken := keyring.NewAPIKey()
		for _, c := range []struct {
			name  string
			give  teams.NewKey
			kind  fault.Kind // fault.Internal means that no error is expected
			field string
		}{
			{"a name of 50 characters", teams.NewKey{Name: strings.Repeat("é", 50)}, fault.Internal, ""},
			{"51 characters", teams.NewKey{Name: strings.Repeat("é", 51)}, fault.Invalid, "name"},
			{"no name", teams.NewKey{}, fault.Missing, "name"},
			{"a blank name", teams.NewKey{Name: " \t"}, fault.Missing, "name"},
			{"a control character", teams.NewKey{Name: "a\x00b"}, fault.Invalid, "name"},
			{"full access", teams.NewKey{Name: "k", Permission: teams.FullAccess}, fault.Internal, ""},
			{"another permission", teams.NewKey{Name: "k", Permission: "root"}, fault.Invalid, "permission"},
			{"sending from a domain", teams.NewKey{Name: "k", Permission: teams.SendingAccess, DomainID: ownDomain},
				fault.Internal, ""},
			{"full access from a domain", teams.NewKey{Name: "k", DomainID: ownDomain}, fault.Invalid, "domain_id"},
			{"a domain that is no id", teams.NewKey{Name: "k", Permission: teams.SendingAccess, DomainID: "example.com"},
				fault.BadID, "domain_id"},
			{"an unknown domain", teams.NewKey{Name: "k", Permission: teams.SendingAccess, DomainID: id.New()[:35] + "0"},
				fault.Invalid, "domain_id"},
			{"its own token", teams.NewKey{Name: "k", Token: taken}, fault.Internal, ""},
			{"a token in use", teams.NewKey{Name: "k", Token: taken}, fault.Invalid, "token"},
			{"a token with a space", teams.NewKey{Name: "k", Token: "re_a b"}, fault.Invalid, "token"},
		} {
			t.Run(c.name, func(t *testing.T) {
				k, token, err := s.CreateKey(t.Context(), teams.System(team.ID), c.give)
				if c.kind == fault.Internal {
					if err != nil || token == "" || k.ID == "" || k.TeamID != team.ID || k.CreatedAt.IsZero() {
						t.Errorf("%+v, token %q, error %v", k, token, err)
					}
					return
				}
				e, ok := errors.AsType[*fault.Error](err)
				if !ok || e.Kind != c.kind || e.Field != c.field || token != "" {
					t.Errorf("token %q, error %v; want kind %d of %q", token, err, c.kind, c.field)
				}
			})
		}
		_, _, err := s.CreateKey(t.Context(), teams.System(team.ID), teams.NewKey{Name: "k", Permission: teams.SendingAccess,
			DomainID: ownDomain[:35] + "f"})
		if !errors.Is(err, errLookup) {
			t.Errorf("a look-up that fails: %v", err)
		}
	})
}

func TestAuthenticate(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, team := oneTeam(t, d)
		k, token, err := s.CreateKey(t.Context(), teams.System(team.ID),
			teams.NewKey{Name: "k", Permission: teams.SendingAccess, DomainID: ownDomain})
		if err != nil {
			t.Fatal(err)
		}
		if s.IsCached(token) {
			t.Error("known before its first use")
		}
		want := teams.Actor{Kind: teams.KeyActor, ID: k.ID, Name: "k", TeamID: team.ID,
			Scopes:   teams.SendingAccess.Scopes(),
			DomainID: ownDomain}
		for range 2 { // first from the database, then from the cache
			got, err := s.Authenticate(t.Context(), token)
			if diff := cmp.Diff(want, got); err != nil || diff != "" {
				t.Errorf("error %v, difference %s", err, diff)
			}
		}
		if !s.IsCached(token) {
			t.Error("unknown after its first use")
		}
		for _, bad := range []string{"", token + "x", token[:len(token)-1], strings.ToUpper(token), k.Hint} {
			if _, err := s.Authenticate(t.Context(), bad); fault.KindOf(err) != fault.BadCredential {
				t.Errorf("%q: %v", bad, err)
			}
			if s.IsCached(bad) {
				t.Errorf("%q is known", bad)
			}
		}
		if active, err := s.Active(t.Context(), s.DB.Reader, team.ID, want.Ref()); err != nil || !active {
			t.Errorf("active %v, error %v", active, err)
		}
		s.Forget() // because of a change to any team
		if !s.IsCached(token) {
			t.Error("unknown after another key's team has changed, so a flood of unknown keys could lock the key out")
		}
		if err := s.DeleteKey(t.Context(), team.ID, k.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Authenticate(t.Context(), token); fault.KindOf(err) != fault.BadCredential {
			t.Errorf("a deleted key: %v", err)
		}
		if s.IsCached(token) {
			t.Error("a deleted key is known")
		}
		if active, err := s.Active(t.Context(), s.DB.Reader, team.ID, want.Ref()); err != nil || active {
			t.Errorf("a deleted key: active %v, error %v", active, err)
		}
	})
}

// Even a key in constant use is refused as soon as DeleteKey has returned.
func TestDeletedKeyIsRefusedAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, team := oneTeam(t, d)
		for i := range 20 {
			k, token := newKey(t, s, team.ID, fmt.Sprint("k", i))
			stop := make(chan struct{})
			var wg sync.WaitGroup
			for range 4 {
				wg.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							s.Authenticate(context.Background(), token)
						}
					}
				})
			}
			err := s.DeleteKey(t.Context(), team.ID, k.ID)
			_, refused := s.Authenticate(t.Context(), token)
			close(stop)
			wg.Wait()
			_, later := s.Authenticate(t.Context(), token)
			if err != nil || fault.KindOf(refused) != fault.BadCredential || fault.KindOf(later) != fault.BadCredential {
				t.Fatalf("deleting: %v; then: %v; later: %v", err, refused, later)
			}
		}
	})
}

// A hint makes a second node refuse a key that the first node has deleted.
func TestDeletionReachesOtherNodes(t *testing.T) {
	t.Parallel()
	url := dbtest.PostgresURL(t)
	own, other := dbtest.Open(t, url), dbtest.Open(t, url)
	here, team := oneTeam(t, own)
	there := testTeams(other, slog.New(slog.DiscardHandler), noDomain)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { own.Run(ctx) })
	wg.Go(func() { other.Run(ctx) })
	defer wg.Wait()
	defer cancel()
	// Hints that are sent before the other node starts to listen are lost. Without hints, the other node would notice
	// the deletion only after 5 seconds.
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for range 10 {
		k, token := newKey(t, here, team.ID, "k")
		if _, err := there.Authenticate(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		if err := here.DeleteKey(t.Context(), team.ID, k.ID); err != nil {
			t.Fatal(err)
		}
		for start := time.Now(); time.Since(start) < 2*time.Second; <-tick.C {
			if _, err := there.Authenticate(t.Context(), token); fault.KindOf(err) == fault.BadCredential {
				return
			}
		}
	}
	t.Error("the other node does not hear of deleted keys")
}

func TestListRenameDelete(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, team := oneTeam(t, d)
		other, err := s.Create(t.Context(), "Other", "")
		if err != nil {
			t.Fatal(err)
		}
		one, _ := newKey(t, s, team.ID, "one")
		two, _ := newKey(t, s, team.ID, "two")
		alien, _ := newKey(t, s, other.ID, "alien")
		if err := s.RenameKey(t.Context(), team.ID, one.ID, " uno "); err != nil {
			t.Fatal(err)
		}
		one.Name = "uno"
		got, more, err := s.ListKeys(t.Context(), team.ID, page.Page{})
		if diff := cmp.Diff([]teams.Key{two, one}, got); err != nil || more || diff != "" {
			t.Errorf("error %v, more %v, difference %s", err, more, diff)
		}
		for what, err := range map[string]error{
			"rename another team's key": s.RenameKey(t.Context(), team.ID, alien.ID, "mine"),
			"rename an unknown key":     s.RenameKey(t.Context(), team.ID, id.New(), "x"),
			"delete another team's key": s.DeleteKey(t.Context(), team.ID, alien.ID),
			"delete an unknown key":     s.DeleteKey(t.Context(), team.ID, id.New()),
			"delete what is no id":      s.DeleteKey(t.Context(), team.ID, "key"),
		} {
			if err == nil || err.Error() != "API key not found" || fault.KindOf(err) != fault.NotFound {
				t.Errorf("%s: %v", what, err)
			}
		}
		if err := s.RenameKey(t.Context(), team.ID, one.ID, " "); fault.KindOf(err) != fault.Missing {
			t.Errorf("a blank name: %v", err)
		}
		if err := s.RenameKey(t.Context(), team.ID, one.ID, strings.Repeat("x", 51)); fault.KindOf(err) != fault.Invalid ||
			err == nil {
			t.Errorf("a long name: %v", err)
		}
		by := teams.ActorRef{Kind: teams.KeyActor, ID: alien.ID}
		if active, err := s.Active(t.Context(), s.DB.Reader, other.ID, by); err != nil ||
			!active {
			t.Errorf("the other team's key: active %v, error %v", active, err)
		}
	})
}

func TestEnsureKey(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, team := oneTeam(t, d)
		for range 2 {
			if err := s.EnsureKey(t.Context(), team.Name, "dev", "re_development"); err != nil {
				t.Fatal(err)
			}
		}
		if a, err := s.Authenticate(t.Context(), "re_development"); err != nil || a.TeamID != team.ID ||
			a.Scopes != teams.FullAccess.Scopes() {
			t.Errorf("%+v, error %v", a, err)
		}
		if keys, _, err := s.ListKeys(t.Context(), team.ID, page.Page{}); err != nil || len(keys) != 1 {
			t.Errorf("%d keys, error %v", len(keys), err)
		}
	})
}

func lastUsed(t *testing.T, s *teams.Service, teamID string) map[string]time.Time {
	t.Helper()
	keys, _, err := s.ListKeys(t.Context(), teamID, page.Page{})
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]time.Time{}
	for _, k := range keys {
		used[k.Name] = k.LastUsedAt
	}
	return used
}

// When Run ends, it writes the times of last use that have not been written yet.
func TestLastUse(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s, team := oneTeam(t, d)
		_, token := newKey(t, s, team.ID, "used")
		newKey(t, s, team.ID, "idle")
		start := time.Now().Add(-time.Microsecond)
		if _, err := s.Authenticate(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		if used := lastUsed(t, s, team.ID); !used["used"].IsZero() {
			t.Errorf("written before it was due: %v", used)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Run(ctx); err != nil {
			t.Fatal(err)
		}
		used := lastUsed(t, s, team.ID)
		if at := used["used"]; at.Before(start.Truncate(time.Microsecond)) || at.After(time.Now()) || !used["idle"].IsZero() {
			t.Errorf("%v, want one since %v", used, start)
		}
	})
}

// Times of last use are written every ten seconds, and a cached key is looked up again after five seconds.
func TestRunInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := dbtest.SQLite(t)
		s, team := oneTeam(t, d)
		_, token := newKey(t, s, team.ID, "k")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() { s.Run(ctx) })
		defer wg.Wait()
		defer cancel()
		if _, err := s.Authenticate(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		err := d.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE teams SET suspended = TRUE, rate_limit = 7 WHERE id = $1`, db.ID(team.ID))
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		if p, err := s.Authenticate(t.Context(), token); err != nil || p.Suspended {
			t.Errorf("after 4 s: %+v, error %v", p, err)
		}
		time.Sleep(2 * time.Second)
		if p, err := s.Authenticate(t.Context(), token); err != nil || !p.Suspended || p.RateLimit != 7 {
			t.Errorf("after 6 s: %+v, error %v", p, err)
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		if used := lastUsed(t, s, team.ID); used["k"].IsZero() {
			t.Error("last use is not written after 11 s")
		}
	})
}

// If writing the times of last use fails, the failure is logged and the write is retried.
func TestLastUseSurvivesAFailure(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var log bytes.Buffer
		s := testTeams(d, slog.New(slog.NewTextHandler(&log, nil)), noDomain)
		team, err := s.Create(t.Context(), "Acme", "")
		if err != nil {
			t.Fatal(err)
		}
		_, token := newKey(t, s, team.ID, "k")
		if _, err := s.Authenticate(t.Context(), token); err != nil {
			t.Fatal(err)
		}
		rename := func(from, to string) {
			t.Helper()
			err := d.Update(t.Context(), func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `ALTER TABLE `+from+` RENAME TO `+to)
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		rename("api_keys", "elsewhere")
		if err := s.Run(ended); err != nil || !strings.Contains(log.String(), "could not write") {
			t.Errorf("error %v, log %q", err, log.String())
		}
		rename("elsewhere", "api_keys")
		if err := s.Run(ended); err != nil {
			t.Fatal(err)
		}
		if used := lastUsed(t, s, team.ID); used["k"].IsZero() {
			t.Error("the last use is lost")
		}
	})
}

// testTeams returns a Service without OAuth grants.
func testTeams(d *db.DB, log *slog.Logger, exists func(ctx context.Context, teamID, domainID string) (bool,
	error)) *teams.Service {
	s, err := teams.New(teams.Config{}, teams.Deps{DB: d, Log: log, DomainExists: exists,
		AuthenticateToken: func(context.Context, string) (teams.Actor, time.Time, error) {
			return teams.Actor{}, time.Time{}, fault.New(fault.BadCredential, "", "there are no grants")
		},
		GrantActive:  func(context.Context, db.Reader, string, string) (bool, error) { return false, nil },
		GrantMaySend: func(context.Context, db.Reader, string, string, teams.DueSend) (bool, error) { return false, nil },
		OnKeyDelete:  func(context.Context, *db.Tx, string, string) error { return nil },
		OnSenderStop: func(context.Context, *db.Tx, string, teams.ActorRef) error { return nil }})
	if err != nil {
		panic(err)
	}
	return s
}

func noDomain(context.Context, string, string) (bool, error) { return false, nil }
