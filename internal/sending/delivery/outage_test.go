package delivery

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/freeport"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// waitsSoon waits until the email's job has failed twice, and checks that it is due within 30 seconds, that no try was
// recorded, and that no event was.
func (f *fixture) waitsSoon(id string) {
	f.T.Helper()
	testnode.Until(f.T, "the job waits for the second time", func() bool {
		f.dueOnce(id)
		return f.Count(`SELECT COUNT(*) FROM jobs WHERE payload LIKE $1 AND attempt > 1 AND holder IS NULL
			AND last_error <> ''`, "%"+id+"%") == 1
	})
	var at int64
	var tries, failures int
	if err := f.DB.QueryRow(f.T.Context(), `SELECT run_at, tries, failures FROM jobs WHERE payload LIKE $1`,
		"%"+id+"%").Scan(&at, &tries, &failures); err != nil {
		f.T.Fatal(err)
	}
	if wait := db.Time(at).Sub(f.DB.Now()); wait > 30*time.Second || tries+failures != 0 {
		f.T.Errorf("the job waits for %v and has %d tries and %d failures", wait, tries, failures)
	}
	if n := len(f.attempts(id)); n != 0 || f.count(events.EmailDelayed) != 0 || f.state(id) != emails.Queued {
		f.T.Errorf("the email is %s, has %d attempts, and %d events say that it is delayed", f.state(id), n,
			f.count(events.EmailDelayed))
	}
}

// dueOnce makes the email's job due if it has waited once.
func (f *fixture) dueOnce(id string) {
	f.T.Helper()
	f.dueIf(id, " AND attempt = 1")
}

// dueNow makes the email's job due.
func (f *fixture) dueNow(id string) {
	f.T.Helper()
	f.dueIf(id, "")
}

// dueIf makes the email's job due if it waits and meets a condition. A worker may take the job at once, and delete it
// after it, so the lane is read by the same statement.
func (f *fixture) dueIf(id, condition string) {
	f.T.Helper()
	var lane string
	f.Update(func(tx *db.Tx) error {
		err := tx.QueryRow(f.T.Context(), `UPDATE jobs SET run_at = 1, attempt = 1 WHERE payload LIKE $1
			AND holder IS NULL`+condition+` RETURNING lane`, "%"+id+"%").Scan(&lane)
		if errors.Is(err, db.ErrNoRows) {
			return nil
		}
		return err
	})
	f.DB.Hint("jobs", emails.DeliveryKind+"\t"+lane+"\t1")
}

// nameserver is a DNS server on this machine that can be stopped and started again.
type nameserver struct {
	t       *testing.T
	addr    string
	answers func(q dns.Question, m *dns.Msg)
	server  *dns.Server
}

func newNameserver(t *testing.T, answers func(q dns.Question, m *dns.Msg)) *nameserver {
	n := &nameserver{t: t, addr: freeport.Addr(t), answers: answers}
	n.start()
	t.Cleanup(n.stop)
	return n
}

func (n *nameserver) start() {
	n.t.Helper()
	packets, err := net.ListenPacket("udp", n.addr)
	if err != nil {
		n.t.Fatal(err)
	}
	n.addr = packets.LocalAddr().String()
	started := make(chan struct{})
	n.server = &dns.Server{PacketConn: packets, NotifyStartedFunc: func() { close(started) }}
	n.server.Handler = dns.HandlerFunc(func(w dns.ResponseWriter, q *dns.Msg) {
		m := new(dns.Msg).SetReply(q)
		n.answers(q.Question[0], m)
		w.WriteMsg(m)
	})
	go n.server.ActivateAndServe()
	<-started
}

func (n *nameserver) stop() { n.server.Shutdown() }

// record adds a record to an answer.
func record(t *testing.T, m *dns.Msg, text string) {
	rr, err := dns.NewRR(text)
	if err != nil {
		t.Error(err)
		return
	}
	m.Answer = append(m.Answer, rr)
}

// If our own DNS servers do not answer, an email waits for them, and no try is recorded. If only the servers of the
// recipient's domain fail, the try is recorded, and the retry schedule applies.
func TestMailWaitsForOurDNS(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		servers := newNameserver(t, func(q dns.Question, m *dns.Msg) {
			switch {
			case q.Name == "broken.test.":
				m.Rcode = dns.RcodeServerFailure
			case q.Name == destination+"." && q.Qtype == dns.TypeMX:
				record(t, m, q.Name+" 0 IN MX 10 mx.test.")
			case q.Name == "mx.test." && q.Qtype == dns.TypeA:
				record(t, m, q.Name+" 0 IN A 127.0.0.1")
			}
		})
		resolver, err := resolve.NewDNS([]string{servers.addr})
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{Schedule: []time.Duration{time.Hour, time.Hour}, LaneConnections: 2,
			Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, mx.Addr)
			}}
		f := newFixture(t, d, cfg, resolver)
		servers.stop()
		waiting := f.send(address(1))
		f.run()
		f.waitsSoon(waiting)
		lasting := f.send("a@lasting.test")
		f.waitsSoon(lasting)
		since := f.DB.Now().Add(-25 * time.Hour).UTC().Format(time.RFC3339)
		f.Update(func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE jobs SET last_error = $1 WHERE lane LIKE '%lasting.test%'
				AND holder IS NULL`,
				"outage since "+since+": why")
			return err
		})
		f.dueNow(lasting)
		f.wait(lasting, events.EmailDelayed) // after a day, the failure counts as a try
		servers.start()
		f.dueNow(waiting)
		f.wait(waiting, events.EmailDelivered)
		broken := f.send("a@broken.test")
		f.wait(broken, events.EmailDelayed)
		if n := len(f.attempts(broken)); n != 1 {
			t.Errorf("%d tries are recorded for a domain whose servers fail", n)
		}
	})
}

// behindRelay returns a fixture whose mail goes to the host relay.test at a port. A nameserver answers for its name.
func behindRelay(t *testing.T, d *db.DB, servers *nameserver, port string) *fixture {
	t.Helper()
	resolver := &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, network, servers.addr)
	}}
	return newFixture(t, d, Config{Transport: Relay, Relays: relays(net.JoinHostPort("relay.test.", port)),
		LaneConnections: 2,
		Schedule:        []time.Duration{time.Hour, time.Hour}, Dial: (&net.Dialer{Resolver: resolver}).DialContext},
		resolve.Fake{})
}

// If DNS does not say which address the relay has, an email waits for it, and no try is recorded.
func TestMailWaitsForTheNameOfTheRelay(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		relay := smtptest.NewServer(t, smtptest.Config{})
		servers := newNameserver(t, func(q dns.Question, m *dns.Msg) {
			if m.RecursionAvailable = true; q.Name == "relay.test." && q.Qtype == dns.TypeA {
				record(t, m, q.Name+" 0 IN A 127.0.0.1")
			}
		})
		_, port, _ := net.SplitHostPort(relay.Addr)
		f := behindRelay(t, d, servers, port)
		servers.stop()
		id := f.send(address(1))
		f.run()
		f.waitsSoon(id)
		servers.start()
		f.dueNow(id)
		f.wait(id, events.EmailDelivered)
	})
}

// If the relay's name does not exist, the operator's setting is wrong. A try is recorded, as if it refused connections.
func TestNameOfTheRelayDoesNotExist(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		servers := newNameserver(t, func(_ dns.Question, m *dns.Msg) {
			m.RecursionAvailable, m.Rcode = true, dns.RcodeNameError
		})
		f := behindRelay(t, d, servers, "25")
		id := f.send(address(1))
		f.run()
		f.wait(id, events.EmailDelayed)
		if n := len(f.attempts(id)); n != 1 {
			t.Errorf("%d tries are recorded", n)
		}
	})
}

// If the blob store is away, an email with an attachment waits for it, and no try is recorded.
func TestMailWaitsForTheBlobStore(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := smtptest.NewServer(t, smtptest.Config{})
		n := one(mx.Addr)
		blobs := filepath.Join(t.TempDir(), "blobs")
		f := newFixtureIn(t, d, n.config(2), n.dns, blobs)
		text := "Hello"
		id := f.Send(emails.Send{From: "a@" + from, To: []string{address(1)}, Subject: "Hello", Text: &text,
			Attachments: []emails.Upload{{Filename: "a.txt", Content: []byte("content"), HasContent: true}}})
		if err := os.Rename(blobs, blobs+".away"); err != nil {
			t.Fatal(err)
		}
		f.run()
		f.waitsSoon(id)
		if err := os.Rename(blobs+".away", blobs); err != nil {
			t.Fatal(err)
		}
		f.dueNow(id)
		f.wait(id, events.EmailDelivered)
		if data := mx.Messages()[0].Data; !strings.Contains(string(data), "Y29udGVudA") {
			t.Errorf("the message has no attachment:\n%s", data)
		}
	})
}

// A temporary failure to look up one mail host is not forgotten because another host does not exist.
func TestTemporaryFailureOfOneHost(t *testing.T) {
	t.Parallel()
	records := resolve.Fake{MXRecords: map[string][]resolve.MX{destination: {{Host: "a.test", Pref: 1},
		{Host: "b.test", Pref: 2}}}, Fail: []string{"addr a.test"}}
	s := newService(Config{}, Deps{DNS: records})
	if _, err := s.choose(t.Context(), destination, "", "", nil); !errors.Is(err, resolve.ErrTemporary) || fault.IsOutage(err) {
		t.Errorf("the error is %v", err)
	}
}
