package evidence

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func troubled() *Evidence {
	return &Evidence{Provider: Other, Trouble: &Trouble{
		Route: Route{Implicit: true, Kept: 5 * time.Minute, Hosts: []Host{
			{Name: "mx1.example.net", Pref: 10, Addrs: []Addr{{netip.MustParseAddr("192.0.2.1"), true},
				{netip.MustParseAddr("2001:db8::1"), false}}},
			{Name: "mx2.example.net", Pref: 65535, Skipped: NoAddress}}},
		Peer: Peer{Names: []string{"mx.example.net", "*.example.net"}, More: 3, Issuer: "Some CA",
			Expires: time.Date(2026, 12, 24, 0, 0, 0, 0, time.UTC), Problem: "x509: unknown authority"},
		PTR:  PTR{PTRConfirmed, "out.example.com"},
		Same: Same{true, 12, 10, 50},
	}}
}

// The facts about an attempt that failed are read back unchanged, and stay small.
func TestTrouble(t *testing.T) {
	e := troubled()
	packed := e.Pack()
	got, err := Unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, got, compareAddrs); diff != "" {
		t.Error(diff)
	}
	if len(packed) > 300 {
		t.Errorf("a usual failure has %d bytes", len(packed))
	}
	for n := 1; n < len(packed); n++ {
		if _, err := Unpack(packed[:n]); err == nil {
			t.Errorf("%d of %d bytes are read without an error", n, len(packed))
		}
	}
}

// The longest facts have at most troubleMax bytes, and texts are not cut within a character.
func TestLongestTrouble(t *testing.T) {
	long := strings.Repeat("ü", 200)
	six := Addr{netip.MustParseAddr("2001:db8:1234:5678:9abc:def0:1234:5678"), true}
	e := &Evidence{Trouble: &Trouble{
		Route: Route{Kept: time.Hour, Hosts: slices.Repeat([]Host{{Name: long, Pref: 65535, Skipped: IsOurs,
			Addrs: slices.Repeat([]Addr{six}, 5)}}, 20)},
		Peer: Peer{Names: slices.Repeat([]string{long}, 50), Issuer: long, Expires: time.Now(), Problem: long},
		PTR:  PTR{PTRElsewhere, long}, Same: Same{true, 1e9, 1e9, 1e9}}}
	packed := e.Pack()
	if len(packed) > troubleMax {
		t.Errorf("%d bytes", len(packed))
	}
	got, err := Unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	r, p := got.Trouble.Route, got.Trouble.Peer
	if len(r.Hosts) != hostsMax || len(r.Hosts[0].Addrs) != 5 || len(r.Hosts[1].Addrs) != 3 || len(r.Hosts[2].Addrs) != 0 {
		t.Errorf("%+v", r)
	}
	if len(p.Names) != namesMax || p.More != 50-namesMax || p.Issuer != strings.Repeat("ü", nameMax/2) {
		t.Errorf("%+v", p)
	}
}

// Numbers about fewer than ten other teams are not read, even if a row contains them.
func TestFewOthers(t *testing.T) {
	e := troubled()
	e.Trouble.Same = Same{true, 3, OthersMin - 1, 40}
	got, err := Unpack(e.Pack())
	if err != nil || got.Trouble.Same != (Same{Counted: true, Own: 3}) {
		t.Errorf("%+v, %v", got.Trouble.Same, err)
	}
}

// Fields that a later release added are ignored. Evidence of a later format returns its own error.
func TestLaterReleases(t *testing.T) {
	e := troubled()
	packed := e.Pack()
	fields, n := binary.Uvarint(packed[1:])
	later := append(binary.AppendUvarint([]byte{version}, fields|1<<40), packed[1+n:]...)
	got, err := Unpack(append(later, "something new"...))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(e, got, compareAddrs); diff != "" {
		t.Error(diff)
	}
	packed[0] = version + 1
	if _, err := Unpack(packed); !errors.Is(err, ErrNewer) {
		t.Errorf("a later format: %v", err)
	}
	packed[0] = 0
	if _, err := Unpack(packed); !errors.Is(err, ErrDamaged) {
		t.Errorf("no format: %v", err)
	}
}
