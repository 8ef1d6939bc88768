// Package testnode builds the services of package resources for tests, with a separate database for each test. A test
// that does not pass a resolver gets a fake DNS. No network connection leaves this machine.
//
// Each test node has two teams. The team Acme has the verified domain acme.example and an API key, and the team Other
// has only an API key. The helpers fail the test on any error. Jobs run only after the test calls Run.
//
// Package testnode does not build delivery, receiving, webhooks or the API. Tests that need any of these services build
// them from a Node.
package testnode

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/accounts/users"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/mail/dkim/dkimtest"
	"github.com/postrider/postrider/internal/mail/mtasts"
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
	"github.com/postrider/postrider/internal/sending/tokens"
)

const (
	Domain    = "acme.example"           // the verified domain of the team Acme
	PublicURL = "https://postrider.test" // base URL for links to downloads and shared emails
)

// oneDay is the time at which the quota service's clock is fixed, so that no day or month ends during a test.
var oneDay = time.Date(2026, 6, 15, 12, 0, 0, 0, time.UTC)

// Options configures a test node. The zero value is suitable for most tests.
type Options struct {
	MaxSize int64            // maximum size of an email in bytes; 0 means 1 MiB
	DNS     resolve.Resolver // if nil, DNS has no records and domains count as verified without a look-up
	Hosts   []string         // this installation's host names, which no team can add as a domain
	Blobs   string           // URL of the blob store; "" means a temporary folder
	// TrackingURL is the prefix of the tracked links of all domains; "" means that each domain needs its own host.
	TrackingURL string
	// FeedbackSender is the operator's identifier in Feedback-ID; "" means that no message has this field.
	FeedbackSender string

	Guard netguard.Options // addresses that outgoing connections are allowed to reach
	Grace time.Duration    // time that running jobs have to finish after Run is stopped; 0 means two seconds
	Log   *slog.Logger     // if nil, nothing is logged
}

// Node contains a test's services and its two teams.
type Node struct {
	T testing.TB
	*resources.Resources

	Acme   teams.Actor    // the actor of Acme's API key
	Sender domains.Domain // Acme's domain
	Token  string         // the token of Acme's API key, which has full access
	Other  teams.Actor    // the actor of Other's API key

	OtherToken string // the token of Other's API key
	grace      time.Duration
}

// New builds the services on top of a database and creates the teams.
func New(t testing.TB, d *db.DB, o Options) *Node {
	t.Helper()
	n := Bare(t, d, o)
	n.Acme, n.Token = n.Team("Acme")
	n.Sender = n.Verified(n.Acme.TeamID, domains.NewDomain{Name: Domain})
	n.Other, n.OtherToken = n.Team("Other")
	return n
}

// Bare builds the services in the same way as New, but creates no teams.
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
		TrackingURL:    o.TrackingURL,
		FeedbackSender: o.FeedbackSender,
		Users:          users.Config{PublicURL: PublicURL, HashMemory: 64},
		PolicyHost:     "postrider.test",
		GrantResources: []string{PublicURL, PublicURL + "/mcp"},
		Domains: domains.Config{
			Default: domains.Region{BounceHost: "bounces.postrider.test", InboundHost: "inbound.postrider.test",
				SPFInclude: "spf.postrider.test", TrackingHost: "links.postrider.test"},
			Selector: "postrider", SelectorEd25519: "postrider-ed25519", Hosts: o.Hosts,
			DNSZone: "dns.postrider.test", DNSNames: []string{"ns1.postrider.test", "ns2.postrider.test"},
			ManagedDomain: "inbox.postrider.test", SandboxDomains: []string{"resend.dev"}, TrustDomains: o.DNS == nil,
		}}, hooks())
	n.Must(err)
	n.Domains.GenerateRSA = dkimtest.RSA
	n.Quotas.Now = func() time.Time { return oneDay }
	return n
}

// hooks returns hooks that do nothing. Tests that involve notices or emails replace a hook in the service under test.
func hooks() resources.Hooks {
	return resources.Hooks{
		BeforeEvent:  func(context.Context, string, string, string) error { return nil },
		Notify:       func(context.Context, *db.Tx, string, string, string) error { return nil },
		OnSenderStop: func(context.Context, *db.Tx, string, teams.ActorRef) error { return nil },
		OnGrantStop:  func(context.Context, *db.Tx, string, string) error { return nil },
		OnDomainLost: func(context.Context, *db.Tx, string, string) error { return nil },
		OnDomainBack: func(context.Context, *db.Tx, string, string) error { return nil },
		FetchPolicy: func(context.Context, string) (mtasts.Policy, mtasts.Result, string) {
			return mtasts.Policy{}, mtasts.FetchError, "this node serves no policies"
		},
		MailCertificate: func(context.Context, string) (*x509.Certificate, error) { return &x509.Certificate{}, nil },
		OnEvent:         func(context.Context, *db.Tx, customevents.Occurrence) error { return nil },
		Decision:        func(context.Context, string, string, string) (emails.Decision, error) { return emails.Deliver, nil },
	}
}

// Each runs a test once with SQLite and once with PostgreSQL, each time with a new node.
func Each(t *testing.T, o Options, f func(t *testing.T, n *Node)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { f(t, New(t, d, o)) })
}

// Team creates a team and an API key, both with the given name. The results are the API key as an actor and the API
// key's token.
func (n *Node) Team(name string) (teams.Actor, string) {
	n.T.Helper()
	team, err := n.Teams.Create(n.context(), name, "owner@"+Domain)
	n.Must(err)
	_, token := n.Key(team.ID, teams.NewKey{Name: name})
	by, err := n.Teams.Authenticate(n.context(), token)
	n.Must(err)
	return by, token
}

// TeamOf creates a team with an API key and a verified domain.
func (n *Node) TeamOf(domain string) teams.Actor {
	n.T.Helper()
	by, _ := n.Team(domain)
	n.Verified(by.TeamID, domains.NewDomain{Name: domain})
	return by
}

// Member creates a user, adds the user to a team, and returns the user as an actor.
func (n *Node) Member(teamID, email string, role teams.Role) teams.Actor {
	n.T.Helper()
	u, err := n.Users.Create(n.context(), users.NewUser{Email: email})
	n.Must(err)
	n.Update(func(tx *db.Tx) error { return n.Members.AddIn(n.context(), tx, teamID, u.ID, role) })
	by, err := n.Members.Actor(n.context(), u.ID, teamID)
	n.Must(err)
	return by
}

// Key creates an API key and returns the key and its token.
func (n *Node) Key(teamID string, k teams.NewKey) (teams.Key, string) {
	n.T.Helper()
	key, token, err := n.Teams.CreateKey(n.context(), teams.System(teamID), k)
	n.Must(err)
	return key, token
}

// Connect creates an OAuth grant with an actor's consent. The results are the grant's actor and its access token.
func (n *Node) Connect(by teams.Actor, scopes string, limits grants.Limits) (teams.Actor, string) {
	n.T.Helper()
	const redirect, verifier = "http://127.0.0.1/callback", "a-verifier-of-43-characters-at-least-0123456789"
	c, err := n.Grants.Register(n.context(), grants.NewClient{Name: "Agent", RedirectURIs: []string{redirect},
		Address: fmt.Sprintf("192.0.2.%d", n.Count(`SELECT COUNT(*) FROM oauth_clients`))})
	n.Must(err)
	hash := sha256.Sum256([]byte(verifier))
	r, err := n.Grants.CheckRequest(n.context(), grants.Params{ClientID: c.ID, ResponseType: "code",
		RedirectURI: redirect, Scope: scopes, Challenge: base64.RawURLEncoding.EncodeToString(hash[:]),
		ChallengeMethod: "S256"})
	n.Must(err)
	r.Limits = limits
	code, _, err := n.Grants.Approve(n.context(), r, by)
	n.Must(err)
	tokens, err := n.Grants.Exchange(n.context(), grants.ExchangeParams{ClientID: c.ID, Code: code,
		RedirectURI: redirect, Verifier: verifier})
	n.Must(err)
	app, err := n.Teams.Authenticate(n.context(), tokens.Access)
	n.Must(err)
	return app, tokens.Access
}

// Limit replaces the limits of a grant on behalf of the installation.
func (n *Node) Limit(app teams.Actor, to grants.Limits) {
	n.T.Helper()
	_, err := n.Grants.SetLimits(n.context(), teams.System(app.TeamID), app.ID, func(l *grants.Limits) error {
		*l = to
		return nil
	})
	n.Must(err)
}

// SetRole changes the role of a user in a team on behalf of the installation.
func (n *Node) SetRole(user teams.Actor, role teams.Role) {
	n.T.Helper()
	_, err := n.Members.SetRole(n.context(), teams.System(user.TeamID), user.ID, role)
	n.Must(err)
}

// Verified adds a verified domain to a team.
func (n *Node) Verified(teamID string, d domains.NewDomain) domains.Domain {
	n.T.Helper()
	added, err := n.Domains.AddVerified(n.context(), teamID, d)
	n.Must(err)
	return added
}

// Hello returns a short email from the team Acme to the given addresses.
func Hello(to ...string) emails.Send {
	text := "Hello."
	return emails.Send{From: "Acme <hello@" + Domain + ">", To: to, Subject: "Hi", Text: &text}
}

// Send sends an email from the team Acme and returns the email's id.
func (n *Node) Send(e emails.Send) string {
	n.T.Helper()
	emailID, err := n.Emails.Send(n.context(), n.Acme, e, emails.Idempotency{})
	n.Must(err)
	return emailID
}

// SendToContact creates a contact in the team Acme and enqueues an email to that contact in the same way as an
// automation step. The results are the ids of the contact and the email.
func (n *Node) SendToContact(address string) (contactID, emailID string) {
	n.T.Helper()
	at, _, err := n.Contacts.Upsert(n.context(), n.Acme.TeamID, address, contacts.Change{})
	n.Must(err)
	of := content.Content{TeamID: n.Acme.TeamID, From: "Acme <hello@" + Domain + ">", Subject: "Hi",
		HTML: new("<p>Hello</p>")}
	n.Update(func(tx *db.Tx) error { return n.Contents.Add(n.context(), tx, &of) })
	m, err := n.Emails.Mailing(n.context(), n.Acme, of.ID, false)
	n.Must(err)
	n.Update(func(tx *db.Tx) error {
		to := []emails.MailingRecipient{{Address: at.Address, ContactID: at.ID}}
		entered, err := n.Emails.Enqueue(n.context(), tx, m, to)
		if err == nil {
			emailID, err = entered[0].ID, entered[0].Err
		}
		return err
	})
	return at.ID, emailID
}

// Email returns one of the team Acme's emails.
func (n *Node) Email(emailID string) emails.Email {
	n.T.Helper()
	e, err := n.Emails.Get(n.context(), n.Acme.TeamID, emailID)
	n.Must(err)
	return e
}

// Ref returns the name of an email in tokens. An email that does not exist gets the team Acme.
func (n *Node) Ref(emailID string) tokens.Ref {
	n.T.Helper()
	teamID := n.Acme.TeamID
	err := n.DB.QueryRow(n.context(), `SELECT team_id FROM emails WHERE id = $1`, db.ID(emailID)).
		Scan((*db.ID)(&teamID))
	if err != nil && !errors.Is(err, db.ErrNoRows) {
		n.T.Fatal(err)
	}
	ref, err := n.Emails.Ref(n.context(), teamID, emailID)
	n.Must(err)
	return ref
}

// Happen records events in a transaction.
func (n *Node) Happen(all ...events.Event) {
	n.T.Helper()
	n.Update(func(tx *db.Tx) error { return n.Recorder.Record(n.context(), tx, all...) })
}

// Update runs f in a transaction.
func (n *Node) Update(f func(tx *db.Tx) error) {
	n.T.Helper()
	n.Must(n.DB.Update(n.context(), f))
}

// Counted marks the team Acme's events as counted up to the given time. The retention job does not delete emails before
// their events have been counted.
func (n *Node) Counted(until time.Time) {
	n.T.Helper()
	n.Update(func(tx *db.Tx) error {
		tx.Queue(n.context(), `INSERT INTO email_counts_until (team_id, until, version) VALUES ($1, $2, 1)
			ON CONFLICT DO NOTHING`, db.ID(n.Acme.TeamID), until.UnixMicro())
		return nil
	})
}

// Count returns the result of a query that selects a single number.
func (n *Node) Count(query string, args ...any) (found int) {
	n.T.Helper()
	n.Must(n.DB.QueryRow(n.context(), query, args...).Scan(&found))
	return found
}

// Run executes jobs of the given kinds until the test calls stop or ends.
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

// Until waits until done returns true, and fails the test after 90 seconds.
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

// Seen collects recorded events. An event appears only after its transaction has committed.
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

// Take returns the events recorded since the last call to Take.
func (s *Seen) Take() []events.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	return all
}

// Logged collects log output. Usage: slog.New(slog.NewTextHandler(&logged, nil)).
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

// String returns the output since the last call to Take.
func (l *Logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Take returns the output since the last call to Take, and clears it.
func (l *Logged) Take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.text.Reset()
	return l.text.String()
}

// Must fails the test if err is not nil.
func (n *Node) Must(err error) {
	n.T.Helper()
	if err != nil {
		n.T.Fatal(err)
	}
}

// context returns a context that is not canceled when the test ends, because cleanup functions also use it.
func (n *Node) context() context.Context { return context.WithoutCancel(n.T.Context()) }

// Must returns the result of a constructor, or panics if err is not nil.
func Must[T any](built T, err error) T {
	if err != nil {
		panic(err)
	}
	return built
}
