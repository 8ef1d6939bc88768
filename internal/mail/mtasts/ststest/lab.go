// Package ststest provides domains with MTA-STS policies for tests: a DNS server with their records, and a web server
// with their policies, whose certificates come from a private authority. Both listen on 127.0.0.1. A test can change a
// domain while the servers run, and break each step on the way to a policy.
//
// Failures are reported to the testing.TB with which a [Lab] was created. The servers stop when the test ends.
package ststest

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtptest"
)

const (
	recordPrefix = "_mta-sts."
	hostPrefix   = "mta-sts."
)

// Site is a domain with a policy. The zero Site has no record and an empty policy.
type Site struct {
	TXT         []string // records at _mta-sts.DOMAIN; a newline separates the strings of a record
	Alias       string   // the records are at this name, to which _mta-sts.DOMAIN is an alias
	RecordFails bool     // the look-up of the record fails

	NoAddress   bool             // mta-sts.DOMAIN has no address
	Certificate *tls.Certificate // nil means a valid one
	MaxTLS      uint16           // highest TLS version; 0 means all

	Policy  string
	Type    string           // Content-Type; "" means text/plain, "none" means none
	Handler http.HandlerFunc // answers in place of the policy
}

// Lab has the servers of the domains.
type Lab struct {
	CA   *smtptest.CA
	DNS  string // address of the DNS server
	Port int    // of the web server

	t       testing.TB
	mu      sync.Mutex
	sites   map[string]Site
	fetches map[string]int
	certs   map[string]*tls.Certificate
}

// New starts a lab on free ports.
func New(t testing.TB) *Lab {
	t.Helper()
	return NewAt(t, "127.0.0.1:0", "127.0.0.1:0")
}

// NewAt starts a lab whose DNS server and web server have the given addresses.
func NewAt(t testing.TB, dnsAddr, webAddr string) *Lab {
	t.Helper()
	l := &Lab{t: t, CA: smtptest.NewCA(t), sites: map[string]Site{}, fetches: map[string]int{},
		certs: map[string]*tls.Certificate{}}
	l.serveDNS(dnsAddr)
	l.serveWeb(webAddr)
	return l
}

// Set makes a domain a site, in place of the former one.
func (l *Lab) Set(domain string, s Site) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.sites[domain] = s
}

// T returns the test of the lab.
func (l *Lab) T() testing.TB { return l.t }

// Fetches returns the number of requests for the policy of a domain.
func (l *Lab) Fetches(domain string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fetches[domain]
}

// Resolver returns a resolver that asks the lab's DNS server and caches nothing.
func (l *Lab) Resolver() *resolve.DNS {
	l.t.Helper()
	r, err := resolve.NewDNS([]string{l.DNS})
	if err != nil {
		l.t.Fatal(err)
	}
	return r
}

// Record returns a valid record with an id.
func Record(id string) []string { return []string{"v=STSv1; id=" + id + ";"} }

// Policy returns a policy with lines ended by CRLF.
func Policy(mode string, maxAge int, mx ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "version: STSv1\r\nmode: %s\r\n", mode)
	for _, pattern := range mx {
		fmt.Fprintf(&b, "mx: %s\r\n", pattern)
	}
	fmt.Fprintf(&b, "max_age: %d\r\n", maxAge)
	return b.String()
}

func (l *Lab) site(name, prefix string) (Site, string, bool) {
	domain, ok := strings.CutPrefix(strings.ToLower(strings.TrimSuffix(name, ".")), prefix)
	if !ok {
		return Site{}, "", false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s, ok := l.sites[domain]
	return s, domain, ok
}

func (l *Lab) serveDNS(addr string) {
	l.t.Helper()
	packets, listener, err := listenBoth(addr)
	if err != nil {
		l.t.Fatal(err)
	}
	l.DNS = listener.Addr().String()
	for _, s := range []*dns.Server{{PacketConn: packets}, {Listener: listener}} {
		started := make(chan struct{})
		s.Handler, s.NotifyStartedFunc = dns.HandlerFunc(l.answer), func() { close(started) }
		go s.ActivateAndServe()
		<-started
		l.t.Cleanup(func() { s.Shutdown() })
	}
}

// listenBoth listens on the same port for UDP and TCP. A port that is free for one may be in use for the other.
func listenBoth(addr string) (packets net.PacketConn, listener net.Listener, err error) {
	for range 20 {
		if listener, err = net.Listen("tcp", addr); err != nil {
			return nil, nil, err
		}
		if packets, err = net.ListenPacket("udp", listener.Addr().String()); err == nil {
			return packets, listener, nil
		}
		listener.Close()
	}
	return nil, nil, err
}

func (l *Lab) answer(w dns.ResponseWriter, q *dns.Msg) {
	m := new(dns.Msg).SetReply(q)
	m.RecursionAvailable = true
	name, qtype := q.Question[0].Name, q.Question[0].Qtype
	header := func(name string, rrtype uint16) dns.RR_Header {
		return dns.RR_Header{Name: name, Rrtype: rrtype, Class: dns.ClassINET}
	}
	if s, _, ok := l.site(name, hostPrefix); ok && !s.NoAddress {
		if qtype == dns.TypeA {
			m.Answer = append(m.Answer, &dns.A{Hdr: header(name, qtype), A: net.IPv4(127, 0, 0, 1)})
		}
	} else if s, _, ok := l.site(name, recordPrefix); ok && s.RecordFails {
		m.Rcode = dns.RcodeServerFailure
	} else if ok {
		if s.Alias != "" {
			alias := &dns.CNAME{Hdr: header(name, dns.TypeCNAME), Target: dns.Fqdn(s.Alias)}
			m.Answer, name = append(m.Answer, alias), alias.Target
		}
		for _, text := range s.TXT {
			if qtype == dns.TypeTXT {
				m.Answer = append(m.Answer, &dns.TXT{Hdr: header(name, qtype), Txt: strings.Split(text, "\n")})
			}
		}
	} else {
		m.Rcode = dns.RcodeNameError
	}
	w.WriteMsg(m)
}

func (l *Lab) serveWeb(addr string) {
	l.t.Helper()
	listener, err := net.Listen("tcp", addr)
	if err != nil {
		l.t.Fatal(err)
	}
	l.Port = listener.Addr().(*net.TCPAddr).Port
	s := &http.Server{Handler: http.HandlerFunc(l.serve), ErrorLog: log.New(io.Discard, "", 0)}
	go s.Serve(tls.NewListener(listener, &tls.Config{GetConfigForClient: l.config, MinVersion: tls.VersionTLS10}))
	l.t.Cleanup(func() { s.Close() })
}

// config returns the TLS configuration for the host that a client names.
func (l *Lab) config(hello *tls.ClientHelloInfo) (*tls.Config, error) {
	s, domain, ok := l.site(hello.ServerName, hostPrefix)
	if !ok {
		return nil, fmt.Errorf("no policy at %q", hello.ServerName)
	}
	cert := s.Certificate
	if cert == nil {
		l.mu.Lock()
		defer l.mu.Unlock()
		if cert = l.certs[domain]; cert == nil {
			cert = new(l.CA.Until(time.Now().AddDate(10, 0, 0), hostPrefix+domain))
			l.certs[domain] = cert
		}
	}
	return &tls.Config{Certificates: []tls.Certificate{*cert}, MinVersion: tls.VersionTLS10, MaxVersion: s.MaxTLS}, nil
}

func (l *Lab) serve(w http.ResponseWriter, r *http.Request) {
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	s, domain, ok := l.site(host, hostPrefix)
	if !ok || r.Method != http.MethodGet || r.URL.RequestURI() != "/.well-known/mta-sts.txt" {
		http.Error(w, "no policy here", http.StatusTeapot)
		return
	}
	l.mu.Lock()
	l.fetches[domain]++
	l.mu.Unlock()
	if s.Handler != nil {
		s.Handler(w, r)
		return
	}
	switch s.Type {
	case "":
		w.Header().Set("Content-Type", "text/plain")
	case "none":
		w.Header()["Content-Type"] = nil
	default:
		w.Header().Set("Content-Type", s.Type)
	}
	io.WriteString(w, s.Policy)
}
