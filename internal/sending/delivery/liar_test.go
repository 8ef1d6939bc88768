//go:build linux

package delivery

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/mail/dane"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/domains"
)

// A DNS server claims that it has authenticated its answers, but it is not on this host. The address 127.0.0.11 stands
// for such servers, because Docker forwards queries from there. Its TLSA records verify no certificate, so a sender who
// demands TLS gets none from them. If the operator names another server that validates, only that one counts.
func TestLiarAboutDNSSEC(t *testing.T) {
	t.Parallel()
	server := smtptest.NewCA(t).ServerTLS("mx.test")
	forged, err := dane.For(server.Certificates[0].Leaf.PublicKey)
	if err != nil {
		t.Fatal(err)
	}
	mx := smtptest.NewServer(t, smtptest.Config{TLS: server})
	answers := func(record string) func(dns.Question, *dns.Msg) {
		return func(q dns.Question, m *dns.Msg) {
			m.AuthenticatedData = true
			for _, text := range []string{". 60 IN SOA a.test. b.test. 1 1 1 1 1", destination + ". 60 IN MX 10 mx.test.",
				"mx.test. 60 IN A 127.0.0.1", tlsaName + ". 60 IN TLSA " + record} {
				if rr, err := dns.NewRR(text); err != nil {
					t.Error(err)
				} else if rr.Header().Name == q.Name && rr.Header().Rrtype == q.Qtype {
					m.Answer = append(m.Answer, rr)
				}
			}
		}
	}
	liar := &nameserver{t: t, addr: "127.0.0.11:0", answers: answers(forged.String())}
	liar.start()
	t.Cleanup(liar.stop)
	honest := newNameserver(t, answers("3 1 1 "+strings.Repeat("00", 32)))
	for _, c := range []struct {
		name, tls, reply string // the reply is "" if the email is delivered
		named            []string
	}{
		{"nothing demanded", domains.Opportunistic, "", nil},
		{"TLS demanded", domains.Enforced, "454 4.7.5", nil},
		{"beside an honest server", domains.Opportunistic, "454 4.7.5", []string{honest.addr}},
	} {
		t.Run(c.name, func(t *testing.T) {
			resolver, err := resolve.NewDNS([]string{liar.addr}, c.named...)
			if err != nil {
				t.Fatal(err)
			}
			f := newFixture(t, dbtest.SQLite(t), Config{DANE: true, LaneConnections: 2, Schedule: []time.Duration{time.Hour},
				Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
					return new(net.Dialer).DialContext(ctx, network, mx.Addr)
				}}, resolver)
			f.Update(func(tx *db.Tx) error {
				_, err := tx.Exec(t.Context(), `UPDATE domains SET tls = $1`, c.tls)
				return err
			})
			f.run()
			before, x := len(mx.Messages()), f.send(address(1))
			if c.reply == "" {
				f.wait(x, events.EmailDelivered)
			} else {
				f.wait(x, events.EmailDelayed)
			}
			a := f.attempts(x)[0]
			if !strings.HasPrefix(a.Reply, c.reply) || strings.Contains(a.TLS, "verified by DANE") {
				t.Errorf("attempt %+v", a)
			}
			if got := len(mx.Messages()) - before; got > 0 != (c.reply == "") {
				t.Errorf("the host has %d messages", got)
			}
		})
	}
}
