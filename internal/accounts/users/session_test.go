package users_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

func TestSessions(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ctx := t.Context()
		u := x.user("ada@example.com")
		out, err := x.attempt(u.Email, password)
		x.must(err)
		first := x.of(out)
		if !first.ExpiresAt.Equal(x.now().Add(14 * 24 * time.Hour)) {
			t.Errorf("expires at %v", first.ExpiresAt)
		}
		for _, bad := range []string{"", "x", out.Token[1:], out.Token + "x", strings.ToUpper(out.Token), first.ID} {
			_, _, err := x.Session(ctx, bad)
			x.is(err, fault.BadCredential)
		}

		// A session stays valid as long as it is used, but for at most 90 days.
		x.pass(13 * 24 * time.Hour)
		used := x.of(out)
		if !used.UsedAt.Equal(x.now()) {
			t.Errorf("used at %v, want %v", used.UsedAt, x.now())
		}
		x.settle()
		x.pass(30 * time.Second)
		if again := x.of(out); !again.UsedAt.Equal(used.UsedAt) {
			t.Error("a use within a minute was written")
		}
		for range 5 {
			x.pass(13 * 24 * time.Hour)
			x.of(out)
			x.settle()
		}
		x.pass(12*24*time.Hour - time.Minute)
		last := x.of(out)
		if left := last.ExpiresAt.Sub(x.now()); left > time.Minute {
			t.Errorf("it has %v left", left)
		}
		x.pass(time.Minute)
		_, _, err = x.Session(ctx, out.Token)
		x.is(err, fault.BadCredential)

		out, err = x.attempt(u.Email, password)
		x.must(err)
		x.pass(14 * 24 * time.Hour)
		_, _, err = x.Session(ctx, out.Token)
		x.is(err, fault.BadCredential)
		if all, err := x.Sessions(ctx, u.ID); err != nil || len(all) != 0 {
			t.Errorf("sessions %v, %v; want none that has not ended", all, err)
		}

		// The test ends one session, and then all sessions except the current one.
		one, err := x.attempt(u.Email, password)
		x.must(err)
		two, three := x.session(u.Email, password), x.session(u.Email, password)
		x.must(x.SetTeam(ctx, three.ID, dbtest.ID("team")))
		if next := x.session(u.Email, password); next.TeamID != dbtest.ID("team") {
			t.Errorf("the next session looks at team %q", next.TeamID)
		}
		intruder := x.user("eve@example.com")
		x.is(x.EndSession(ctx, intruder.ID, two.ID), fault.NotFound)
		x.must(x.EndSession(ctx, u.ID, two.ID))
		if all, err := x.Sessions(ctx, u.ID); err != nil || len(all) != 3 || all[0].CreatedAt.Before(all[2].CreatedAt) {
			t.Errorf("sessions %v, %v; want three, newest first", all, err)
		}
		x.must(x.EndSessions(ctx, u.ID, x.of(one).ID))
		if all, err := x.Sessions(ctx, u.ID); err != nil || len(all) != 1 || all[0].ID != x.of(one).ID {
			t.Errorf("sessions %v, %v; want one", all, err)
		}
		x.must(x.SetDisabled(ctx, u.ID, true))
		_, _, err = x.Session(ctx, one.Token)
		x.is(err, fault.BadCredential)
	})
}

// TestSessionEndsOnOtherNodes checks that a session that ends on one node also ends on another node that has cached it.
func TestSessionEndsOnOtherNodes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		u := x.user("ada@example.com")
		beside := newFixture(t, x.d, users.Config{PublicURL: publicURL})
		out, err := x.attempt(u.Email, password)
		x.must(err)
		_, _, err = beside.Session(t.Context(), out.Token)
		x.must(err)
		x.must(x.EndSessions(t.Context(), u.ID, ""))
		_, _, err = beside.Session(t.Context(), out.Token)
		x.is(err, fault.BadCredential)
	})
}

func TestTooManySessions(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		u := x.user("ada@example.com")
		var first string
		for i := range 52 {
			x.must(x.d.Update(t.Context(), func(tx *db.Tx) error {
				token, err := x.StartIn(t.Context(), tx, u, "a test", home)
				if i == 0 {
					first = token
				}
				return err
			}))
			if i == 49 {
				_, _, err := x.Session(t.Context(), first) // and caches it
				x.must(err)
			}
		}
		if all, err := x.Sessions(t.Context(), u.ID); err != nil || len(all) != 50 {
			t.Errorf("%d sessions, %v; want 50", len(all), err)
		}
		_, _, err := x.Session(t.Context(), first)
		x.is(err, fault.BadCredential)
	})
}

// A request does not wait until the time of its session's last use is written.
func TestRequestsDoNotWaitForASessionsTimeOfLastUse(t *testing.T) {
	each(t, func(t *testing.T, x *fixture) {
		out, err := x.attempt(x.user("ada@example.com").Email, password)
		x.must(err)
		first := x.of(out)
		x.pass(time.Hour)
		x.must(x.d.Update(t.Context(), func(tx *db.Tx) error {
			// The transaction holds the lock that a write to the session needs.
			if _, err := tx.Exec(t.Context(), `UPDATE user_sessions SET used_at = used_at`); err != nil {
				return err
			}
			limited, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, _, err := x.Session(limited, out.Token)
			return errors.Join(err, limited.Err())
		}))
		stored := func() time.Time {
			all, err := x.Sessions(t.Context(), first.UserID)
			x.must(err)
			return all[0].UsedAt
		}
		if at := stored(); !at.Equal(first.UsedAt) {
			t.Errorf("used at %v before it was written", at)
		}
		x.settle()
		if at := stored(); !at.Equal(x.now()) {
			t.Errorf("used at %v, want %v", at, x.now())
		}
	})
}
