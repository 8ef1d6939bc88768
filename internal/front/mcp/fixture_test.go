package mcp

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/front/api"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/metrics"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// fixture is an MCP server with its API on a test node. The team Acme receives mail at in.acme.example.
type fixture struct {
	*testnode.Node
	*Server
	services   api.Services
	url        string
	clients    atomic.Int64 // number of registered OAuth clients
	clockAhead atomic.Int64 // offset of the server's clock, in nanoseconds
}

func each(t *testing.T, f func(t *testing.T, f *fixture)) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) { f(t, newFixture(t, d)) })
}

func newFixture(t testing.TB, d *db.DB) *fixture {
	t.Helper()
	n := testnode.New(t, d, testnode.Options{})
	s := api.Services{Domains: n.Domains, Teams: n.Teams, Suppressions: n.Suppressions, Emails: n.Emails,
		Explanations: n.Explanations,
		Templates:    n.Templates, Quotas: n.Quotas, Contacts: n.Contacts, Events: n.CustomEvents, Metrics: metrics.New(d),
		Logs: requestlog.New(d, n.Log), Members: n.Members, Audit: n.Audit}
	s.Receiving = testnode.Must(receiving.New(receiving.Config{Hostname: "mx.postrider.test",
		PublicURL: testnode.PublicURL},
		receiving.Deps{DB: d, Quotas: n.Quotas, Recorder: n.Recorder, Blobs: n.Blobs, Keys: n.Keys, Domains: n.Domains,
			Emails: n.Emails, Teams: n.Teams, Log: n.Log}))
	s.Broadcasts = testnode.Must(broadcasts.New(broadcasts.Config{MaxSize: 1 << 20}, broadcasts.Deps{DB: d, Queue: n.Queue,
		Recorder: n.Recorder, Emails: n.Emails, Contents: n.Contents,
		Domains: n.Domains, Contacts: n.Contacts, Teams: n.Teams, Log: n.Log,
		Notify: n.Quotas.Notify}))
	s.Grants, s.Approvals = n.Grants, n.Approvals
	s.Automations = testnode.Must(automations.New(automations.Deps{DB: d, Queue: n.Queue, Emails: n.Emails,
		Templates: n.Templates, Contacts: n.Contacts, Teams: n.Teams, Domains: n.Domains, Log: n.Log,
		CheckURL: func(_, url string) (string, error) { return url, nil },
		Call: func(context.Context, string, string, string, map[string]string, []byte) (int, error) {
			return http.StatusOK, nil
		}}))
	n.Verified(n.Acme.TeamID, domains.NewDomain{Name: "in.acme.example",
		Capabilities: domains.Capabilities{Receiving: new(true)}})
	rest := api.New(api.Options{Services: s, Log: n.Log, Version: "test", PublicURL: testnode.PublicURL,
		Observe: func(ctx context.Context, r api.RequestRecord) {
			if r.Logged() {
				s.Logs.Add(ctx, api.LoggedRequest(r))
			}
		}})
	f := &fixture{Node: n, services: s}
	f.Server = New(Options{API: rest, Keys: n.Keys, Log: n.Log, Version: "test", Authenticate: rest.Authenticate,
		Scope: rest.Scope, DryRun: api.WithDryRun, Usage: s.Grants.Usage, EarlierResult: n.Emails.EarlierResult,
		Now: func() time.Time { return time.Now().Add(time.Duration(f.clockAhead.Load())) }})
	server := httptest.NewServer(f.Server)
	t.Cleanup(server.Close)
	f.url = server.URL + Path
	return f
}

// grant creates an OAuth grant for the team Acme and returns its access token.
func (f *fixture) grant(scopes string) string { return f.limited(scopes, grants.Limits{}) }

// limited is like grant, but also sets sending limits.
func (f *fixture) limited(scopes string, limits grants.Limits) string {
	f.T.Helper()
	return f.granted(scopes, testnode.PublicURL+Path, "", limits).Access
}

// granted creates an OAuth grant for the team Acme. The grant is for the given resource, and its access token is for
// the resource in narrowed.
func (f *fixture) granted(scopes, resource, narrowed string, limits grants.Limits) grants.Tokens {
	f.T.Helper()
	ctx, g := f.T.Context(), f.services.Grants
	const redirect, verifier = "http://127.0.0.1/callback", "0123456789012345678901234567890123456789012"
	c, err := g.Register(ctx, grants.NewClient{Name: "Agent", RedirectURIs: []string{redirect},
		Address: netip.AddrFrom4([4]byte{192, 0, 2, byte(f.clients.Add(1))}).String()}) // each network may register a few
	f.Must(err)
	hash := sha256.Sum256([]byte(verifier))
	r, err := g.CheckRequest(ctx, grants.Params{ClientID: c.ID, ResponseType: "code", RedirectURI: redirect, Scope: scopes,
		Challenge: base64.RawURLEncoding.EncodeToString(hash[:]), ChallengeMethod: "S256",
		Resource: resource})
	f.Must(err)
	r.Limits = limits
	code, _, err := g.Approve(ctx, r, f.Acme)
	f.Must(err)
	tokens, err := g.Exchange(ctx, grants.ExchangeParams{ClientID: c.ID, Code: code, RedirectURI: redirect,
		Verifier: verifier, Resource: narrowed})
	f.Must(err)
	return tokens
}

// bearer adds a bearer token to requests.
type bearer string

func (b bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+string(b))
	return http.DefaultTransport.RoundTrip(r)
}

// agent is an MCP client with an access token.
type agent struct {
	t testing.TB
	*mcp.ClientSession
}

func (f *fixture) agent(token string) agent {
	f.T.Helper()
	c := mcp.NewClient(&mcp.Implementation{Name: "test", Version: "1"}, nil)
	session, err := c.Connect(f.T.Context(), &mcp.StreamableClientTransport{Endpoint: f.url,
		HTTPClient: &http.Client{Transport: bearer(token)}, MaxRetries: -1, DisableStandaloneSSE: true}, nil)
	f.Must(err)
	f.T.Cleanup(func() { session.Close() })
	return agent{f.T, session}
}

// tools returns the names of the tools that the server lists for the agent.
func (a agent) tools() (names []string) {
	a.t.Helper()
	for t, err := range a.Tools(a.t.Context(), nil) {
		if err != nil {
			a.t.Fatal(err)
		}
		names = append(names, t.Name)
	}
	return names
}

// with holds the arguments of a tool call.
type with map[string]any

// ask calls a tool, returns the text of the result, and reports whether the result is an error.
func (a agent) ask(name string, in with) (text string, failed bool) {
	a.t.Helper()
	if in == nil {
		in = with{}
	}
	r, err := a.CallTool(a.t.Context(), &mcp.CallToolParams{Name: name, Arguments: in})
	if err != nil {
		a.t.Fatalf("%s: %v", name, err)
	}
	var all []string
	for _, c := range r.Content {
		all = append(all, c.(*mcp.TextContent).Text)
	}
	return strings.Join(all, "\n"), r.IsError
}

// do calls a tool that must succeed. Unless out is nil, the data in the result is decoded into out.
func (a agent) do(name string, in with, out any) string {
	a.t.Helper()
	text, failed := a.ask(name, in)
	if failed {
		a.t.Fatalf("%s %v: %s", name, in, text)
	}
	if out != nil {
		if err := json.Unmarshal([]byte(text[strings.Index(text, "{"):]), out); err != nil {
			a.t.Fatalf("%s: %v in %s", name, err, text)
		}
	}
	return text
}

// refused calls a tool that must fail with an error that contains the given words.
func (a agent) refused(words, name string, in with) {
	a.t.Helper()
	if text, failed := a.ask(name, in); !failed || !strings.Contains(text, words) {
		a.t.Errorf("%s %v: failed %v, %s; want %q", name, in, failed, text, words)
	}
}

// sent returns the number of accepted emails.
func (f *fixture) sent() int { return f.Count(`SELECT COUNT(*) FROM emails`) }

// receive delivers a message to the team Acme and returns the received email's id.
func (f *fixture) receive(message string) string {
	f.T.Helper()
	ctx := context.WithoutCancel(f.T.Context())
	c, err := f.services.Receiving.Open(ctx, smtpserver.Peer{Addr: netip.MustParseAddrPort("192.0.2.9:25"),
		Hello: "mail.evil.example"})
	f.Must(err)
	defer c.Close()
	f.Must(c.Mail(ctx, "mallory@evil.example", smtpserver.MailOptions{}))
	f.Must(c.Rcpt(ctx, "help@in.acme.example"))
	id, err := c.Data(ctx, strings.NewReader(strings.ReplaceAll(message, "\n", "\r\n")))
	f.Must(err)
	return id
}
