package api

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/emails"
)

// creation is a request that honors an idempotency key.
type creation struct {
	path, table string
	// body returns a valid body. Bodies with different numbers create different objects.
	body func(n int) string
	// refused is a body that the operation refuses.
	refused string
}

// creationsIn returns a request for each operation in the table creations.
func (f *fixture) creationsIn(t *testing.T) map[string]creation {
	t.Helper()
	segment := f.segment("ann@reader.example")
	draft := f.created(t, "POST /broadcasts\n\n"+`{"segment_id":"`+segment+
		`","from":"a@acme.example","subject":"s","text":"t"}`)
	of := func(format string) func(int) string {
		return func(n int) string { return strings.ReplaceAll(format, "#", fmt.Sprint(n)) }
	}
	return map[string]creation{
		"POST /broadcasts": {"/broadcasts", "broadcasts", of(`{"segment_id":"` + segment + `","from":"a@acme.example",` +
			`"subject":"s#","text":"t","send":true}`), `{"subject":"s"}`},
		"POST /broadcasts/{broadcast_id}/send": {"/broadcasts/" + draft + "/send", "broadcasts WHERE status <> 'draft'",
			of(`{"scheduled_at":"in # hours"}`), `{"scheduled_at":"in the past"}`},
		"POST /templates": {"/templates", "templates", of(`{"name":"n#","html":"<p>","alias":"a#"}`), `{"name":"n"}`},
		"POST /segments":  {"/segments", "segments", of(`{"name":"n#"}`), `{"name":""}`},
		"POST /topics":    {"/topics", "topics", of(`{"name":"n#","default_subscription":"opt_in"}`), `{"name":"n"}`},
		"POST /contact-properties": {"/contact-properties", "contact_properties", of(`{"key":"k#","type":"string"}`),
			`{"key":"-"}`},
		"POST /events":  {"/events", "custom_events", of(`{"name":"n#","schema":{"a":"string"}}`), `{"name":""}`},
		"POST /domains": {"/domains", "domains", of(`{"name":"d#.example","open_tracking":true}`), `{"name":"-"}`},
		"POST /automations": {"/automations", "automations", of(`{"name":"n#","steps":[{"key":"a","type":"trigger",` +
			`"config":{"event_name":"e"}}],"connections":[]}`), `{"name":"n"}`},
		importOperation: {"/contacts/imports", "contact_imports", of("email\na#@x.example\n"), "name\nx\n"},
	}
}

// send sends a request to create an object, as the named key of the fixture.
func (c *creation) send(t testing.TB, f *fixture, as, key, body string) *httptest.ResponseRecorder {
	t.Helper()
	header := "\nIdempotency-Key: " + key
	if key == "" {
		header = ""
	}
	if c.path == "/contacts/imports" {
		var mediaType string
		mediaType, body = formOf(t, part{"file", body}, part{"on_conflict", "skip"})
		header += "\nContent-Type: " + mediaType
	}
	return f.do(t, "POST "+c.path+"\nAuthorization: "+as+header+"\n\n"+body)
}

func (c *creation) count(f *fixture) int { return f.Count(`SELECT COUNT(*) FROM ` + c.table) }

// Each operation that honors idempotency keys happens once per key and team, and returns the first response again,
// until the key expires after 24 hours. Refused requests leave the key free.
func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.verified("acme.example")
		all := f.creationsIn(t)
		for name := range creations {
			if all[name].path == "" {
				t.Errorf("%s is not tested", name)
			}
		}
		f.keys["reader"] = f.newReader(t)
		for name, c := range all {
			t.Run(strings.ReplaceAll(name, "/", " "), func(t *testing.T) { f.checkKeys(t, &c) })
		}
	})
}

// newReader returns a token that may only read.
func (f *fixture) newReader(t *testing.T) string {
	t.Helper()
	f.grant("emails:read")
	return f.keys["granted"]
}

func (f *fixture) checkKeys(t *testing.T, c *creation) {
	before := c.count(f)
	wantError(t, c.send(t, f, "full", strings.Repeat("x", 257), c.body(1)), 400, "invalid_idempotency_key")
	if w := c.send(t, f, "full", "k", c.refused); w.Code/100 != 4 || w.Code == 409 {
		t.Errorf("refused: %d %s", w.Code, w.Body)
	}
	first := c.send(t, f, "full", "k", c.body(1))
	if first.Code/100 != 2 {
		t.Fatalf("after a refused request: %d %s", first.Code, first.Body)
	}
	if warned := first.Header().Get(wire.WarningHeader) != ""; warned != (c.path == "/domains") {
		t.Errorf("warned: %v", warned)
	}
	same := func(w *httptest.ResponseRecorder, when string) {
		t.Helper()
		if w.Header().Get(wire.WarningHeader) != first.Header().Get(wire.WarningHeader) {
			t.Errorf("%s: the warning is %q, want %q", when, w.Header().Get(wire.WarningHeader), first.Header().Get(wire.WarningHeader))
		}
		if w.Code != first.Code || w.Body.String() != first.Body.String() || c.count(f) != before+1 {
			t.Errorf("%s: %d %s and %d rows, want %d %s and %d", when, w.Code, w.Body, c.count(f), first.Code, first.Body,
				before+1)
		}
	}
	same(c.send(t, f, "full", "k", c.body(1)), "again")
	if text, ok := strings.CutPrefix(c.body(1), "{"); ok {
		same(c.send(t, f, "full", "k", "{ "+text), "with white space")
	}
	wantError(t, c.send(t, f, "full", "k", c.body(2)), 409, "invalid_idempotent_request")
	wantError(t, c.send(t, f, "reader", "k", c.body(1)), 403, "invalid_permission")
	if w := c.send(t, f, "other", "k", c.body(1)); strings.Contains(w.Body.String(), first.Body.String()) {
		t.Errorf("another team gets %d %s", w.Code, w.Body)
	}
	before = c.count(f) - 1 // the other team may have created an object of its own

	// The state after a process was killed between the effect and the response.
	change := func(text string, args ...any) {
		t.Helper()
		f.Update(func(tx *db.Tx) error {
			n, err := tx.Exec(t.Context(), text, args...)
			if err == nil && n == 0 {
				t.Errorf("%s changed nothing", text)
			}
			return err
		})
	}
	var made struct{ ID string }
	f.Must(json.Unmarshal(first.Body.Bytes(), &made))
	change(`UPDATE idempotency_keys SET response = $1 WHERE response LIKE $2 AND team_id = $3`, `{"ids":["`+made.ID+`"]}`,
		`{"ids":["`+made.ID+`"],"response":%`, db.ID(f.Acme.TeamID))
	same(c.send(t, f, "full", "k", c.body(1)), "after kill -9")
	entries := 1
	if strings.HasSuffix(c.path, "/send") {
		entries = 2 // the draft was created by another request
	}
	if n := f.Count(`SELECT COUNT(*) FROM audit_log WHERE target = $1`, made.ID); n != entries {
		t.Errorf("%d entries in the audit log, want %d", n, entries)
	}

	change(`UPDATE idempotency_keys SET created_at = created_at - $1`, (24*time.Hour - time.Minute).Microseconds())
	same(c.send(t, f, "full", "k", c.body(1)), "almost a day later")
	change(`UPDATE idempotency_keys SET created_at = created_at - $1`, (2 * time.Minute).Microseconds())
	switch w := c.send(t, f, "full", "k", c.body(3)); {
	case strings.HasSuffix(c.path, "/send"):
		wantError(t, w, 422, "validation_error") // it is not a draft any more
	case w.Code != first.Code || w.Body.String() == first.Body.String() || c.count(f) != before+2:
		t.Errorf("a day later: %d %s, %d rows", w.Code, w.Body, c.count(f))
	}
	f.Must(f.Emails.Sweep(t.Context()))
}

// If several nodes get requests with the same key at the same time, only one request has an effect. The other requests
// get its response, or 409.
func TestConcurrentIdempotencyKeys(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.verified("acme.example")
		for name, c := range f.creationsIn(t) {
			before := c.count(f)
			var group sync.WaitGroup
			answers := make(chan *httptest.ResponseRecorder, 6)
			for i := range cap(answers) {
				node := f
				if i%2 == 1 { // another node has its own list of running requests
					node = f.anotherNode()
				}
				group.Go(func() { answers <- c.send(t, node, "full", "k", c.body(1)) })
			}
			group.Wait()
			close(answers)
			bodies := map[string]int{}
			for w := range answers {
				if w.Code == http.StatusConflict {
					wantError(t, w, 409, "concurrent_idempotent_requests")
					continue
				}
				if w.Code/100 != 2 {
					t.Errorf("%s: %d %s", name, w.Code, w.Body)
				}
				bodies[w.Body.String()]++
			}
			if len(bodies) != 1 || c.count(f) != before+1 {
				t.Errorf("%s: %v, %d rows more", name, bodies, c.count(f)-before)
			}
		}
	})
}

// anotherNode returns a fixture on the same database whose emails service does not know the requests of other nodes.
func (f *fixture) anotherNode() *fixture {
	n := *f
	s := f.Services
	s.Emails = testnode.Must(emails.New(emails.Config{MaxSize: 1 << 20}, f.Emails.Deps))
	n.API = New(Options{Services: s, Version: "test", Log: f.Log})
	return &n
}

// The header has no effect on operations whose response has a secret, and on upserts.
func TestIgnoredIdempotencyKeys(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	for path, body := range map[string]string{"/api-keys": `{"name":"x"}`,
		"/webhooks": `{"endpoint":"https://hooks.example.org","events":["email.sent"]}`,
		"/contacts": `{"email":"a@x.example"}`, "/suppressions": `{"email":"b@x.example"}`} {
		for range 2 {
			if w := f.do(t, "POST "+path+"\nIdempotency-Key: "+strings.Repeat("x", 300)+"\n\n"+body); w.Code/100 != 2 {
				t.Errorf("%s: %d %s", path, w.Code, w.Body)
			}
		}
	}
	if n := f.Count(`SELECT COUNT(*) FROM api_keys WHERE name = 'x'`); n != 2 {
		t.Errorf("%d keys", n)
	}
	if n := f.Count(`SELECT COUNT(*) FROM idempotency_keys`); n != 0 {
		t.Errorf("%d idempotency keys", n)
	}
}

// A stored response to a request that sends a broadcast is returned only to actors that may send broadcasts.
func TestStoredResponseNeedsRights(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	f.verified("acme.example")
	c := f.creationsIn(t)["POST /broadcasts"]
	if w := c.send(t, f, "full", "k", c.body(1)); w.Code != 201 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	f.grant("broadcasts:write")
	wantError(t, c.send(t, f, "granted", "k", c.body(1)), 403, "invalid_permission")
}

// The first use of a sandbox domain creates the domain. If the request is refused afterwards, its idempotency key stays
// free, and the audit log has no entry about it.
func TestKeyOfFirstSandboxSender(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		segment := f.created(t, "POST /segments\n\n"+`{"name":"s"}`)
		c := creation{path: "/broadcasts", table: "broadcasts"}
		body := `{"segment_id":"` + segment + `","from":"onboarding@resend.dev","subject":"s","text":"t","send":true}`
		wantError(t, c.send(t, f, "full", "k", body), 422, "validation_error") // the segment has no contacts
		if n := f.Count(`SELECT COUNT(*) FROM audit_log WHERE action = 'broadcast.created'`); n != 0 {
			t.Errorf("%d entries about a broadcast that was not created", n)
		}
		f.created(t, "POST /contacts\n\n"+`{"email":"delivered@resend.dev","segments":[{"id":"`+segment+`"}]}`)
		if w := c.send(t, f, "full", "k", body); w.Code != 201 || c.count(f) != 1 {
			t.Errorf("with a contact: %d %s, %d broadcasts", w.Code, w.Body, c.count(f))
		}
	})
}
