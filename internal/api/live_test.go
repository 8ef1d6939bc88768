package api

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
)

// watch opens a stream and returns a function that reads its next block of lines.
func (f *office) watch(t *testing.T, s *httptest.Server, query, key, last string) (status int, next func() string) {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), 30*time.Second)
	t.Cleanup(stop)
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/webhooks/listen"+query, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.keys[key])
	if last != "" {
		r.Header.Set("Last-Event-ID", last)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { answer.Body.Close() })
	lines := bufio.NewScanner(answer.Body)
	return answer.StatusCode, func() string {
		block := ""
		for lines.Scan() && lines.Text() != "" {
			block += lines.Text() + "\n"
		}
		return block
	}
}

func TestListen(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newOffice(t, d, Options{})
		s := httptest.NewServer(f)
		defer s.Close()
		defer f.Services.Live.Close()
		status, next := f.watch(t, s, "?events=domain.created,suppression.added", "full", "")
		if first := next(); status != 200 || first != ": watching\n" {
			t.Fatalf("%d %q", status, first)
		}
		_, others := f.watch(t, s, "", "other", "")
		others()
		f.do(t, "POST /api-keys\n\n"+`{"name":"x"}`)
		f.do(t, "POST /domains\n\n"+`{"name":"example.org"}`)
		f.do(t, "POST /suppressions\n\n"+`{"email":"a@example.net"}`)
		created, suppressed := next(), next()
		if !strings.HasPrefix(created, "id: msg_") || !strings.Contains(created, "\nevent: domain.created\ndata: {\"type\":\"domain.created\",") {
			t.Errorf("first %q", created)
		}
		if !strings.Contains(suppressed, "\nevent: suppression.added\n") || !strings.Contains(suppressed, `"email":"a@example.net"`) {
			t.Errorf("second %q", suppressed)
		}
		f.do(t, "POST /suppressions\nAuthorization: other\n\n"+`{"email":"b@example.net"}`)
		if got := others(); !strings.Contains(got, "b@example.net") {
			t.Errorf("the other team sees %q", got)
		}

		f.do(t, "POST /suppressions\n\n"+`{"email":"c@example.net"}`)
		id, _, _ := strings.Cut(strings.TrimPrefix(suppressed, "id: "), "\n")
		_, again := f.watch(t, s, "?events=suppression.added", "full", id)
		again()
		if got := again(); !strings.Contains(got, "c@example.net") {
			t.Errorf("after an interruption it shows %q", got)
		}
		wantError(t, f.do(t, "GET /webhooks/listen\nAuthorization: sending"), 401, "restricted_api_key")
		wantError(t, f.do(t, "GET /webhooks/listen\nAuthorization: -"), 401, "missing_api_key")
		wantError(t, f.do(t, "GET /webhooks/listen\nAuthorization: suspended"), 403, "suspended_api_key")
		wantError(t, f.do(t, "GET /webhooks/listen?events=nonsense"), 422, "validation_error")
	})
}

// A stream that is open is not in the request log, and what it showed even less.
func TestListenIsNotLogged(t *testing.T) {
	t.Parallel()
	f := newOffice(t, dbtest.SQLite(t), Options{})
	seen := make(chan RequestRecord, 2)
	f.Observe = func(_ context.Context, r RequestRecord) { seen <- r }
	f.Services.Live.Close()
	f.do(t, "GET /webhooks/listen")
	if r := <-seen; r.Logged() || len(r.Answer) > 0 || r.Status != 200 {
		t.Errorf("%+v", r)
	}
}

// A stream ends soon after its key was deleted, also when there is always something to show.
func TestListenWithADeletedKey(t *testing.T) {
	t.Parallel()
	f := newOffice(t, dbtest.SQLite(t), Options{Heartbeat: 20 * time.Millisecond})
	s := httptest.NewServer(f)
	defer s.Close()
	defer f.Services.Live.Close()
	made := f.do(t, "POST /api-keys\n\n"+`{"name":"short-lived"}`)
	var key struct{ ID, Token string }
	if err := json.Unmarshal(made.Body.Bytes(), &key); err != nil {
		t.Fatal(err)
	}
	f.keys["short-lived"] = key.Token
	_, next := f.watch(t, s, "", "short-lived", "")
	next()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for next() != "" {
		}
	}()
	f.do(t, "DELETE /api-keys/"+key.ID)
	for i := 0; ; i++ {
		select {
		case <-ended:
			if i > 3000 {
				t.Error("the stream went on")
			}
			return
		default:
			f.do(t, "POST /suppressions\n\n"+fmt.Sprintf(`{"email":"a%d@example.net"}`, i))
		}
	}
}
