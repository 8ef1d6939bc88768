package delivery

import (
	"context"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// An attempt that was deferred records the hosts, the certificate, the reverse DNS of the source address once it is
// known, and how often the same answer came. An attempt that went well records none of these.
func TestEvidenceOfTrouble(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		mx := smtptest.NewServer(t, smtptest.Config{TLS: smtptest.NewCA(t).ServerTLS("mx.test", "mail.test"),
			Rcpt: func(_, to string) string {
				if to == address(2) {
					return ""
				}
				return "450 4.2.0 not now"
			}})
		n := newNetwork()
		n.host(destination, "far.test", 5, "")
		n.host(destination, "mx.test", 10, mx.Addr)
		n.dns.MXRecords[destination] = append(n.dns.MXRecords[destination], resolve.MX{Host: "empty.test", Pref: 20},
			resolve.MX{Host: "out.postrider.test", Pref: 30}, resolve.MX{Host: "behind.test", Pref: 40})
		n.dns.AddrRecords["back.test"] = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
		n.dns.PTRRecords = map[netip.Addr][]string{netip.MustParseAddr("127.0.0.1"): {"back.test"}}
		c := n.config(2)
		c.Schedule[0] = time.Hour
		f := newFixture(t, d, c, resolve.NewCached(n.dns, 100))
		f.run()
		first := f.send(address(1))
		f.wait(first, events.EmailDelayed)
		e := f.evidence(first)[0]
		if e.Trouble == nil {
			t.Fatalf("%+v", e)
		}
		want := []evidence.Host{
			{Name: "far.test", Pref: 5, Addrs: []evidence.Addr{{IP: netip.MustParseAddr("10.0.0.1"), Tried: true}}},
			{Name: "mx.test", Pref: 10, Addrs: []evidence.Addr{{IP: netip.MustParseAddr("10.0.0.2"), Tried: true}}},
			{Name: "empty.test", Pref: 20, Skipped: evidence.NoAddress},
			{Name: "out.postrider.test", Pref: 30, Skipped: evidence.IsOurs},
			{Name: "behind.test", Pref: 40, Skipped: evidence.AfterOurs}}
		if diff := cmp.Diff(want, e.Trouble.Route.Hosts, cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("the hosts: %s", diff)
		}
		if e.Trouble.Route.Kept <= 0 {
			t.Error("the time for which the MX records are valid is not recorded")
		}
		p := e.Trouble.Peer
		if strings.Join(p.Names, " ") != "mx.test mail.test" || p.Issuer == "" || !strings.Contains(p.Problem, "authority") ||
			!p.Expires.After(time.Now()) {
			t.Errorf("the certificate: %+v", p)
		}
		for range 3000 {
			if f.service.reverse.of(netip.MustParseAddr("127.0.0.1")).State != 0 {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		well := f.send(address(2))
		f.wait(well, events.EmailDelivered)
		if e := f.evidence(well)[0]; e.Trouble != nil {
			t.Errorf("an attempt that went well: %+v", e.Trouble)
		}
		second := f.send(address(3))
		f.wait(second, events.EmailDelayed)
		got := f.evidence(second)[0].Trouble
		if got.PTR != (evidence.PTR{State: evidence.PTRConfirmed, Name: "back.test"}) ||
			got.Same != (evidence.Same{Counted: true, Own: 1}) {
			t.Errorf("a second attempt: %+v", got)
		}
	})
}

// A domain whose hosts cannot be used, and a certificate that ended the handshake, are recorded.
func TestEvidenceWithoutConnection(t *testing.T) {
	t.Parallel()
	mx := smtptest.NewServer(t, smtptest.Config{TLS: smtptest.NewCA(t).ServerTLS("other.test")})
	n := one(mx.Addr)
	n.dns.MXRecords["ours.example"] = []resolve.MX{{Host: "out.postrider.test", Pref: 1}}
	f := newFixture(t, dbtest.SQLite(t), n.config(1), n.dns)
	f.run()
	lost := f.send("ann@ours.example")
	f.wait(lost, events.EmailBounced)
	if got := f.evidence(lost)[0].Trouble; got == nil || len(got.Route.Hosts) != 1 ||
		got.Route.Hosts[0].Skipped != evidence.IsOurs {
		t.Errorf("a domain that leads here: %+v", got)
	}
	if err := f.Domains.Update(t.Context(), f.Acme.TeamID, f.Sender.ID, domains.Change{TLS: new(domains.Enforced)}); err != nil {
		t.Fatal(err)
	}
	refused := f.send(address(1))
	f.wait(refused, events.EmailDelayed)
	if got := f.evidence(refused)[0].Trouble; got == nil || strings.Join(got.Peer.Names, " ") != "other.test" ||
		got.Peer.Problem == "" {
		t.Errorf("a certificate for another name: %+v", got)
	}
}

// The reverse DNS of a source address is judged by whether its name leads back.
func TestReverse(t *testing.T) {
	addr := netip.MustParseAddr("192.0.2.1")
	for name, c := range map[string]struct {
		dns  resolve.Fake
		want evidence.PTR
	}{
		"missing": {resolve.Fake{}, evidence.PTR{State: evidence.PTRMissing}},
		"leads back": {resolve.Fake{PTRRecords: map[netip.Addr][]string{addr: {"a.test"}},
			AddrRecords: map[string][]netip.Addr{"a.test": {netip.MustParseAddr("::ffff:192.0.2.1")}}},
			evidence.PTR{State: evidence.PTRConfirmed, Name: "a.test"}},
		"leads elsewhere": {resolve.Fake{PTRRecords: map[netip.Addr][]string{addr: {"a.test"}},
			AddrRecords: map[string][]netip.Addr{"a.test": {netip.MustParseAddr("192.0.2.2")}}},
			evidence.PTR{State: evidence.PTRElsewhere, Name: "a.test"}},
		"leads nowhere": {resolve.Fake{PTRRecords: map[netip.Addr][]string{addr: {"a.test"}}},
			evidence.PTR{State: evidence.PTRElsewhere, Name: "a.test"}},
		"the second name leads back": {resolve.Fake{PTRRecords: map[netip.Addr][]string{addr: {"a.test", "b.test"}},
			AddrRecords: map[string][]netip.Addr{"b.test": {addr}}, Fail: []string{"a.test"}},
			evidence.PTR{State: evidence.PTRConfirmed, Name: "b.test"}},
		"a name cannot be looked up": {resolve.Fake{PTRRecords: map[netip.Addr][]string{addr: {"a.test", "b.test"}},
			Fail: []string{"b.test"}}, evidence.PTR{}},
		"no answer": {resolve.Fake{Fail: []string{"ptr 192.0.2.1"}}, evidence.PTR{}},
	} {
		s := &Service{p: Deps{DNS: c.dns}}
		if got := s.lookUpPTR(t.Context(), addr); got != c.want {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}

// A failed look-up of reverse DNS is repeated after a minute, and one that succeeded after an hour.
func TestReverseIsLookedUpAgain(t *testing.T) {
	addr := netip.MustParseAddr("8.8.8.8")
	for name, c := range map[string]struct {
		first resolve.Fake
		after time.Duration
	}{
		"failed":    {resolve.Fake{Fail: []string{"ptr 8.8.8.8"}}, time.Minute},
		"succeeded": {resolve.Fake{PTRRecords: map[netip.Addr][]string{addr: {"a.test"}}}, time.Hour},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			s := &Service{p: Deps{DNS: c.first}, reverse: newReverse(), guard: netguard.New(netguard.Options{})}
			go s.runReverse(ctx)
			known := func() evidence.PTRState {
				s.reverse.of(addr)
				synctest.Wait()
				return s.reverse.of(addr).State
			}
			first := known()
			s.p.DNS = resolve.Fake{}
			time.Sleep(c.after - time.Second)
			if got := known(); got != first {
				t.Errorf("%s: looked up again before %v", name, c.after)
			}
			time.Sleep(time.Second)
			if got := known(); got != evidence.PTRMissing {
				t.Errorf("%s: %v after %v, want the new answer", name, got, c.after)
			}
		})
	}
}
