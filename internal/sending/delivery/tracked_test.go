package delivery

import (
	"regexp"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

// Each recipient of a tracked email gets a separate message. A second try sends messages only to the recipients that
// were delayed.
func TestTrackedMessages(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		var refused atomic.Bool
		mx := smtptest.NewServer(t, smtptest.Config{Data: func(m smtptest.Message) string {
			if slices.Contains(m.To, address(1)) && !refused.Swap(true) {
				return "451 4.7.1 come back later"
			}
			return ""
		}})
		n := one(mx.Addr)
		f := newFixture(t, d, n.config(3), n.dns).run()
		if _, err := f.Domains.AddVerified(t.Context(), f.Acme.TeamID, domains.NewDomain{Name: "tracked.dev",
			TLS: domains.Opportunistic, TrackingSubdomain: "links", OpenTracking: true, ClickTracking: true}); err != nil {
			t.Fatal(err)
		}
		html := `<p><a href="https://shop.example/">shop</a></p>`
		x := f.Send(emails.Send{From: "hello@tracked.dev", To: []string{address(0), address(1), address(2)},
			Subject: "Hello", HTML: &html})
		got := f.wait(x, events.EmailDelayed, events.EmailDelivered, events.EmailDelivered, events.EmailDelivered)
		slices.Sort(got)
		want := []string{"delivered " + address(0), "delivered " + address(1), "delivered " + address(2),
			"delivery_delayed " + address(1), "sent"}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("what happened: %s", diff)
		}
		var to []string
		pixel := regexp.MustCompile(`https://links\.tracked\.dev/o/([A-Za-z0-9_-]+)`)
		for _, m := range mx.Wait(3) {
			found := pixel.FindSubmatch(unfold(m.Data))
			if len(m.To) != 1 || found == nil {
				t.Errorf("a message to %q is\n%s", m.To, m.Data)
				continue
			}
			to = append(to, m.To[0])
			tracked, err := f.Emails.ReadTracked(string(found[1]), "links.tracked.dev")
			if err != nil || tracked.EmailID != x || address(tracked.Position) != m.To[0] {
				t.Errorf("the message to %s has the token of %+v, %v", m.To[0], tracked, err)
			}
		}
		slices.Sort(to)
		if diff := cmp.Diff([]string{address(0), address(1), address(2)}, to); diff != "" {
			t.Errorf("the messages went to others: %s", diff)
		}
	})
}

// unfold removes the soft line breaks of quoted-printable text.
func unfold(body []byte) []byte { return regexp.MustCompile(`=\r?\n`).ReplaceAll(body, nil) }
