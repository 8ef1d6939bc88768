package api

import (
	"bufio"
	"context"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// streaming is a fixture with an operation whose stream a test makes, on a server.
func streaming(t *testing.T, parts iter.Seq2[[]byte, error]) (*fixture, *httptest.Server) {
	t.Helper()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	o := op{http.MethodGet, "/stream", exportScope, 200, "", "", nil,
		streamed[string](func(context.Context, *Call) (stream, error) {
			return stream{media: "text/plain; charset=utf-8", file: "a.txt", parts: parts}, nil
		}, mediaCSV)}
	f.mount(append(f.operations(), o))
	s := httptest.NewUnstartedServer(f)
	s.Config.ErrorLog = nil
	s.Start()
	t.Cleanup(s.Close)
	return f, s
}

const exportScope = listenScope // any that a full key has and a sending key has not

func (f *fixture) fetch(t *testing.T, s *httptest.Server, method, path string) *http.Response {
	t.Helper()
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(stop)
	r, err := http.NewRequestWithContext(ctx, method, s.URL+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+f.keys["full"])
	w, err := s.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Body.Close() })
	return w
}

// An error in the middle of a stream cuts the answer, so that nobody takes it for whole, and is logged with its cause.
func TestStreamIsCut(t *testing.T) {
	t.Parallel()
	f, s := streaming(t, func(yield func([]byte, error) bool) {
		_ = yield([]byte("one\n"), nil) && yield(nil, errors.New("the disk is gone"))
	})
	seen := make(chan RequestRecord, 1)
	f.Observe = func(_ context.Context, r RequestRecord) { seen <- r }
	w := f.fetch(t, s, http.MethodGet, "/stream")
	text, err := io.ReadAll(w.Body)
	if w.StatusCode != 200 || string(text) != "one\n" || !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("%d %q, error %v", w.StatusCode, text, err)
	}
	if r := <-seen; r.Status != 500 || len(r.Answer) > 0 {
		t.Errorf("the request log has %d %q", r.Status, r.Answer)
	}
	if log := f.log.String(); !strings.Contains(log, "the disk is gone") || !strings.Contains(log, "level=ERROR") {
		t.Errorf("the log has %s", log)
	}
}

// An error before anything was written is answered like any other.
func TestStreamThatCannotBegin(t *testing.T) {
	t.Parallel()
	f, s := streaming(t, func(yield func([]byte, error) bool) { yield(nil, errors.New("the disk is gone")) })
	w := f.fetch(t, s, http.MethodGet, "/stream")
	text, err := io.ReadAll(w.Body)
	if w.StatusCode != 500 || !strings.Contains(string(text), `"application_error"`) || err != nil {
		t.Errorf("%d %q, error %v", w.StatusCode, text, err)
	}
}

// A HEAD request reads nothing but the first part.
func TestStreamForHead(t *testing.T) {
	t.Parallel()
	parts := 0
	f, s := streaming(t, func(yield func([]byte, error) bool) {
		for parts++; yield([]byte("one\n"), nil); parts++ {
		}
	})
	w := f.fetch(t, s, http.MethodHead, "/stream")
	if w.StatusCode != 200 || w.Header.Get("Content-Disposition") != `attachment; filename="a.txt"` || parts != 1 {
		t.Errorf("%d %v, %d parts", w.StatusCode, w.Header, parts)
	}
}

// A client that goes away ends its stream and gives back its place, and so does a key that is deleted meanwhile. A team
// has a number of places.
func TestStreamsOfOneTeam(t *testing.T) {
	t.Parallel()
	var open atomic.Int32
	f, s := streaming(t, func(yield func([]byte, error) bool) {
		open.Add(1)
		defer open.Add(-1)
		for yield([]byte("one more line\n"), nil) {
		}
	})
	var all []*http.Response
	for range streamsOfTeam {
		w := f.fetch(t, s, http.MethodGet, "/stream")
		if line, err := bufio.NewReader(w.Body).ReadString('\n'); line != "one more line\n" {
			t.Fatalf("%d %q %v", w.StatusCode, line, err)
		}
		all = append(all, w)
	}
	w := f.fetch(t, s, http.MethodGet, "/stream")
	text, _ := io.ReadAll(w.Body)
	if w.StatusCode != 429 || !strings.Contains(string(text), `"rate_limit_exceeded"`) {
		t.Errorf("one more: %d %s", w.StatusCode, text)
	}
	if w := f.do(t, "GET /emails/export\nAuthorization: other"); w.Code != 200 {
		t.Errorf("another team: %d %s", w.Code, w.Body)
	}
	all[0].Body.Close()
	testnode.Until(t, "the stream ends with its client", func() bool { return open.Load() == streamsOfTeam-1 })
	testnode.Until(t, "its place is free", func() bool { return f.streams.Held(f.Acme.TeamID) == streamsOfTeam-1 })
	f.Must(f.Services.Teams.DeleteKey(t.Context(), f.Acme.TeamID, f.Acme.ID))
	for _, w := range all[1:] {
		if _, err := io.Copy(io.Discard, w.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a key that is deleted: %v", err)
		}
	}
	testnode.Until(t, "all have ended", func() bool { return open.Load() == 0 && f.streams.Held(f.Acme.TeamID) == 0 })
	if log := f.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("failures of ours: %s", log)
	}
}

// A client that receives nothing is disconnected in the end, however long it would keep the connection.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	w := &sluggish{ResponseRecorder: httptest.NewRecorder()}
	err := writePaced(w, make([]byte, 3*streamPiece))
	if !errors.Is(err, errGone) || w.pieces != 2 || w.deadlines != 2 {
		t.Errorf("after %d pieces with %d deadlines: %v", w.pieces, w.deadlines, err)
	}
}

// sluggish takes one piece.
type sluggish struct {
	*httptest.ResponseRecorder
	pieces, deadlines int
}

func (w *sluggish) SetWriteDeadline(at time.Time) error {
	if left := time.Until(at); left < 0 || left > streamPatience {
		return fmt.Errorf("a deadline in %v", left)
	}
	w.deadlines++
	return nil
}

func (w *sluggish) Write(p []byte) (int, error) {
	if w.pieces++; w.pieces > 1 {
		return 0, context.DeadlineExceeded
	}
	return len(p), nil
}

// An export has what the list has, and nothing of another team; it is not kept in the request log, which names it.
func TestExportOfLogs(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.remember(t)
		f.do(t, "GET /domains\nUser-Agent: =1+1")
		f.do(t, "POST /domains\nUser-Agent: \"a,b\"\n\n{}")
		f.do(t, "GET /domains\nAuthorization: other")
		f.do(t, "GET /suppressions/export")
		w := f.do(t, "GET /logs/export?formulas=quote")
		rows, err := csv.NewReader(w.Body).ReadAll()
		if err != nil || len(rows) != 4 {
			t.Fatalf("%d %q, %v", w.Code, rows, err)
		}
		for i, want := range []string{"method endpoint response_status user_agent", "GET /suppressions/export 200 scenario/1",
			`POST /domains 422 "a,b"`, "GET /domains 200 '=1+1"} {
			if got := strings.Join([]string{rows[i][1], rows[i][2], rows[i][3], rows[i][5]}, " "); got != want {
				t.Errorf("row %d is %s, want %s", i, got, want)
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM request_logs WHERE response_body LIKE '%endpoint%'`); n > 0 {
			t.Errorf("%d answers are kept", n)
		}
	})
}
