package smtpclient_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/pem"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/dane"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/mail/smtptest"
)

// tap is a connection that stores what the client writes to the network.
type tap struct {
	net.Conn
	mu  sync.Mutex
	out []byte
}

func (c *tap) Write(p []byte) (int, error) {
	c.mu.Lock()
	c.out = append(c.out, p...)
	c.mu.Unlock()
	return c.Conn.Write(p)
}

// commands returns the commands that the client wrote before the first record of TLS.
func (c *tap) commands() (all []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for line := range bytes.Lines(c.out) {
		if bytes.HasPrefix(line, []byte{22, 3}) { // a handshake record (RFC 8446 section 5.1)
			break
		}
		all = append(all, strings.TrimSpace(string(line)))
	}
	return all
}

// dialTapped dials the host and returns the tap. The connection is nil after an error.
func dialTapped(t *testing.T, addr string, o smtpclient.Options) (*smtpclient.Conn, *tap, error) {
	t.Helper()
	wire := new(tap)
	o.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
		nc, err := new(net.Dialer).DialContext(ctx, network, addr)
		wire.Conn = nc
		return wire, err
	}
	c, err := smtpclient.Dial(t.Context(), addr, o)
	if err == nil {
		t.Cleanup(c.Close)
	}
	return c, wire, err
}

func keyRecord(t *testing.T, cert tls.Certificate) dane.Record {
	t.Helper()
	r, err := dane.For(cert.Leaf.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// withIssuer adds the certificate of the authority to the chain that a server sends, and returns its TLSA record.
func withIssuer(ca *smtptest.CA, cert tls.Certificate) (tls.Certificate, dane.Record) {
	block, _ := pem.Decode(ca.PEM())
	cert.Certificate = append(cert.Certificate[:1:1], block.Bytes)
	sum := sha256.Sum256(block.Bytes)
	return cert, dane.Record{Usage: dane.UsageTA, Matching: dane.MatchingSHA256, Data: sum[:]}
}

// TestDANE dials real servers. A server gets a message only if its certificate matches the records, and no command that
// names an address is sent before the handshake.
func TestDANE(t *testing.T) {
	t.Parallel()
	ca, stranger := smtptest.NewCA(t), smtptest.NewCA(t)
	expired := ca.Expired("other.test")
	mx, mxTA := withIssuer(ca, ca.Certificate("mx.test"))
	domain, _ := withIssuer(ca, ca.Certificate("domain.test"))
	other, _ := withIssuer(ca, ca.Certificate("other.test"))
	late, _ := withIssuer(ca, ca.Expired("mx.test"))
	_, strangerTA := withIssuer(stranger, mx)
	unusable := dane.Record{Usage: 1, Selector: 1, Matching: 1, Data: make([]byte, 32)}
	old := &tls.Config{Certificates: []tls.Certificate{mx}, MaxVersion: tls.VersionTLS11, MinVersion: tls.VersionTLS10}
	serve := func(c tls.Certificate) *tls.Config { return &tls.Config{Certificates: []tls.Certificate{c}} }
	for _, c := range []struct {
		name    string
		server  *tls.Config
		records []dane.Record
		names   []string
		method  smtpclient.Method // "" if no connection is made
		problem string            // a part of the problem with the certificate
	}{
		{"EE ignores name, expiry and issuer", serve(expired), []dane.Record{keyRecord(t, expired)}, nil,
			smtpclient.MethodDANEEE, ""},
		{"EE, wrong digest", serve(mx), []dane.Record{keyRecord(t, other)}, nil, "", "does not match its TLSA records"},
		{"TA", serve(mx), []dane.Record{mxTA}, nil, smtpclient.MethodDANETA, ""},
		{"TA, name of the domain", serve(domain), []dane.Record{mxTA}, []string{"domain.test"}, smtpclient.MethodDANETA, ""},
		{"TA, other name", serve(other), []dane.Record{mxTA}, []string{"domain.test"}, "",
			"valid for other.test, but must be valid for mx.test or domain.test"},
		{"TA, expired", serve(late), []dane.Record{mxTA}, nil, "", "has expired"},
		{"TA, wrong authority", serve(mx), []dane.Record{strangerTA}, nil, "", "no issuer in the chain"},
		{"the roots do not count", serve(mx), []dane.Record{strangerTA, keyRecord(t, other)}, nil, "", "TLSA"},
		{"no usable record", serve(mx), []dane.Record{unusable}, nil, "", "no usable TLSA record"},
		{"old version of TLS", old, []dane.Record{keyRecord(t, mx)}, nil, "", ""},
		{"TLS 1.2", &tls.Config{Certificates: []tls.Certificate{mx}, MaxVersion: tls.VersionTLS12},
			[]dane.Record{keyRecord(t, mx)}, nil, smtpclient.MethodDANEEE, ""},
		{"STARTTLS is not offered", nil, []dane.Record{keyRecord(t, mx)}, nil, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			server := smtptest.NewServer(t, smtptest.Config{TLS: c.server})
			conn, wire, err := dialTapped(t, server.Addr, smtpclient.Options{TLS: smtpclient.TLSDANE, ServerName: "mx.test",
				RootCAs: ca.Pool(), DANE: dane.Parse(c.records), DANENames: c.names})
			want := []string{"EHLO localhost", "STARTTLS"}
			if c.server == nil {
				want = want[:1]
			}
			if diff := cmp.Diff(want, wire.commands()); diff != "" {
				t.Errorf("sent in clear (-want +got):\n%s", diff)
			}
			if c.method == "" {
				e, ok := errors.AsType[*smtpclient.Error](err)
				if !ok || !e.Temporary || e.RetryPlain || e.Stage != smtpclient.StageTLS ||
					!strings.Contains(e.TLS.Problem, c.problem) || (c.problem != "") != (e.TLS.Cert.Peer() != "") {
					t.Errorf("Dial: %+v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			state := conn.TLSState()
			if !state.On() || !state.Verified || state.Method != c.method || state.Problem != "" || state.Cert.Peer() == "" {
				t.Errorf("TLSState() = %+v", state)
			}
			if text := conn.Transcript(); !strings.Contains(text, " verified\n") || !strings.Contains(text,
				"the certificate matches the TLSA record "+c.records[0].String()+" of mx.test") {
				t.Errorf("transcript:\n%s", text)
			}
			deliver(t, conn, server, true, "")
			if diff := cmp.Diff(want, wire.commands()); diff != "" || bytes.Contains(wire.out, []byte("MAIL FROM")) {
				t.Errorf("sent in clear (-want +got):\n%s", diff)
			}
		})
	}
}

// The name that a client sends in the handshake is the TLSA base name (RFC 7672 section 8.1).
func TestDANESendsTheBaseName(t *testing.T) {
	t.Parallel()
	cert := smtptest.NewCA(t).Certificate("other.test")
	asked := make(chan string, 1)
	server := smtptest.NewServer(t, smtptest.Config{TLS: &tls.Config{GetCertificate: func(h *tls.ClientHelloInfo) (
		*tls.Certificate, error) {
		asked <- h.ServerName
		return &cert, nil
	}}})
	dial(t, server.Addr, smtpclient.Options{TLS: smtpclient.TLSDANE, ServerName: "mx.test", DANENames: []string{"a.test"},
		DANE: dane.Parse([]dane.Record{keyRecord(t, cert)})})
	if name := <-asked; name != "mx.test" {
		t.Errorf("the client asked for %q", name)
	}
}

// TestMethods: the TLS state says how a certificate was verified.
func TestMethods(t *testing.T) {
	t.Parallel()
	ca, stranger := smtptest.NewCA(t), smtptest.NewCA(t)
	old := stranger.ServerTLS("127.0.0.1")
	old.MinVersion, old.MaxVersion = tls.VersionTLS10, tls.VersionTLS11
	for _, c := range []struct {
		mode   smtpclient.TLSMode
		server *tls.Config
		method smtpclient.Method
	}{
		{opportunistic, ca.ServerTLS("127.0.0.1"), smtpclient.MethodWebPKI},
		{opportunistic, stranger.ServerTLS("127.0.0.1"), ""},
		{required, ca.ServerTLS("127.0.0.1"), smtpclient.MethodWebPKI},
		{encrypted, ca.ServerTLS("127.0.0.1"), smtpclient.MethodWebPKI},
		{encrypted, stranger.ServerTLS("127.0.0.1"), ""},
		{encrypted, &tls.Config{Certificates: []tls.Certificate{stranger.Expired("other.test")}}, ""},
		{plain, ca.ServerTLS("127.0.0.1"), ""},
		{opportunistic, old, ""},
		{encrypted, old, ""},
	} {
		server := smtptest.NewServer(t, smtptest.Config{TLS: c.server})
		conn := dial(t, server.Addr, smtpclient.Options{TLS: c.mode, RootCAs: ca.Pool()})
		if s := conn.TLSState(); s.Method != c.method || s.Verified != (c.method != "") || s.On() != (c.mode != plain) {
			t.Errorf("mode %d: %+v", c.mode, s)
		}
		deliver(t, conn, server, c.mode != plain, "")
	}
}

// TestStrippedSTARTTLS sends through a proxy that removes STARTTLS from the server's replies, or refuses it. Modes that
// demand encryption send nothing but EHLO and STARTTLS.
func TestStrippedSTARTTLS(t *testing.T) {
	t.Parallel()
	ca := smtptest.NewCA(t)
	cert := ca.Certificate("127.0.0.1")
	server := smtptest.NewServer(t, smtptest.Config{TLS: &tls.Config{Certificates: []tls.Certificate{cert}}})
	for name, change := range map[string]func([]byte) []byte{
		"stripped": func(b []byte) []byte { return bytes.ReplaceAll(b, []byte("STARTTLS"), []byte("XXXXXXXX")) },
		"refused": func(b []byte) []byte {
			return bytes.Replace(b, []byte("220 2.0.0"), []byte("454 4.7.0"), 1)
		},
	} {
		for _, mode := range []smtpclient.TLSMode{required, encrypted, smtpclient.TLSDANE} {
			o := smtpclient.Options{TLS: mode, RootCAs: ca.Pool(), DANE: dane.Parse([]dane.Record{keyRecord(t, cert)}),
				Timeouts: smtpclient.Timeouts{TLS: time.Minute}}
			_, wire, err := dialTapped(t, attack(t, server.Addr, change), o)
			e, ok := errors.AsType[*smtpclient.Error](err)
			if !ok || e.RetryPlain || !e.Temporary || e.Stage != smtpclient.StageTLS {
				t.Errorf("%s, mode %d: %+v", name, mode, err)
			}
			for _, command := range wire.commands() {
				if command != "EHLO localhost" && command != "STARTTLS" {
					t.Errorf("%s, mode %d: sent %q", name, mode, command)
				}
			}
		}
	}
	if n := len(server.Messages()); n != 0 {
		t.Errorf("the server has %d messages", n)
	}
}

// attack starts a proxy for one connection that changes what the server sends, and returns its address.
func attack(t *testing.T, addr string, change func([]byte) []byte) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var done sync.WaitGroup
	t.Cleanup(done.Wait)
	t.Cleanup(func() { listener.Close() })
	done.Go(func() {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		defer client.Close()
		server, err := net.Dial("tcp", addr)
		if err != nil {
			t.Error(err)
			return
		}
		defer server.Close()
		done.Go(func() {
			defer server.Close()
			relay(server, client, func(b []byte) []byte { return b })
		})
		relay(client, server, change)
	})
	return listener.Addr().String()
}

// relay copies from one connection to the other until either ends.
func relay(to, from net.Conn, change func([]byte) []byte) {
	b := make([]byte, 64<<10)
	for {
		n, err := from.Read(b)
		if err != nil {
			return
		}
		if _, err := to.Write(change(b[:n])); err != nil {
			return
		}
	}
}
