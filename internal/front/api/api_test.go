package api

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"flag"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/accounts/grants"
	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/imports"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/broadcasts"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/front/api/wire/wiretest"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/eventstream"
	"github.com/postrider/postrider/internal/outbound/exports"
	"github.com/postrider/postrider/internal/outbound/forwards"
	"github.com/postrider/postrider/internal/outbound/privacy"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/metrics"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

var update = flag.Bool("update", false, "write what was answered into the scenario files")

// fixture is an API on an empty database with three teams: Acme, another team, and a suspended team. Acme has a
// full-access key and a sending key.
type fixture struct {
	*testnode.Node
	*API
	keys map[string]string // API tokens, by the names "full", "sending", "other" and "suspended"
	log  *testnode.Logged
}

// newFixture returns a fixture without DNS. The method fixture.verified verifies a domain, whereas a verification
// request through the API leaves the domain pending.
func newFixture(t testing.TB, d *db.DB, o Options) *fixture {
	t.Helper()
	return newFixtureOn(t, d, o, nil, "")
}

// newFixtureOn is like newFixture, with an optional DNS resolver that verifies domains and an optional folder for
// blobs.
func newFixtureOn(t testing.TB, d *db.DB, o Options, dns resolve.Resolver, place string) *fixture {
	t.Helper()
	return newFixtureWith(t, d, o, testnode.Options{DNS: dns, Blobs: place})
}

// newFixtureWith is like newFixtureOn, with the given options for the node. If the options allow connections to
// loopback addresses, webhook endpoints may have http URLs.
func newFixtureWith(t testing.TB, d *db.DB, o Options, of testnode.Options) *fixture {
	t.Helper()
	dns := of.DNS
	n := testnode.Bare(t, d, testnode.Options{MaxSize: 40 << 20, DNS: dns, Blobs: of.Blobs, Guard: of.Guard,
		Hosts: []string{"mx.postrider.test", "api.postrider.test"}})
	f := &fixture{Node: n, log: &testnode.Logged{}, keys: map[string]string{}}
	s := Services{Domains: n.Domains, Reports: n.Reports, Teams: n.Teams, Suppressions: n.Suppressions, Emails: n.Emails,
		Explanations:   n.Explanations,
		ServedPolicies: n.ServedPolicies, Templates: n.Templates, Quotas: n.Quotas, Contacts: n.Contacts, Events: n.CustomEvents,
		Metrics: metrics.New(d), Logs: requestlog.New(d, n.Log)}
	n.Recorder.Listen(s.Metrics)
	s.Webhooks = testnode.Must(webhooks.New(webhooks.Config{AllowHTTP: of.Guard.AllowLoopback}, webhooks.Deps{DB: d,
		Queue: n.Queue, Keys: n.Keys, Guard: n.Guard,
		Domains: n.Domains, Log: n.Log, Notify: n.Quotas.Notify}))
	n.Recorder.Listen(s.Webhooks)
	s.Live = eventstream.New(d, n.Log, func(ctx context.Context, tx *db.Tx,
		e *events.Event) (m eventstream.Message, err error) {
		m.Type = e.Type
		m.ID, m.Payload, err = s.Webhooks.Render(ctx, tx, e)
		return m, err
	})
	n.Recorder.Listen(s.Live)
	s.Receiving = testnode.Must(receiving.New(receiving.Config{Hostname: "mx.postrider.test",
		Hosts:     []string{"mx.postrider.test"},
		PublicURL: testnode.PublicURL}, receiving.Deps{DB: d, Quotas: n.Quotas, Recorder: n.Recorder, Blobs: n.Blobs,
		Keys:    n.Keys,
		Domains: n.Domains, Emails: n.Emails, Teams: n.Teams, Log: n.Log}))
	s.Forwards = testnode.Must(forwards.New(forwards.Config{PublicURL: testnode.PublicURL}, forwards.Deps{DB: d,
		Queue: n.Queue, Keys: n.Keys, Domains: n.Domains, Emails: n.Emails, Teams: n.Teams, Log: n.Log,
		LookupTXT: resolve.NetForm{Resolver: resolve.Fake{}}.LookupTXT, Notify: n.Quotas.Notify,
		Mail:     func(context.Context, *db.Tx, string, string, string) error { return nil },
		Received: func(context.Context, string, string) (forwards.Message, error) { return forwards.Message{}, nil },
		Payload:  func(context.Context, string, string) (string, error) { return "", nil },
		CheckURL: s.Webhooks.CheckURL,
		Call: func(ctx context.Context, teamID, id, url string, body []byte, keys [][]byte) (int, error) {
			return s.Webhooks.CallSigned(ctx, teamID, id, url, nil, body, keys...)
		}}))
	s.Imports = testnode.Must(imports.New(imports.Config{MaxSize: 1 << 20}, imports.Deps{DB: d, Queue: n.Queue,
		Blobs:    n.Blobs,
		Contacts: n.Contacts, Log: n.Log}))
	s.Broadcasts = testnode.Must(broadcasts.New(broadcasts.Config{MaxSize: 40 << 20, BounceLimit: 5, ComplaintLimit: 0.3},
		broadcasts.Deps{DB: d, Queue: n.Queue, Recorder: n.Recorder, Emails: n.Emails, Contents: n.Contents,
			Domains: n.Domains, Contacts: n.Contacts, Teams: n.Teams, Log: n.Log, Notify: n.Quotas.Notify}))
	n.Recorder.Listen(s.Broadcasts)
	n.Teams.OnSenderStop = s.Broadcasts.OnSenderStop
	s.Automations = testnode.Must(automations.New(automations.Deps{DB: d, Queue: n.Queue,
		Domains: n.Domains, Emails: n.Emails,
		Templates: n.Templates,
		Contacts:  n.Contacts, Teams: n.Teams, Log: n.Log, CheckURL: s.Webhooks.CheckURL, Call: s.Webhooks.Call}))
	n.Recorder.Listen(s.Automations)
	n.CustomEvents.OnEvent, n.CustomEvents.BeforeEvent = s.Automations.OnEvent, s.Automations.LoadWaiting
	s.Exports = exports.New(n.Contacts, n.Emails, n.Suppressions, s.Logs, n.Audit)
	s.Members, s.Audit = n.Members, n.Audit
	n.Members.Mail = func(context.Context, *db.Tx, string, string, string) error { return nil }
	s.Privacy = testnode.Must(privacy.New(privacy.Deps{DB: d, Queue: n.Queue, Contacts: n.Contacts, Emails: n.Emails,
		Suppressions: n.Suppressions, Erasers: []erasure.Eraser{{Name: "sent emails", Erase: n.Emails.EraseAddress},
			{Name: "received emails", Erase: s.Receiving.EraseAddress}},
		Broadcasts: func(context.Context, string, erasure.Address, string) ([]privacy.BroadcastPart, string, error) {
			return nil, "", nil
		},
		Automations: func(context.Context, string, string, string) ([]privacy.RunPart, string, error) {
			return nil, "", nil
		},
		Received: func(ctx context.Context, teamID string, a erasure.Address, after string) ([]privacy.ReceivedPart, string,
			error) {
			some, next, err := s.Receiving.BatchFrom(ctx, teamID, a, after)
			var parts []privacy.ReceivedPart
			for _, e := range some {
				parts = append(parts, privacy.ReceivedPart{ID: e.ID, CreatedAt: privacy.FormatTime(e.CreatedAt), From: e.From,
					To: e.To, Subject: e.Subject})
			}
			return parts, next, err
		}}))
	s.Grants, s.Approvals = n.Grants, n.Approvals
	if dns != nil {
		n.Run(n.Domains.Kind())
	}

	n.Acme, f.keys["full"] = n.Team("full")
	_, f.keys["sending"] = n.Key(n.Acme.TeamID, teams.NewKey{Name: "sending", Permission: teams.SendingAccess})
	n.Other, f.keys["other"] = n.Team("other")
	var suspended teams.Actor
	suspended, f.keys["suspended"] = n.Team("suspended")
	n.Must(n.Teams.SetSuspended(t.Context(), suspended.TeamID, true))
	o.Services, o.Version = s, "test"
	o.Log = cmp.Or(o.Log, slog.New(slog.NewTextHandler(f.log, nil)))
	f.API = New(o)
	return f
}

// remember makes the fixture write each request to the request log before the next request begins.
func (f *fixture) remember(t testing.TB) {
	f.observe(func(ctx context.Context, r RequestRecord) {
		if !r.Logged() {
			return
		}
		f.Services.Logs.Add(ctx, LoggedRequest(r))
		if err := f.Services.Logs.Flush(ctx); err != nil {
			t.Error(err)
		}
	})
}

// do sends a request in the format of wiretest.Do. The Authorization header may contain the name of one of the
// fixture's keys.
func (f *fixture) do(t testing.TB, text string) *httptest.ResponseRecorder {
	t.Helper()
	return wiretest.Do(t, f, f.keys, text)
}

func wantError(t testing.TB, w *httptest.ResponseRecorder, status int, name string) {
	t.Helper()
	wiretest.WantError(t, w, status, name)
}

// observe sets the function that is called for each API request.
func (f *fixture) observe(observe func(ctx context.Context, r RequestRecord)) {
	f.Observe = observe
	f.serve(f.operations())
}

// newRoute returns a fixture on SQLite with an additional operation, POST /test, which calls the function do.
func newRoute[In, Out any](t testing.TB, o Options,
	do func(context.Context, *wire.Call, In) (Out, error)) *fixture {
	t.Helper()
	f := newFixture(t, dbtest.SQLite(t), o)
	f.serve(append(f.operations(), wire.Operation{Method: http.MethodPost, Path: "/test", Scope: teams.LogsRead,
		Status: 200, Handler: wire.Endpoint(do)}))
	return f
}

// shown lists the response headers that a scenario's output includes.
var shown = []string{"Allow", "Postrider-Warning", "Ratelimit-Limit", "Ratelimit-Policy", "Ratelimit-Remaining",
	"Ratelimit-Reset",
	"Retry-After", "Www-Authenticate", "X-Resend-Daily-Quota", "X-Resend-Monthly-Quota"}

// names replaces values that differ between test runs with placeholder names, and converts placeholder names back to
// values. Each value always gets the same name.
type names struct {
	of   map[string]string
	back []string
	n    map[string]int
}

var changing = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}|re_\w{8}_\w{24}` +
	`|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(\.\d{1,6})?\+00|\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,6}Z|p=[\w+/=]{40,}` +
	`|(for|at|since) \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC|"total_ms":[\d.]+|"duration_ms":[\d.]+,"attempt"|"cause":"\w+","duration_ms":[\d.]+` +
	`|verification=[0-9a-f]{32}|(/download/(received/|raw/)?|token=)[\w.-]{40,}` +
	`|(msg|atmpt)_[0-9a-f]{32}|whsec_[\w+/=]{40,}|[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} \d\d:\d\d:\d\d \+0000` +
	`|\b[a-hjkmnp-z][a-hjkmnp-z2-9]{9}(\._domainkey|","algorithm"| and signs)|[a-z2-7]{16}\.(rp|s1|s2)\.dns` +
	`|[a-z2-7]{16}@inbound|(id=|"policy_id":")\d{14}|"(start|end)_date":"\d{4}-\d\d-\d\d"`)

var measured = regexp.MustCompile(`:[\d.]+`)

func (n *names) hide(text string) string {
	return changing.ReplaceAllStringFunc(text, func(s string) string {
		switch {
		case strings.HasPrefix(s, "p="):
			return "p=<key>"
		case strings.Contains(s, `_ms":`):
			return measured.ReplaceAllString(s, ":<ms>")
		case strings.HasSuffix(s, ".dns"), strings.HasSuffix(s, "@inbound"):
			return "<label>" + s[16:]
		case strings.HasPrefix(s, "id="), strings.HasPrefix(s, `"policy_id":`):
			return s[:len(s)-14] + "<policy id>"
		case strings.Contains(s, `_date":`):
			return s[:len(s)-11] + `<date>"`
		case strings.HasPrefix(s, "verification="):
			return "verification=<value>"
		case strings.HasPrefix(s, "/download/"), strings.HasPrefix(s, "token="):
			return s[:strings.LastIndexAny(s, "/=")+1] + "<link>"
		case strings.HasPrefix(s, "whsec_"):
			return "<secret>"
		case strings.HasSuffix(s, " +0000"):
			return "<date>"
		case strings.HasPrefix(s, "re_"):
		case strings.Contains(s, "T") && strings.HasSuffix(s, "Z"):
			return "<iso time>"
		case strings.HasSuffix(s, " UTC"):
			return s[:strings.Index(s, " ")] + " <time>"
		case strings.HasSuffix(s, "+00"):
			return "<time>"
		}
		kind, rest := "id", ""
		switch {
		case strings.HasPrefix(s, "re_"):
			kind = "token"
		case strings.HasSuffix(s, "._domainkey"), strings.HasSuffix(s, `","algorithm"`), strings.HasSuffix(s, " and signs"):
			kind, s, rest = "selector", s[:10], s[10:]
		}
		if n.of[s] == "" {
			n.n[kind]++
			n.of[s] = fmt.Sprintf("<%s%d>", kind, n.n[kind])
			n.back = append(n.back, n.of[s], s)
		}
		return n.of[s] + rest
	})
}

func (n *names) show(text string) string { return strings.NewReplacer(n.back...).Replace(text) }

// verified verifies a domain of the team Acme without DNS, after adding the domain if it does not exist.
func (f *fixture) verified(name string) domains.Domain {
	f.T.Helper()
	return f.Verified(f.Acme.TeamID, domains.NewDomain{Name: name})
}

// quota sets the daily and monthly quotas of the team Acme.
func (f *fixture) quota(words []string) string {
	f.T.Helper()
	daily, err := strconv.ParseInt(words[0], 10, 64)
	f.Must(err)
	monthly, err := strconv.ParseInt(words[1], 10, 64)
	f.Must(err)
	f.Must(f.Quotas.Set(f.T.Context(), f.Teams, f.Acme.TeamID, func(q *teams.Quota) {
		q.Daily, q.Monthly = daily, monthly
	}))
	return "limited"
}

// segment creates a segment with contacts and returns the segment's ID.
func (f *fixture) segment(addresses ...string) string {
	f.T.Helper()
	ctx := f.T.Context()
	segment, err := f.Contacts.Segments.Create(ctx, f.Acme.TeamID, segments.Definition{Name: "Readers"})
	f.Must(err)
	for _, address := range addresses {
		of, _, err := f.Contacts.Upsert(ctx, f.Acme.TeamID, address, contacts.Change{})
		f.Must(err)
		_, err = f.Contacts.AddToSegment(ctx, f.Acme.TeamID, of.ID, segment.ID)
		f.Must(err)
	}
	return segment.ID
}

// grant creates an OAuth grant for the team Acme, and stores its access token in the fixture's keys under the name
// "granted".
func (f *fixture) grant(scopes string) string {
	f.T.Helper()
	tokens, err := f.grantBy(f.Acme, f.app(), scopes)
	f.Must(err)
	f.keys["granted"] = tokens.Access
	return "granted " + tokens.Scopes.String()
}

// appRedirect is the redirect URI of the OAuth clients in tests.
const appRedirect = "http://127.0.0.1/callback"

// app registers an OAuth client.
func (f *fixture) app() grants.Client {
	f.T.Helper()
	c, err := f.Services.Grants.Register(f.T.Context(), grants.NewClient{Name: "Notes",
		RedirectURIs: []string{appRedirect}, LogoURI: "https://notes.example/logo.png"})
	f.Must(err)
	return c
}

// grantBy has an actor grant scopes to an OAuth client and returns the client's tokens. If the actor has none of the
// scopes, grantBy returns the error.
func (f *fixture) grantBy(by teams.Actor, c grants.Client, scopes string) (grants.Tokens, error) {
	f.T.Helper()
	ctx, s := f.T.Context(), f.Services.Grants
	const verifier = "0123456789012345678901234567890123456789012"
	hash := sha256.Sum256([]byte(verifier))
	r, err := s.CheckRequest(ctx, grants.Params{ClientID: c.ID, ResponseType: "code", RedirectURI: appRedirect,
		Scope: scopes, Challenge: base64.RawURLEncoding.EncodeToString(hash[:]), ChallengeMethod: "S256"})
	f.Must(err)
	code, _, err := s.Approve(ctx, r, by)
	if err != nil {
		return grants.Tokens{}, err
	}
	tokens, err := s.Exchange(ctx, grants.ExchangeParams{ClientID: c.ID, Code: code, RedirectURI: appRedirect,
		Verifier: verifier})
	f.Must(err)
	return tokens, nil
}

// sendBroadcasts runs the broadcast jobs until all emails of queued broadcasts have been created.
func (f *fixture) sendBroadcasts() {
	f.T.Helper()
	stop := f.Run(f.Services.Broadcasts.Kinds()...)
	testnode.Until(f.T, "the broadcasts are sent", func() bool {
		return f.Count(`SELECT COUNT(*) FROM broadcasts WHERE status = 'queued' AND phase <> 'settle'`) == 0
	})
	stop()
}

// goOn runs the due automation jobs until all automation runs are waiting or have ended.
func (f *fixture) goOn() {
	f.T.Helper()
	stop := f.Run(f.Services.Automations.Kinds()...)
	testnode.Until(f.T, "the runs wait or have ended", func() bool {
		return f.Count(`SELECT COUNT(*) FROM jobs WHERE kind LIKE 'automations.%' AND kind <> 'automations.run'`) == 0 &&
			f.Count(`SELECT COUNT(*) FROM automation_runs WHERE status = 'running' AND waits_until = 0`) == 0
	})
	stop()
}

// receive delivers a message by SMTP for a request of the form RECEIVE FROM TO... and returns the SMTP reply.
func (f *fixture) receive(t *testing.T, text string) string {
	t.Helper()
	head, message, _ := strings.Cut(text, "\n\n")
	c, err := f.Services.Receiving.Open(t.Context(), smtpserver.Peer{Addr: netip.MustParseAddrPort("192.0.2.9:25"),
		Hello: "mail.example.org"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	words := strings.Fields(head)
	if err := c.Mail(t.Context(), strings.Trim(words[1], "<>"), smtpserver.MailOptions{}); err != nil {
		return err.Error()
	}
	for _, to := range words[2:] {
		if err := c.Rcpt(t.Context(), to); err != nil {
			return err.Error()
		}
	}
	id, err := c.Data(t.Context(), strings.NewReader(strings.ReplaceAll(message, "\n", "\r\n")))
	if err != nil {
		return err.Error()
	}
	return "250 " + id
}

// TestScenarios runs the files in testdata on both database engines. Each file is a sequence of requests and responses:
//
//	A description of the scenario. Each option is on its own line; see scenarioOptions.
//	-- request --
//	POST /api-keys
//	Authorization: sending
//
//	{"name":"x"}
//	-- response --
//	401
//	Www-Authenticate: Bearer
//
//	{"statusCode":401,...}
//
// Requests have the format that fixture.do reads. A command that prepares data can take the place of a request. RECEIVE
// delivers an email by SMTP. VERIFIED verifies a domain without DNS. SEGMENT creates a segment with the given
// addresses. MEMBER creates a team member with an address and a role. QUOTA sets the daily and monthly quotas.
// REPORTED stores two reports about a domain. BROADCASTS sends the broadcasts. RUNS runs the due automation jobs. GRANT
// creates an OAuth grant with the given scopes; its access token has the name "granted". Responses are compared byte
// for byte after IDs, tokens and times have been replaced with names. The first ID in a file becomes <id1>, and later
// requests can use that name. Run the test with -update to write the responses to the files, and review the diff.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d scenarios, error %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(strings.TrimPrefix(file, "testdata/"), ".txtar"), func(t *testing.T) {
			t.Parallel()
			dbtest.Each(t, func(t *testing.T, d *db.DB) { playScenario(t, d, file) })
		})
	}
}

// Every operation has a successful request in at least one scenario.
func TestScenariosAreComplete(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*/*.txtar")
	if err != nil {
		t.Fatal(err)
	}
	shown := ""
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		shown += string(text)
	}
	for _, o := range (&API{}).operations() {
		path := regexp.MustCompile(`\\\{\w+\\\}`).ReplaceAllString(regexp.QuoteMeta(o.Path), `[^/? \n]+`)
		ok := regexp.MustCompile(`(?m)^-- request --\n` + o.Method + ` ` + path +
			`/?(\?.*)?\n(?s:([^-]|-[^-]|--[^ ])*)-- response --\n2\d\d$`)
		if !ok.MatchString(shown) {
			t.Errorf("%s %s succeeds in no scenario: add one to testdata", o.Method, o.Path)
		}
	}
}

func scenarioOptions(comment string) Options {
	has := func(option string) bool { return strings.Contains(comment, "\noption "+option+"\n") }
	return Options{PublicURL: map[bool]string{true: testnode.PublicURL}[has("public_url")],
		RequireUserAgent: has("require_user_agent"),
		BodyMax:          map[bool]int64{true: 100}[has("body_max=100")]}
}

// playScenario runs a scenario and compares the responses with those in the scenario's file. If the responses differ
// and a UTC day ended during the run, playScenario repeats the run, because the daily counters were reset at midnight.
func playScenario(t *testing.T, d *db.DB, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for again := true; again; {
		day := dayOf(d.Now())
		f, got := play(t, d, string(text))
		if again = got != string(text) && dayOf(d.Now().Add(5*time.Second)) != day; again {
			if d.Alone() {
				d = dbtest.SQLite(t)
			} else {
				d = dbtest.Postgres(t)
			}
			continue
		}
		if *update {
			if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		if diff := gocmp.Diff(string(text), got); diff != "" {
			t.Errorf("the file, - and what was answered, +; run with -update to accept it:\n%s", diff)
		}
		if strings.Contains(f.log.String(), "level=ERROR") {
			t.Errorf("failures of ours:\n%s", f.log)
		}
	}
}

func dayOf(at time.Time) string { return at.UTC().Format(time.DateOnly) }

// play returns the text of a scenario with the actual responses.
func play(t *testing.T, d *db.DB, text string) (f *fixture, got string) {
	parts := regexp.MustCompile(`(?m)^-- (request|response) --\n`).Split(text, -1)
	f = newFixture(t, d, scenarioOptions(parts[0]))
	if strings.Contains(parts[0], "\noption request log\n") {
		f.remember(t)
	}
	n := &names{of: map[string]string{}, n: map[string]int{}}
	got = parts[0]
	for i := 1; i < len(parts); i += 2 {
		request := n.show(strings.TrimSuffix(parts[i], "\n"))
		got += "-- request --\n" + parts[i] + "-- response --\n"
		if strings.HasPrefix(request, "RECEIVE ") {
			got += n.hide(f.receive(t, request)) + "\n"
			continue
		}
		if name, ok := strings.CutPrefix(request, "VERIFIED "); ok {
			got += string(f.verified(name).Status) + "\n"
			continue
		}
		if words, ok := strings.CutPrefix(request, "MEMBER "); ok {
			email, role, _ := strings.Cut(strings.TrimSpace(words), " ")
			got += n.hide(f.Member(f.Acme.TeamID, email, teams.Role(role)).ID) + "\n"
			continue
		}
		if domainID, ok := strings.CutPrefix(request, "REPORTED "); ok {
			f.reported(t, f.Acme.TeamID, strings.TrimSpace(domainID))
			got += "stored\n"
			continue
		}
		if quota, ok := strings.CutPrefix(request, "QUOTA "); ok {
			got += f.quota(strings.Fields(quota)) + "\n"
			continue
		}
		if addresses, ok := strings.CutPrefix(request, "SEGMENT"); ok {
			got += n.hide(f.segment(strings.Fields(addresses)...)) + "\n"
			continue
		}
		if scopes, ok := strings.CutPrefix(request, "GRANT "); ok {
			got += f.grant(scopes) + "\n"
			continue
		}
		if strings.TrimSpace(request) == "BROADCASTS" {
			f.sendBroadcasts()
			got += "sent\n"
			continue
		}
		if strings.TrimSpace(request) == "RUNS" {
			f.goOn()
			got += "gone on\n"
			continue
		}
		w := f.do(t, request)
		f.wantDocumentedHeaders(t, request, w)
		got += strconv.Itoa(w.Code) + "\n"
		if ct := w.Header().Get("Content-Type"); ct != "application/json; charset=utf-8" {
			got += "Content-Type: " + ct + "\n"
		}
		for _, name := range shown {
			if v := w.Header().Get(name); v != "" {
				if name == "Retry-After" && v != "1" {
					v = "<seconds>"
				}
				got += name + ": " + v + "\n"
			}
		}
		got += "\n" + n.hide(strings.ReplaceAll(w.Body.String(), "\r\n", "\n")) + "\n" // CSV has CRLF
	}
	return f, got
}
