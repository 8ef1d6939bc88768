package webhooks_test

import (
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/netguard"
)

// rude starts a TCP server that reads part of each request and then calls the function answer.
func rude(t *testing.T, answer func(c net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				if _, err := c.Read(make([]byte, 4096)); err == nil {
					answer(c)
				}
			}()
		}
	}()
	return "http://" + l.Addr().String()
}

// forever writes to a connection until the other side closes it.
func forever(c net.Conn, head, more string) {
	chunk := bytes.Repeat([]byte(more), 1000)
	_, err := c.Write([]byte(head))
	for err == nil {
		_, err = c.Write(chunk)
	}
}

// TestBadReceivers: a receiver that stalls, responds endlessly, redirects or violates the protocol causes one failed
// attempt with a reason and does not keep a worker busy. A good receiver still gets its messages, even if there are
// only as many workers as one endpoint may occupy.
func TestBadReceivers(t *testing.T) {
	t.Parallel()
	c := config()
	c.Schedule, c.Timeout, c.Workers = nil, 1500*time.Millisecond, 32
	f := newFixture(t, dbtest.SQLite(t), c, loopbackOnly)
	f.run()
	var reached atomic.Int32
	inside := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { reached.Add(1) }))
	defer inside.Close()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	closed.Close()
	hang := func(c net.Conn) { c.Read(make([]byte, 1<<20)); c.Read(make([]byte, 1)) }
	for _, c := range []struct {
		name, url string
		code      int
		why       string
		state     webhooks.State
	}{
		{"stalls before its answer", rude(t, hang), 0, "in time", webhooks.Failed},
		{"stalls within its answer", rude(t, func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 500 No\r\nContent-Length: 10\r\n\r\nabc")
			hang(c)
		}), 500, "500", webhooks.Failed},
		{"stalls after it said 200", rude(t, func(c net.Conn) {
			fmt.Fprint(c, "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
			hang(c)
		}), 200, "", webhooks.Success},
		{"sends headers for ever", rude(t, func(c net.Conn) { forever(c, "HTTP/1.1 200 OK\r\n", "X-More: and more\r\n") }), 0,
			"header", webhooks.Failed},
		{"sends interim answers for ever", rude(t, func(c net.Conn) { forever(c, "", "HTTP/1.1 103 Early Hints\r\n\r\n") }),
			0, "header", webhooks.Failed},
		{"sends a body for ever", rude(t, func(c net.Conn) { forever(c, "HTTP/1.1 500 No\r\n\r\n", "gigabytes ") }), 500,
			"500", webhooks.Failed},
		{"speaks another protocol", rude(t, func(c net.Conn) { fmt.Fprint(c, "220 mail.example ESMTP\r\n") }), 0, "malformed",
			webhooks.Failed},
		{"hangs up", rude(t, func(net.Conn) {}), 0, "EOF", webhooks.Failed},
		{"has nobody there", "http://" + closed.Addr().String(), 0, "refused", webhooks.Failed},
		{"speaks no TLS", strings.Replace(inside.URL, "http:", "https:", 1), 0, "HTTP response to HTTPS client",
			webhooks.Failed},
		{"redirects", rude(t, func(c net.Conn) {
			fmt.Fprintf(c, "HTTP/1.1 307 Over There\r\nLocation: %s\r\n\r\n",
				inside.URL)
		}), 307, "redirects are not followed", webhooks.Failed},
	} {
		e := f.endpoint(t, c.url)
		f.suppress(t, strings.ReplaceAll(c.name, " ", "-")+"@example.net")
		m := f.becomes(t, e, c.state)
		all := f.attempts(t, e, m)
		if len(all) != 1 || all[0].Code != c.code || !strings.Contains(all[0].Error, c.why) ||
			(c.why == "") != (all[0].Error == "") ||
			len(all[0].Response) > 1<<10 || all[0].Duration > 5*time.Second {
			t.Errorf("a receiver that %s: %d attempts, %+.300v", c.name, len(all), all)
		}
		must(t, f.Delete(t.Context(), f.Acme.TeamID, e.ID))
	}
	if n := reached.Load(); n != 0 {
		t.Errorf("a redirect was followed %d times", n)
	}
	good := receive(t, nil)
	e := f.endpoint(t, good.URL)
	f.suppress(t, "last@example.net")
	f.becomes(t, e, webhooks.Success)
}

// The client checks an address when it connects, regardless of earlier look-ups, because the second look-up of a name
// may return another address.
func TestPrivateAddresses(t *testing.T) {
	t.Parallel()
	d := dbtest.SQLite(t)
	all := netguard.Options{AllowLoopback: true, AllowPrefixes: []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"),
		netip.MustParsePrefix("::/0")}}
	before := newFixture(t, d, config(), all) // this node allowed the address at the first look-up
	x := receive(t, nil)
	port := x.URL[strings.LastIndex(x.URL, ":"):]
	var made []webhooks.Endpoint
	for _, host := range []string{"localhost", "127.0.0.1", "[::ffff:127.0.0.1]", "[::1]", "0.0.0.0", "10.1.2.3",
		"169.254.169.254", "[64:ff9b::7f00:1]",
		"[2002:7f00:1::]", "[fd00::1]", "100.64.0.1"} {
		made = append(made, before.endpoint(t, "http://"+host+port+"/"))
	}
	c := config()
	c.Schedule, c.Timeout = nil, 2*time.Second
	f := before.again(t, c, noLoopback)
	f.suppress(t, "gone@example.net")
	f.run()
	for _, e := range made {
		m := f.becomes(t, e, webhooks.Failed)
		if all := f.attempts(t, e, m); len(all) != 1 || all[0].Code != 0 || !strings.Contains(all[0].Error, "not public") {
			t.Errorf("%s: %+v", e.URL, all)
		}
	}
	if n := len(x.all()); n != 0 {
		t.Errorf("%d requests reached this machine", n)
	}
}

// Neither a slow nor an unreachable endpoint delays other endpoints.
func TestOthersGoOn(t *testing.T) {
	t.Parallel()
	c := config()
	c.Timeout = 20 * time.Second
	f := newFixture(t, dbtest.SQLite(t), c, loopbackOnly)
	f.run()
	release := make(chan struct{})
	slow := receive(t, func(_ int, _ http.ResponseWriter, r *http.Request) {
		select {
		case <-release:
		case <-r.Context().Done():
		}
	})
	dead := f.endpoint(t, slow.URL)
	good := receive(t, nil)
	e := f.endpoint(t, good.URL)
	for i := range 200 {
		f.suppress(t, fmt.Sprintf("a%d@example.net", i))
	}
	testnode.Until(t, "the good endpoint has all", func() bool { return len(good.all()) == 200 })
	if n := len(slow.all()); n > 32 {
		t.Errorf("%d attempts at once at the slow endpoint", n)
	}
	close(release)
	testnode.Until(t, "the slow endpoint has all", func() bool { return len(slow.all()) == 200 })
	_, _ = dead, e
}

// A team has at most 1,000 endpoints.
func TestMostEndpoints(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, config(), noLoopback)
		var all sync.WaitGroup
		for range 10 {
			all.Go(func() {
				for range 100 {
					if _, err := f.Create(t.Context(), f.Acme.TeamID, "https://example.net/", []string{"email.sent"}); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		_, err := f.Create(t.Context(), f.Acme.TeamID, "https://example.net/", []string{"email.sent"})
		if fault.KindOf(err) != fault.Forbidden {
			t.Errorf("one more: %v", err)
		}
	})
}
