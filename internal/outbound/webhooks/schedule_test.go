package webhooks_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// bubble runs a test in simulated time with a running fixture, and a receiver in real time. The receiver closes the
// connection after each response, because simulated time stops while a connection is read, and an idle connection would
// be read forever.
func bubble(t *testing.T, c webhooks.Config, answer func(n int, w http.ResponseWriter, r *http.Request),
	do func(t *testing.T, f *fixture, x *receiver)) {
	t.Helper()
	x := receive(t, func(n int, w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		answer(n, w, r)
	})
	synctest.Test(t, func(t *testing.T) {
		// Ids never go back within a process, but each bubble starts in the year 2000. The test waits until the
		// bubble's time has caught up with the ids.
		if last, ok := id.Time(id.New()); ok && last.After(time.Now()) {
			time.Sleep(time.Until(last) + time.Second)
		}
		f := newFixture(t, dbtest.SQLite(t), c, loopbackOnly)
		// Run only two job kinds, because each kind polls once a minute, which adds up over days of simulated time.
		stop := f.run(webhooks.Kind, webhooks.RecoverKind)
		do(t, f, x)
		stop()
	})
}

// failsUntil answers with status 500 until works is true.
func failsUntil(works *atomic.Bool) func(int, http.ResponseWriter, *http.Request) {
	return func(_ int, w http.ResponseWriter, _ *http.Request) {
		if !works.Load() {
			w.WriteHeader(500)
		}
	}
}

// apart reports whether two times differ by the given duration, allowing for jitter and some processing time.
func apart(a, b time.Time, wait time.Duration) bool {
	d := b.Sub(a)
	return d >= wait*8/10 && d <= wait*12/10+2*time.Second
}

// TestSchedule: if a receiver fails four times and then works, five attempts are made at the scheduled times. A replay
// after a success adds one more attempt.
func TestSchedule(t *testing.T) {
	fails := func(n int, w http.ResponseWriter, _ *http.Request) {
		if n < 4 {
			w.WriteHeader(500)
			fmt.Fprintf(w, "failure %d", n)
		}
	}
	bubble(t, config(), fails, func(t *testing.T, f *fixture, x *receiver) {
		e := f.endpoint(t, x.URL)
		f.suppress(t, "gone@example.net")
		time.Sleep(time.Second)
		m := f.messages(t, e)[0]
		one, err := f.Message(t.Context(), f.Acme.TeamID, e.ID, m.ID)
		must(t, err)
		if one.State != webhooks.Attempting || !apart(one.CreatedAt, one.NextAt, 5*time.Second) {
			t.Errorf("after the first: %s, next at %v", one.State, one.NextAt)
		}
		time.Sleep(4 * time.Hour)
		m = f.messages(t, e)[0]
		all := f.attempts(t, e, m)
		if len(all) != 5 || m.State != webhooks.Success {
			t.Fatalf("%s after %d attempts", m.State, len(all))
		}
		for i, wait := range []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour} {
			before, after := all[4-i], all[3-i] // newest first
			if !apart(before.StartedAt, after.StartedAt, wait) {
				t.Errorf("attempt %d came %v after the one before, want about %v", i+2, after.StartedAt.Sub(before.StartedAt), wait)
			}
			if before.Code != 500 || before.Response != fmt.Sprintf("failure %d", i) || !strings.Contains(before.Error, "500") {
				t.Errorf("attempt %d: %+v", i+1, before)
			}
		}
		time.Sleep(24 * time.Hour)
		if n := len(x.all()); n != 5 {
			t.Errorf("%d requests after the success", n)
		}

		must(t, f.Replay(t.Context(), f.Acme.TeamID, e.ID, m.ID))
		time.Sleep(time.Second)
		got := x.all()
		if len(got) != 6 || got[5].id() != got[0].id() || got[5].body != got[0].body ||
			got[5].head.Get("Svix-Timestamp") == got[0].head.Get("Svix-Timestamp") {
			t.Fatalf("after the replay: %d requests, %+v", len(got), got[len(got)-1])
		}
		if n := len(f.attempts(t, e, m)); n != 6 {
			t.Errorf("%d attempts after the replay", n)
		}
		if again, err := f.Get(t.Context(), f.Acme.TeamID, e.ID); err != nil || !again.FailingSince.IsZero() {
			t.Errorf("failing since %v, %v", again.FailingSince, err)
		}
	})
}

// A failed replay does not change the retry schedule; a successful replay ends it.
func TestReplayBesideTheSchedule(t *testing.T) {
	bubble(t, config(), func(n int, w http.ResponseWriter, _ *http.Request) {
		if n < 3 {
			w.WriteHeader(500)
		}
	}, func(t *testing.T, f *fixture, x *receiver) {
		e := f.endpoint(t, x.URL)
		f.suppress(t, "gone@example.net")
		time.Sleep(30 * time.Second) // time for two attempts
		before := f.messages(t, e)[0]
		must(t, f.Replay(t.Context(), f.Acme.TeamID, e.ID, before.ID))
		time.Sleep(time.Second)
		after := f.messages(t, e)[0]
		if len(x.all()) != 3 || after != before || after.State != webhooks.Attempting {
			t.Errorf("after a replay that failed: %d requests, %+v before, %+v after", len(x.all()), before, after)
		}
		must(t, f.Replay(t.Context(), f.Acme.TeamID, e.ID, before.ID))
		time.Sleep(time.Second)
		if after = f.messages(t, e)[0]; after.State != webhooks.Success || !after.NextAt.IsZero() {
			t.Errorf("after a replay that succeeded: %+v", after)
		}
		time.Sleep(48 * time.Hour)
		if n := len(x.all()); n != 4 {
			t.Errorf("%d requests in the end", n)
		}
	})
}

// When a replay delivers a message, the messages that waited for it are sent immediately.
func TestReplayFreesTheChain(t *testing.T) {
	var works atomic.Bool
	bubble(t, config(), failsUntil(&works), func(t *testing.T, f *fixture, x *receiver) {
		e := f.endpoint(t, x.URL)
		f.suppress(t, "gone@example.net")
		f.unsuppress(t, "gone@example.net")
		time.Sleep(3 * time.Hour) // the next scheduled attempt is hours later
		works.Store(true)
		all := f.messages(t, e)
		must(t, f.Replay(t.Context(), f.Acme.TeamID, e.ID, all[len(all)-1].ID))
		time.Sleep(2 * time.Second)
		for _, m := range f.messages(t, e) {
			if m.State != webhooks.Success {
				t.Errorf("%s is %s", m.Type, m.State)
			}
		}
		n := len(x.all())
		time.Sleep(48 * time.Hour)
		if late := len(x.all()) - n; late != 0 {
			t.Errorf("%d requests later on", late)
		}
	})
}

// When the last attempt in the schedule fails, the message has failed. Recover delivers the messages that failed after
// a given time, oldest first.
func TestFailAndRecover(t *testing.T) {
	var works atomic.Bool
	bubble(t, config(), failsUntil(&works), func(t *testing.T, f *fixture, x *receiver) {
		e := f.endpoint(t, x.URL)
		f.suppress(t, "a@example.net")
		time.Sleep(time.Hour)
		since := time.Now()
		for i := range 5 {
			f.suppress(t, fmt.Sprintf("b%d@example.net", i))
		}
		time.Sleep(48 * time.Hour)
		all := f.messages(t, e)
		for _, m := range all {
			if n := len(f.attempts(t, e, m)); m.State != webhooks.Failed || n != 8 || !m.NextAt.IsZero() {
				t.Errorf("%+v after %d attempts", m, n)
			}
		}
		works.Store(true)
		if err := f.Recover(t.Context(), f.Acme.TeamID, e.ID, time.Now().Add(time.Hour)); fault.KindOf(err) != fault.Invalid {
			t.Errorf("since a time to come: %v", err)
		}
		must(t, f.Recover(t.Context(), f.Acme.TeamID, e.ID, since))
		time.Sleep(time.Minute)
		for i, m := range f.messages(t, e) {
			if want := map[bool]webhooks.State{true: webhooks.Failed, false: webhooks.Success}[i == 5]; m.State != want {
				t.Errorf("message %d is %s, want %s", i, m.State, want)
			}
		}
		if n := len(x.all()); n != 6*8+5 {
			t.Errorf("%d requests", n)
		}
	})
}

// A 410 response disables the endpoint immediately. Messages that wait for a disabled endpoint fail, and are delivered
// after the endpoint is enabled and recovered.
func TestGone(t *testing.T) {
	bubble(t, config(), func(n int, w http.ResponseWriter, _ *http.Request) {
		if n == 0 {
			w.WriteHeader(410)
		}
	}, func(t *testing.T, f *fixture, x *receiver) {
		start := time.Now()
		e := f.endpoint(t, x.URL)
		f.suppress(t, "a@example.net")
		time.Sleep(time.Second)
		got, err := f.Get(t.Context(), f.Acme.TeamID, e.ID)
		if err != nil || got.Status != webhooks.Disabled || !strings.Contains(got.DisabledReason, "410") ||
			got.DisabledAt.IsZero() {
			t.Fatalf("%+v, %v", got, err)
		}
		if len(f.notices) != 1 || !strings.Contains(f.notices[0], x.URL) {
			t.Errorf("notices %q", f.notices)
		}
		m := f.messages(t, e)[0]
		if m.State != webhooks.Failed {
			t.Errorf("the message is %s", m.State)
		}
		if err := f.Replay(t.Context(), f.Acme.TeamID, e.ID, m.ID); fault.KindOf(err) != fault.Invalid {
			t.Errorf("a replay at a disabled endpoint: %v", err)
		}
		f.suppress(t, "b@example.net")
		if n := len(f.messages(t, e)); n != 1 {
			t.Errorf("a disabled endpoint is told: %d messages", n)
		}
		must(t, f.Service.Update(t.Context(), f.Acme.TeamID, e.ID, webhooks.Change{Status: new("enabled")}))
		must(t, f.Recover(t.Context(), f.Acme.TeamID, e.ID, start))
		time.Sleep(time.Second)
		if m = f.messages(t, e)[0]; m.State != webhooks.Success {
			t.Errorf("after its recovery the message is %s", m.State)
		}
	})
}

// If an endpoint fails at every attempt, the team is warned after a fifth of the time limit, and the endpoint is
// disabled when the limit is reached. An endpoint that sometimes succeeds is not disabled.
func TestDisableAfterDays(t *testing.T) {
	c := config()
	c.DisableAfter = 20 * time.Hour
	for _, sometimes := range []bool{false, true} {
		t.Run(fmt.Sprintf("works now and then: %v", sometimes), func(t *testing.T) {
			bubble(t, c, func(n int, w http.ResponseWriter, _ *http.Request) {
				if !sometimes || n%20 != 7 {
					w.WriteHeader(503)
				}
			}, func(t *testing.T, f *fixture, x *receiver) {
				e := f.endpoint(t, x.URL)
				warned, off := time.Time{}, time.Time{}
				start := time.Now()
				for i := range 24 * 3 {
					f.suppress(t, fmt.Sprintf("a%d@example.net", i))
					time.Sleep(20 * time.Minute)
					got, err := f.Get(t.Context(), f.Acme.TeamID, e.ID)
					must(t, err)
					if len(f.notices) > 0 && warned.IsZero() {
						warned = time.Now()
					}
					if got.Status == webhooks.Disabled && off.IsZero() {
						off = time.Now()
					}
				}
				if sometimes {
					if !off.IsZero() || !warned.IsZero() {
						t.Errorf("warned at %v, disabled at %v: %q", warned, off, f.notices)
					}
					return
				}
				if d := warned.Sub(start); len(f.notices) != 2 || d < 4*time.Hour || d > 5*time.Hour {
					t.Errorf("warned after %v: %q", d, f.notices)
				}
				if d := off.Sub(start); d < 20*time.Hour || d > 21*time.Hour {
					t.Errorf("disabled after %v", d)
				}
				n := len(x.all())
				time.Sleep(48 * time.Hour)
				if more := len(x.all()) - n; more != 0 {
					t.Errorf("%d requests to a disabled endpoint", more)
				}
			})
		})
	}
}

// Rows older than the retention period and all rows of deleted endpoints are deleted, and no other rows.
func TestSweep(t *testing.T) {
	bubble(t, config(), func(int, http.ResponseWriter, *http.Request) {}, func(t *testing.T, f *fixture, x *receiver) {
		e, other := f.endpoint(t, x.URL), f.endpoint(t, x.URL)
		for i := range 3 {
			f.suppress(t, fmt.Sprintf("a%d@example.net", i))
			time.Sleep(2 * time.Hour)
		}
		must(t, f.Delete(t.Context(), f.Acme.TeamID, other.ID))
		f.sweep(t, 3*time.Hour)
		got := []int{f.count(t, "webhooks"), f.count(t, "webhook_messages"), f.count(t, "webhook_deliveries"),
			f.count(t, "webhook_attempts")}
		if fmt.Sprint(got) != "[2 1 1 1]" || len(f.messages(t, e)) != 1 {
			t.Errorf("endpoints, messages, deliveries, attempts: %v", got)
		}
		time.Sleep(2 * time.Hour)
		f.sweep(t, 3*time.Hour)
		if n := f.count(t, "webhooks"); n != 1 {
			t.Errorf("%d endpoints after the deleted one was swept", n)
		}
	})
}
