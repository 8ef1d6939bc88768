package users_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// TestSignInWhileReset checks that if a password is reset during a sign-in with the old password, no session remains.
// The test does not run on SQLite, where transactions cannot interleave because SQLite has one writer.
func TestSignInWhileReset(t *testing.T) {
	t.Parallel()
	x := newFixture(t, dbtest.Postgres(t), users.Config{PublicURL: publicURL})
	ctx := t.Context()
	u := x.user("ada@example.com")
	link, err := x.ResetLink(ctx, u.ID)
	x.must(err)
	token := linkToken(t, link, "/password/reset")
	var asked atomic.Int32
	reset := make(chan error, 1)
	x.Now = func() time.Time {
		if asked.Add(1) != 2 { // the transaction that begins the session makes the second call
			return x.now()
		}
		go func() { reset <- x.Reset(ctx, token, other, home) }()
		for waiting := 0; waiting == 0 && len(reset) == 0; {
			x.must(x.d.QueryRow(ctx, `SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
				AND datname = current_database()`).Scan(&waiting))
		}
		return x.now()
	}
	out, err := x.attempt(u.Email, password)
	x.must(err)
	x.must(<-reset)
	if _, _, err := x.Session(ctx, out.Token); err == nil {
		t.Error("a session that was begun by the old password goes on")
	}
}

// TestLastTwoMeansAtOnce checks that only one of two concurrent removals of a user's last two factors succeeds.
func TestLastTwoMeansAtOnce(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	x := newFixture(t, dbtest.Postgres(t), withIssuer(i))
	i.now = x.now
	ctx := t.Context()
	u, err := x.Create(ctx, users.NewUser{Email: "ada@example.com"})
	x.must(err)
	got, err := x.through(i, nil, as("s1", u.Email, true))
	x.must(err)
	s := x.of(got.Outcome)
	_, one := x.passkey(s, "one")
	linked, err := x.Identities(ctx, u.ID)
	x.must(err)
	// Each transaction calls TeamsOf for its audit entry after checking the remaining factors.
	var looked atomic.Int32
	x.TeamsOf = func(ctx context.Context, _ db.Reader, _ string) ([]string, error) {
		looked.Add(1)
		for waiting := int32(0); waiting+looked.Load() < 2; {
			err := x.d.QueryRow(ctx, `SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'
				AND datname = current_database()`).Scan(&waiting)
			if err != nil {
				return nil, fmt.Errorf("look who waits: %w", err)
			}
		}
		return nil, nil
	}
	ends := make(chan error, 2)
	go func() { ends <- x.RemovePasskey(ctx, s, one.ID, home) }()
	go func() { ends <- x.Unlink(ctx, s, linked[0].ID, home) }()
	refused := 0
	for range 2 {
		if err := <-ends; err != nil {
			x.is(err, fault.Forbidden)
			refused++
		}
	}
	if refused != 1 {
		t.Errorf("%d of two were refused", refused)
	}
}
