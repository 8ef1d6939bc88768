package users_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/users"
)

// TestSignInWhileReset signs in with a password while a link replaces it: the session of the old password is refused or
// ends with the others. SQLite's one writer sees no other change in between.
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
		if asked.Add(1) != 2 { // the second time is within the transaction that begins the session
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
