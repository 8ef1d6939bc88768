package certstest

import (
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// The zone that a DNS server lets clients update, and the key for it.
const (
	Zone      = "postrider.test"
	KeyName   = "acme.postrider.test"
	Algorithm = "hmac-sha256"
	Secret    = "c2VjcmV0IG9mIHRoZSB0ZXN0"
)

// DNS is a name server for TCP. The address of every host is 127.0.0.1. It accepts updates of TXT records in Zone that
// are signed with the key.
type DNS struct {
	Addr string

	mu      sync.Mutex
	txt     map[string][]string
	missing map[string]bool
}

func newDNS(t testing.TB) *DNS {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := &DNS{Addr: l.Addr().String(), txt: map[string][]string{}, missing: map[string]bool{}}
	server := &dns.Server{Listener: l, Handler: dns.HandlerFunc(d.serve),
		TsigSecret:    map[string]string{dns.Fqdn(KeyName): Secret},
		MsgAcceptFunc: func(dns.Header) dns.MsgAcceptAction { return dns.MsgAccept }} // by default, updates are refused
	started := make(chan struct{})
	server.NotifyStartedFunc = func() { close(started) }
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		server.ActivateAndServe()
	}()
	<-started
	t.Cleanup(func() {
		server.Shutdown()
		<-ended
	})
	return d
}

// Set replaces the TXT records of a name.
func (d *DNS) Set(name string, values ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.txt[dns.CanonicalName(name)] = values
}

// TXT returns the TXT records of a name.
func (d *DNS) TXT(name string) []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.Clone(d.txt[dns.CanonicalName(name)])
}

// Hide makes a host not exist, or exist again.
func (d *DNS) Hide(host string, hidden bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.missing[dns.CanonicalName(host)] = hidden
}

func (d *DNS) serve(w dns.ResponseWriter, r *dns.Msg) {
	m := new(dns.Msg)
	m.SetReply(r)
	if r.Opcode == dns.OpcodeUpdate {
		d.update(w, r, m)
	} else {
		d.answer(r.Question[0], m)
	}
	w.WriteMsg(m)
}

func (d *DNS) answer(q dns.Question, m *dns.Msg) {
	d.mu.Lock()
	defer d.mu.Unlock()
	name := dns.CanonicalName(q.Name)
	header := dns.RR_Header{Name: q.Name, Rrtype: q.Qtype, Class: dns.ClassINET}
	switch {
	case d.missing[name]:
		m.Rcode = dns.RcodeNameError
	case q.Qtype == dns.TypeA:
		m.Answer = append(m.Answer, &dns.A{Hdr: header, A: net.IPv4(127, 0, 0, 1)})
	case q.Qtype == dns.TypeNS && name == dns.Fqdn(Zone):
		m.Answer = append(m.Answer, &dns.NS{Hdr: header, Ns: "ns." + name})
	case q.Qtype == dns.TypeTXT:
		for _, text := range d.txt[name] {
			m.Answer = append(m.Answer, &dns.TXT{Hdr: header, Txt: []string{text}})
		}
	}
}

// update changes TXT records as RFC 2136 section 3.4.2 says.
func (d *DNS) update(w dns.ResponseWriter, r, m *dns.Msg) {
	switch {
	case r.IsTsig() == nil:
		m.Rcode = dns.RcodeRefused
		return
	case w.TsigStatus() != nil:
		m.Rcode = dns.RcodeNotAuth
		return
	}
	m.SetTsig(r.IsTsig().Hdr.Name, r.IsTsig().Algorithm, r.IsTsig().Fudge, int64(r.IsTsig().TimeSigned))
	if !strings.EqualFold(r.Question[0].Name, dns.Fqdn(Zone)) {
		m.Rcode = dns.RcodeNotZone
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, rr := range r.Ns {
		txt, ok := rr.(*dns.TXT)
		if !ok {
			m.Rcode = dns.RcodeRefused
			return
		}
		name := dns.CanonicalName(txt.Hdr.Name)
		value := strings.Join(txt.Txt, "")
		if txt.Hdr.Class == dns.ClassNONE {
			d.txt[name] = slices.DeleteFunc(d.txt[name], func(s string) bool { return s == value })
		} else {
			d.txt[name] = append(d.txt[name], value)
		}
	}
}
