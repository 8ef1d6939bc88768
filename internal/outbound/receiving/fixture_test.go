package receiving_test

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// fixture is a receiving service on a node where team Acme also receives at in.acme.example and team Other receives at
// other.example.
type fixture struct {
	*testnode.Node
	*receiving.Service
	deps receiving.Deps
	seen *testnode.Seen
}

func config() receiving.Config {
	return receiving.Config{Hostname: "mx.postrider.test", Hosts: []string{"mx.postrider.test", "bounces.postrider.test"},
		ManagedDomain: "inbox.postrider.test", Feedback: []string{"fbl@mx.postrider.test"}, PublicURL: testnode.PublicURL}
}

func newFixture(t testing.TB, d *db.DB) *fixture {
	t.Helper()
	f := &fixture{Node: testnode.New(t, d, testnode.Options{}), seen: &testnode.Seen{}}
	f.Recorder.Listen(f.seen)
	f.deps = receiving.Deps{DB: d, Quotas: f.Quotas, Recorder: f.Recorder, Blobs: f.Blobs, Keys: f.Keys,
		Domains: f.Domains, Emails: f.Emails, Teams: f.Teams, Log: f.Log}
	f.Service = testnode.Must(receiving.New(config(), f.deps))
	on, off := true, false
	f.Verified(f.Acme.TeamID, newDomain("in.acme.example", &off, &on))
	f.Verified(f.Other.TeamID, newDomain("other.example", nil, &on))
	f.seen.Take()
	return f
}

func each(t *testing.T, run func(t *testing.T, f *fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { run(t, newFixture(t, d)) })
}

func eachTraced(t *testing.T, run func(t *testing.T, f *fixture, trace *dbtest.Trace)) {
	t.Helper()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) { run(t, newFixture(t, d), trace) })
}

// sqliteTraced is like eachTraced, but runs only on SQLite.
func sqliteTraced(t *testing.T, run func(t *testing.T, f *fixture, trace *dbtest.Trace)) {
	t.Helper()
	dbtest.SQLiteTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) { run(t, newFixture(t, d), trace) })
}

// offer starts an SMTP transaction and returns the reply for a recipient.
func (f *fixture) offer(t testing.TB, from, to string) string {
	t.Helper()
	_, err := f.begin(t, f.Service, from, to)
	return answer(err)
}

func (f *fixture) begin(t testing.TB, s *receiving.Service, from string, to ...string) (smtpserver.Session, error) {
	t.Helper()
	c, err := s.Open(t.Context(), smtpserver.Peer{Addr: netip.MustParseAddrPort("192.0.2.9:25"),
		Hello: "mail.example.org"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	if err := c.Mail(t.Context(), from, smtpserver.MailOptions{}); err != nil {
		return c, err
	}
	for _, a := range to {
		if err := c.Rcpt(t.Context(), a); err != nil {
			return c, err
		}
	}
	return c, nil
}

// answer formats an error as the SMTP client sees it, or returns "250".
func answer(err error) string {
	if r, ok := errors.AsType[*smtpserver.Refusal](err); ok {
		return fmt.Sprint(r.Code, " ", r.Enhanced)
	}
	if err != nil {
		return "451 4.3.0" // like smtpserver
	}
	return "250"
}

// deliver sends a message that the server must accept, and returns its id. Lines in the message may end with LF alone.
func (f *fixture) deliver(t testing.TB, raw string, to ...string) string {
	t.Helper()
	c, err := f.begin(t, f.Service, "jo@sender.example", to...)
	if err != nil {
		t.Fatal(err)
	}
	id, err := c.Data(t.Context(), strings.NewReader(crlf(raw)))
	if err != nil {
		t.Fatal(err)
	}
	return id
}

func crlf(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "\r\n", "\n"), "\n", "\r\n")
}

func (f *fixture) list(t testing.TB, teamID string) []receiving.Email {
	t.Helper()
	all, _, err := f.List(t.Context(), teamID, "", page.Page{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// types returns the types of the events that were recorded since the previous call to types.
func (f *fixture) types() []events.Type { return typesOf(f.seen.Take()) }

func typesOf(all []events.Event) (types []events.Type) {
	for _, e := range all {
		types = append(types, e.Type)
	}
	return types
}

// send sends an email from team Acme and returns its id.
func (f *fixture) send(to ...string) string {
	f.T.Helper()
	id := f.Send(testnode.Hello(to...))
	f.seen.Take()
	return id
}

func newDomain(name string, sending, receives *bool) domains.NewDomain {
	return domains.NewDomain{Name: name, Capabilities: domains.Capabilities{Sending: sending, Receiving: receives}}
}

func change(receives *bool) domains.Change {
	return domains.Change{Capabilities: domains.Capabilities{Receiving: receives}}
}
