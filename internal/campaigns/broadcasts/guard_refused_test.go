package broadcasts_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/platform/events"
)

// A broadcast pauses if hosts refuse nearly all of its emails, even if no bounce is permanent. This happens if a block
// list names the server. Emails without a result do not count. A broadcast with the limit 100 never pauses, and a
// broadcast that was resumed does not pause again.
func TestGuardPausesWhenNearlyAllAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name               string
		kind               string // type of the bounces
		bounced, delivered int
		limit              *float64
		paused             bool
	}{
		{"all transient", "Transient", 220, 0, nil, true},
		{"all undetermined", "Undetermined", 220, 0, nil, true},
		{"more than 90 percent", "Transient", 199, 21, nil, true},
		{"90 percent", "Transient", 198, 22, nil, false},
		{"too few results", "Transient", 199, 0, nil, false},
		{"higher limit", "Transient", 205, 15, new(95.0), false},
		{"lower limit", "Transient", 205, 15, new(5.0), true},
		{"no limit", "Transient", 220, 0, new(100.0), false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			each(t, func(t *testing.T, s *sender) {
				s.readers(220)
				draft := s.news()
				draft.Options.BounceLimit = c.limit
				id := s.draft(draft)
				s.send(id)
				s.enqueued(id, 220)
				refuse := func(some []string) {
					var all []events.Event
					for _, emailID := range some {
						all = append(all, events.Event{TeamID: s.Acme.TeamID, EmailID: emailID, BroadcastID: id,
							Type: events.EmailBounced, Data: &events.Bounce{Type: c.kind, SubType: "General"}})
					}
					s.Happen(all...)
				}
				at := s.emailsOf(id)
				for _, emailID := range at[:c.delivered] {
					s.Happen(s.event(id, emailID, events.EmailDelivered))
				}
				refuse(at[c.delivered : c.delivered+c.bounced-1])
				s.guard(id)
				refuse(at[c.delivered+c.bounced-1 : c.delivered+c.bounced])
				if s.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'broadcast.guard'`) > 0 {
					s.guard(id)
				}
				b := s.broadcast(id)
				if got := b.Status == broadcasts.Paused; got != c.paused {
					t.Fatalf("it is %s", b.Status)
				}
				if !c.paused {
					return
				}
				if b.Reason != broadcasts.TooManyBounces || !strings.Contains(b.Reason.Message(), "block list") {
					t.Errorf("%s: %s", b.Reason, b.Reason.Message())
				}
				s.Must(s.b.Resume(t.Context(), s.Acme, id))
				s.Happen(events.Event{TeamID: s.Acme.TeamID, EmailID: at[0], BroadcastID: id, Type: events.EmailBounced,
					Data: &events.Bounce{Type: c.kind, SubType: "General"}})
				if s.Count(`SELECT COUNT(*) FROM jobs WHERE kind = 'broadcast.guard'`) > 0 {
					s.guard(id)
				}
				if b := s.broadcast(id); b.Status == broadcasts.Paused {
					t.Error("it paused again")
				}
			})
		})
	}
}
