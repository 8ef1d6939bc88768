package webhooks_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	standard "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
)

func verifies(t *testing.T, secret string, r request) {
	t.Helper()
	w, err := standard.NewWebhook(secret)
	must(t, err)
	if err := w.Verify([]byte(r.body), r.head); err != nil {
		t.Errorf("the signature %s does not verify: %v", r.head.Get("Webhook-Signature"), err)
	}
}

// An event is delivered to every endpoint that selects it, signed and with the same message id.
func TestDelivery(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f, x, y := loopback(t, d), receive(t, nil), receive(t, nil)
		a, b := f.endpoint(t, x.URL+"/a?b=c"), f.endpoint(t, y.URL)
		c, err := f.Create(t.Context(), f.Acme.TeamID, y.URL, []string{"email.sent"})
		must(t, err)
		f.suppress(t, "gone@example.net")
		ma, mb := f.becomes(t, a, webhooks.Success), f.becomes(t, b, webhooks.Success)
		got, other := x.all(), y.all()
		if len(got) != 1 || len(other) != 1 || len(f.messages(t, c)) != 0 {
			t.Fatalf("%d, %d and %d messages, want 1, 1 and none", len(got), len(other), len(f.messages(t, c)))
		}
		if got[0].id() != ma.ID || ma.ID != mb.ID || got[0].body != other[0].body {
			t.Errorf("ids %s, %s, %s", got[0].id(), ma.ID, mb.ID)
		}
		verifies(t, a.Secret, got[0])
		verifies(t, b.Secret, other[0])
		head := got[0].head
		for name, want := range map[string]string{"Content-Type": "application/json", "User-Agent": "Postrider-Webhooks/test",
			"Webhook-Id": head.Get("Svix-Id"), "Webhook-Timestamp": head.Get("Svix-Timestamp"),
			"Webhook-Signature": head.Get("Svix-Signature")} {
			if head.Get(name) != want {
				t.Errorf("%s: %q, want %q", name, head.Get(name), want)
			}
		}
		m, err := f.Message(t.Context(), f.Acme.TeamID, a.ID, ma.ID)
		if err != nil || m.Payload != got[0].body || m.Type != events.SuppressionAdded {
			t.Errorf("%+v, %v; sent %s", m, err, got[0].body)
		}
		if all := f.attempts(t, a, ma); len(all) != 1 || all[0].Code != 200 || all[0].Error != "" ||
			!strings.HasPrefix(all[0].ID, "atmpt_") {
			t.Errorf("attempts %+v", all)
		}
	})
}

// For a day after a rotation, signatures verify with both the old and the new secret.
func TestRotation(t *testing.T) {
	t.Parallel()
	f, x := loopback(t, dbtest.SQLite(t)), receive(t, nil)
	e := f.endpoint(t, x.URL)
	secret, err := f.Rotate(t.Context(), f.Acme.TeamID, e.ID)
	must(t, err)
	if secret == e.Secret {
		t.Fatal("the secret stays")
	}
	f.suppress(t, "gone@example.net")
	f.becomes(t, e, webhooks.Success)
	r := x.all()[0]
	verifies(t, secret, r)
	verifies(t, e.Secret, r)
	if n := len(strings.Fields(r.head.Get("Svix-Signature"))); n != 2 {
		t.Errorf("%d signatures", n)
	}
	again, err := f.Get(t.Context(), f.Acme.TeamID, e.ID)
	if err != nil || again.Secret != secret {
		t.Errorf("secret %s, %v", again.Secret, err)
	}
}

// TestChangesCountAtOnce: an event that is recorded just after an endpoint was created, changed or deleted uses the
// endpoint's new state, although the old state was cached.
func TestChangesCountAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, config(), noLoopback)
		f.suppress(t, "before@example.net") // caches that the team has no endpoints
		for i := range 20 {
			e, err := f.Create(t.Context(), f.Acme.TeamID, "https://hooks.example.org", []string{"suppression.added"})
			must(t, err)
			f.suppress(t, fmt.Sprintf("a%d@example.net", i))
			must(t, f.Service.Update(t.Context(), f.Acme.TeamID, e.ID, webhooks.Change{Events: []string{"suppression.removed"}}))
			f.suppress(t, fmt.Sprintf("b%d@example.net", i))
			must(t, f.Service.Update(t.Context(), f.Acme.TeamID, e.ID, webhooks.Change{Events: []string{"suppression.added"},
				Status: new("disabled")}))
			f.suppress(t, fmt.Sprintf("c%d@example.net", i))
			must(t, f.Service.Update(t.Context(), f.Acme.TeamID, e.ID, webhooks.Change{Status: new("enabled")}))
			f.suppress(t, fmt.Sprintf("d%d@example.net", i))
			if all := f.messages(t, e); len(all) != 2 {
				t.Fatalf("round %d: %d messages, want 2: %+v", i, len(all), all)
			}
			must(t, f.Delete(t.Context(), f.Acme.TeamID, e.ID))
			f.suppress(t, fmt.Sprintf("e%d@example.net", i))
			if _, err := f.Get(t.Context(), f.Acme.TeamID, e.ID); fault.KindOf(err) != fault.NotFound {
				t.Errorf("after it was deleted: %v", err)
			}
		}
		var n int
		must(t, d.QueryRow(t.Context(), `SELECT COUNT(*) FROM webhook_deliveries`).Scan(&n))
		if n != 40 {
			t.Errorf("%d deliveries, want 40: a deleted endpoint is told", n)
		}
	})
}

// Messages about one email arrive in order, even if the first message fails for a long time. While the messages of one
// email wait, messages about other emails are delivered.
func TestOrderOfAnEmail(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		c := config()
		c.Schedule = []time.Duration{50 * time.Millisecond, 50 * time.Millisecond, 50 * time.Millisecond,
			50 * time.Millisecond}
		f := newFixture(t, d, c, loopbackOnly)
		var fails atomic.Int32
		x := receive(t, func(_ int, w http.ResponseWriter, r *http.Request) {
			if fails.Add(1) <= 3 {
				w.WriteHeader(503)
			}
		})
		e := f.endpoint(t, x.URL)
		one, two := f.send(t, "a@example.net"), f.send(t, "b@example.net")
		stages := []events.Type{events.EmailSent, events.EmailDelayed, events.EmailDelivered, events.EmailOpened}
		for _, k := range stages {
			f.happen(t, events.Event{EmailID: one, Type: k})
		}
		f.happen(t, events.Event{EmailID: two, Type: events.EmailSent}, events.Event{EmailID: two,
			Type: events.EmailDelivered})
		f.run()
		testnode.Until(t, "all are delivered", func() bool {
			return !slices.ContainsFunc(f.messages(t, e), func(m webhooks.Message) bool { return m.State != webhooks.Success })
		})
		order := map[string][]string{}
		for _, r := range x.all() {
			for _, k := range []string{one, two} {
				if strings.Contains(r.body, k) && !slices.Contains(order[k], r.id()) {
					order[k] = append(order[k], r.id())
				}
			}
		}
		if len(order[one]) != 4 || len(order[two]) != 2 || !slices.IsSorted(order[one]) || !slices.IsSorted(order[two]) {
			t.Errorf("they came as %v", order)
		}
	})
}
