package domains_test

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
)

// silent is a local name server that does not answer queries for names below dead.example and has records for other
// names.
type silent struct {
	mu    sync.Mutex
	rrs   []dns.RR
	asked map[string]bool // names below dead.example
}

func (s *silent) ServeDNS(w dns.ResponseWriter, q *dns.Msg) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := strings.ToLower(q.Question[0].Name)
	if strings.HasSuffix(name, ".dead.example.") {
		labels := dns.SplitDomainName(name)
		s.asked[labels[len(labels)-3]] = true
		return
	}
	m := new(dns.Msg).SetReply(q)
	for _, rr := range s.rrs {
		if strings.EqualFold(rr.Header().Name, name) && rr.Header().Rrtype == q.Question[0].Qtype {
			m.Answer = append(m.Answer, rr)
		}
	}
	w.WriteMsg(m)
}

func (s *silent) add(t *testing.T, all []domains.Record) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range all {
		value := fmt.Sprintf(`%q %q`, r.Value[:len(r.Value)/2], r.Value[len(r.Value)/2:])
		if r.Type == "MX" {
			value = fmt.Sprintf("%d %s.", r.Priority, r.Value)
		}
		rr, err := dns.NewRR(fmt.Sprintf("%s. 60 IN %s %s", r.FQDN, r.Type, value))
		if err != nil {
			t.Fatal(err)
		}
		s.rrs = append(s.rrs, rr)
	}
}

func serve(t *testing.T) (*silent, resolve.Resolver) {
	t.Helper()
	packets, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := &silent{asked: map[string]bool{}}
	started := make(chan struct{})
	server := &dns.Server{PacketConn: packets, Handler: s, NotifyStartedFunc: func() { close(started) }}
	go server.ActivateAndServe()
	<-started
	t.Cleanup(func() { server.Shutdown() })
	r, err := resolve.NewDNS([]string{packets.LocalAddr().String()})
	if err != nil {
		t.Fatal(err)
	}
	return s, r
}

// One team's domains with silent name servers do not delay another team's verification.
func TestDeadDomainsHoldUpNobodyElse(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		const dead = 200
		server, r := serve(t)
		s, _ := newService(t, d, r)
		oneKey(t, s)
		for i := range dead {
			dom, err := s.Create(t.Context(), dbtest.ID("dead"), domains.NewDomain{Name: fmt.Sprintf("d%d.dead.example", i)})
			if err != nil {
				t.Fatal(err)
			}
			verify(t, s, dbtest.ID("dead"), dom.ID)
		}
		testnode.Until(t, "the dead are in hand", func() bool {
			server.mu.Lock()
			defer server.mu.Unlock()
			return len(server.asked) >= 8
		})
		good, err := s.Create(t.Context(), dbtest.ID("good"), domains.NewDomain{Name: "good.example"})
		if err != nil {
			t.Fatal(err)
		}
		server.add(t, s.Records(&good))
		verify(t, s, dbtest.ID("good"), good.ID)
		testnode.Until(t, "the good one is verified", func() bool {
			got, err := s.Get(t.Context(), dbtest.ID("good"), good.ID)
			return err == nil && got.Status == domains.Verified
		})
		given := 0
		for p := (page.Page{Limit: 100}); ; {
			all, more, err := s.List(t.Context(), dbtest.ID("dead"), p)
			if err != nil {
				t.Fatal(err)
			}
			for _, dom := range all {
				if !dom.CheckedAt.IsZero() {
					given++
				}
			}
			if p.After = all[len(all)-1].ID; !more {
				break
			}
		}
		if given > dead/2 {
			t.Errorf("%d of %d dead domains were given up before", given, dead)
		}
	})
}
