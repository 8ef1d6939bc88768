package webhooks_test

import (
	"net"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// While our own DNS servers do not answer, a webhook waits for them, and no attempt is recorded. A failure of the name
// servers of the endpoint's domain is an attempt like any other.
func TestWebhookWaitsForOurDNS(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		x := receive(t, nil)
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		must(t, err)
		addr := packets.LocalAddr().String()
		packets.Close()
		server := &dns.Server{Net: "udp", Addr: addr}
		server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
			m := new(dns.Msg).SetReply(q)
			m.RecursionAvailable = true
			text := ""
			switch asked := q.Question[0]; {
			case asked.Name == "hook.test." && asked.Qtype == dns.TypeA:
				text = "hook.test. 0 IN A 127.0.0.1"
			case asked.Name == ".":
				m.Rcode = dns.RcodeRefused
			}
			if rr, err := dns.NewRR(text); err == nil && rr != nil {
				m.Answer = []dns.RR{rr}
			}
			if q.Question[0].Name == "broken.test." {
				m.Rcode = dns.RcodeServerFailure
			}
			w.WriteMsg(m)
		})
		guard := loopbackOnly
		guard.DNSServers = []string{addr}
		f := newFixture(t, d, config(), guard)
		_, port, _ := net.SplitHostPort(x.Listener.Addr().String())
		e := f.endpoint(t, "http://hook.test:"+port)
		f.suppress(t, "gone@example.net")
		f.run()
		testnode.Until(t, "the webhook waits", func() bool {
			return f.Count(`SELECT COUNT(*) FROM jobs WHERE kind = $1 AND attempt > 0 AND holder IS NULL
				AND tries + failures = 0
				AND last_error <> '' AND run_at < $2`, webhooks.Kind, f.DB.Now().Add(30*time.Second).UnixMicro()) == 1
		})
		if m := f.messages(t, e)[0]; len(f.attempts(t, e, m)) != 0 || len(x.all()) != 0 {
			t.Errorf("%d attempts are recorded, %d requests came", len(f.attempts(t, e, m)), len(x.all()))
		}
		if _, err := f.Call(t.Context(), f.Acme.TeamID, "id", e.URL, nil, nil); fault.KindOf(err) != fault.Unavailable {
			t.Errorf("a call fails with %v", err)
		}
		started := make(chan struct{})
		server.NotifyStartedFunc = func() { close(started) }
		go server.ListenAndServe()
		<-started
		t.Cleanup(func() { server.Shutdown() })
		f.Node.Update(func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE jobs SET run_at = 1 WHERE kind = $1 AND holder IS NULL`, webhooks.Kind)
			tx.AfterCommit(func() { f.DB.Hint("jobs", webhooks.Kind+"\t"+f.Acme.TeamID+"|"+e.ID+"\t1") })
			return err
		})
		f.becomes(t, e, webhooks.Success)
		if _, err := f.Call(t.Context(), f.Acme.TeamID, "id", strings.Replace(e.URL, "hook", "broken", 1), nil,
			nil); err == nil || fault.KindOf(err) == fault.Unavailable {
			t.Errorf("a call to a domain whose servers fail ends with %v", err)
		}
	})
}
