package netguard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestSlotsOfAHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newSlots()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var mu sync.Mutex
		in, left := map[string]int{}, map[string][]func(){}
		ask := func(owner string, times int) {
			for range times {
				go func() {
					leave, err := p.acquire(ctx, "host", owner)
					mu.Lock()
					defer mu.Unlock()
					if err == nil {
						in[owner]++
						left[owner] = append(left[owner], leave)
					} else if !errors.Is(err, ErrBusy) {
						t.Error(err)
					}
				}()
				synctest.Wait()
			}
		}
		for o := range 6 {
			ask(fmt.Sprint(o), 10)
		}
		if in["0"] != fetchesPerOwner || in["4"] != 1 || in["5"] != 0 {
			t.Errorf("in are %v", in)
		}
		p.heard("host", "0", true)
		for _, leave := range slices.Clone(left["0"]) {
			leave()
			leave()
			synctest.Wait()
		}
		if in["0"] != fetchesPerOwner+1 || in["5"] != 1 {
			t.Errorf("in are %v, after one was kept waiting and left", in)
		}
		cancel()
		synctest.Wait()
		for _, all := range left {
			for _, leave := range all {
				leave()
			}
		}
		if len(p.hosts)+len(p.owners) > 0 {
			t.Errorf("%d and %d hosts are remembered for nothing", len(p.hosts), len(p.owners))
		}
	})
}

// Fetches from host names that resolve to the same address share the slots for that address.
func TestSlotsOfAnAddress(t *testing.T) {
	t.Parallel()
	came, release := make(chan struct{}, 100), make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		came <- struct{}{}
		<-release
	}))
	t.Cleanup(srv.Close)
	g := New(Options{AllowLoopback: true})
	ended := make(chan error, 8)
	for i := range 8 {
		url := srv.URL
		if i%2 == 0 {
			url = strings.Replace(url, "127.0.0.1", "localhost", 1)
		}
		go func() {
			_, _, err := all(g, t.Context(), url, 100)
			ended <- err
		}()
	}
	for range fetchesPerOwner {
		<-came
	}
	if leave, err := g.slots.acquire(t.Context(), netip.MustParseAddr("127.0.0.1").String(), "other"); err != nil {
		t.Error(err)
	} else {
		leave()
	}
	if n := len(came); n != 0 {
		t.Errorf("%d more than %d connections to one address", n, fetchesPerOwner)
	}
	close(release)
	for range 8 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	held := func() int {
		g.slots.mu.Lock()
		defer g.slots.mu.Unlock()
		return len(g.slots.hosts)
	}
	for deadline := time.Now().Add(10 * time.Second); held() > 0; time.Sleep(time.Millisecond) {
		// The transport closes idle connections with a delay.
		if time.Now().After(deadline) {
			t.Fatalf("%d places are held for ever", held())
		}
	}
}

// trickle is a reader that returns one byte per second.
type trickle struct{}

func (trickle) Close() error { return nil }
func (trickle) Read(p []byte) (int, error) {
	time.Sleep(time.Second)
	return copy(p, "x"), nil
}

func TestTrickleEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		body := &paced{ReadCloser: trickle{}, since: time.Now()}
		n, err := io.Copy(io.Discard, body)
		if !errors.Is(err, ErrSlow) || n > 12 {
			t.Errorf("%d bytes at one a second: %v", n, err)
		}
	})
}

// The time between the headers and the caller's first Read of the body does not count towards the time limit.
func TestTimeStandsStillBetweenHeadersAndBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := newTimeLimit(t.Context())
		limit.timer.Stop()
		body := &paced{ReadCloser: trickle{}}
		f := &Fetched{body: body, pace: body, limit: limit, heard: func(error) {}, leave: func() {}}
		time.Sleep(time.Hour)
		if n, err := f.Read(make([]byte, 10)); n != 1 || err != nil {
			t.Fatalf("the first Read after an hour: %d, %v", n, err)
		}
		if took := time.Since(body.since); took != time.Second {
			t.Errorf("the pace counts from %v ago", took)
		}
		time.Sleep(fetchTimeout)
		synctest.Wait()
		if _, err := f.Read(make([]byte, 10)); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after its time: %v", err)
		}
		f.Close()
	})
}
