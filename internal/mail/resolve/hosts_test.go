package resolve_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/resolve"
)

var fake = resolve.Fake{
	MXRecords: map[string][]resolve.MX{
		"example.com":       {{Host: "b.example.com", Pref: 20}, {Host: "A.example.com.", Pref: 10}},
		"null.example":      {{}},
		"null-pref.example": {{Host: ".", Pref: 10}},
		"odd.example":       {{}, {Host: "a.example.com", Pref: 10}},
		"twice.example": {{Host: "a.example.com", Pref: 30}, {Host: "b.example.com", Pref: 20},
			{Host: "a.example.com", Pref: 10}},
	},
	AddrRecords: map[string][]netip.Addr{
		"a.example.com":    {netip.MustParseAddr("192.0.2.1")},
		"implicit.example": {netip.MustParseAddr("192.0.2.2")},
	},
	TXTRecords: map[string][]string{"text.example": {"hello"}, "half.example": {"x"},
		"_dmarc.below.example": {"v=DMARC1"}},
	CNAMERecords: map[string]string{"alias.example": "example.com", "loop.example": "loop.example"},
	CAARecords:   map[string][]resolve.CAA{"example.com": {{Tag: "issue", Value: ";"}}},
	Fail:         []string{"mx fails.example", "addr half.example", "dead.example"},
}

func TestHosts(t *testing.T) {
	t.Parallel()
	both := []resolve.Host{{Name: "a.example.com", Pref: 10}, {Name: "b.example.com", Pref: 20}}
	for _, test := range []struct {
		domain string
		want   []resolve.Host
		err    error
	}{
		{"example.com", both, nil},
		{"EXAMPLE.COM.", both, nil},
		{"alias.example", both, nil},
		{"twice.example", both, nil},
		{"odd.example", both[:1], nil},
		{"implicit.example", []resolve.Host{{Name: "implicit.example", Implicit: true}}, nil},
		{"null.example", nil, resolve.ErrNullMX},
		{"null-pref.example", nil, resolve.ErrNullMX},
		{"text.example", nil, resolve.ErrNoHost},
		{"below.example", nil, resolve.ErrNoHost},
		{"nowhere.example", nil, resolve.ErrNoDomain},
		{"not a domain", nil, resolve.ErrNoDomain},
		{"fails.example", nil, resolve.ErrTemporary},
		{"half.example", nil, resolve.ErrTemporary},
		{"dead.example", nil, resolve.ErrTemporary},
		{"loop.example", nil, resolve.ErrTemporary},
	} {
		t.Run(test.domain, func(t *testing.T) {
			t.Parallel()
			got, err := resolve.Hosts(t.Context(), fake, test.domain)
			if !errors.Is(err, test.err) || test.err == nil && err != nil {
				t.Errorf("error %v, want %v", err, test.err)
			}
			if test.err != nil && test.err != resolve.ErrTemporary && errors.Is(err, resolve.ErrTemporary) {
				t.Errorf("%v is definite and temporary", err)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("hosts (-want +got):\n%s", diff)
			}
		})
	}
}

func TestHostsSecure(t *testing.T) {
	t.Parallel()
	f := resolve.Fake{SignedZones: []string{"signed.test", "null.test"}, UnsignedZones: []string{"sub.signed.test"},
		MXRecords: map[string][]resolve.MX{
			"signed.test": {{Host: "mx.signed.test", Pref: 10}}, "plain.test": {{Host: "mx.signed.test", Pref: 10}},
			"sub.signed.test": {{Host: "mx.signed.test", Pref: 10}}, "null.test": {{}}, "plain-null.test": {{}},
		},
		AddrRecords: map[string][]netip.Addr{"own.signed.test": addrs("192.0.2.1"), "own.test": addrs("192.0.2.2")},
		TXTRecords:  map[string][]string{"text.signed.test": {"x"}},
		CNAMERecords: map[string]string{"alias.signed.test": "signed.test", "alias.test": "signed.test",
			"alias-own.signed.test": "own.signed.test"},
		Fail: []string{"fails.signed.test"}, Bogus: []string{"mx bogus.signed.test", "addr half.signed.test"},
	}
	f.TXTRecords["half.signed.test"] = []string{"x"}
	mx := []resolve.Host{{Name: "mx.signed.test", Pref: 10}}
	own := func(name string) []resolve.Host { return []resolve.Host{{Name: name, Implicit: true}} }
	for _, c := range []struct {
		domain string
		want   resolve.MailHosts
		err    error
		secure bool // of a definite error
	}{
		{"Signed.test.", resolve.MailHosts{Hosts: mx, Name: "signed.test", Secure: true}, nil, false},
		{"plain.test", resolve.MailHosts{Hosts: mx, Name: "plain.test"}, nil, false},
		{"sub.signed.test", resolve.MailHosts{Hosts: mx, Name: "sub.signed.test"}, nil, false},
		{"alias.signed.test", resolve.MailHosts{Hosts: mx, Name: "signed.test", Secure: true}, nil, false},
		{"alias.test", resolve.MailHosts{Hosts: mx, Name: "signed.test"}, nil, false},
		{"own.signed.test", resolve.MailHosts{Hosts: own("own.signed.test"), Name: "own.signed.test", Secure: true}, nil,
			false},
		{"alias-own.signed.test", resolve.MailHosts{Hosts: own("alias-own.signed.test"), Name: "own.signed.test",
			Secure: true}, nil, false},
		{"own.test", resolve.MailHosts{Hosts: own("own.test"), Name: "own.test"}, nil, false},
		{"text.signed.test", resolve.MailHosts{}, resolve.ErrNoHost, true},
		{"no.signed.test", resolve.MailHosts{}, resolve.ErrNoDomain, true},
		{"no.test", resolve.MailHosts{}, resolve.ErrNoDomain, false},
		{"null.test", resolve.MailHosts{}, resolve.ErrNullMX, true},
		{"plain-null.test", resolve.MailHosts{}, resolve.ErrNullMX, false},
		{"fails.signed.test", resolve.MailHosts{}, resolve.ErrTemporary, false},
		{"bogus.signed.test", resolve.MailHosts{}, resolve.ErrBogus, false},
		{"half.signed.test", resolve.MailHosts{}, resolve.ErrBogus, false},
	} {
		t.Run(c.domain, func(t *testing.T) {
			t.Parallel()
			got, err := resolve.HostsSecure(t.Context(), f, c.domain)
			if !errors.Is(err, c.err) || err != nil && c.err == nil || resolve.IsSecure(err) != c.secure {
				t.Errorf("error %v, secure %v", err, resolve.IsSecure(err))
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// insecureMX is a resolver for which the absence of MX records is not authenticated.
type insecureMX struct{ resolve.Fake }

func (insecureMX) MXSecure(context.Context, string) (resolve.Answer[resolve.MX], error) {
	return resolve.Answer[resolve.MX]{}, resolve.ErrNotFound
}

// A domain without hosts is securely without hosts only if both its MX records and its addresses are securely absent.
func TestNoHostSecurely(t *testing.T) {
	t.Parallel()
	r := insecureMX{resolve.Fake{SignedZones: []string{"signed.test"},
		TXTRecords: map[string][]string{"text.signed.test": {"x"}}}}
	_, err := resolve.HostsSecure(t.Context(), r, "text.signed.test")
	if !errors.Is(err, resolve.ErrNoHost) || resolve.IsSecure(err) {
		t.Errorf("error %v, secure %v", err, resolve.IsSecure(err))
	}
}

// TestHostsAreShuffled calls Hosts many times to check that hosts with equal preference are shuffled, that preferred
// hosts come first, and that at most ten hosts are returned.
func TestHostsAreShuffled(t *testing.T) {
	t.Parallel()
	var records []resolve.MX
	for i := range 30 {
		records = append(records, resolve.MX{Host: fmt.Sprintf("mx%d.example", i), Pref: uint16(i / 3)})
	}
	r := resolve.Fake{MXRecords: map[string][]resolve.MX{"example.com": records}}
	first := make(map[string]int)
	for range 300 {
		hosts, err := resolve.Hosts(t.Context(), r, "example.com")
		if err != nil || len(hosts) != 10 {
			t.Fatalf("%d hosts, %v", len(hosts), err)
		}
		for i, h := range hosts {
			if int(h.Pref) != i/3 {
				t.Fatalf("host %d has preference %d", i, h.Pref)
			}
		}
		first[hosts[0].Name]++
	}
	for _, name := range []string{"mx0.example", "mx1.example", "mx2.example"} {
		if first[name] < 50 {
			t.Errorf("%s is first %d times of 300", name, first[name])
		}
	}
}

func TestFake(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, test := range []struct {
		ctx        context.Context
		kind, name string
		want       string
		err        error
	}{
		{nil, "txt", "text.example.", "[hello]", nil},
		{nil, "addr", "A.example.com", "[192.0.2.1]", nil},
		{nil, "cname", "alias.example", "example.com", nil},
		{nil, "caa", "alias.example", "[{0 issue ;}]", nil},
		{nil, "cname", "example.com", "", resolve.ErrNotFound},
		{nil, "txt", "below.example", "[]", resolve.ErrNotFound},
		{nil, "txt", "nowhere.example", "[]", resolve.ErrNoName},
		{nil, "txt", "fails.example", "[]", resolve.ErrNoName},
		{nil, "txt", "dead.example", "[]", resolve.ErrTemporary},
		{nil, "txt", "loop.example", "[]", resolve.ErrTemporary},
		{ended, "txt", "text.example", "[]", context.Canceled},
	} {
		t.Run(test.kind+" "+test.name, func(t *testing.T) {
			t.Parallel()
			if test.ctx == nil {
				test.ctx = t.Context()
			}
			got, err := look(test.ctx, fake, test.kind, test.name)
			if !errors.Is(err, test.err) || test.err == nil && err != nil {
				t.Errorf("error %v, want %v", err, test.err)
			}
			if fmt.Sprint(got) != test.want {
				t.Errorf("got %v, want %s", got, test.want)
			}
		})
	}
}
