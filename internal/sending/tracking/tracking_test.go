package tracking_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/tracking"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const (
	firefox = "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0"
	target  = "https://shop.example/?a=1&b=2"
)

var home = netip.MustParseAddr("203.0.113.9")

// counted is a test node with the tracking service.
type counted struct {
	*testnode.Node
	*tracking.Service
	log testnode.Logged
}

func newCounted(n *testnode.Node) *counted {
	c := &counted{Node: n}
	c.Service = tracking.New(n.DB, n.Recorder, n.Emails, slog.New(slog.NewTextHandler(&c.log, nil)))
	return c
}

func each(t *testing.T, f func(t *testing.T, c *counted)) {
	t.Helper()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) { f(t, newCounted(n)) })
}

// delivered sends an email that counts as delivered to all recipients a given duration ago.
func (c *counted) delivered(ago time.Duration, to ...string) string {
	c.T.Helper()
	emailID := c.Send(testnode.Hello(to...))
	for _, address := range to {
		c.Happen(events.Event{TeamID: c.Acme.TeamID, EmailID: emailID, Type: events.EmailDelivered, Recipient: address,
			At: c.DB.Now().Add(-ago)})
	}
	return emailID
}

// flush records all waiting hits.
func (c *counted) flush() {
	c.T.Helper()
	if err := c.Flush(context.WithoutCancel(c.T.Context())); err != nil {
		c.T.Fatal(err)
	}
}

// hit is an open or click in an email's timeline.
type hit struct {
	Type, Recipient                       string
	IPAddress, Link, UserAgent, Timestamp string
	Machine                               bool
	MachineReason                         string
	at                                    time.Time
}

// hits returns the opens and clicks in an email's timeline.
func (c *counted) hits(emailID string) (all []hit) {
	c.T.Helper()
	timeline, _, err := c.Emails.Timeline(context.WithoutCancel(c.T.Context()), c.Acme.TeamID, emailID, page.Page{})
	if err != nil {
		c.T.Fatal(err)
	}
	for _, e := range timeline {
		if e.Type != "opened" && e.Type != "clicked" {
			continue
		}
		h := hit{Type: e.Type, Recipient: e.Recipient, at: e.At}
		if err := json.Unmarshal([]byte(e.Data), &h, json.MatchCaseInsensitiveNames(true)); err != nil {
			c.T.Fatalf("%s: %v", e.Data, err)
		}
		all = append(all, h)
	}
	return all
}

func (c *counted) states(emailID string) (email emails.State, to []emails.State) {
	c.T.Helper()
	ctx := context.WithoutCancel(c.T.Context())
	e, err := c.Emails.Get(ctx, c.Acme.TeamID, emailID)
	if err != nil {
		c.T.Fatal(err)
	}
	all, err := c.Emails.Recipients(ctx, c.Acme.TeamID, emailID)
	if err != nil {
		c.T.Fatal(err)
	}
	for _, r := range all {
		to = append(to, r.State)
	}
	return e.LastEvent, to
}

// Opens and clicks are recorded for the recipient of the message, with the client and the time, and change only this
// recipient's state.
func TestOpensAndClicks(t *testing.T) {
	each(t, func(t *testing.T, c *counted) {
		emailID := c.delivered(time.Minute, "ann@one.example", "bob@one.example")
		before := c.DB.Now()
		c.Add(tracking.Hit{Ref: c.Ref(emailID), Position: 0, Addr: home, UserAgent: firefox})
		c.Add(tracking.Hit{Ref: c.Ref(emailID), Position: 1, URL: target, Addr: netip.MustParseAddr("2001:db8::1"),
			UserAgent: firefox})
		after := c.DB.Now()
		if all := c.hits(emailID); len(all) != 0 {
			t.Errorf("recorded before they are flushed: %+v", all)
		}
		c.flush()
		c.flush()
		all := c.hits(emailID)
		if len(all) != 2 {
			t.Fatalf("%+v", all)
		}
		for i, want := range []hit{
			{Type: "opened", Recipient: "ann@one.example", IPAddress: "203.0.113.9", UserAgent: firefox},
			{Type: "clicked", Recipient: "bob@one.example", IPAddress: "2001:db8::1", UserAgent: firefox, Link: target},
		} {
			got := all[i]
			at, err := time.Parse(time.RFC3339Nano, got.Timestamp)
			if err != nil || !at.Equal(got.at) || at.Before(before.Truncate(time.Microsecond)) || at.After(after) {
				t.Errorf("%s at %s and %v, between %v and %v", got.Type, got.Timestamp, got.at, before, after)
			}
			if got.Timestamp, got.at = "", want.at; got != want {
				t.Errorf("%+v, want %+v", got, want)
			}
		}
		email, to := c.states(emailID)
		if email != emails.Clicked || !slices.Equal(to, []emails.State{emails.Opened, emails.Clicked}) {
			t.Errorf("the email is %s, its recipients %v", email, to)
		}
	})
}

// Opens and clicks in an email that was sent to a contact count for that contact, even if the address now belongs to
// another contact.
func TestHitsAreOfTheContact(t *testing.T) {
	each(t, func(t *testing.T, c *counted) {
		ctx := t.Context()
		of, _, err := c.Contacts.Upsert(ctx, c.Acme.TeamID, "ann@one.example", contacts.Change{})
		c.Must(err)
		text := content.Content{TeamID: c.Acme.TeamID, From: "news@" + testnode.Domain, Subject: "Hi", HTML: new("<p>Hi")}
		c.Update(func(tx *db.Tx) error { return c.Contents.Add(ctx, tx, &text) })
		m, err := c.Emails.Mailing(ctx, c.Acme, text.ID, true)
		c.Must(err)
		var entered []emails.EnqueueResult
		c.Update(func(tx *db.Tx) (err error) {
			entered, err = c.Emails.Enqueue(ctx, tx, m, []emails.MailingRecipient{{Address: of.Address, ContactID: of.ID}})
			return err
		})
		_, err = c.Contacts.Update(ctx, c.Acme.TeamID, of.ID, contacts.Change{Address: new("ann@two.example")})
		c.Must(err)
		_, _, err = c.Contacts.Upsert(ctx, c.Acme.TeamID, "ann@one.example", contacts.Change{})
		c.Must(err)
		emailID := entered[0].ID
		c.Happen(events.Event{TeamID: c.Acme.TeamID, EmailID: emailID, Type: events.EmailDelivered,
			Recipient: of.Address, At: c.DB.Now().Add(-time.Minute)})
		c.Add(tracking.Hit{Ref: c.Ref(emailID), Addr: home, UserAgent: firefox})
		c.Add(tracking.Hit{Ref: c.Ref(emailID), URL: target, Addr: home, UserAgent: firefox})
		c.flush()
		if n := c.Count(`SELECT COUNT(*) FROM contact_engagement WHERE contact_id = $1 AND opened = 1 AND clicked = 1`,
			db.ID(of.ID)); n != 1 {
			t.Errorf("the contact has %d rows", n)
		}
		if n := c.Count(`SELECT COUNT(*) FROM contact_engagement`); n != 1 {
			t.Errorf("%d contacts have opened it", n)
		}
	})
}

// TestHitsOfNoRecipient: a hit on a message with several recipients counts for none of them. A hit on a message with a
// single recipient counts for that recipient.
func TestHitsOfNoRecipient(t *testing.T) {
	each(t, func(t *testing.T, c *counted) {
		several := c.delivered(time.Minute, "ann@one.example", "bob@one.example")
		single := c.delivered(time.Minute, "cid@one.example")
		for _, h := range []tracking.Hit{{Ref: c.Ref(several), Position: -1}, {Ref: c.Ref(single), Position: -1},
			{Ref: c.Ref(several), Position: 7}} {
			h.URL, h.Addr, h.UserAgent = target, home, firefox
			c.Add(h)
		}
		c.flush()
		for emailID, want := range map[string]struct {
			to     []string
			states []emails.State
		}{
			several: {[]string{"", ""}, []emails.State{emails.Delivered, emails.Delivered}},
			single:  {[]string{"cid@one.example"}, []emails.State{emails.Clicked}},
		} {
			var to []string
			for _, h := range c.hits(emailID) {
				to = append(to, h.Recipient)
			}
			email, states := c.states(emailID)
			if !slices.Equal(to, want.to) || !slices.Equal(states, want.states) || email != emails.Clicked {
				t.Errorf("clicks of %q, the email is %s, its recipients %v", to, email, states)
			}
		}
	})
}

// Hits on unknown emails and on emails of deleted teams are not recorded.
func TestHitsOfWhatIsGone(t *testing.T) {
	each(t, func(t *testing.T, c *counted) {
		stays, gone := c.delivered(time.Minute, "ann@one.example"), c.delivered(time.Minute, "bob@one.example")
		c.Update(func(tx *db.Tx) error {
			for _, table := range []string{"email_events WHERE email_id", "email_recipients WHERE email_id",
				"emails WHERE id"} {
				tx.Queue(t.Context(), `DELETE FROM `+table+` = $1`, db.ID(gone))
			}
			return nil
		})
		for _, emailID := range []string{gone, id.New(), stays} {
			c.Add(tracking.Hit{Ref: c.Ref(emailID), Addr: home, UserAgent: firefox})
		}
		c.flush()
		events := func() (n int) {
			err := c.DB.QueryRow(t.Context(), `SELECT COUNT(*) FROM email_events WHERE type = 6 /* opened */`).Scan(&n)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := events(); n != 1 || len(c.hits(stays)) != 1 {
			t.Errorf("%d opens are recorded, want one", n)
		}
		if err := c.Teams.Delete(t.Context(), c.Queue, c.Acme.TeamID); err != nil {
			t.Fatal(err)
		}
		c.Add(tracking.Hit{Ref: c.Ref(stays), Addr: home, UserAgent: firefox})
		c.flush()
		if n := events(); n != 1 {
			t.Errorf("an open of a deleted team's email is recorded")
		}
		if c.Dropped() != 0 || c.log.String() != "" {
			t.Errorf("%d dropped, log %s", c.Dropped(), c.log.String())
		}
	})
}

// Values from clients are stored with a limited size and in a form that both databases accept.
func TestTextsOfClients(t *testing.T) {
	each(t, func(t *testing.T, c *counted) {
		emailID := c.delivered(time.Minute, "ann@one.example")
		c.Add(tracking.Hit{Ref: c.Ref(emailID), UserAgent: "a\x00b\xffc" + strings.Repeat("x", 1<<20), URL: target + "\x00"})
		c.flush()
		all := c.hits(emailID)
		if len(all) != 1 || !strings.HasPrefix(all[0].UserAgent, "ab\ufffdcx") || len(all[0].UserAgent) > 1000 ||
			all[0].Link != target || all[0].IPAddress != "" {
			t.Errorf("%.2000v", all)
		}
	})
}

// If a scanner follows a link before its mail host accepts the message, the hit does not affect the delivery, and the
// email's state still becomes sent.
func TestHitDuringDelivery(t *testing.T) {
	each(t, func(t *testing.T, c *counted) {
		emailID := c.Send(testnode.Hello("ann@one.example", "bob@two.example"))
		for position := range 2 {
			c.Add(tracking.Hit{Ref: c.Ref(emailID), Position: position, URL: target, Addr: home, UserAgent: firefox})
		}
		c.Add(tracking.Hit{Ref: c.Ref(emailID), Position: -1, Addr: home, UserAgent: firefox})
		c.flush()
		o, err := c.Emails.Outgoing(t.Context(), emails.Delivery{TeamID: c.Acme.TeamID,
			EmailID: emailID, Domain: "one.example"})
		if err != nil || !slices.Equal(o.To, []string{"ann@one.example"}) {
			t.Fatalf("it goes to %v, %v", o, err)
		}
		c.Update(func(tx *db.Tx) error {
			if first, err := emails.MarkSent(t.Context(), tx, c.Acme.TeamID, emailID); err != nil || !first {
				t.Errorf("the email is not sent now: %v, %v", first, err)
			}
			return nil
		})
		c.Happen(events.Event{TeamID: c.Acme.TeamID, EmailID: emailID, Type: events.EmailDelivered,
			Recipient: "ann@one.example"})
		if email, to := c.states(emailID); email != emails.Delivered ||
			!slices.Equal(to, []emails.State{emails.Delivered, emails.Queued}) {
			t.Errorf("the email is %s, its recipients %v", email, to)
		}
		all := c.hits(emailID)
		if len(all) != 3 || !all[0].Machine || all[0].MachineReason != string(tracking.ByTiming) || !all[1].Machine {
			t.Errorf("%+v", all)
		}
	})
}

// Hits beyond the memory limit are dropped, counted and logged once. All hits within the memory limit are recorded.
func TestTooManyHits(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		c := newCounted(n)
		emailID := c.delivered(time.Minute, "ann@one.example")
		c.Add(tracking.Hit{Ref: c.Ref(emailID), Addr: home, UserAgent: firefox})
		long, sent := "https://shop.example/"+strings.Repeat("x", 8000), int64(0)
		for c.Dropped() < 100 {
			c.Add(tracking.Hit{Ref: c.Ref(id.New()), URL: long, Addr: home, UserAgent: firefox})
			if sent++; sent > 20_000 {
				t.Fatal("hits are kept without end")
			}
		}
		if sent < 2000 {
			t.Errorf("only %d hits are kept", sent-100)
		}
		if lines := c.log.Take(); strings.Count(lines, "\n") != 1 || !strings.Contains(lines, "dropped=1") {
			t.Errorf("logged: %s", lines)
		}
		c.flush()
		if len(c.hits(emailID)) != 1 {
			t.Error("the first hit is lost")
		}
		c.Add(tracking.Hit{Ref: c.Ref(emailID), Addr: home, UserAgent: firefox})
		c.flush()
		if len(c.hits(emailID)) != 2 || c.Dropped() != 100 {
			t.Errorf("hits are dropped although there is room: %d", c.Dropped())
		}
	})
}

// poison makes recording hits fail for one email.
type poison struct{ emailID string }

func (p *poison) Recorded(_ context.Context, _ *db.Tx, all []events.Event) error {
	if slices.ContainsFunc(all, func(e events.Event) bool {
		return e.EmailID == p.emailID && e.Type == events.EmailOpened
	}) {
		return errors.New("this cannot be")
	}
	return nil
}

// A hit that cannot be recorded does not block other hits.
func TestOneHitFails(t *testing.T) {
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		bad := &poison{}
		n.Recorder.Listen(bad)
		c := newCounted(n)
		var all []string
		for i := range 9 {
			all = append(all, c.delivered(time.Minute, fmt.Sprintf("to%d@one.example", i)))
		}
		bad.emailID = all[3]
		for _, emailID := range all {
			c.Add(tracking.Hit{Ref: c.Ref(emailID), Addr: home, UserAgent: firefox})
		}
		c.flush()
		for _, emailID := range all {
			want := 1
			if emailID == bad.emailID {
				want = 0
			}
			if got := len(c.hits(emailID)); got != want {
				t.Errorf("%d opens, want %d", got, want)
			}
		}
		if lines := c.log.Take(); !strings.Contains(lines, bad.emailID) || strings.Count(lines, "\n") != 1 {
			t.Errorf("logged: %s", lines)
		}
	})
}

// Run records the hits that were added before its context ended.
func TestStop(t *testing.T) {
	each(t, func(t *testing.T, c *counted) {
		emailID := c.delivered(time.Minute, "ann@one.example")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- c.Service.Run(ctx) }()
		c.Add(tracking.Hit{Ref: c.Ref(emailID), Addr: home, UserAgent: firefox})
		testnode.Until(t, "the first hit is recorded", func() bool { return len(c.hits(emailID)) == 1 })
		for i := range 1200 { // alternate between opens and clicks
			c.Add(tracking.Hit{Ref: c.Ref(emailID), URL: []string{"", target}[i%2], Addr: home, UserAgent: firefox})
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		var n int
		err := c.DB.QueryRow(context.Background(), `SELECT COUNT(*) FROM email_events WHERE email_id = $1
			AND type IN (6, 7)`, db.ID(emailID)).Scan(&n)
		if err != nil || n != 1201 {
			t.Errorf("%d of 1201 hits are recorded, %v", n, err)
		}
	})
}

// Many hits are recorded in one transaction with few statements, even if the hits concern many teams.
func TestStatementsOfHits(t *testing.T) {
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		c := newCounted(testnode.New(t, d, testnode.Options{}))
		emailID := c.delivered(time.Minute, "ann@one.example")
		c.flush()
		for _, n := range []int{8, 80, 400} {
			for range n {
				c.Add(tracking.Hit{Ref: c.Ref(emailID), Addr: home, UserAgent: firefox})
			}
			trace.Take()
			c.flush()
			// Expect four reads, including one of the contact, two state updates, and rows that share statements on PostgreSQL.
			asked := slices.DeleteFunc(trace.Take(), func(s db.Statement) bool { return s.List != nil })
			if len(asked) > 6 {
				t.Errorf("%d hits take %d statements besides their rows", n, len(asked))
			}
		}
	})
}

// If the database fails at any point, and it remains unknown whether the commit succeeded, each hit is still recorded
// exactly once.
func TestWithoutDatabase(t *testing.T) {
	d, proxy := dbtest.Proxied(t, time.Second)
	c := newCounted(testnode.New(t, d, testnode.Options{}))
	const n, most = 20, 50
	unknown := 0
	for skip := range most {
		emailID := c.delivered(time.Minute, "ann@one.example")
		for range n {
			c.Add(tracking.Hit{Ref: c.Ref(emailID), URL: target, Addr: home, UserAgent: firefox})
		}
		proxy.Tear(skip, 1<<20)
		err := c.Flush(t.Context())
		if errors.Is(err, db.ErrUnknown) {
			unknown++
		}
		if passed := proxy.Pass(); passed != nil {
			t.Fatal(passed)
		}
		testnode.Until(t, "the database is back", func() bool { return c.Flush(t.Context()) == nil })
		if got := len(c.hits(emailID)); got != n {
			t.Errorf("answers torn from %d on, and tried again: %d of %d hits are recorded", skip, got, n)
		}
		if err == nil {
			break
		}
		if skip == most-1 {
			t.Errorf("it takes more than %d answers", most)
		}
	}
	if unknown == 0 {
		t.Error("the outcome of no commit was unknown: the test reaches too little")
	}
	if c.Dropped() != 0 {
		t.Errorf("%d hits are dropped", c.Dropped())
	}
}
