//go:build chaos

package e2e

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpsink"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// balancer is a load balancer before several nodes. It asks a node only once, because a repeated request could send an
// email twice.
type balancer struct {
	mu    sync.Mutex
	nodes []*backend
	next  int
}

type backend struct {
	proxy *httputil.ReverseProxy
	using sync.WaitGroup
	out   bool // whether the node gets no requests
}

func (b *balancer) add(addr string) *backend {
	x := &backend{proxy: httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: addr})}
	x.proxy.Transport = &http.Transport{MaxIdleConnsPerHost: 16}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.nodes = append(b.nodes, x)
	return x
}

// drain takes a node out, and waits for the requests that it is answering.
func (b *balancer) drain(x *backend) {
	b.mu.Lock()
	x.out = true
	b.mu.Unlock()
	x.using.Wait()
}

// restore puts a node back. Its idle connections are those of the former process.
func (b *balancer) restore(x *backend) {
	b.mu.Lock()
	defer b.mu.Unlock()
	x.proxy.Transport.(*http.Transport).CloseIdleConnections()
	x.out = false
}

func (b *balancer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	b.mu.Lock()
	for b.next++; b.nodes[b.next%len(b.nodes)].out; b.next++ {
	}
	x := b.nodes[b.next%len(b.nodes)]
	x.using.Add(1)
	b.mu.Unlock()
	defer x.using.Done()
	x.proxy.ServeHTTP(w, r)
}

// TestRollingReplacement replaces three nodes with PostgreSQL one after the other under load, as docs/operating/upgrades.md
// describes. Each request of the clients succeeds, and every email arrives. If POSTRIDER_OLD_PROGRAM names a program,
// the nodes begin with it.
func TestRollingReplacement(t *testing.T) {
	old := binary
	if program := os.Getenv("POSTRIDER_OLD_PROGRAM"); program != "" {
		old = program
	}
	l := &ledger{accepted: map[int]bool{}, arrived: map[int]int{}}
	sink, err := smtpsink.Config{OnMessage: func(_ string, _ []string, data []byte) {
		if m := numbered.FindSubmatch(data); m != nil {
			i, _ := strconv.Atoi(string(m[1]))
			l.mu.Lock()
			l.arrived[i]++
			l.mu.Unlock()
		}
	}}.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	env := []string{"POSTRIDER_SECRET_KEY=" + sharedSecret, "POSTRIDER_BLOB_URL=" + filepath.Join(t.TempDir(), "blobs"),
		"POSTRIDER_DATABASE_URL=" + dbtest.EmptyPostgresURL(t)}
	var nodes []*node
	var backends []*backend
	lb := &balancer{}
	for range 3 {
		n := prepare(t, old, env, "--relay", sink.Addr(), "--relay-tls", "none")
		n.tail = 4000
		n.launch()
		nodes, backends = append(nodes, n), append(backends, lb.add(n.addr))
	}
	nodes[0].addDomain("acme.example")
	server := httptest.NewServer(lb)
	defer server.Close()
	front := &node{t: t, addr: server.Listener.Addr().String()}
	stop := l.requests(t, front)
	for i, n := range nodes {
		l.accepts(t, 100) // load between two replacements
		lb.drain(backends[i])
		if err := n.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if err := n.cmd.Wait(); err != nil {
			t.Errorf("node %d ended with %v\n%s", i, err, n.out)
		}
		n.program = binary
		n.launch() // waits for /readyz
		lb.restore(backends[i])
	}
	l.accepts(t, 100)
	stop()
	if failed := l.tried - len(l.accepted); failed > 0 {
		t.Errorf("%d of %d emails were not accepted", failed, l.tried)
	}
	eventually(t, 2*time.Minute, "every accepted email arrives", func() bool { return l.missing() == 0 })
	t.Logf("three nodes were replaced while %d emails were accepted; no request failed", len(l.accepted))
}

// requests sends emails and reads lists with eight clients until the returned function is called.
func (l *ledger) requests(t *testing.T, front *node) (stop func()) {
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Minute)
	ended := make(chan struct{})
	numbers := make(chan int)
	var clients sync.WaitGroup
	clients.Go(func() {
		defer close(numbers)
		for i := 0; ; i++ {
			select {
			case numbers <- i:
			case <-ended:
				return
			}
		}
	})
	for range 8 {
		clients.Go(func() {
			for i := range numbers {
				if !post(ctx, front, l, i) {
					t.Errorf("email %d found no server", i)
				}
				status, err := front.call(ctx, http.MethodGet, "/emails?limit=5", "", nil)
				if err != nil || status != http.StatusOK {
					t.Errorf("a list: %d, %v", status, err)
				}
			}
		})
	}
	return func() {
		close(ended)
		clients.Wait()
		cancel()
	}
}

// accepts waits until n more emails are accepted.
func (l *ledger) accepts(t *testing.T, n int) {
	t.Helper()
	count := func() int {
		l.mu.Lock()
		defer l.mu.Unlock()
		return len(l.accepted)
	}
	before := count()
	eventually(t, time.Minute, "emails are accepted", func() bool { return count() >= before+n })
}
