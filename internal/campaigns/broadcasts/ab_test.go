package broadcasts_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/domains"
)

const trackedDomain = "tracked.acme.example"

// tracked returns a draft with two variants, whose opens and clicks are tracked, and whose winner is chosen after an
// hour.
func (s *sender) tracked(share float64) broadcasts.NewBroadcast {
	s.T.Helper()
	if s.Count(`SELECT COUNT(*) FROM domains WHERE name = $1`, trackedDomain) == 0 {
		s.Verified(s.Acme.TeamID, domains.NewDomain{Name: trackedDomain, TrackingSubdomain: "links", OpenTracking: true,
			ClickTracking: true})
	}
	n := s.news()
	n.From = "News <news@" + trackedDomain + ">"
	n.HTML = new(`<p><a href="https://acme.example/x">x</a></p>`)
	n.Variants = []broadcasts.Variant{{}, {Subject: new("B")}}
	n.Options = broadcasts.Options{TestShare: share, Metric: broadcasts.ByOpens, Wait: 60}
	return n
}

func (s *sender) inPhase(phase string) {
	s.T.Helper()
	testnode.Until(s.T, "the broadcast is in the phase "+phase, func() bool {
		return s.Count(`SELECT COUNT(*) FROM broadcasts WHERE phase = $1`, phase) == 1
	})
}

// later simulates the passing of time for a broadcast.
func (s *sender) later(id string, d time.Duration) {
	s.T.Helper()
	s.Update(func(tx *db.Tx) error {
		tx.Queue(s.T.Context(), `UPDATE broadcasts SET next_at = next_at - $2, paused_at = CASE paused_at WHEN 0 THEN 0
			ELSE paused_at - $2 END WHERE id = $1`, db.ID(id), d.Microseconds())
		_, err := s.Queue.Move(s.T.Context(), tx, broadcasts.Kind, s.Acme.TeamID, s.Acme.TeamID, id, tx.Now())
		return err
	})
}

// Each variant has a recipient if the audience has as many contacts who may be mailed.
func TestSmallAudiences(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		_, err := s.Suppressions.Add(t.Context(), s.Acme.TeamID, []string{"r0@reader.example", "r2@reader.example"})
		s.Must(err)
		s.readers(5) // r1, r3 and r4 may be mailed
		s.Run(s.b.Kinds()...)
		for _, share := range []float64{100, 1} {
			n := s.news()
			n.Variants = []broadcasts.Variant{{}, {Subject: new("B")}, {Subject: new("C")}}
			n.Options = broadcasts.Options{TestShare: share, Metric: broadcasts.ByHand}
			id := s.draft(n)
			s.send(id)
			s.walked(id, 3)
			r, err := s.b.Results(t.Context(), s.Acme.TeamID, id)
			s.Must(err)
			for variant, got := range r.Variants {
				if got.Entered != 1 {
					t.Errorf("with a share of %v, %d contacts get the variant %d", share, got.Entered, variant)
				}
			}
			if r.Broadcast.LeftOut > 2 {
				t.Errorf("%d contacts are left out", r.Broadcast.LeftOut)
			}
		}
	})
}

// Each variant has a recipient even if very many contacts who may not be mailed come first.
func TestVariantsBehindSuppressedContacts(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		const refused, mailed = 1200, 3
		to := s.readers(refused + mailed)
		for some := range slices.Chunk(to[:refused/2], 100) {
			_, err := s.Suppressions.Add(t.Context(), s.Acme.TeamID, some)
			s.Must(err)
		}
		s.Update(func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE contacts SET unsubscribed = TRUE WHERE address = ANY($1)`,
				to[refused/2:refused])
			return err
		})
		s.Run(s.b.Kinds()...)
		for _, share := range []float64{100, 1} {
			n := s.news()
			n.Variants = []broadcasts.Variant{{}, {Subject: new("B")}, {Subject: new("C")}}
			n.Options = broadcasts.Options{TestShare: share, Metric: broadcasts.ByHand}
			id := s.draft(n)
			s.send(id)
			s.walked(id, mailed)
			for variant, got := range s.results(id).Variants {
				if got.Entered != 1 {
					t.Errorf("with a share of %v, %d contacts get the variant %d", share, got.Entered, variant)
				}
			}
		}
	})
}

// Contacts who match the filter of the segment only after the test get the winner, whatever group their hash falls
// into.
func TestLateContactsGetTheWinner(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		ctx, team := t.Context(), s.Acme.TeamID
		_, err := s.Contacts.CreateProperty(ctx, team, contacts.NewProperty{Name: "plan", Type: scalar.String})
		s.Must(err)
		pro := func(from, to int) {
			for i := from; i < to; i++ {
				_, _, err := s.Contacts.Upsert(ctx, team, fmt.Sprintf("r%d@reader.example", i), contacts.Change{
					Properties: map[string]scalar.Value{"plan": scalar.OfText("pro")}})
				s.Must(err)
			}
		}
		const n = 30
		s.readers(n)
		pro(0, n/2)
		segment, err := s.Contacts.Segments.Create(ctx, team, segments.Definition{Name: "Pro",
			Filter: `{"type":"rule","field":"contact.properties.plan","operator":"eq","value":"pro"}`})
		s.Must(err)
		draft := s.news()
		draft.SegmentID = segment.ID
		draft.Variants = []broadcasts.Variant{{}, {Subject: new("B")}}
		draft.Options = broadcasts.Options{TestShare: 60, Metric: broadcasts.ByHand, HoldOut: 20}
		id := s.draft(draft)
		s.send(id)
		s.Run(s.b.Kinds()...)
		s.inPhase("wait")
		pro(n/2, n)
		s.Must(s.b.SetWinner(ctx, team, id, 1))
		testnode.Until(t, "all are handled", func() bool {
			b := s.broadcast(id)
			return b.Entered+b.LeftOut == n
		})
		s.inPhase("settle")
		s.mustCount(n, `SELECT COUNT(DISTINCT address) FROM broadcast_recipients`)
		if r := s.results(id); r.Variants[1].Entered == 0 {
			t.Error("nobody gets the winner")
		} else if _, ok := r.Broadcast.WinnerSignificant(); ok {
			t.Error("the winner that a person chose is significant or not")
		}
	})
}

func (s *sender) results(id string) broadcasts.Results {
	s.T.Helper()
	r, err := s.b.Results(s.T.Context(), s.Acme.TeamID, id)
	s.Must(err)
	return r
}

// A pause does not count toward the time after which the winner is chosen. A test goes on while most of its emails
// wait for delivery, even if one has been opened. The results say that a winner by one open is not significant.
func TestWinnerAfterAPause(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		s.readers(40)
		id := s.draft(s.tracked(50))
		s.send(id)
		s.Run(s.b.Kinds()...)
		s.inPhase("wait")
		s.later(id, 30*time.Minute)
		s.Must(s.b.Pause(t.Context(), s.Acme.TeamID, id))
		s.later(id, 5*time.Hour)
		s.Must(s.b.Resume(t.Context(), s.Acme, id))
		decides := func(least, most time.Duration) {
			t.Helper()
			testnode.Until(t, fmt.Sprintf("the winner is chosen in %v to %v", least, most), func() bool {
				now := s.DB.Now()
				return s.Count(`SELECT COUNT(*) FROM broadcasts b JOIN jobs j ON j.kind = 'broadcast' AND j.dedupe = $3
					WHERE b.id = $4 AND b.winner < 0 AND j.holder IS NULL AND j.run_at = b.next_at
					AND b.next_at BETWEEN $1 AND $2`,
					now.Add(least).UnixMicro(), now.Add(most).UnixMicro(), id, db.ID(id)) == 1
			})
		}
		decides(25*time.Minute, 31*time.Minute)
		s.later(id, time.Hour) // no email has been sent, and nothing is known
		decides(55*time.Minute, 61*time.Minute)
		at := s.emailsOf(id)
		opened := s.event(id, at[0], events.EmailOpened)
		s.Happen(s.event(id, at[0], events.EmailDelivered), opened)
		s.later(id, time.Hour)
		decides(55*time.Minute, 61*time.Minute)
		for _, emailID := range at[1:] {
			s.Happen(s.event(id, emailID, events.EmailDelivered))
		}
		s.later(id, time.Hour)
		s.walked(id, 40)
		r := s.results(id)
		if yes, ok := r.Broadcast.WinnerSignificant(); yes || !ok || r.Broadcast.Winner < 0 {
			t.Errorf("the winner is %d, significant %v, %v", r.Broadcast.Winner, yes, ok)
		}
	})
}

// A winner is significant if its rate differs from that of each other variant, by a z test at 95 %.
func TestSignificance(t *testing.T) {
	t.Parallel()
	for i, c := range []struct {
		opened, entered []int64
		winner          int
		significant     bool
	}{
		{[]int64{0, 0}, []int64{100, 100}, 0, false},
		{[]int64{100, 100}, []int64{100, 100}, 0, false},
		{[]int64{1, 8}, []int64{80, 80}, 1, true},          // z = 2.40
		{[]int64{1, 8}, []int64{60, 95}, 1, false},         // z = 1.76
		{[]int64{200, 240}, []int64{1000, 1000}, 1, true},  // z = 2.16
		{[]int64{200, 230}, []int64{1000, 1000}, 1, false}, // z = 1.63
		{[]int64{240, 200, 230}, []int64{1000, 1000, 1000}, 0, false},
		{[]int64{300, 200, 230}, []int64{1000, 1000, 1000}, 0, true},
		{[]int64{1, 0}, []int64{1, 0}, 0, false},
	} {
		var all []broadcasts.Tally
		for v := range c.opened {
			all = append(all, broadcasts.Tally{Entered: c.entered[v], Opened: c.opened[v], Clicked: c.opened[v]})
		}
		for _, by := range []broadcasts.Metric{broadcasts.ByOpens, broadcasts.ByClicks} {
			if winner, yes := broadcasts.Best(all, by); winner != c.winner || yes != c.significant {
				t.Errorf("%d: the winner is %d, significant %v", i, winner, yes)
			}
		}
	}
}

// Send refuses a metric that cannot be measured, because then the winner would be chosen without data.
func TestMetricMustBeMeasurable(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, s *sender) {
		s.readers(1)
		for i, c := range []struct {
			change func(n *broadcasts.NewBroadcast)
			want   string
		}{
			{func(*broadcasts.NewBroadcast) {}, ""},
			{func(n *broadcasts.NewBroadcast) { n.Options.Metric = broadcasts.ByClicks }, ""},
			{func(n *broadcasts.NewBroadcast) { n.From = "news@" + testnode.Domain }, "does not track opens"},
			{func(n *broadcasts.NewBroadcast) {
				n.From, n.Options.Metric = "news@"+testnode.Domain, broadcasts.ByClicks
			}, "does not track clicks"},
			{func(n *broadcasts.NewBroadcast) { n.Variants[1].From = new("news@" + testnode.Domain) },
				"the variant 1 (from 0): the domain of its sender does not track opens"},
			{func(n *broadcasts.NewBroadcast) { n.HTML, n.Plain = nil, new("x") }, "the email has no HTML"},
			{func(n *broadcasts.NewBroadcast) {
				n.Options.Metric, n.Variants[1].HTML = broadcasts.ByClicks, new(`<a href="mailto:a@acme.example">x</a>`)
			}, "the variant 1 (from 0): the HTML has no links"},
			{func(n *broadcasts.NewBroadcast) {
				n.From, n.Options.Metric = "news@"+testnode.Domain, broadcasts.ByHand
			}, ""},
			{func(n *broadcasts.NewBroadcast) { n.From, n.Options.TestShare = "news@"+testnode.Domain, 100 }, ""},
		} {
			n := s.tracked(20)
			c.change(&n)
			_, err := s.b.Send(t.Context(), s.Acme, s.draft(n), "")
			f, ok := errors.AsType[*fault.Error](err)
			if c.want == "" && err != nil || c.want != "" && (!ok || f.Kind != fault.Invalid || f.Field != "ab_test.metric" ||
				!strings.Contains(f.Error(), c.want)) {
				t.Errorf("%d: %v, want %q", i, err, c.want)
			}
		}
	})
}
