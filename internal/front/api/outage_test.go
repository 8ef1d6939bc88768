package api

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/db/dbtest/pgproxy"
	"github.com/postrider/postrider/internal/sending/domains"
)

// remote is an API with PostgreSQL connections that the test can interrupt.
type remote struct {
	*fixture
	proxy *pgproxy.Proxy
}

func newRemote(t *testing.T, patience time.Duration) *remote {
	t.Helper()
	d, proxy := dbtest.Proxied(t, patience)
	return &remote{newFixture(t, d, Options{Ready: readyIf(d)}), proxy}
}

// heal restores the connections and sends a request to ensure that the API key is cached.
func (f *remote) heal(t *testing.T) {
	t.Helper()
	if err := f.proxy.Pass(); err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; {
		if w := f.do(t, "GET /usage"); w.Code == 200 {
			return
		} else if time.Now().After(end) {
			t.Fatalf("the database is back, and yet: %d %s", w.Code, w.Body)
		}
	}
}

// anyBody returns a valid request body for an operation.
func anyBody(o wire.Operation) string {
	switch {
	case rightBodies[o.Method+" "+o.Path] != "":
		return rightBodies[o.Method+" "+o.Path]
	case strings.HasPrefix(o.Path, "/email") && o.Method == http.MethodPost:
		return rightBodies["POST /emails"]
	}
	return `{"name":"acme.org","email":"a@example.net","emails":["a@example.net"],"scheduled_at":"in 2 hours",` +
		`"tls":"enforced","topics":[],"fallback_value":"x",` +
		`"role":"viewer","since":"` + time.Now().Add(-time.Hour).UTC().Format(time.RFC3339) + `"}`
}

// answered lists the operations that do not query the database if the API key is cached.
var answered = []string{"POST /automations/simulate"}

// queriesDatabase reports whether an operation queries the database.
func queriesDatabase(o wire.Operation) bool {
	return o.Scope != wire.Open && !slices.Contains(answered, o.Method+" "+o.Path)
}

func wantAway(t *testing.T, what string, w *httptest.ResponseRecorder) {
	t.Helper()
	var e wire.ErrorBody
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != 503 || e.StatusCode != 503 ||
		e.Name != "service_unavailable" ||
		e.Message == "" || w.Header().Get("Retry-After") == "" {
		t.Errorf("%s: %d %s, Retry-After %q; want 503 service_unavailable", what, w.Code, w.Body,
			w.Header().Get("Retry-After"))
	}
}

// While the database is unavailable, every operation responds with 503 and Retry-After, even if the API key is cached.
func TestEveryOperationWithoutDatabase(t *testing.T) {
	t.Parallel()
	// Package db handles all kinds of failures in the same way, so a normal test run tries each operation with only one
	// kind of failure.
	stepOf := map[string]int{"refused": 1, "starting up": 7, "torn": 7}
	for name, begin := range map[string]func(*pgproxy.Proxy){
		"refused":     (*pgproxy.Proxy).Refuse,
		"starting up": func(p *pgproxy.Proxy) { p.TurnAway("57P03"); p.Cut() },
		"torn":        func(p *pgproxy.Proxy) { p.Tear(0, -1) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newRemote(t, 0)
			asked := 0
			for i, o := range f.Operations() {
				if !queriesDatabase(o) || i%dbtest.TornStep(stepOf[name]) != 0 {
					continue
				}
				f.heal(t)
				begin(f.proxy)
				path := withIDs(strings.Replace(o.Path, "{webhook_event_id}", "msg_"+strings.ReplaceAll(id.New(), "-", ""), 1))
				wantAway(t, o.Method+" "+o.Path, f.do(t, o.Method+" "+path+"\n\n"+anyBody(o)))
				asked++
			}
			wantAway(t, "a key that is not remembered", f.do(t, "GET /emails\nAuthorization: other"))
			if w := f.do(t, "GET /healthz"); w.Code != 200 {
				t.Errorf("healthz: %d %s", w.Code, w.Body)
			}
			if w := f.do(t, "GET /readyz"); w.Code != 503 || w.Header().Get("Retry-After") == "" ||
				strings.Contains(w.Body.String(), "127.0.0.1") {
				t.Errorf("readyz: %d %v %s", w.Code, w.Header(), w.Body)
			}
			f.heal(t)
			if w := f.do(t, "GET /readyz"); w.Code != 200 {
				t.Errorf("readyz, healed: %d %s", w.Code, w.Body)
			}
			if asked < 50/dbtest.TornStep(stepOf[name]) {
				t.Errorf("only %d operations asked", asked)
			}
		})
	}
}

// While the disk is failing, every read operation responds with status 503 instead of an internal error.
func TestEveryOperationWithABadDisk(t *testing.T) {
	path := dbtest.SQLiteFile(t)
	d := dbtest.Open(t, path)
	f := newFixture(t, d, Options{Ready: readyIf(d)})
	asked := 0
	for _, o := range f.Operations() {
		if !queriesDatabase(o) {
			continue
		}
		if w := f.do(t, "GET /usage"); w.Code != 200 { // ensures that the API key is cached
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		if err := d.Update(t.Context(), func(tx *db.Tx) error { // invalidates the page caches of the reader connections
			_, err := tx.Exec(t.Context(), `INSERT INTO hints (topic, payload) VALUES ('nobody', '')`)
			return err
		}); err != nil {
			t.Fatal(err)
		}
		mend := dbtest.Unreadable(t, path)
		text := o.Method + " " + withIDs(strings.Replace(o.Path, "{webhook_event_id}", "msg_"+strings.ReplaceAll(id.New(),
			"-", ""), 1))
		w := f.do(t, text+"\n\n"+anyBody(o))
		mend()
		// Reading the automations' signing secret needs no query, because the secret is derived from a key. Only the audit
		// log entry for the read needs the database.
		reads := o.Method == http.MethodGet && o.Path != "/automations/signing-secret"
		if reads || w.Code >= 500 {
			wantAway(t, o.Method+" "+o.Path, w)
			asked++
		}
	}
	if asked < 20 {
		t.Errorf("only %d operations asked", asked)
	}
}

// If the database does not respond, the API still responds to every request.
func TestSilentDatabase(t *testing.T) {
	t.Parallel()
	f := newRemote(t, 2*time.Second)
	for _, text := range []string{"GET /emails", "POST /api-keys\n\n{\"name\":\"x\"}", "POST /emails\n\n" +
		rightBodies["POST /emails"],
		"POST /emails/batch\n\n" + rightBodies["POST /emails/batch"], "GET /emails\nAuthorization: other"} {
		f.heal(t)
		f.proxy.Hang()
		wantAway(t, text, f.do(t, text))
	}
	if w := f.do(t, "GET /readyz"); w.Code != 503 {
		t.Errorf("readyz: %d %s", w.Code, w.Body)
	}
	f.heal(t) // otherwise, closing the connections would wait for the silent server
}

// If the connection breaks during a database response, the operation either succeeds on another connection or tells the
// client to retry. The operation never returns an internal error or incomplete data.
func TestTornAnswers(t *testing.T) {
	t.Parallel()
	f := newRemote(t, 0)
	ids := map[string]string{}
	create := func(name, path, body string) {
		t.Helper()
		var made struct {
			ID string `json:"id"`
		}
		w := f.do(t, "POST "+path+"\n\n"+body)
		if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || w.Code >= 300 {
			t.Fatalf("%s: %d %s", path, w.Code, w.Body)
		}
		ids[name] = made.ID
	}
	asked, torn, step := 0, 0, dbtest.TornStep(7)
	for i, o := range f.Operations() {
		if !queriesDatabase(o) {
			continue
		}
		var succeeded []string // responses that succeeded although a database response was cut off
		// If the test cuts off only a sample of the database responses, each operation starts at a different response.
		// The sample therefore includes first and last responses.
		first := i % step
		for skip, broke := first, true; broke && skip < 60; skip += step {
			f.heal(t)
			if skip == first || o.Method == http.MethodDelete {
				// AddVerified fails if the domain exists, so its error is ignored.
				f.Services.Domains.AddVerified(t.Context(), f.Acme.TeamID, domains.NewDomain{Name: "example.org"})
				create("webhook_id", "/webhooks", `{"endpoint":"https://hooks.example.org","events":["email.sent"]}`)
				create("api_key_id", "/api-keys", `{"name":"x"}`)
				create("suppression", "/suppressions", `{"email":"a@example.net"}`)
				create("automation_id", "/automations", rightBodies["POST /automations"])
				create("email_id", "/emails", `{"from":"a@example.org","to":"b@example.net","subject":"s","text":"t",`+
					`"scheduled_at":"in 1 hour"}`)
			}
			path := pathParam.ReplaceAllStringFunc(o.Path, func(p string) string {
				if id := ids[p[1:len(p)-1]]; id != "" {
					return id
				}
				return withIDs(p)
			})
			before := f.proxy.Torn()
			f.proxy.Tear(skip, 1)
			w := f.do(t, o.Method+" "+path+"\n\n"+anyBody(o))
			broke = f.proxy.Torn() > before
			asked++
			if broke {
				torn++
			}
			if w.Code == 503 {
				wantAway(t, o.Method+" "+o.Path, w)
			} else if w.Code >= 500 {
				t.Errorf("%s %s, answer %d torn: %d %s\n%s", o.Method, o.Path, skip, w.Code, w.Body, f.log)
			}
			if w.Code < 500 && broke {
				succeeded = append(succeeded, fmt.Sprint(w.Code, " ", told(o, w)))
			}
			if whole := fmt.Sprint(w.Code, " ", told(o, w)); !broke {
				for _, s := range succeeded { // some operations cannot be repeated
					if s != whole && (o.Method == http.MethodGet || w.Code < 300) {
						t.Errorf("%s %s, an answer torn: %s\nwithout that: %s", o.Method, o.Path, s, whole)
					}
				}
			}
		}
	}
	if torn < 150/step {
		t.Errorf("%d requests, %d answers torn", asked, torn)
	}
}

// told returns the part of a response that is the same in every run. The result is the whole body for read operations,
// and the names of the body's fields for all other operations.
func told(o wire.Operation, w *httptest.ResponseRecorder) string {
	if o.Method == http.MethodGet {
		return w.Body.String()
	}
	var body map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &body); err != nil {
		return w.Body.String()
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(body)))
}

func (f *remote) send(t *testing.T, key string) *httptest.ResponseRecorder {
	t.Helper()
	return f.do(t, "POST /emails\nIdempotency-Key: "+key+"\n\n"+rightBodies["POST /emails"])
}

// emailIDs returns the IDs of all emails.
func (f *remote) emailIDs(t *testing.T) (ids []string) {
	t.Helper()
	var all wire.List[ref]
	if err := json.Unmarshal(f.do(t, "GET /emails").Body.Bytes(), &all); err != nil {
		t.Fatal(err)
	}
	for _, e := range all.Data {
		ids = append(ids, e.ID)
	}
	return ids
}

// If the database's reply to a COMMIT is lost, the email is still accepted and the request succeeds. If the outcome of
// a COMMIT cannot be determined in time, the response says so. A retry with the same idempotency key then returns the
// same email.
func TestLostAnswersOfEmails(t *testing.T) {
	t.Parallel()
	f := newRemote(t, 2*time.Second)
	f.verified("example.org")
	f.proxy.LoseAnswers(1)
	w := f.do(t, "POST /emails\n\n"+rightBodies["POST /emails"])
	if ids := f.emailIDs(t); w.Code != 200 || len(ids) != 1 || !strings.Contains(w.Body.String(), ids[0]) {
		t.Fatalf("%d %s; the emails are %v", w.Code, w.Body, ids)
	}

	f.heal(t)
	f.proxy.LoseAnswers(1)
	f.proxy.TurnAway("53300")
	w = f.send(t, "k")
	wantAway(t, "an unknown commit", w)
	if text := w.Body.String(); !strings.Contains(text, "may have been accepted") ||
		!strings.Contains(text, "same idempotency key") {
		t.Errorf("an unknown commit: %s", text)
	}
	f.heal(t)
	w = f.send(t, "k")
	if ids := f.emailIDs(t); w.Code != 200 || len(ids) != 2 || !strings.Contains(w.Body.String(), ids[0]) {
		t.Errorf("repeated: %d %s; the emails are %v", w.Code, w.Body, ids)
	}

	// If a COMMIT does not reach the database, the email is not accepted, and its idempotency key can be reused.
	f.proxy.DropCommits(2)
	wantAway(t, "a commit that was not made", f.send(t, "free"))
	f.heal(t)
	if w := f.send(t, "free"); w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if ids := f.emailIDs(t); len(ids) != 3 {
		t.Errorf("%d emails, want 3", len(ids))
	}
	if log := f.log.String(); !strings.Contains(log, "it is not known") && !strings.Contains(log, "53300") {
		t.Errorf("the cause is not in the log:\n%s", log)
	}
}

// A permissive batch does not report a database outage as an error in individual emails.
func TestPermissiveBatchWithoutDatabase(t *testing.T) {
	t.Parallel()
	f := newRemote(t, 0)
	f.heal(t)
	f.proxy.Refuse()
	wantAway(t, "a permissive batch", f.do(t, "POST /emails/batch\nX-Batch-Validation: permissive\n\n"+
		rightBodies["POST /emails/batch"]))
}

// A database outage is logged at a limited rate instead of once per request.
func TestOutageIsNoFlood(t *testing.T) {
	t.Parallel()
	f := newRemote(t, 0)
	f.heal(t)
	f.proxy.Refuse()
	for range 200 {
		wantAway(t, "GET /emails", f.do(t, "GET /emails"))
	}
	if n := strings.Count(f.log.String(), "level=ERROR"); n < 1 || n > 20 {
		t.Errorf("%d lines:\n%.2000s", n, f.log)
	}
}

// Received mail is accepted if the reply to its COMMIT is lost, and refused with a temporary error while the database
// is unavailable.
func TestReceivingWithoutDatabase(t *testing.T) {
	t.Parallel()
	f := newRemote(t, 0)
	if _, err := f.Services.Domains.AddVerified(t.Context(), f.Acme.TeamID, domains.NewDomain{Name: "example.org",
		Capabilities: domains.Capabilities{Receiving: new(true)}}); err != nil {
		t.Fatal(err)
	}
	message := "RECEIVE <b@example.net> a@example.org\n\nFrom: b@example.net\n\nHello.\n"
	f.proxy.LoseAnswers(1)
	if got := f.receive(t, message); !strings.HasPrefix(got, "250 ") {
		t.Errorf("a lost answer: %s", got)
	}
	f.proxy.Refuse()
	if got := f.receive(t, message); strings.HasPrefix(got, "2") || strings.HasPrefix(got, "5") {
		t.Errorf("no database: %s", got)
	}
	f.heal(t)
	var all wire.List[ref]
	if err := json.Unmarshal(f.do(t, "GET /emails/receiving").Body.Bytes(), &all); err != nil || len(all.Data) != 1 {
		t.Errorf("%d received emails, error %v; want 1", len(all.Data), err)
	}
}
