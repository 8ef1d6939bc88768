package resolve_test

import (
	"context"
	"errors"
	"net/netip"
	"testing"

	"github.com/postrider/postrider/internal/mail/resolve"
)

// Every look-up distinguishes absent records from failures, even if it goes through a cache.
func TestEveryQuestionFails(t *testing.T) {
	t.Parallel()
	missing, failing, known := netip.MustParseAddr("192.0.2.99"), netip.MustParseAddr("192.0.2.98"),
		netip.MustParseAddr("192.0.2.97")
	answers := resolve.Fake{
		MXRecords:    map[string][]resolve.MX{"known.example": {{Host: "a.example", Pref: 1}}},
		TXTRecords:   map[string][]string{"known.example": {"x"}},
		AddrRecords:  map[string][]netip.Addr{"known.example": {known}},
		CAARecords:   map[string][]resolve.CAA{"known.example": {{Tag: "issue"}}},
		CNAMERecords: map[string]string{"www.known.example": "known.example"},
		PTRRecords:   map[netip.Addr][]string{known: {"known.example"}},
		Fail:         []string{"fails.example", "www.fails.example", "ptr 192.0.2.98"},
	}
	addrs := map[string]netip.Addr{"missing.example": missing, "fails.example": failing, "known.example": known}
	for question, ask := range map[string]func(context.Context, resolve.Resolver, string) (int, error){
		"MX": func(ctx context.Context, r resolve.Resolver, name string) (int, error) {
			all, err := r.MX(ctx, name)
			return len(all), err
		},
		"TXT": func(ctx context.Context, r resolve.Resolver, name string) (int, error) {
			all, err := r.TXT(ctx, name)
			return len(all), err
		},
		"Addrs": func(ctx context.Context, r resolve.Resolver, name string) (int, error) {
			all, err := r.Addrs(ctx, name)
			return len(all), err
		},
		"CAA": func(ctx context.Context, r resolve.Resolver, name string) (int, error) {
			all, err := r.CAA(ctx, name)
			return len(all), err
		},
		"PTR": func(ctx context.Context, r resolve.Resolver, name string) (int, error) {
			all, err := r.PTR(ctx, addrs[name])
			return len(all), err
		},
		"CNAME": func(ctx context.Context, r resolve.Resolver, name string) (int, error) {
			target, err := r.CNAME(ctx, "www."+name)
			if target != "" {
				return 1, err
			}
			return 0, err
		},
	} {
		canceled, cancel := context.WithCancel(t.Context())
		cancel()
		for _, c := range []struct {
			ctx   context.Context
			name  string
			found int
			err   error
		}{
			{t.Context(), "missing.example", 0, resolve.ErrNotFound},
			{t.Context(), "fails.example", 0, resolve.ErrTemporary},
			{canceled, "known.example", 0, resolve.ErrTemporary},
			{t.Context(), "known.example", 1, nil},
		} {
			cached := resolve.NewCached(answers, 10)
			for again, r := range []resolve.Resolver{answers, cached, cached} {
				n, err := ask(c.ctx, r, c.name)
				if n != c.found || !errors.Is(err, c.err) || c.err == nil && err != nil {
					t.Errorf("%s of %s, %d: %d found, %v; want %v", question, c.name, again, n, err, c.err)
				}
			}
		}
	}
}
