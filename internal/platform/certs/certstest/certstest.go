// Package certstest runs a certificate authority for tests: Pebble, the small ACME server of Let's Encrypt. Pebble
// checks challenges as a public authority does, but connects only to this machine.
//
// An [Authority] connects to two forwarders in place of ports 80 and 443 of every host. The test points them at its
// listeners, so it need not know the ports of its listeners before it starts the authority. A [DNS] server answers for
// every host, and accepts updates (RFC 2136).
package certstest

import (
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/letsencrypt/pebble/v2/ca"
	"github.com/letsencrypt/pebble/v2/db"
	"github.com/letsencrypt/pebble/v2/va"
	"github.com/letsencrypt/pebble/v2/wfe"
)

// Authority is a running certificate authority.
type Authority struct {
	Directory string         // URL for the setting acme_directory
	CAFile    string         // file for the setting acme_ca_file
	Roots     *x509.CertPool // trusts the authority's certificates
	RootPEM   string         // the certificate in Roots

	HTTP, TLS *Forwarder // stand for ports 80 and 443 of all hosts
	DNS       *DNS

	orders atomic.Int64
}

// pebbleVariables makes Pebble fast and predictable: it sleeps before checks, and refuses some requests, on purpose.
var pebbleVariables = sync.OnceFunc(func() {
	for name, value := range map[string]string{"PEBBLE_VA_NOSLEEP": "1", "PEBBLE_WFE_NONCEREJECT": "0",
		"PEBBLE_AUTHZREUSE": "0"} {
		os.Setenv(name, value)
	}
})

// New starts an authority, which ends with the test. Its certificates are valid for the given number of seconds; 0
// means 90 days.
func New(t testing.TB, seconds uint64) *Authority {
	t.Helper()
	return start(t, seconds, nil)
}

// NewBound starts an authority that needs an external account binding. The keys are in base64url, by their identifiers.
func NewBound(t testing.TB, keys map[string]string) *Authority {
	t.Helper()
	return start(t, 0, keys)
}

func start(t testing.TB, seconds uint64, keys map[string]string) *Authority {
	t.Helper()
	pebbleVariables()
	a := &Authority{HTTP: newForwarder(t), TLS: newForwarder(t), DNS: newDNS(t), Roots: x509.NewCertPool()}
	quiet := log.New(io.Discard, "", 0)
	store := db.NewMemoryStore()
	for id, key := range keys {
		if err := store.AddExternalAccountKeyByID(id, key); err != nil {
			t.Fatal(err)
		}
	}
	issuer := ca.New(quiet, store, "", "ecdsa", 0, 1, map[string]ca.Profile{"default": {Description: "test",
		ValidityPeriod: seconds}})
	checks := va.New(quiet, a.HTTP.port(), a.TLS.port(), false, a.DNS.Addr, store)
	front := wfe.New(quiet, store, checks, issuer, []string{"pebble.test"}, false, keys != nil, 0, 0)
	handler := front.Handler()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/finalize-order/") {
			a.orders.Add(1)
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	a.Directory = server.URL + wfe.DirectoryPath
	a.CAFile = filepath.Join(t.TempDir(), "authority.pem")
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	if err := os.WriteFile(a.CAFile, text, 0o600); err != nil {
		t.Fatal(err)
	}
	root := issuer.GetRootCert(0).Cert
	a.Roots.AddCert(root)
	a.RootPEM = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Raw}))
	return a
}

// Issued returns the number of certificates that the authority was asked to issue after successful challenges.
func (a *Authority) Issued() int { return int(a.orders.Load()) }

// Forwarder is a port of this machine that forwards connections to another one.
type Forwarder struct {
	l      net.Listener
	target atomic.Pointer[string]
	uses   atomic.Int64
}

func newForwarder(t testing.TB) *Forwarder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f := &Forwarder{l: l}
	go f.serve()
	return f
}

// To makes the forwarder connect to an address. Before To is called, it closes connections.
func (f *Forwarder) To(addr string) { f.target.Store(&addr) }

// Uses returns the number of connections so far.
func (f *Forwarder) Uses() int { return int(f.uses.Load()) }

func (f *Forwarder) port() int { return f.l.Addr().(*net.TCPAddr).Port }

func (f *Forwarder) serve() {
	for {
		c, err := f.l.Accept()
		if err != nil {
			return // the test has ended
		}
		f.uses.Add(1)
		go f.forward(c)
	}
}

func (f *Forwarder) forward(c net.Conn) {
	defer c.Close()
	target := f.target.Load()
	if target == nil {
		return
	}
	to, err := net.Dial("tcp", *target)
	if err != nil {
		return
	}
	defer to.Close()
	go func() {
		io.Copy(to, c)
		to.(*net.TCPConn).CloseWrite()
	}()
	io.Copy(c, to)
}
