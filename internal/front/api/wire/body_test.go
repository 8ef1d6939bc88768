package wire

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/platform/fairshare"
)

// pipes is a listener for in-memory connections, which work with the fake clock of synctest.
type pipes struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// bodyStartsTest is enough memory for the first eighth of each of eight 4 MB bodies. bodiesTest is enough memory for
// four whole 4 MB bodies.
const (
	bodyStartsTest = 4 << 20
	bodiesTest     = 16 << 20 * bodyCost
)

// pipeServer serves an API over in-memory connections.
type pipeServer struct {
	*fixture
	p *pipes
}

func newPipeServer(t *testing.T) (*pipeServer, func()) {
	f := newRoute(t, Options{BodyMax: 8 << 20}, func(_ context.Context, _ *Call, in echo) (int,
		error) {
		return len(in.Text), nil
	})
	f.Capacity.BodyStarts = fairshare.New(bodyStartsTest, fairshare.Greed)
	f.Capacity.Bodies = fairshare.New(bodiesTest, bodiesGreed)
	p := &pipes{conns: make(chan net.Conn), closed: make(chan struct{})}
	server := &http.Server{Handler: f, ReadHeaderTimeout: 10 * time.Second, ErrorLog: nil}
	go server.Serve(p)
	return &pipeServer{f, p}, func() {
		server.Close()
		time.Sleep(time.Second) // net/http waits briefly before it closes connections
	}
}

// begin sends a request's header and the first bytes of its body in several writes, with a pause after each write. The
// parameter sent is the number of body bytes to send.
func (s *pipeServer) begin(key string, body []byte, sent, piece int, pause time.Duration) net.Conn {
	here, there := net.Pipe()
	s.p.conns <- there
	go func() {
		fmt.Fprintf(here, "POST /test HTTP/1.1\r\nHost: a\r\nUser-Agent: test\r\nAuthorization: Bearer "+
			"%s\r\nContent-Length: %d\r\n\r\n",
			s.keys[key], len(body))
		for rest := body[:sent]; len(rest) > 0; rest = rest[min(piece, len(rest)):] {
			if _, err := here.Write(rest[:min(piece, len(rest))]); err != nil {
				return
			}
			time.Sleep(pause)
		}
	}()
	return here
}

// text returns a JSON body of n bytes.
func text(n int) []byte {
	const frame = len(`{"text":""}`)
	return []byte(`{"text":"` + strings.Repeat("x", n-frame) + `"}`)
}

// readResponse returns the status code and the body of a response.
func readResponse(c net.Conn) (int, string, error) {
	r, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return 0, "", err
	}
	defer r.Body.Close()
	b, err := io.ReadAll(r.Body)
	return r.StatusCode, string(b), err
}

// Some requests announce a large body but send only a little of it. They do not use up the memory for other requests,
// and soon time out.
func TestAnnouncedBodies(t *testing.T) {
	const length = 4 << 20
	body := text(length)
	for _, c := range []struct {
		sent int  // number of bytes that each request sends
		own  bool // the same team still has memory for another body
	}{{1, true}, {smallBody + 1, false}, {length/bodyStart + 1, false}} {
		synctest.Test(t, func(t *testing.T) {
			s, stop := newPipeServer(t)
			defer stop()
			start := time.Now()
			var ended sync.WaitGroup
			for range 20 {
				hostile := s.begin("full", body, c.sent, c.sent, 0)
				ended.Go(func() {
					defer hostile.Close()
					if status, said, err := readResponse(hostile); status != 400 && status != 503 {
						t.Errorf("after %v: %d %s %v", time.Since(start), status, said, err)
					}
				})
			}
			synctest.Wait()
			keys := []string{"other"}
			if c.own {
				keys = append(keys, "full")
			}
			for _, key := range keys {
				nc := s.begin(key, body, length, length, 0)
				status, said, err := readResponse(nc)
				if want := strconv.Itoa(length - len(`{"text":""}`)); said != want || status != 200 {
					t.Errorf("%d bytes sent: %s: %d %s %v, want %s", c.sent, key, status, said, err, want)
				}
				if waited := time.Since(start); waited != 0 {
					t.Errorf("%d bytes sent: %s waited %v", c.sent, key, waited)
				}
				nc.Close()
			}
			ended.Wait()
			if took := time.Since(start); took > 3*bodyPause {
				t.Errorf("%d bytes sent: the last ends after %v", c.sent, took)
			}
			stop()
			synctest.Wait()
			if !s.Capacity.Bodies.TryAcquire("any", bodiesTest) || !s.Capacity.BodyStarts.TryAcquire("any", bodyStartsTest) {
				t.Error("memory of bodies is not given back")
			}
		})
	}
}

// A medium-sized body is read immediately even if other requests use all memory for large bodies.
func TestMediumBodiesDoNotWaitBehindLargeOnes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := newPipeServer(t)
		defer stop()
		if !s.Capacity.Bodies.TryAcquire("hostile", bodiesTest) ||
			!s.Capacity.BodyStarts.TryAcquire("hostile", bodyStartsTest) {
			t.Fatal("the memory is not free")
		}
		start, length := time.Now(), mediumBody
		nc := s.begin("other", text(length), length, length, 0)
		defer nc.Close()
		status, said, err := readResponse(nc)
		if want := strconv.Itoa(length - len(`{"text":""}`)); said != want || status != 200 || time.Since(start) != 0 {
			t.Errorf("after %v: %d %s %v, want %s", time.Since(start), status, said, err, want)
		}
	})
}

// If a team is suspended while a request body is arriving, the request is refused.
func TestSuspendedDuringABody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := newPipeServer(t)
		defer stop()
		nc := s.begin("full", text(100), 100, 10, time.Second/2)
		defer nc.Close()
		time.Sleep(2 * time.Second)
		if err := s.Teams.SetSuspended(t.Context(), s.Acme.TeamID, true); err != nil {
			t.Fatal(err)
		}
		if status, said, err := readResponse(nc); status != 403 || !strings.Contains(said, "suspended_api_key") {
			t.Errorf("%d %s %v", status, said, err)
		}
	})
}

// A body of any size is refused if it arrives more slowly than the minimum rate, and accepted if it arrives at the
// minimum rate.
func TestPaceOfBodies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, stop := newPipeServer(t)
		defer func() {
			stop()
			time.Sleep(2 * time.Minute) // clients notice the closed connection at their next write
		}()
		drip := func(length, piece int, every time.Duration) (status int, took time.Duration) {
			start := time.Now()
			nc := s.begin("full", text(length), length, piece, every)
			defer nc.Close()
			status, _, _ = readResponse(nc)
			return status, time.Since(start)
		}
		for _, c := range []struct {
			length, piece int
			every         time.Duration
			status        int
			least, most   time.Duration
		}{
			{100_000, 1, time.Second, 400, bodyGrace, bodyGrace + time.Second},
			{100_000, 1, time.Minute, 400, bodyPause, bodyPause},
			{8 << 20, bodyPace / 2, time.Second, 400, 20 * time.Second, 32 * time.Second},
			{8 << 20, bodyPace, time.Second, 200, 31 * time.Second, 31 * time.Second},
			{100_000, 20_000, 2 * time.Second, 200, 8 * time.Second, 8 * time.Second},
		} {
			if status, took := drip(c.length, c.piece, c.every); status != c.status || took < c.least || took > c.most {
				t.Errorf("%d bytes in pieces of %d every %v: %d after %v, want %d after %v to %v", c.length, c.piece, c.every,
					status, took,
					c.status, c.least, c.most)
			}
		}
	})
}

// The read deadline is cleared after the body has arrived.
func TestDeadlineOfBodiesIsLifted(t *testing.T) {
	t.Parallel()
	f := newRoute(t, Options{}, func(_ context.Context, _ *Call, in echo) (int, error) { return len(in.Text), nil })
	for _, n := range []int{100, smallBody + 1, 20 * bodyPace} {
		w := &deadlines{ResponseRecorder: httptest.NewRecorder()}
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/test", strings.NewReader(string(text(n))))
		r.Header.Set("Authorization", "Bearer "+f.keys["full"])
		f.ServeHTTP(w, r)
		if w.Code != 200 || len(w.set) < 2 || w.set[0].IsZero() || !w.set[len(w.set)-1].IsZero() {
			t.Errorf("%d bytes: %d, deadlines %v", n, w.Code, w.set)
		}
	}
}

type deadlines struct {
	*httptest.ResponseRecorder
	set []time.Time
}

func (d *deadlines) SetReadDeadline(at time.Time) error {
	d.set = append(d.set, at)
	return nil
}
