package certs

import (
	"bytes"
	"context"
	"crypto/tls"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/certs/certstest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/keyring"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const host = "mail.postrider.test"

func testKeys(t testing.TB) *keyring.Keyring {
	t.Helper()
	k, err := keyring.New(make([]byte, keyring.MasterSize))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func testStorage(t testing.TB, d *db.DB) *Storage {
	t.Helper()
	s := NewStorage(d, testKeys(t), slog.New(slog.DiscardHandler))
	t.Cleanup(s.Close)
	return s
}

// log collects log lines of the level info and above.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *logged) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// member is a Manager with the listeners of a node.
type member struct {
	*Manager
	t           *testing.T
	http, https string // addresses
	log         *logged
	stop        func()
}

// start runs a Manager with an HTTP and an HTTPS listener. The HTTPS server answers with an empty page. Requests for
// certificates begin when the test calls run.
func start(t *testing.T, d *db.DB, o Options) *member {
	t.Helper()
	m := &member{t: t, log: &logged{}}
	o.DB, o.Keys, o.Log = d, testKeys(t), m.log.logger()
	var err error
	if m.Manager, err = New(o); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	m.http = m.listen(nil)
	m.https = m.listen(m.HTTPS())
	return m
}

// listen serves challenges at a new address, and nothing else.
func (m *member) listen(c *tls.Config) string {
	m.t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		m.t.Fatal(err)
	}
	server := &http.Server{TLSConfig: c, ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { m.ServeChallenge(w, r) })}
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c == nil {
			server.Serve(l)
		} else {
			server.ServeTLS(l, "", "")
		}
	}()
	m.t.Cleanup(func() {
		server.Close()
		<-done
	})
	return l.Addr().String()
}

// run runs the Manager until the test ends or stop is called.
func (m *member) run() {
	ctx, cancel := context.WithCancel(m.t.Context())
	done := make(chan error)
	go func() { done <- m.Run(ctx) }()
	m.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			m.t.Error(err)
		}
	})
	m.t.Cleanup(m.stop)
}

// dial makes a TLS handshake with an address and verifies the certificate for a host.
func dial(addr, host string, a *certstest.Authority) (tls.ConnectionState, error) {
	c, err := (&tls.Dialer{NetDialer: &net.Dialer{Timeout: 10 * time.Second},
		Config: &tls.Config{ServerName: host, RootCAs: a.Roots}}).Dial("tcp", addr)
	if err != nil {
		return tls.ConnectionState{}, err
	}
	defer c.Close()
	return c.(*tls.Conn).ConnectionState(), nil
}

// covered waits until a handshake with an address gets a certificate of the authority for a host.
func covered(t *testing.T, addr, host string, a *certstest.Authority) {
	t.Helper()
	eventually(t, "a certificate for "+host, func() bool {
		_, err := dial(addr, host, a)
		return err == nil
	})
}

// eventually waits until a condition holds.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !ok(); {
		if time.Now().After(end) {
			t.Fatalf("there was not: %s", what)
		}
		time.Sleep(20 * time.Millisecond)
	}
}
