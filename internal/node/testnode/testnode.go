// Package testnode builds the resources of a node for tests, as package resources connects them, on a database of the
// test's own. DNS is fake unless a test brings its own, and nothing is called outside of this machine.
//
// There are two teams. Acme has the domain acme.example, verified, and a key; Other has a key alone. If anything fails
// while they are made, the test fails. Nothing runs until Run is called.
//
// It does not build delivery, receiving, webhooks or the API: their tests do, on top of it.
package testnode

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/mail/dkim/dkimtest"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/resources"
	"github.com/postrider/postrider/internal/platform/blob"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
)

const (
	Domain    = "acme.example"           // the verified domain of Acme
	PublicURL = "https://postrider.test" // of downloads and shared emails
)

// oneDay is the present of quotas: a day and a month that do not end while a test counts.
var oneDay = time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC)

// Options are what tests differ in. The zero value suits most.
type Options struct {
	MaxSize int64            // of an email, in bytes; 0 is 1 MiB
	DNS     resolve.Resolver // nil answers nothing, and domains are verified without being asked for
	Hosts   []string         // names of this installation, which are no team's domain
	Blobs   string           // where files are; "" is a folder of the test's own
	Guard   netguard.Options // what may be called
	Grace   time.Duration    // how long jobs may go on when Run is stopped; 0 is two seconds
	Log     *slog.Logger     // nil discards
}

// Node has the resources of a node.
type Node struct {
	T testing.TB
	*resources.Resources

	Acme   teams.Actor    // the key of the team with the domain
	Sender domains.Domain // the domain of it
	Token  string         // of its key, which may do everything
	Other  teams.Actor    // the key of the other team

	OtherToken string // of that
	grace      time.Duration
}

// New builds the resources on a database and makes the teams.
func New(t testing.TB, d *db.DB, o Options) *Node {
	t.Helper()
	n := Bare(t, d, o)
	n.Acme, n.Token = n.Team("Acme")
	n.Sender = n.Verified(n.Acme.TeamID, domains.NewDomain{Name: Domain})
	n.Other, n.OtherToken = n.Team("Other")
	return n
}

// Bare is New without teams.
func Bare(t testing.TB, d *db.DB, o Options) *Node {
	t.Helper()
	b := resources.Base{DB: d, Guard: netguard.New(o.Guard), DNS: o.DNS, Log: o.Log}
	if o.DNS == nil {
		b.DNS = resolve.Fake{}
	}
	if o.Log == nil {
		b.Log = slog.New(slog.DiscardHandler)
	}
	if o.Blobs == "" {
		o.Blobs = t.TempDir()
	}
	if o.MaxSize == 0 {
		o.MaxSize = 1 << 20
	}
	n := &Node{T: t, grace: cmp.Or(o.Grace, 2*time.Second)}
	var err error
	b.Keys, err = keyring.New(make([]byte, keyring.MasterSize))
	n.Must(err)
	b.Blobs, err = blob.Open(n.context(), o.Blobs)
	n.Must(err)
	t.Cleanup(func() { b.Blobs.Close() })
	n.Resources, err = resources.New(b, resources.Config{PublicURL: PublicURL, MaxSize: o.MaxSize,
		Users:          users.Config{PublicURL: PublicURL, HashMemory: 64},
		GrantResources: []string{PublicURL, PublicURL + "/mcp"},
		Domains: domains.Config{
			Default: domains.Region{BounceHost: "bounces.postrider.test", InboundHost: "inbound.postrider.test",
				SPFInclude: "spf.postrider.test", TrackingHost: "links.postrider.test"},
			Selector: "postrider", SelectorEd25519: "postrider-ed25519", Hosts: o.Hosts,
			ManagedDomain: "inbox.postrider.test", SandboxDomains: []string{"resend.dev"}, TrustDomains: o.DNS == nil,
		}}, hooks())
	n.Must(err)
	n.Domains.GenerateRSA = dkimtest.RSA
	n.Quotas.Now = func() time.Time { return oneDay }
	return n
}

// hooks returns hooks that do nothing. A test that looks at notices or mail replaces the field of the service.
func hooks() resources.Hooks {
	return resources.Hooks{
		Notify:  func(context.Context, *db.Tx, string, string, string) error { return nil },
		OnEvent: func(context.Context, *db.Tx, customevents.Occurrence) error { return nil },
	}
}

// Each runs a test on both engines, each with a node of its own.
func Each(t *testing.T, o Options, f func(t *testing.T, n *Node)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { f(t, New(t, d, o)) })
}

// Team makes a team with a key, both of that name, and returns the key as an actor and its token.
func (n *Node) Team(name string) (teams.Actor, string) {
	n.T.Helper()
	team, err := n.Teams.Create(n.context(), name, "owner@"+Domain)
	n.Must(err)
	_, token := n.Key(team.ID, teams.NewKey{Name: name})
	by, err := n.Teams.Authenticate(n.context(), token)
	n.Must(err)
	return by, token
}

// TeamOf makes a team with a key and a verified domain.
func (n *Node) TeamOf(domain string) teams.Actor {
	n.T.Helper()
	by, _ := n.Team(domain)
	n.Verified(by.TeamID, domains.NewDomain{Name: domain})
	return by
}

// Member makes a user and a member of a team, and returns the user as an actor.
func (n *Node) Member(teamID, email string, role teams.Role) teams.Actor {
	n.T.Helper()
	u, err := n.Users.Create(n.context(), users.NewUser{Email: email})
	n.Must(err)
	n.Update(func(tx *db.Tx) error { return n.Members.AddIn(n.context(), tx, teamID, u.ID, role) })
	by, err := n.Members.Actor(n.context(), u.ID, teamID)
	n.Must(err)
	return by
}

// Key makes an API key and returns it with its token.
func (n *Node) Key(teamID string, k teams.NewKey) (teams.Key, string) {
	n.T.Helper()
	key, token, err := n.Teams.CreateKey(n.context(), teams.System(teamID), k)
	n.Must(err)
	return key, token
}

// Verified adds a verified domain to a team.
func (n *Node) Verified(teamID string, d domains.NewDomain) domains.Domain {
	n.T.Helper()
	added, err := n.Domains.AddVerified(n.context(), teamID, d)
	n.Must(err)
	return added
}

// Hello is an email of Acme.
func Hello(to ...string) emails.Send {
	text := "Hello."
	return emails.Send{From: "Acme <hello@" + Domain + ">", To: to, Subject: "Hi", Text: &text}
}

// Send accepts an email of Acme and returns its id.
func (n *Node) Send(e emails.Send) string {
	n.T.Helper()
	emailID, err := n.Emails.Send(n.context(), n.Acme, e, emails.Idempotency{})
	n.Must(err)
	return emailID
}

// SendToContact makes a contact of Acme and enters an email for it, as a step of an automation does. It returns their
// ids.
func (n *Node) SendToContact(address string) (contactID, emailID string) {
	n.T.Helper()
	at, _, err := n.Contacts.Upsert(n.context(), n.Acme.TeamID, address, contacts.Change{})
	n.Must(err)
	of := content.Content{TeamID: n.Acme.TeamID, From: "Acme <hello@" + Domain + ">", Subject: "Hi", HTML: new("<p>Hello</p>")}
	n.Update(func(tx *db.Tx) error { return n.Contents.Add(n.context(), tx, &of) })
	m, err := n.Emails.Mailing(n.context(), n.Acme, of.ID, false)
	n.Must(err)
	n.Update(func(tx *db.Tx) error {
		entered, err := n.Emails.Enqueue(n.context(), tx, m, []emails.MailingRecipient{{Address: at.Address, ContactID: at.ID}})
		if err == nil {
			emailID, err = entered[0].ID, entered[0].Err
		}
		return err
	})
	return at.ID, emailID
}

// Email is an email of Acme.
func (n *Node) Email(emailID string) emails.Email {
	n.T.Helper()
	e, err := n.Emails.Get(n.context(), n.Acme.TeamID, emailID)
	n.Must(err)
	return e
}

// Happen records events.
func (n *Node) Happen(all ...events.Event) {
	n.T.Helper()
	n.Update(func(tx *db.Tx) error { return n.Recorder.Record(n.context(), tx, all...) })
}

// Update runs a transaction.
func (n *Node) Update(f func(tx *db.Tx) error) {
	n.T.Helper()
	n.Must(n.DB.Update(n.context(), f))
}

// Counted has all events of Acme's counted that come until a time, without which the retention keeps their emails.
func (n *Node) Counted(until time.Time) {
	n.T.Helper()
	n.Update(func(tx *db.Tx) error {
		tx.Queue(n.context(), `INSERT INTO email_counts_until (team_id, until, version) VALUES ($1, $2, 1)
			ON CONFLICT DO NOTHING`, n.Acme.TeamID, until.UnixMicro())
		return nil
	})
}

// Count is the number that a query finds.
func (n *Node) Count(query string, args ...any) (found int) {
	n.T.Helper()
	n.Must(n.DB.QueryRow(n.context(), query, args...).Scan(&found))
	return found
}

// Run works jobs of some kinds until stop is called or the test ends.
func (n *Node) Run(kinds ...jobs.Kind) (stop func()) {
	r := jobs.NewRunner(n.DB, n.Queue, n.Log, n.grace)
	for _, k := range kinds {
		r.Handle(k)
	}
	ctx, cancel := context.WithCancel(n.context())
	ended := make(chan error, 1)
	go func() { ended <- r.Run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			n.T.Errorf("run jobs: %v", err)
		}
	})
	n.T.Cleanup(stop)
	return stop
}

// Until waits for a condition that comes about by itself, for a minute and a half at most.
func Until(t testing.TB, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	over := time.After(90 * time.Second)
	for !done() {
		select {
		case <-tick.C:
		case <-over:
			t.Fatalf("not in time: %s", what)
		}
	}
}

// Seen keeps the events that are recorded. What listens before it has done its work by then.
type Seen struct {
	mu  sync.Mutex
	all []events.Event
}

// Recorded implements events.Listener.
func (s *Seen) Recorded(_ context.Context, tx *db.Tx, all []events.Event) error {
	all = slices.Clone(all)
	tx.AfterCommit(func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.all = append(s.all, all...)
	})
	return nil
}

// Take returns the events since it was called last.
func (s *Seen) Take() []events.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// Logged keeps what is logged: slog.New(slog.NewTextHandler(&logged, nil)).
type Logged struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write implements io.Writer.
func (l *Logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String returns what was logged since Take was called last.
func (l *Logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Take returns the same and forgets it.
func (l *Logged) Take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// Must fails the test if there is an error.
func (n *Node) Must(err error) {
	n.T.Helper()
	if err != nil {
		n.T.Fatal(err)
	}
}

// context is one that outlives the test, for what is called in its cleanup.
func (n *Node) context() context.Context { return context.WithoutCancel(n.T.Context()) }

// Must returns what a constructor returned, and panics if the constructor failed.
func Must[T any](built T, err error) T {
	if err != nil {
		panic(err)
	}
	return built
}
