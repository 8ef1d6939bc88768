package domains_test

import (
	"net"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/domains"
)

// If our own DNS servers do not answer, a look-up records nothing and fails with an outage, so that the queue repeats
// it within 30 seconds.
func TestLookUpWithoutOurDNS(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		packets, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		packets.Close() // nothing listens there
		resolver, err := resolve.NewDNS([]string{packets.LocalAddr().String()})
		if err != nil {
			t.Fatal(err)
		}
		s, _, _ := build(t, d, resolver, domains.Config{})
		oneKey(t, s)
		dom := mustCreate(t, s, domains.NewDomain{Name: "acme.example"})
		verify(t, s, dbtest.ID("team"), dom.ID)
		if err := s.Kind().Handle(t.Context(), inHand(t, d, dom.ID)); !fault.IsOutage(err) {
			t.Errorf("the look-up ends with %v", err)
		}
		if _, held := left(t, d, dom.ID); held != 1 {
			t.Errorf("%d jobs are in hand", held)
		}
		after, now := statuses(t, s, dom.ID)
		if after != domains.Pending {
			t.Errorf("the domain is %s: %v", after, now)
		}
	})
}
