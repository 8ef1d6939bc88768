package resolve_test

import (
	"errors"
	"sync/atomic"
	"testing"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// ErrNoServer means that our own servers do not work. If only one domain's look-up fails, the error is temporary but
// not ErrNoServer, however the servers fail.
func TestOurServersOrTheirs(t *testing.T) {
	t.Parallel()
	other := zone(`other.test. 300 IN MX 10 mx.other.test.`)
	failing, refusing := rcode(dns.RcodeServerFailure), rcode(dns.RcodeRefused)
	for name, c := range map[string]struct {
		knows bool // whether the servers answered a question before
		broken,
		others func(*nameserver, dns.ResponseWriter, *dns.Msg) // for the domain, and for all other names
		ours bool
	}{
		"silent":                          {false, silence, silence, true},
		"silent after an answer":          {true, silence, silence, true},
		"silent for the domain":           {false, silence, other, false},
		"silent for the domain, refusing": {false, silence, refusing, false},
		"failing":                         {false, failing, failing, false}, // nothing tells them apart
		"failing after an answer":         {true, failing, failing, true},
		"failing for the domain":          {true, failing, other, false},
		"silent, then failing":            {true, silence, failing, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var begun atomic.Bool
			server := serve(t, func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
				switch {
				case !begun.Load():
					other(n, w, q)
				case q.Question[0].Name == "one.test.":
					c.broken(n, w, q)
				default:
					c.others(n, w, q)
				}
			})
			r := resolver(t, server)
			if c.knows {
				if _, err := r.MX(t.Context(), "other.test"); err != nil {
					t.Fatal(err)
				}
			}
			begun.Store(true)
			_, err := resolve.Hosts(t.Context(), resolve.NewCached(r, 10), "one.test")
			if !errors.Is(err, resolve.ErrTemporary) || errors.Is(err, resolve.ErrNoServer) != c.ours ||
				fault.IsOutage(err) != c.ours {
				t.Errorf("%v: our servers fail: %v", err, errors.Is(err, resolve.ErrNoServer))
			}
		})
	}
}
