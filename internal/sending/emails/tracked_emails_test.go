package emails_test

import (
	"slices"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// An open or a click changes the state of a recipient only if the message was delivered. If events are recorded
// together, their order does not matter. An open or a click without a recipient does not change any recipient's state.
// If events for many emails are recorded together, the state of each email is updated.
func TestOpensAdvanceWhoHasTheEmail(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		const ann, bob = "ann@one.example", "bob@two.example"
		one, many := n.Send(testnode.Hello(ann, bob)), []string{}
		for _, step := range []struct {
			typ   events.Type
			to    string
			email emails.State
			want  []emails.State
		}{
			{events.EmailClicked, ann, emails.Queued, []emails.State{emails.Queued, emails.Queued}},
			{events.EmailDelivered, ann, emails.Delivered, []emails.State{emails.Delivered, emails.Queued}},
			{events.EmailOpened, bob, emails.Opened, []emails.State{emails.Delivered, emails.Queued}},
			{events.EmailClicked, "", emails.Clicked, []emails.State{emails.Delivered, emails.Queued}},
			{events.EmailOpened, ann, emails.Clicked, []emails.State{emails.Opened, emails.Queued}},
			{events.EmailDelayed, bob, emails.Clicked, []emails.State{emails.Opened, emails.Delayed}},
			{events.EmailClicked, bob, emails.Clicked, []emails.State{emails.Opened, emails.Delayed}},
			{events.EmailBounced, bob, emails.Bounced, []emails.State{emails.Opened, emails.Bounced}},
			{events.EmailOpened, bob, emails.Bounced, []emails.State{emails.Opened, emails.Bounced}},
		} {
			n.Happen(events.Event{TeamID: n.Acme.TeamID, EmailID: one, Type: step.typ, Recipient: step.to})
			if email, to := statesOf(t, n, one); email != step.email || !slices.Equal(to, step.want) {
				t.Errorf("after %s of %q: %s and %v, want %s and %v", step.typ, step.to, email, to, step.email, step.want)
			}
		}

		var all []events.Event
		for range 20 {
			many = append(many, n.Send(testnode.Hello(ann)))
		}
		for _, typ := range []events.Type{events.EmailSent, events.EmailDelivered} {
			all = nil
			for _, emailID := range many {
				all = append(all, events.Event{TeamID: n.Acme.TeamID, EmailID: emailID, Type: typ, Recipient: ann})
			}
			all = append(all, events.Event{TeamID: n.Acme.TeamID, Type: events.DomainUpdated, DomainID: n.Sender.ID,
				Data: n.Sender})
			n.Happen(all...)
		}
		for _, emailID := range many {
			if email, to := statesOf(t, n, emailID); email != emails.Delivered || to[0] != emails.Delivered {
				t.Errorf("%s and %v", email, to)
			}
		}
	})
}

func statesOf(t *testing.T, n *testnode.Node, emailID string) (email emails.State, to []emails.State) {
	t.Helper()
	e, err := n.Emails.Get(t.Context(), n.Acme.TeamID, emailID)
	if err != nil {
		t.Fatal(err)
	}
	all, err := n.Emails.Recipients(t.Context(), n.Acme.TeamID, emailID)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		to = append(to, r.State)
	}
	return e.LastEvent, to
}

// When an address is erased from an email with other recipients, the data about its opens and clicks is deleted too.
func TestErasedHits(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		const ann, bob = "ann@one.example", "bob@two.example"
		emailID := n.Send(testnode.Hello(ann, bob))
		for _, to := range []string{ann, bob} {
			n.Happen(events.Event{TeamID: n.Acme.TeamID, EmailID: emailID, Type: events.EmailDelivered, Recipient: to},
				events.Event{TeamID: n.Acme.TeamID, EmailID: emailID, Type: events.EmailOpened, Recipient: to,
					Data: &events.Open{IPAddress: "203.0.113.9", Timestamp: time.Now(), UserAgent: "of " + to[:3]}})
		}
		email, to := statesOf(t, n, emailID)
		if email != emails.Opened || to[0] != emails.Opened || to[1] != emails.Opened {
			t.Errorf("delivered and opened at once: %s and %v", email, to)
		}
		a, err := erasure.Parse("Ann@one.example")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := n.Emails.EraseAddress(t.Context(), a, erasure.Scope{All: true}); err != nil {
			t.Fatal(err)
		}
		timeline, _, err := n.Emails.Timeline(t.Context(), n.Acme.TeamID, emailID, page.Page{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for _, e := range timeline {
			if e.Type == "opened" {
				got[e.Recipient] = len(e.Data)
			}
		}
		if len(got) != 2 || got[erasure.Placeholder] != 0 || got[bob] == 0 {
			t.Errorf("lengths of data by recipient: %v", got)
		}
	})
}
