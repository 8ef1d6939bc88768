package resolve_test

import (
	"errors"
	"strings"
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
	other := zone(`other.test. 300 IN MX 10 mx.other.test.`, `one.test. 300 IN MX 10 mx.one.test.`,
		`mx.one.test. 300 IN A 192.0.2.1`)
	failing, refusing := rcode(dns.RcodeServerFailure), rcode(dns.RcodeRefused)
	for name, c := range map[string]struct {
		knows string // names whose MX records the servers returned before
		broken,
		others func(*nameserver, dns.ResponseWriter, *dns.Msg) // for the domain, and for all other names
		ours bool
	}{
		"silent":                          {"", silence, silence, true},
		"silent after an answer":          {"other.test", silence, silence, true},
		"silent for the domain":           {"", silence, other, false},
		"silent for the domain, refusing": {"", silence, refusing, false},
		"failing":                         {"", failing, failing, false}, // nothing tells them apart
		"failing after an answer":         {"other.test", failing, failing, true},
		"failing for the domain":          {"other.test", failing, other, false},
		"silent, then failing":            {"other.test", silence, failing, true},

		"the domain itself was answered, failing":  {"one.test", failing, other, false},
		"the domain itself was answered, silent":   {"one.test", silence, other, false},
		"the domain itself was answered, refusing": {"one.test", silence, refusing, false},
		"the domain was answered last":             {"other.test one.test", failing, other, false},
		"all fail, and the domain was last":        {"other.test one.test", failing, failing, true},
		"all are silent, and only it was answered": {"one.test", silence, silence, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var begun atomic.Bool
			server := serve(t, func(n *nameserver, w dns.ResponseWriter, q *dns.Msg) {
				switch {
				case !begun.Load():
					other(n, w, q)
				case dns.IsSubDomain("one.test.", q.Question[0].Name):
					c.broken(n, w, q)
				default:
					c.others(n, w, q)
				}
			})
			r := resolver(t, server)
			for _, name := range strings.Fields(c.knows) {
				if _, err := r.MX(t.Context(), name); err != nil {
					t.Fatal(err)
				}
				if _, err := r.Addrs(t.Context(), "mx."+name); errors.Is(err, resolve.ErrTemporary) {
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
