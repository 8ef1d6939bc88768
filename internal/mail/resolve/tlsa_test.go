package resolve_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/postrider/postrider/internal/mail/resolve"
)

// asked records the names of TLSA and CNAME look-ups.
type asked struct {
	resolve.Fake
	names []string
}

func (a *asked) TLSA(ctx context.Context, name string) (resolve.Answer[resolve.TLSA], error) {
	a.names = append(a.names, name)
	return a.Fake.TLSA(ctx, name)
}

func (a *asked) CNAMESecure(ctx context.Context, name string) (resolve.Answer[string], error) {
	a.names = append(a.names, "cname "+name)
	return a.Fake.CNAMESecure(ctx, name)
}

func TestHostTLSA(t *testing.T) {
	t.Parallel()
	one := []resolve.TLSA{{Usage: 3, Selector: 1, Matching: 1, Data: make([]byte, 32)}}
	at := addrs("192.0.2.1")
	f := resolve.Fake{SignedZones: []string{"signed.test"}, UnsignedZones: []string{"_tcp.sub.signed.test"},
		AddrRecords: map[string][]netip.Addr{"mx.signed.test": at, "none.signed.test": at, "mx.plain.test": at,
			"bogus.signed.test": at, "broken.signed.test": at, "sub.signed.test": at},
		TLSARecords: map[string][]resolve.TLSA{"_25._tcp.mx.signed.test": one, "_25._tcp.mx.plain.test": one,
			"_25._tcp.both.signed.test": one, "_25._tcp.only.signed.test": one, "_25._tcp.out.signed.test": one,
			"_25._tcp.sub.signed.test": one, "_25._tcp.in.plain.test": one, "_26._tcp.none.signed.test": one},
		CNAMERecords: map[string]string{"both.signed.test": "mx.signed.test", "only.signed.test": "none.signed.test",
			"neither.signed.test": "none.signed.test", "out.signed.test": "mx.plain.test", "in.plain.test": "mx.signed.test",
			"lost.signed.test": "mx.plain.test", "stuck.signed.test": "mx.plain.test", "hidden.signed.test": "sub.signed.test"},
		Fail:  []string{"tlsa _25._tcp.broken.signed.test", "cname stuck.signed.test"},
		Bogus: []string{"tlsa _25._tcp.bogus.signed.test"}}
	for _, c := range []struct {
		host string
		base string // "" if no records apply
		want resolve.Outcome
		err  error
		asks string
	}{
		{"MX.signed.test.", "mx.signed.test", resolve.OutcomeSecure, nil, "_25._tcp.mx.signed.test"},
		{"none.signed.test", "", resolve.OutcomeAbsent, nil, "_25._tcp.none.signed.test"},
		{"mx.plain.test", "", resolve.OutcomeInsecure, nil, ""},
		{"in.plain.test", "", resolve.OutcomeInsecure, nil, "cname in.plain.test"},
		{"both.signed.test", "mx.signed.test", resolve.OutcomeSecure, nil, "_25._tcp.mx.signed.test"},
		{"only.signed.test", "only.signed.test", resolve.OutcomeSecure, nil,
			"_25._tcp.none.signed.test _25._tcp.only.signed.test"},
		{"neither.signed.test", "", resolve.OutcomeAbsent, nil,
			"_25._tcp.none.signed.test _25._tcp.neither.signed.test"},
		{"out.signed.test", "out.signed.test", resolve.OutcomeSecure, nil, "cname out.signed.test _25._tcp.out.signed.test"},
		{"lost.signed.test", "", resolve.OutcomeAbsent, nil, "cname lost.signed.test _25._tcp.lost.signed.test"},
		{"stuck.signed.test", "", resolve.OutcomeFailed, resolve.ErrTemporary, "cname stuck.signed.test"},
		{"sub.signed.test", "", resolve.OutcomeInsecure, nil, "_25._tcp.sub.signed.test"},
		{"hidden.signed.test", "", resolve.OutcomeAbsent, nil, "_25._tcp.sub.signed.test _25._tcp.hidden.signed.test"},
		{"bogus.signed.test", "", resolve.OutcomeBogus, resolve.ErrBogus, "_25._tcp.bogus.signed.test"},
		{"broken.signed.test", "", resolve.OutcomeFailed, resolve.ErrTemporary, "_25._tcp.broken.signed.test"},
	} {
		t.Run(c.host, func(t *testing.T) {
			t.Parallel()
			r := &asked{Fake: f}
			addrs, err := r.AddrsSecure(t.Context(), c.host)
			if err != nil {
				t.Fatal(err)
			}
			got, err := resolve.HostTLSA(t.Context(), r, c.host, 25, addrs)
			if !errors.Is(err, c.err) || err != nil && c.err == nil {
				t.Errorf("error %v", err)
			}
			want := resolve.HostRecords{Base: c.base, Outcome: c.want}
			if c.base != "" {
				want.Records = one
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if names := strings.Join(r.names, " "); names != c.asks {
				t.Errorf("asked for %s, want %s", names, c.asks)
			}
		})
	}
}
