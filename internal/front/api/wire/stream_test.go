package wire

import (
	"bufio"
	"context"
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

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire/wiretest"
	"github.com/postrider/postrider/internal/node/testnode"
)

// streaming returns a fixture and a server for it. The fixture has two operations: /stream, which responds with the
// given parts, and /short.
func streaming(t *testing.T, o Options, parts iter.Seq2[[]byte, error]) (*fixture, *httptest.Server) {
	t.Helper()
	operation := func(path string, parts iter.Seq2[[]byte, error]) Operation {
		return Operation{Method: http.MethodGet, Path: path, Scope: teams.WebhooksRead, Status: 200,
			Handler: Streaming[string](func(context.Context, *Call) (Stream, error) {
				return Stream{MediaType: "text/plain; charset=utf-8", FileName: "a.txt", Parts: parts}, nil
			}, MediaCSV)}
	}
	f := newFixture(t, o, operation("/stream", parts), operation("/short", func(yield func([]byte, error) bool) {
		yield([]byte("one\n"), nil)
	}))
	s := httptest.NewUnstartedServer(f)
	s.Config.ErrorLog = nil
	s.Start()
	t.Cleanup(s.Close)
	return f, s
}

// An error after the first part of a stream closes the connection, so that the client detects the truncation. The error
// is logged with its cause.
func TestStreamIsCut(t *testing.T) {
	t.Parallel()
	seen := make(chan RequestRecord, 1)
	f, s := streaming(t, Options{Observe: func(_ context.Context, r RequestRecord) { seen <- r }},
		func(yield func([]byte, error) bool) {
			_ = yield([]byte("one\n"), nil) && yield(nil, errors.New("the disk is gone"))
		})
	w := wiretest.Fetch(t, s, f.keys["full"], http.MethodGet, "/stream")
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

// An error before the first part of a stream causes an error response.
func TestStreamThatCannotBegin(t *testing.T) {
	t.Parallel()
	f, s := streaming(t, Options{}, func(yield func([]byte, error) bool) { yield(nil, errors.New("the disk is gone")) })
	w := wiretest.Fetch(t, s, f.keys["full"], http.MethodGet, "/stream")
	text, err := io.ReadAll(w.Body)
	if w.StatusCode != 500 || !strings.Contains(string(text), `"application_error"`) || err != nil {
		t.Errorf("%d %q, error %v", w.StatusCode, text, err)
	}
}

// A HEAD request reads only the first part of a stream.
func TestStreamForHead(t *testing.T) {
	t.Parallel()
	parts := 0
	f, s := streaming(t, Options{}, func(yield func([]byte, error) bool) {
		for parts++; yield([]byte("one\n"), nil); parts++ {
		}
	})
	w := wiretest.Fetch(t, s, f.keys["full"], http.MethodHead, "/stream")
	if w.StatusCode != 200 || w.Header.Get("Content-Disposition") != `attachment; filename="a.txt"` || parts != 1 {
		t.Errorf("%d %v, %d parts", w.StatusCode, w.Header, parts)
	}
}

// A stream ends when its client disconnects or its API key is deleted. The number of streams per team is limited.
func TestStreamsOfOneTeam(t *testing.T) {
	t.Parallel()
	var open atomic.Int32
	f, s := streaming(t, Options{}, func(yield func([]byte, error) bool) {
		open.Add(1)
		defer open.Add(-1)
		for yield([]byte("one more line\n"), nil) {
		}
	})
	var all []*http.Response
	for range exportsPerTeamMax {
		w := wiretest.Fetch(t, s, f.keys["full"], http.MethodGet, "/stream")
		if line, err := bufio.NewReader(w.Body).ReadString('\n'); line != "one more line\n" {
			t.Fatalf("%d %q %v", w.StatusCode, line, err)
		}
		all = append(all, w)
	}
	w := wiretest.Fetch(t, s, f.keys["full"], http.MethodGet, "/stream")
	text, _ := io.ReadAll(w.Body)
	if w.StatusCode != 429 || !strings.Contains(string(text), `"rate_limit_exceeded"`) {
		t.Errorf("one more: %d %s", w.StatusCode, text)
	}
	if w := f.do(t, "GET /short\nAuthorization: other"); w.Code != 200 {
		t.Errorf("another team: %d %s", w.Code, w.Body)
	}
	all[0].Body.Close()
	testnode.Until(t, "the stream ends with its client", func() bool { return open.Load() == exportsPerTeamMax-1 })
	testnode.Until(t, "its place is free", func() bool {
		return f.Capacity.Exports.Held(f.Acme.TeamID) == exportsPerTeamMax-1
	})
	f.Must(f.Teams.DeleteKey(t.Context(), f.Acme.TeamID, f.Acme.ID))
	for _, w := range all[1:] {
		if _, err := io.Copy(io.Discard, w.Body); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("a key that is deleted: %v", err)
		}
	}
	testnode.Until(t, "all have ended", func() bool {
		return open.Load() == 0 && f.Capacity.Exports.Held(f.Acme.TeamID) == 0
	})
	if log := f.log.String(); strings.Contains(log, "level=ERROR") {
		t.Errorf("failures of ours: %s", log)
	}
}

// A client that stops reading the response is disconnected after a timeout.
func TestSlowReader(t *testing.T) {
	t.Parallel()
	w := &sluggish{ResponseRecorder: httptest.NewRecorder()}
	err := writePart(w, make([]byte, 3*streamPiece))
	if !errors.Is(err, errClientGone) || w.pieces != 2 || w.deadlines != 2 {
		t.Errorf("after %d pieces with %d deadlines: %v", w.pieces, w.deadlines, err)
	}
}

// sluggish is a client that receives only the first write.
type sluggish struct {
	*httptest.ResponseRecorder
	pieces, deadlines int
}

func (w *sluggish) SetWriteDeadline(at time.Time) error {
	if left := time.Until(at); left < 0 || left > streamPieceTimeout {
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
