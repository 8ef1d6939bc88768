package domains

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/resolve"
)

// slow is a DNS resolver that delays its answers until the expected number of queries is waiting; it never answers MX
// queries.
type slow struct {
	resolve.Fake
	asked  chan string
	answer chan struct{}
}

func (s slow) MX(ctx context.Context, name string) ([]resolve.MX, error) {
	s.asked <- "mx " + name
	<-ctx.Done()
	return nil, fmt.Errorf("%w: %w", resolve.ErrTemporary, ctx.Err())
}

func (s slow) TXT(ctx context.Context, name string) ([]string, error) {
	s.asked <- "txt " + name
	<-s.answer
	return s.Fake.TXT(ctx, name)
}

// All records for a domain are queried concurrently, with a shared time limit.
func TestLookUpIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Config{Default: Region{BounceHost: "b.test", InboundHost: "i.test", SPFInclude: "s.test"}, Selector: "a",
			SelectorEd25519: "b"}
		d := &Domain{Name: "acme.example", ReturnPath: "send", Sending: true, Receiving: true, rsa: keyRow{record: "p=one"},
			ed25519: keyRow{record: "p=two"}}
		dns := slow{asked: make(chan string, 10), answer: make(chan struct{}),
			Fake: resolve.Fake{TXTRecords: map[string][]string{"a._domainkey.acme.example": {"p=one"}}}}
		began := time.Now()
		ended := make(chan map[string]finding, 1)
		go func() {
			found, _ := lookUp(t.Context(), c, dns, nil, nil, d)
			ended <- found
		}()
		synctest.Wait()
		if n := len(dns.asked); n != 5 {
			t.Errorf("%d of 5 records are asked for at the same time", n)
		}
		close(dns.answer)
		want := map[string]finding{"mx": unknown, "spf": absent, "dkim": present, "dkim-ed25519": absent,
			"receiving": unknown}
		if d := cmp.Diff(want, <-ended); d != "" {
			t.Error(d)
		}
		if took := time.Since(began); took != lookUpMax {
			t.Errorf("it took %v", took)
		}
	})
}

// A finding is used only if the domain still has the record and the record's name has not changed since the look-up.
// The test covers every kind of record.
func TestFindingsOfMovedRecords(t *testing.T) {
	asked := []Record{{Key: "mx", FQDN: "send.a.test"}, {Key: "dkim", FQDN: "k.a.test"},
		{Key: "tracking", FQDN: "links.a.test"}}
	found := map[string]finding{"mx": 0, "dkim": 0, "tracking": 0, "caa": 0}
	for name, c := range map[string]struct {
		now  []Record
		gone string
	}{
		"nothing changed": {asked, ""},
		"the first moved": {[]Record{{Key: "mx", FQDN: "b.a.test"}, asked[1], asked[2]}, "mx"},
		"the last moved":  {[]Record{asked[0], asked[1], {Key: "tracking", FQDN: "l.a.test"}}, "tracking"},
		"the first went":  {asked[1:], "mx"},
	} {
		want := maps.Clone(found)
		delete(want, c.gone)
		if diff := cmp.Diff(want, sameRecords(found, asked, c.now)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

// A value with backslashes is not a valid record, so it verifies nothing, and the advice names the mistake.
func TestBackslashesVerifyNothing(t *testing.T) {
	for _, c := range []struct {
		kind, value, found string
		want               finding
	}{
		{"DKIM", "v=DKIM1; k=rsa; p=MIIB", "v=DKIM1; k=rsa; p=MIIB", present},
		{"DKIM", "v=DKIM1; k=rsa; p=MIIB", `v=DKIM1\; k=rsa\; p=MIIB`, absent},
		{"SPF", "v=spf1 include:s.test ~all", "v=spf1 include:s.test -all", present},
		{"SPF", "v=spf1 include:s.test ~all", `v=spf1 include:s.test ~all\`, absent},
	} {
		rec := Record{Kind: c.kind, Type: "TXT", FQDN: "x.test", Value: c.value}
		dns := resolve.Fake{TXTRecords: map[string][]string{"x.test": {c.found}}}
		got, value := lookUpOne(t.Context(), dns, rec)
		rec.Found = value
		if named := strings.Contains(rec.Advice(), "backslashes"); got != c.want || named != (c.want == absent) {
			t.Errorf("%s: finding %v, advice %q", c.found, got, rec.Advice())
		}
	}
}
