package evidence

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

var compareAddrs = cmpopts.EquateComparable(netip.Addr{})

// usualAttempt is the evidence of an attempt that went well.
func usualAttempt() *Evidence {
	e := &Evidence{Provider: Google, Source: netip.MustParseAddr("2001:db8:1234:5678::25"), Hello: "mail.example.com",
		Cert: Valid, Hosts: 5, SigningDomain: "example.com", Selectors: []string{"postrider", "postrider-ed"}, Stage: 10}
	for x := range stages {
		e.Set(x, 123*time.Millisecond)
	}
	return e
}

// Packed evidence is read back unchanged, and stays small.
func TestPack(t *testing.T) {
	long := strings.Repeat("x", maxText)
	many := slices.Repeat([]string{long}, maxSelectors)
	all := usualAttempt()
	all.Clear, all.Reused, all.Local, all.Runs, all.Enqueued = Broken, true, true, 300, 48*time.Hour
	all.Outage, all.OutageOf, all.Limits = NameServers, 90*time.Second, TeamShare|RateLimit
	all.PauseEnd, all.PauseLength, all.PauseReply = time.Second, 15*time.Minute, "421 4.7.28"
	all.Rule, all.Trouble = MTASTSTesting, &Trouble{Same: Same{Counted: true, Own: 3}}
	for name, c := range map[string]struct {
		e   *Evidence
		max int
	}{
		"nothing":     {&Evidence{}, 2},
		"went well":   {usualAttempt(), 300},
		"all fields":  {all, 300},
		"longest":     {&Evidence{Hello: long, SigningDomain: long, Selectors: many, PauseReply: long}, MaxPacked},
		"other names": {&Evidence{Selectors: []string{"s2026", "postrider"}, Source: netip.MustParseAddr("192.0.2.1")}, 30},
	} {
		packed := c.e.Pack()
		got, err := Unpack(packed)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.e, got, compareAddrs); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if len(packed) > c.max {
			t.Errorf("%s: %d bytes, at most %d", name, len(packed), c.max)
		}
	}
	if n := len(usualAttempt().Pack()); n > 80 {
		t.Errorf("an attempt that went well has %d bytes", n)
	}
}

// Damaged bytes return an error and never panic. No bytes mean that nothing was recorded.
func TestUnpackDamaged(t *testing.T) {
	packed := usualAttempt().Pack()
	for n := 1; n < len(packed); n++ {
		if _, err := Unpack(packed[:n]); err == nil {
			t.Errorf("%d of %d bytes are read without an error", n, len(packed))
		}
	}
	if e, err := Unpack(nil); e != nil || err != nil {
		t.Errorf("no bytes: %v, %v", e, err)
	}
	if _, err := Unpack([]byte{9, 0}); err == nil {
		t.Error("another version is read")
	}
}

func FuzzUnpack(f *testing.F) {
	f.Add(usualAttempt().Pack())
	f.Add(troubled().Pack())
	f.Fuzz(func(t *testing.T, b []byte) {
		e, err := Unpack(b)
		if err != nil || e == nil {
			return
		}
		again, err := Unpack(e.Pack())
		if err != nil {
			t.Fatalf("%x: %v", b, err)
		}
		if !bytes.Equal(again.Pack(), e.Pack()) {
			t.Errorf("%x is read as other evidence the second time", b)
		}
	})
}

// All hosts of a destination must belong to the provider.
func TestProviderOf(t *testing.T) {
	for _, c := range []struct {
		hosts []string
		want  Provider
	}{
		{nil, NotRecorded},
		{[]string{"gmail-smtp-in.l.google.com", "alt1.gmail-smtp-in.l.google.com."}, Google},
		{[]string{"aspmx.l.google.com", "ASPMX2.GOOGLEMAIL.COM"}, Google},
		{[]string{"aspmx.l.google.com", "backup.example.com"}, Other},
		{[]string{"outlook-com.olc.protection.outlook.com"}, Microsoft},
		{[]string{"example-com.b-v1.mx.microsoft"}, Microsoft},
		{[]string{"mta5.am0.yahoodns.net"}, Yahoo},
		{[]string{"mx01.mail.icloud.com"}, Apple},
		{[]string{"notgoogle.com"}, Other},
		{[]string{"mx.example.com"}, Other},
	} {
		if got := ProviderOf(c.hosts); got != c.want {
			t.Errorf("%v: %s, want %s", c.hosts, got, c.want)
		}
	}
	for p := range providers {
		if ProviderByName(p.String()) != p {
			t.Errorf("the name of %s is not found", p)
		}
	}
}
