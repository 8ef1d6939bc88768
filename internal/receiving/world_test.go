package receiving_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/blob"
	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/keyring"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/netguard"
	"github.com/postrider/postrider/internal/page"
	"github.com/postrider/postrider/internal/receiving"
	"github.com/postrider/postrider/internal/suppressions"
	"github.com/postrider/postrider/internal/teams"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is receiving with everything below it, and two teams: acme, which sends from acme.example and receives at
// in.acme.example, and other, which receives at other.example.
type world struct {
	*receiving.Service
	d          *db.DB
	blobs      *blob.Store
	keys       *keyring.Keyring
	emails     *emails.Service
	suppressed *suppressions.Service
	teams      *teams.Service
	domains    *domains.Service
	acme       teams.Actor
	other      teams.Team
	heard      heard
	parts      receiving.Parts
}

// heard keeps the events that were recorded. It listens last, so what an event led to stands before it.
type heard struct {
	mu  *sync.Mutex
	all *[]events.Event
}

func (h heard) Recorded(_ context.Context, _ *db.Tx, all []events.Event) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	*h.all = append(*h.all, all...)
	return nil
}

func config() receiving.Config {
	return receiving.Config{Hostname: "mx.postrider.test", Hosts: []string{"mx.postrider.test", "bounces.postrider.test"},
		ManagedDomain: "inbox.postrider.test", Feedback: []string{"fbl@mx.postrider.test"}, PublicURL: "http://mail.test"}
}

func newWorld(t testing.TB, d *db.DB) *world {
	t.Helper()
	ctx, log := t.Context(), slog.New(slog.DiscardHandler)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	w := &world{d: d, heard: heard{new(sync.Mutex), new([]events.Event)}}
	var err error
	w.keys, err = keyring.New(make([]byte, 32))
	must(err)
	w.blobs, err = blob.Open(ctx, t.TempDir())
	must(err)
	recorder, q := &events.Recorder{}, jobs.NewQueue(d)
	w.domains = domains.New(domains.Config{Selector: "postrider", SelectorEd25519: "postrider-ed", TrustDomains: true}, d,
		q, recorder, w.keys,
		resolve.Fake{}, log)
	w.teams = teams.New(d, log, w.domains.Exists)
	w.suppressed = suppressions.New(d, recorder)
	w.emails = emails.New(emails.Config{MaxSize: 1 << 20}, emails.Parts{DB: d, Queue: q, Recorder: recorder,
		Blobs: w.blobs, Keys: w.keys,
		Guard: netguard.New(netguard.Options{}), Domains: w.domains, Suppressions: w.suppressed, Teams: w.teams})
	recorder.Listen(w.emails)
	recorder.Listen(w.suppressed)
	recorder.Listen(w.heard)
	w.parts = receiving.Parts{DB: d, Recorder: recorder, Blobs: w.blobs, Keys: w.keys, Domains: w.domains,
		Emails: w.emails, Teams: w.teams,
		Log: log}
	w.Service = receiving.New(config(), w.parts)

	acme, err := w.teams.Create(ctx, "Acme", "")
	must(err)
	_, token, err := w.teams.CreateKey(ctx, teams.System(acme.ID), teams.NewKey{Name: "k"})
	must(err)
	w.acme, err = w.teams.Authenticate(ctx, token)
	must(err)
	w.other, err = w.teams.Create(ctx, "Other", "")
	must(err)
	_, err = w.domains.AddVerified(ctx, acme.ID, domains.NewDomain{Name: "acme.example"})
	must(err)
	on, off := true, false
	_, err = w.domains.AddVerified(ctx, acme.ID, domains.NewDomain{Name: "in.acme.example",
		Capabilities: domains.Capabilities{Sending: &off, Receiving: &on}})
	must(err)
	_, err = w.domains.AddVerified(ctx, w.other.ID, domains.NewDomain{Name: "other.example",
		Capabilities: domains.Capabilities{Receiving: &on}})
	must(err)
	w.types()
	return w
}

func each(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { f(t, newWorld(t, d)) })
}

func eachTraced(t *testing.T, f func(t *testing.T, w *world, trace *dbtest.Trace)) {
	t.Helper()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) { f(t, newWorld(t, d), trace) })
}

// offer begins a message and returns what is answered to a recipient.
func (w *world) offer(t testing.TB, from, to string) string {
	t.Helper()
	_, err := w.begin(t, w.Service, from, to)
	return answer(err)
}

func (w *world) begin(t testing.TB, s *receiving.Service, from string, to ...string) (smtpserver.Session, error) {
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

// answer is an error as a client sees it, or "250".
func answer(err error) string {
	if r, ok := errors.AsType[*smtpserver.Refusal](err); ok {
		return fmt.Sprint(r.Code, " ", r.Enhanced)
	}
	if err != nil {
		return "451 4.3.0" // as smtpserver does
	}
	return "250"
}

// give hands over a message that must be taken, and returns its id. Line ends may be LF alone.
func (w *world) give(t testing.TB, raw string, to ...string) string {
	t.Helper()
	c, err := w.begin(t, w.Service, "jo@sender.example", to...)
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

func (w *world) list(t testing.TB, teamID string) []receiving.Email {
	t.Helper()
	all, _, err := w.List(t.Context(), teamID, "", page.Page{})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// types are the types of the events that were recorded since it was asked last.
func (w *world) types() (all []events.Type) {
	for _, e := range *w.heard.all {
		all = append(all, e.Type)
	}
	*w.heard.all = nil
	return all
}

// send sends an email from acme and returns its id.
func (w *world) send(t testing.TB, to ...string) string {
	t.Helper()
	text := "Hello."
	id, err := w.emails.Send(t.Context(), w.acme, emails.Send{From: "Acme <hello@acme.example>", To: to, Subject: "Hi",
		Text: &text},
		emails.Idempotency{})
	if err != nil {
		t.Fatal(err)
	}
	w.types()
	return id
}

func newDomain(name string, sending, receives *bool) domains.NewDomain {
	return domains.NewDomain{Name: name, Capabilities: domains.Capabilities{Sending: sending, Receiving: receives}}
}

func change(receives *bool) domains.Change {
	return domains.Change{Capabilities: domains.Capabilities{Receiving: receives}}
}
