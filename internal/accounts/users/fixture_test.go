package users_test

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/page"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// fixture is a users service with its own clock. The fixture collects the emails that the service sends and the audit
// entries that it writes.
type fixture struct {
	*testing.T
	*users.Service
	d    *db.DB
	keys *keyring.Keyring

	mu     sync.Mutex
	at     time.Time
	mails  []string
	logged map[string]bool // ids of the audit entries that took has already returned
}

// each runs a test on both database engines.
func each(t *testing.T, f func(t *testing.T, x *fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { f(t, newFixture(t, d, users.Config{PublicURL: publicURL})) })
}

func newFixture(t *testing.T, d *db.DB, c users.Config) *fixture {
	t.Helper()
	keys, err := keyring.New(make([]byte, keyring.MasterSize))
	if err != nil {
		t.Fatal(err)
	}
	x := &fixture{T: t, d: d, keys: keys, at: d.Now(), logged: map[string]bool{}}
	c.HashMemory = 64
	x.Service, err = users.New(c, users.Deps{DB: d, Keys: keys, Log: slog.New(slog.DiscardHandler), Audit: audit.New(d, 0),
		TeamsOf:       func(context.Context, db.Reader, string) ([]string, error) { return nil, nil },
		OnUserDelete:  func(context.Context, *db.Tx, string) error { return nil },
		OnUserDisable: func(context.Context, *db.Tx, string) error { return nil }})
	if err != nil {
		t.Fatal(err)
	}
	x.Now = x.now
	x.Mail = func(_ context.Context, tx *db.Tx, to, subject, text string) error {
		tx.AfterCommit(func() {
			x.mu.Lock()
			defer x.mu.Unlock()
			x.mails = append(x.mails, to+"\n"+subject+"\n"+text)
		})
		return nil
	}
	return x
}

func (x *fixture) now() time.Time {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.at
}

// pass advances the fixture's clock.
func (x *fixture) pass(d time.Duration) {
	x.mu.Lock()
	x.at = x.at.Add(d)
	x.mu.Unlock()
	x.d.Hint(users.HintTopic, "") // clears the session cache, which does not use the fixture's clock
}

// settle runs the queued background tasks.
func (x *fixture) settle() {
	x.Helper()
	ctx, cancel := context.WithCancel(x.Context())
	cancel()
	x.must(x.Service.Run(ctx))
}

// took returns the actions of the audit entries that were written since the last call to took.
func (x *fixture) took() string {
	x.Helper()
	x.settle()
	entries, _, _, err := x.Audit.List(x.Context(), "", audit.Filter{}, page.Page{Limit: 100})
	x.must(err)
	var all []string
	for _, e := range slices.Backward(entries) {
		if !x.logged[e.ID] {
			x.logged[e.ID] = true
			all = append(all, strings.TrimPrefix(e.Action, "user."))
		}
	}
	return strings.Join(all, " ")
}

// mailed returns the emails that were sent since the last call to mailed.
func (x *fixture) mailed() []string {
	x.settle()
	x.mu.Lock()
	defer x.mu.Unlock()
	all := x.mails
	x.mails = nil
	return all
}

func (x *fixture) must(err error) {
	x.Helper()
	if err != nil {
		x.Fatal(err)
	}
}

// is fails the test unless err is a fault of the given kind.
func (x *fixture) is(err error, kind fault.Kind) {
	x.Helper()
	if _, ok := errors.AsType[*fault.Error](err); !ok || fault.KindOf(err) != kind {
		x.Fatalf("error %v, want a fault of kind %d", err, kind)
	}
}

// field checks that an error is an Invalid fault and returns the field that it names.
func (x *fixture) field(err error) string {
	x.Helper()
	x.is(err, fault.Invalid)
	e, _ := errors.AsType[*fault.Error](err)
	return e.Field
}

func (x *fixture) user(email string) users.User {
	x.Helper()
	u, err := x.Create(x.Context(), users.NewUser{Email: email, Name: "Ada", Password: password})
	x.must(err)
	return u
}

func (x *fixture) attempt(email, password string) (users.Outcome, error) {
	return x.SignIn(x.Context(), users.Attempt{Email: email, Password: password, Client: home})
}

// session signs in with an email address and password and returns the new session.
func (x *fixture) session(email, password string) users.Session {
	x.Helper()
	out, err := x.attempt(email, password)
	x.must(err)
	return x.of(out)
}

// of returns the session that was created by a successful sign-in.
func (x *fixture) of(out users.Outcome) users.Session {
	x.Helper()
	if out.Token == "" || out.Pending != "" {
		x.Fatalf("no session was begun: %+v", out)
	}
	s, _, err := x.Session(x.Context(), out.Token)
	x.must(err)
	return s
}
