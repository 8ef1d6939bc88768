package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/platform/db"
)

// nameserver is a DNS server on this machine, whose negative answers have a TTL of one hour.
type nameserver struct {
	mu  sync.Mutex
	rrs []dns.RR
}

func (s *nameserver) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	answer := new(dns.Msg).SetReply(q)
	for _, rr := range s.rrs {
		if strings.EqualFold(rr.Header().Name, q.Question[0].Name) && rr.Header().Rrtype == q.Question[0].Qtype {
			answer.Answer = append(answer.Answer, rr)
		}
	}
	if len(answer.Answer) == 0 {
		soa, _ := dns.NewRR("acme.example. 3600 IN SOA ns.acme.example. admin.acme.example. 1 3600 3600 3600 3600")
		answer.Rcode, answer.Ns = dns.RcodeNameError, []dns.RR{soa}
	}
	w.WriteMsg(answer)
}

func (s *nameserver) add(t *testing.T, text string) {
	t.Helper()
	rr, err := dns.NewRR(text)
	if err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rrs = append(s.rrs, rr)
}

// A domain is verified as soon as its records exist. Negative answers that delivery has cached do not matter, because
// verification bypasses the DNS cache.
func TestVerificationAsksAfresh(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		s := &nameserver{}
		started := make(chan struct{})
		server := &dns.Server{PacketConn: packets, Handler: s, NotifyStartedFunc: func() { close(started) }}
		go server.ActivateAndServe()
		<-started
		t.Cleanup(func() { server.Shutdown() })
		p.vars["POSTRIDER_DNS_SERVERS"], p.vars["POSTRIDER_TRUST_DOMAINS"] = packets.LocalAddr().String(), "false"
		key := p.key("Acme")
		n := p.start()
		var d struct {
			ID, Status string
			Records    []struct {
				Name, Type, Value, Status string
				Priority                  int
			}
		}
		ask := func(method, path, body string) {
			t.Helper()
			status, text := n.ask(key, method, path, body)
			if err := json.Unmarshal([]byte(text), &d); err != nil || status/100 != 2 {
				t.Fatalf("%s %s: %d %s", method, path, status, text)
			}
		}
		looked := func() (at int64) {
			if err := n.DB.QueryRow(t.Context(), `SELECT checked_at FROM domains WHERE id = $1`, db.ID(d.ID)).
				Scan(&at); err != nil {
				t.Fatal(err)
			}
			return at
		}
		ask(http.MethodPost, "/domains", `{"name":"acme.example"}`)
		id := d.ID
		ask(http.MethodPost, "/domains/"+id+"/verify", "")
		eventually(t, "it was looked at", func() bool { return looked() > 0 })
		ask(http.MethodGet, "/domains/"+id, "")
		for _, r := range d.Records {
			value := fmt.Sprintf("%q %q", r.Value[:len(r.Value)/2], r.Value[len(r.Value)/2:])
			if r.Type == "MX" {
				value = fmt.Sprintf("%d %s.", r.Priority, r.Value)
			}
			s.add(t, fmt.Sprintf("%s.acme.example. 60 IN %s %s", r.Name, r.Type, value))
		}
		ask(http.MethodPost, "/domains/"+id+"/verify", "")
		eventually(t, "it is verified", func() bool {
			ask(http.MethodGet, "/domains/"+id, "")
			return d.Status == "verified"
		})
	})
}
