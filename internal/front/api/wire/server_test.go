package wire

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire/wiretest"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// A team that exceeds its rate limit gets status 429 until the next second. The rate limit headers are present in every
// response.
func TestRateLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{RateLimit: 2})
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

// If there is no rate limit, responses have no rate limit headers.
func TestNoRateLimit(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	for range 50 {
		if w := f.do(t, "GET /api-keys"); w.Code != 200 || w.Header().Get("Ratelimit-Limit") != "" {
			t.Fatalf("%d %v", w.Code, w.Header())
		}
	}
}

// Requests with unknown API keys are limited per client address. A valid API key still works from an address that has
// reached the limit.
func TestGuessing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, Options{})
		f.do(t, "GET /api-keys")
		for range unknownKeysPerSecond {
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
	f := newFixture(t, Options{})
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

// If an error is not a fault, its cause is logged once and does not appear in the response.
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
			f := newRoute(t, Options{}, func(context.Context, *Call, None) (None, error) { return None{}, c.fail() })
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

// Overload is logged as a warning at a limited rate, and does not hide failures in the log.
func TestTooMuchIsNoFailure(t *testing.T) {
	t.Parallel()
	for name, cause := range map[string]error{"no place": db.ErrCrowded,
		"too long": db.ErrTooLong, "no room": errNoMemory} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			answer := fault.New(fault.Unavailable, "", "Not now.").Because(fmt.Errorf("read: %w", cause))
			f := newRoute(t, Options{}, func(context.Context, *Call, None) (None, error) { return None{}, answer })
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

// A client that disconnects causes no error in the log.
func TestClientGoesAway(t *testing.T) {
	t.Parallel()
	f := newRoute(t, Options{}, func(ctx context.Context, _ *Call, _ None) (None, error) {
		<-ctx.Done()
		return None{}, fmt.Errorf("read: %w", ctx.Err())
	})
	f.do(t, "GET /api-keys") // ensures that the server has cached the API key
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
	f := newRoute(t, Options{}, func(context.Context, *Call, None) (None, error) { panic(http.ErrAbortHandler) })
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

// Observe is called only for requests with a valid API key, and receives the original request and response.
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

// Request bodies of any size up to the limit are read completely, with or without Content-Length, and their memory is
// released.
func TestBodies(t *testing.T) {
	t.Parallel()
	const limit = 1 << 20
	f := newRoute(t, Options{BodyMax: limit}, func(_ context.Context, _ *Call, in echo) (int, error) {
		return len(in.Text),
			nil
	})
	s := wiretest.Serve(t, f)
	for _, n := range []int{0, 1, smallBody - len(`{"text":""}`), smallBody, limit - len(`{"text":""}`), limit} {
		body := `{"text":"` + strings.Repeat("x", n) + `"}`
		for kind, src := range map[string]io.Reader{"with a length": strings.NewReader(body),
			"in chunks": io.MultiReader(strings.NewReader(body))} {
			status, text := wiretest.Send(t, f.keys["full"], http.MethodPost, s.URL+"/test", src)
			want := strconv.Itoa(n)
			if n == limit {
				want = `{"statusCode":422,"message":"The request body is larger than 1048576 bytes. ` +
					`Link to large files instead of attaching them.",` +
					`"name":"validation_error"}`
			}
			if text != want || (status == 200) == (n == limit) {
				t.Errorf("%d bytes %s: %d %s", n, kind, status, text)
			}
		}
	}
	if !f.Capacity.Bodies.TryAcquire("any", bodiesMax) || !f.Capacity.BodyStarts.TryAcquire("any", bodyStartsMax) {
		t.Error("memory of bodies is not given back")
	}
}

// A request with a large body waits for memory for a limited time.
func TestTooManyLargeBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newRoute(t, Options{}, func(_ context.Context, _ *Call, in echo) (int, error) { return len(in.Text), nil })
		large := "POST /test\n\n" + `{"text":"` + strings.Repeat("x", mediumBody) + `"}`
		if err := f.Capacity.Bodies.Acquire(t.Context(), "another", bodiesMax); err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		wantError(t, f.do(t, large), 503, "service_unavailable")
		if waited := time.Since(start); waited != memoryWait {
			t.Errorf("waited %v", waited)
		}
		if w := f.do(t, "POST /test\n\n{\"text\":\"small\"}"); w.Body.String() != "5" {
			t.Errorf("a small body: %d %s", w.Code, w.Body)
		}
		time.AfterFunc(memoryWait/2, func() { f.Capacity.Bodies.Release("another", bodiesMax) })
		if w := f.do(t, large); w.Body.String() != strconv.Itoa(mediumBody) {
			t.Errorf("after waiting: %d %s", w.Code, w.Body)
		}
	})
}

// stuck is a request body that never ends.
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

// Operations without input do not wait for the request body.
func TestBodyIsNotReadInVain(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/api-keys", stuck{t.Context().Done()})
	r.Header.Set("Authorization", "Bearer "+f.keys["full"])
	w := httptest.NewRecorder()
	f.ServeHTTP(w, r)
	if w.Code != 200 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A HEAD request gets the same response as a GET request, but without the body. Load balancers send HEAD requests.
func TestHead(t *testing.T) {
	t.Parallel()
	f := newFixture(t, Options{})
	s := wiretest.Serve(t, f)
	status, text := wiretest.Send(t, f.keys["full"], http.MethodHead, s.URL+"/healthz", nil)
	if status != 200 || text != "" {
		t.Errorf("%d %q", status, text)
	}
	if status, _ := wiretest.Send(t, f.keys["full"], http.MethodHead, s.URL+"/emails/batch/x", nil); status != 404 {
		t.Errorf("a path that is not there: %d", status)
	}
}

// Each request is logged in one line. The level is debug if the request succeeds, and info if it fails with a client
// error.
func TestLog(t *testing.T) {
	t.Parallel()
	var log strings.Builder
	f := newFixture(t,
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

// New panics if an operation has no scope, so that the program does not start.
func TestOperationsWithoutScope(t *testing.T) {
	t.Parallel()
	defer func() {
		if p := recover(); !strings.Contains(fmt.Sprint(p), "GET /forgotten") {
			t.Errorf("recovered %v", p)
		}
	}()
	New(Options{Operations: []Operation{{Method: http.MethodGet, Path: "/forgotten"}}})
}
