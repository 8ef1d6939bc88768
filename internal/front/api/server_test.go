package api

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// newRoute is an API with one more operation, POST /test, which does do.
func newRoute[In, Out any](t testing.TB, o Options, do func(context.Context, *Call, In) (Out, error)) *fixture {
	t.Helper()
	f := newFixture(t, dbtest.SQLite(t), o)
	f.mount(append(f.operations(), op{http.MethodPost, "/test", teams.LogsRead, 200, "Tests", "Test", nil,
		endpoint(do)}))
	return f
}

func wantError(t *testing.T, w *httptest.ResponseRecorder, status int, name string) {
	t.Helper()
	var e envelope
	if err := json.Unmarshal(w.Body.Bytes(), &e); err != nil || w.Code != status || e.StatusCode != status ||
		e.Name != name || e.Message == "" {
		t.Errorf("answer %d %s, want %d %s", w.Code, w.Body, status, name)
	}
	if ct := w.Header().Get("Content-Type"); ct != "application/json; charset=utf-8" {
		t.Errorf("Content-Type %q", ct)
	}
}

// A team that makes more requests than it may in a second is told so, in every answer; the next second is a new one.
func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.SQLite(t), Options{RateLimit: 2})
		type answer struct{ Status, Limit, Remaining, Reset, Policy, Retry string }
		ask := func(text string) answer {
			w := f.do(t, text)
			h := w.Header()
			if w.Code == http.StatusTooManyRequests {
				wantError(t, w, http.StatusTooManyRequests, "rate_limit_exceeded")
			}
			return answer{strconv.Itoa(w.Code), h.Get("Ratelimit-Limit"), h.Get("Ratelimit-Remaining"), h.Get("Ratelimit-Reset"),
				h.Get("Ratelimit-Policy"), h.Get("Retry-After")}
		}
		want := []answer{{"200", "2", "1", "1", "2;w=1", ""}, {"404", "2", "0", "1", "2;w=1", ""},
			{"429", "2", "0", "1", "2;w=1", "1"}}
		for _, wait := range []time.Duration{0, time.Second} {
			time.Sleep(wait)
			got := []answer{ask("GET /api-keys"), ask("GET /nowhere"), ask("POST /emails\nAuthorization: sending")}
			if diff := gocmp.Diff(want, got); diff != "" {
				t.Errorf("after %v: %s", wait, diff)
			}
		}
		if got := ask("GET /api-keys\nAuthorization: other"); got.Status != "200" {
			t.Errorf("another team: %+v", got)
		}
		if got := ask("GET /api-keys\nAuthorization: -"); got != (answer{Status: "401"}) {
			t.Errorf("nobody: %+v", got)
		}
		if got := ask("GET /healthz"); got != (answer{Status: "200"}) {
			t.Errorf("an open operation: %+v", got)
		}
		err := f.DB.Update(t.Context(), func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE teams SET rate_limit = 3 WHERE name = 'other'`)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(6 * time.Second)
		if got := ask("GET /api-keys\nAuthorization: other"); got.Limit != "3" || got.Remaining != "2" {
			t.Errorf("a team with a limit of its own: %+v", got)
		}
	})
}

// Without a limit there are no headers about one.
func TestNoRateLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	for range 50 {
		if w := f.do(t, "GET /api-keys"); w.Code != 200 || w.Header().Get("Ratelimit-Limit") != "" {
			t.Fatalf("%d %v", w.Code, w.Header())
		}
	}
}

// Whoever guesses keys is slowed down; who has one is not, even at the same address.
func TestGuessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, dbtest.SQLite(t), Options{})
		f.do(t, "GET /api-keys")
		for range guessesPerSecond {
			wantError(t, f.do(t, "GET /api-keys\nAuthorization: Bearer re_"+id.New()), 401, "validation_error")
		}
		wantError(t, f.do(t, "GET /api-keys\nAuthorization: Bearer re_"+id.New()), 429, "rate_limit_exceeded")
		wantError(t, f.do(t, "GET /api-keys\nAuthorization: -"), 401, "missing_api_key")
		if w := f.do(t, "GET /api-keys"); w.Code != 200 {
			t.Errorf("a known key: %d %s", w.Code, w.Body)
		}
		time.Sleep(time.Second)
		wantError(t, f.do(t, "GET /api-keys\nAuthorization: Bearer re_"+id.New()), 401, "validation_error")
	})
}

func TestRequestID(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	for given, kept := range map[string]bool{"abc-123": true, "-": false, strings.Repeat("x", 100): true,
		strings.Repeat("x", 101): false,
		"a b":                    false, "é": false} {
		got := f.do(t, "GET /nowhere\nX-Request-Id: "+given).Header().Get("X-Request-Id")
		if kept && got != given || !kept && !id.Valid(got) {
			t.Errorf("given %q: %q", given, got)
		}
		if !strings.Contains(f.log.String(), "request_id="+got) {
			t.Errorf("%q is not in the log", got)
		}
	}
}

// What is not a fault is answered in general words, and logged once with its cause.
func TestFailuresOfOurs(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		fail   func() error
		status int
		wire   string
	}{
		{"an error", func() error { return fmt.Errorf("read: %w", errors.New("secret cause")) }, 500, "application_error"},
		{"a panic", func() error { panic("secret cause") }, 500, "application_error"},
		{"unavailable", func() error {
			return fault.New(fault.Unavailable, "", "Not now.").Because(errors.New("secret cause"))
		}, 503, "service_unavailable"},
		{"an error with a deadline", func() error { return fmt.Errorf("secret cause: %w", context.DeadlineExceeded) }, 503,
			"service_unavailable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			f := newRoute(t, Options{}, func(context.Context, *Call, none) (none, error) { return none{}, c.fail() })
			w := f.do(t, "POST /test")
			wantError(t, w, c.status, c.wire)
			if strings.Contains(w.Body.String(), "secret") {
				t.Errorf("the cause is shown: %s", w.Body)
			}
			if c.status == 503 && w.Header().Get("Retry-After") == "" {
				t.Error("no Retry-After")
			}
			log := f.log.String()
			if strings.Count(log, "secret cause") != 1 || strings.Count(log, "level=ERROR") != 1 ||
				!strings.Contains(log, "request_id="+w.Header().Get("X-Request-Id")) {
				t.Errorf("log:\n%s", log)
			}
			if c.name == "a panic" && !strings.Contains(log, "server_test.go") {
				t.Errorf("no stack in the log:\n%s", log)
			}
		})
	}
}

// What is refused because too much is asked for is a warning, of which few are logged, and hides no failure.
func TestTooMuchIsNoFailure(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]error{"no place": db.ErrCrowded, "too long": db.ErrTooLong, "no room": errFull} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := fault.New(fault.Unavailable, "", "Not now.").Because(fmt.Errorf("read: %w", cause))
			f := newRoute(t, Options{}, func(context.Context, *Call, none) (none, error) { return none{}, answer })
			for range 3 {
				wantError(t, f.do(t, "POST /test"), 503, "service_unavailable")
			}
			log := f.log.String()
			if strings.Count(log, "level=WARN") != 1 || strings.Contains(log, "level=ERROR") ||
				!strings.Contains(log, cause.Error()) {
				t.Errorf("log:\n%s", log)
			}
			answer = answer.Because(db.ErrUnavailable)
			wantError(t, f.do(t, "POST /test"), 503, "service_unavailable")
			if strings.Count(f.log.String(), "level=ERROR") != 1 {
				t.Errorf("with a failure, log:\n%s", f.log)
			}
		})
	}
}

// A client that goes away is no failure of ours.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	f := newRoute(t, Options{}, func(ctx context.Context, _ *Call, _ none) (none, error) {
		<-ctx.Done()
		return none{}, fmt.Errorf("read: %w", ctx.Err())
	})
	f.do(t, "GET /api-keys") // so that the key is known
	ctx, cancel := context.WithCancel(t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/test", nil)
	r.Header.Set("Authorization", "Bearer "+f.keys["full"])
	cancel()
	f.ServeHTTP(httptest.NewRecorder(), r)
	if strings.Contains(f.log.String(), "ERROR") {
		t.Errorf("log:\n%s", f.log)
	}
}

func TestAbortedHandlerStaysAborted(t *testing.T) {
	t.Parallel()
	f := newRoute(t, Options{}, func(context.Context, *Call, none) (none, error) { panic(http.ErrAbortHandler) })
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("recovered %v", p)
		}
	}()
	f.do(t, "POST /test")
}

type echo struct {
	Text string `json:"text"`
}

// The observer sees each request with a known key as it was, and no other.
func TestObserver(t *testing.T) {
	t.Parallel()
	var seen []RequestRecord
	f := newRoute(t, Options{Observe: func(_ context.Context, r RequestRecord) {
		if r.Start.IsZero() || r.Duration <= 0 || !id.Valid(r.ID) || r.Kind != teams.KeyActor || !id.Valid(r.Actor.ID) {
			t.Errorf("%+v", r)
		}
		r.Start, r.Duration, r.ID, r.Actor = time.Time{}, 0, "", teams.Actor{TeamID: r.TeamID}
		r.Body, r.Answer = bytes.Clone(r.Body), bytes.Clone(r.Answer)
		seen = append(seen, r)
	}}, func(_ context.Context, _ *Call, in echo) (echo, error) { return in, nil })
	f.do(t, "POST /test/?a=1\n\n{ \"text\":\"<&>\" }")
	f.do(t, "POST /test\n\n{")
	f.do(t, "POST /test\nAuthorization: -")
	f.do(t, "POST /test\nAuthorization: Bearer re_x")
	f.do(t, "GET /healthz")
	f.do(t, "DELETE /api-keys/x\nAuthorization: sending")
	want := []RequestRecord{
		{Method: "POST", Path: "/test", UserAgent: "scenario/1", Status: 200, Body: []byte(`{ "text":"<&>" }`),
			Answer: []byte(`{"text":"<&>"}`)},
		{Method: "POST", Path: "/test", UserAgent: "scenario/1", Status: 400, Body: []byte(`{`),
			Answer: []byte(`{"statusCode":400,` +
				`"message":"The request body is not valid JSON: it ends too early.","name":"validation_error"}`)},
		{Method: "DELETE", Path: "/api-keys/x", UserAgent: "scenario/1", Status: 401,
			Answer: []byte(`{"statusCode":401,"message":` +
				`"This API key is restricted to only send emails. Use a key with full access.","name":"restricted_api_key"}`)},
	}
	for i := range want {
		want[i].TeamID = f.Acme.TeamID
	}
	if diff := gocmp.Diff(want, seen); diff != "" {
		t.Error(diff)
	}
}

// listening is the API behind a true server.
func listening(t *testing.T, f *fixture) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(f)
	t.Cleanup(s.Close)
	return s
}

func send(t *testing.T, f *fixture, method, url string, body io.Reader) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.keys["full"])
	w, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		t.Fatal(err)
	}
	return w.StatusCode, string(text)
}

// Bodies of any size and with or without a length arrive whole, up to the limit, and free what they took.
func TestBodies(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	f := newRoute(t, Options{BodyMax: limit}, func(_ context.Context, _ *Call, in echo) (int, error) {
		return len(in.Text),
			nil
	})
	s := listening(t, f)
	for _, n := range []int{0, 1, bodyIsLarge - len(`{"text":""}`), bodyIsLarge, limit - len(`{"text":""}`), limit} {
		body := `{"text":"` + strings.Repeat("x", n) + `"}`
		for kind, src := range map[string]io.Reader{"with a length": strings.NewReader(body),
			"in chunks": io.MultiReader(strings.NewReader(body))} {
			status, text := send(t, f, http.MethodPost, s.URL+"/test", src)
			want := strconv.Itoa(n)
			if n == limit {
				want = `{"statusCode":422,"message":"The request body is larger than 1048576 bytes. Link to large files instead of attaching them.",` +
					`"name":"validation_error"}`
			}
			if text != want || (status == 200) == (n == limit) {
				t.Errorf("%d octets %s: %d %s", n, kind, status, text)
			}
		}
	}
	if !f.bodies.TryAcquire("any", bodiesMax) || !f.begun.TryAcquire("any", begunMax) {
		t.Error("memory of bodies is not given back")
	}
}

// Large bodies wait for memory, for a while.
func TestTooManyLargeBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRoute(t, Options{}, func(_ context.Context, _ *Call, in echo) (int, error) { return len(in.Text), nil })
		large := "POST /test\n\n" + `{"text":"` + strings.Repeat("x", bodyIsMedium) + `"}`
		if err := f.bodies.Acquire(t.Context(), "another", bodiesMax); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		wantError(t, f.do(t, large), 503, "service_unavailable")
		if waited := time.Since(start); waited != bodyWait {
			t.Errorf("waited %v", waited)
		}
		if w := f.do(t, "POST /test\n\n{\"text\":\"small\"}"); w.Body.String() != "5" {
			t.Errorf("a small body: %d %s", w.Code, w.Body)
		}
		time.AfterFunc(bodyWait/2, func() { f.bodies.Release("another", bodiesMax) })
		if w := f.do(t, large); w.Body.String() != strconv.Itoa(bodyIsMedium) {
			t.Errorf("after waiting: %d %s", w.Code, w.Body)
		}
	})
}

// stuck is a body that never ends.
type stuck struct{ closed <-chan struct{} }

func (s stuck) Read([]byte) (int, error) { <-s.closed; return 0, io.ErrUnexpectedEOF }

func TestBodyBreaksOff(t *testing.T) {
	t.Parallel()
	f := newRoute(t, Options{}, func(_ context.Context, _ *Call, in echo) (int, error) { return len(in.Text), nil })
	for _, text := range []string{"POST /test\nContent-Length: 100\n\n{\"text\":\"x\"}",
		"POST /test\nContent-Length: 1000000\n\n{\"text\":\"x\"}",
		"POST /test\nContent-Length: -\nTransfer-Encoding: chunked\n\n7\r\n{\"text\""} {
		wantError(t, f.do(t, text), 400, "validation_error")
	}
}

// Operations without input do not wait for a body.
func TestBodyIsNotReadInVain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api-keys", stuck{t.Context().Done()})
	r.Header.Set("Authorization", "Bearer "+f.keys["full"])
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// HEAD is GET without the body; load balancers use it.
func TestHead(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	s := listening(t, f)
	if status, text := send(t, f, http.MethodHead, s.URL+"/healthz", nil); status != 200 || text != "" {
		t.Errorf("%d %q", status, text)
	}
	if status, _ := send(t, f, http.MethodHead, s.URL+"/emails/batch/x", nil); status != 404 {
		t.Errorf("a path that is not there: %d", status)
	}
}

func TestReadyz(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t),
		Options{Ready: func(context.Context) error { return errors.New("the database does not answer") }})
	if w := f.do(t, "GET /readyz"); w.Code != 503 ||
		w.Body.String() != `{"status":"unavailable: the database does not answer"}` {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// One line is logged for a request: at debug when it went well, at info when the client erred.
func TestLog(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	f := newFixture(t, dbtest.SQLite(t),
		Options{Log: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	f.do(t, "GET /api-keys?limit=1")
	f.do(t, "GET /nowhere")
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	for i, want := range []string{"level=DEBUG msg=request", "level=INFO msg=request"} {
		if len(lines) != 2 || !strings.Contains(lines[i], want) || !strings.Contains(lines[i], "team="+f.Acme.TeamID) {
			t.Fatalf("log:\n%s", log.String())
		}
	}
	if strings.Contains(log.String(), f.keys["full"]) {
		t.Error("the key is in the log")
	}
}

// deletedAnyway are the operations that answer in the same way whether there was something to delete or not.
var deletedAnyway = []string{"DELETE /segments/{segment_id}", "DELETE /audiences/{audience_id}",
	"DELETE /audiences/{audience_id}/contacts/{contact}"}

// Every operation, asked for the things of another team, knows nothing of them.
func TestOtherTeams(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		create := func(path, body string) string {
			t.Helper()
			w := f.do(t, "POST "+path+"\n\n"+body)
			var made struct {
				ID string `json:"id"`
			}
			if err := json.Unmarshal(w.Body.Bytes(), &made); err != nil || w.Code >= 300 {
				t.Fatalf("%s: %d %s", path, w.Code, w.Body)
			}
			return made.ID
		}
		ids := map[string]string{
			"domain_id":   f.verified("example.org").ID,
			"api_key_id":  create("/api-keys", `{"name":"x"}`),
			"webhook_id":  create("/webhooks", `{"endpoint":"https://hooks.example.org","events":["suppression.added"]}`),
			"suppression": create("/suppressions", `{"email":"a@example.org"}`),
			"template":    create("/templates", `{"name":"x","html":"<p>example</p>"}`),
			"version":     "1",
			"import_id":   f.importing(t, "email\na@example.org\n", nil),
			"contact":     create("/contacts", `{"email":"c@example.org"}`),
			"segment_id":  create("/segments", `{"name":"x"}`),
			"erasure_id":  create("/contacts/nobody@example.org/erase", "{}"),
			"topic_id":    create("/topics", `{"name":"x","default_subscription":"opt_in"}`),
			"event":       create("/events", `{"name":"x"}`),
			"user_id":     f.Member(f.Acme.TeamID, "member@example.org", teams.Member).ID,

			"invitation_id": create("/team/invitations", `{"email":"a@example.net","role":"viewer"}`),

			"contact_property_id": create("/contact-properties", `{"key":"x","type":"string"}`),
			"broadcast_id": create("/broadcasts", `{"from":"a@example.org","subject":"s","text":"t","segment_id":"`+
				f.segment("c@example.org")+`"}`),
			"automation_id": create("/automations", `{"name":"x","status":"enabled","connections":[],"steps":`+
				`[{"key":"a","type":"trigger","config":{"event_name":"e"}}]}`),
			"other": "1",
			"email_id": create("/emails", `{"from":"a@example.org","to":"b@example.net","subject":"s","text":"t","scheduled_at":"in 1 hour",`+
				`"attachments":[{"filename":"a","content":"YQ=="}]}`),
		}
		var files list[ref]
		if err := json.Unmarshal(f.do(t, "GET /emails/"+ids["email_id"]+"/attachments").Body.Bytes(), &files); err != nil ||
			len(files.Data) != 1 {
			t.Fatalf("%+v, error %v", files, err)
		}
		ids["attachment_id"] = files.Data[0].ID
		f.remember(t)
		f.do(t, "GET /api-keys")
		var logs list[ref]
		if err := json.Unmarshal(f.do(t, "GET /logs").Body.Bytes(), &logs); err != nil || len(logs.Data) != 1 {
			t.Fatalf("%+v, error %v", logs, err)
		}
		ids["log_id"] = logs.Data[0].ID
		var told list[ref]
		if err := json.Unmarshal(f.do(t, "GET /webhooks/"+ids["webhook_id"]+"/events").Body.Bytes(), &told); err != nil ||
			len(told.Data) != 1 {
			t.Fatalf("%+v, error %v", told, err)
		}
		f.do(t, `POST /events/send`+"\n\n"+`{"event":"e","email":"c@example.org"}`)
		var runs list[ref]
		if err := json.Unmarshal(f.do(t, "GET /automations/"+ids["automation_id"]+"/runs").Body.Bytes(), &runs); err != nil ||
			len(runs.Data) != 1 {
			t.Fatalf("%+v, error %v", runs, err)
		}
		ids["run_id"] = runs.Data[0].ID
		ids["approval_id"] = create("/approvals", `{"from":"x@example.org","to":"c@reader.example","subject":"x","text":"x"}`)
		f.grant("full_access")
		var granted list[ref]
		if err := json.Unmarshal(f.do(t, "GET /oauth/grants").Body.Bytes(), &granted); err != nil || len(granted.Data) != 1 {
			t.Fatalf("%+v, error %v", granted, err)
		}
		ids["oauth_grant_id"] = granted.Data[0].ID
		ids["webhook_event_id"] = told.Data[0].ID
		ids["audience_id"] = ids["segment_id"]
		create("/contacts/"+ids["contact"]+"/segments/"+ids["segment_id"], "")
		body := `{"name":"x","email":"d@example.org","topics":[],"fallback_value":"x","scheduled_at":"in 2 hours",` +
			`"tls":"enforced","role":"viewer","since":"` +
			time.Now().Add(-time.Hour).Format(time.RFC3339) + `"}`
		asked := 0
		for _, o := range f.ops {
			if !strings.Contains(o.path, "{") {
				continue
			}
			path := pathParam.ReplaceAllStringFunc(o.path, func(p string) string {
				if ids[p[1:len(p)-1]] == "" {
					t.Errorf("%s: this test makes no %s", o.path, p)
				}
				return ids[p[1:len(p)-1]]
			})
			asked++
			w := f.do(t, o.method+" "+path+"\nAuthorization: other\n\n"+cmp.Or(rightBodies[o.method+" "+o.path], body))
			if slices.Contains(deletedAnyway, o.method+" "+o.path) {
				if w.Code != 200 {
					t.Errorf("%s %s: %d %s", o.method, path, w.Code, w.Body)
				}
				continue
			}
			wantError(t, w, 404, "not_found")
			if strings.Contains(w.Body.String(), "example") {
				t.Errorf("%s %s tells of another team: %s", o.method, path, w.Body)
			}
		}
		if asked < 15 {
			t.Errorf("%d operations asked", asked)
		}
		if w := f.do(t, "GET /segments/"+ids["segment_id"]+"/contacts"); !strings.Contains(w.Body.String(), ids["contact"]) {
			t.Errorf("another team deleted a segment or a contact: %d %s", w.Code, w.Body)
		}
		for _, path := range []string{"/emails", "/domains", "/suppressions", "/contacts", "/contacts/imports", "/segments",
			"/audiences", "/topics", "/contact-properties", "/events", "/oauth/grants"} {
			if w := f.do(t, "GET "+path+"\nAuthorization: other"); w.Body.String() != `{"object":"list","has_more":false,"data":[]}` {
				t.Errorf("%s: %s", path, w.Body)
			}
		}
		if w := f.do(t, "GET /emails/"+ids["email_id"]); w.Code != 200 ||
			!strings.Contains(w.Body.String(), `"last_event":"scheduled"`) {
			t.Errorf("the email afterwards: %s", w.Body)
		}
	})
}
