package routing

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/sending/evidence"
)

func names(p *Path) (all []string) {
	if p == nil {
		return nil
	}
	for _, r := range p.Relays {
		all = append(all, r.Name)
	}
	return all
}

func TestPath(t *testing.T) {
	t.Parallel()
	c := Config{Relays: []Relay{{Name: "first"}, {Name: "corp1", Domains: []string{"Corp.Example.", "*.corp.example"}},
		{Name: "second"}, {Name: "mine", From: []string{"mine.example"}}, {Name: "corp2", Domains: []string{"corp.example"}},
		{Name: "both", Domains: []string{"both.example"}, From: []string{"*.mine.example"}}, {Name: "asked"}},
		Destinations: []Destination{{Name: "d", Domains: []string{"d.example"}, Relay: "asked"},
			{Name: "unknown", Domains: []string{"u.example"}, Relay: "nobody"}}}
	for _, x := range []struct {
		to, from      string
		direct, relay []string // with the transport direct, and relay
	}{
		{"example.net", "", nil, []string{"first", "second", "asked"}},
		{"corp.example", "", []string{"corp1", "corp2"}, nil},
		{"a.b.corp.example", "", []string{"corp1"}, nil},
		{"notcorp.example", "", nil, []string{"first", "second", "asked"}},
		{"example.net", "mine.example", []string{"mine"}, nil},
		{"example.net", "x.mine.example", nil, []string{"first", "second", "asked"}},
		{"both.example", "x.mine.example", []string{"both"}, nil},
		{"both.example", "mine.example", []string{"mine"}, nil},
		{"corp.example", "mine.example", []string{"corp1", "mine", "corp2"}, nil},
		{"d.example", "mine.example", []string{"asked"}, nil},
		{"u.example", "", nil, []string{"first", "second", "asked"}},
	} {
		for _, direct := range []bool{true, false} {
			c.Direct = direct
			table := New(c)
			want := x.direct
			if !direct && x.relay != nil {
				want = x.relay
			}
			for range 2 { // the second time from memory
				if diff := cmp.Diff(want, names(table.Path(table.Known(x.to), x.to, x.from))); diff != "" {
					t.Errorf("direct %v, %s from %s: %s", direct, x.to, x.from, diff)
				}
			}
			if !table.BySender() || table.Default().Name != "first" {
				t.Error("the senders' rules or the relays without rules are lost")
			}
		}
	}
	if New(Config{}).Default() != nil || New(Config{}).BySender() {
		t.Error("a table of nothing has a relay")
	}
}

func TestKeys(t *testing.T) {
	t.Parallel()
	key := func(r Relay) string { return New(Config{Relays: []Relay{r}}).Default().Key() }
	r := Relay{Name: "a", Address: "h:25", Username: "u", Password: "secret"}
	same := key(r)
	if same != key(r) || !IsRelayKey(same) || IsRelayKey("10.0.0.1:25") || strings.Contains(same, "secret") {
		t.Errorf("the key is %q", same)
	}
	for _, other := range []Relay{{Name: "b", Address: "h:25", Username: "u", Password: "secret"},
		{Name: "a", Address: "h:26", Username: "u", Password: "secret"}, {Name: "a", Address: "h:25", Username: "v",
			Password: "secret"}, {Name: "a", Address: "h:25", Username: "u", Password: "other"},
		{Name: "a", Address: "h:25", Username: "u", Password: "secret", TLS: 1}} {
		if key(other) == same {
			t.Errorf("%+v has the same key", other)
		}
	}
}

// destinations are tables of all kinds.
var destinations = []Destination{
	{Name: "exact", Domains: []string{"a.example"}, Connections: 5},
	{Name: "below", Domains: []string{"*.example"}, Rate: 0.5},
	{Name: "deeper", Domains: []string{"*.b.example"}, Messages: 3},
	{Name: "host", Hosts: []string{"mx.google.com"}, Connections: 7, Paused: true},
	{Name: "hosts", Hosts: []string{"*.google.com"}, Connections: 8},
	{Name: "provider", Providers: []evidence.Provider{evidence.Google, evidence.Yahoo}, Rate: 2},
	{Name: "all", Domains: []string{"*"}, Messages: 9},
}

func TestDestinations(t *testing.T) {
	t.Parallel()
	table := New(Config{Direct: true, Destinations: destinations, Connections: 20, RelayConnections: 500, Rate: 100})
	for _, x := range []struct {
		domain string
		hosts  []string
		before string // the table that applies before the hosts are known
		want   string
		group  string
		limits Limits
	}{
		{"a.example", []string{"mx.google.com"}, "exact", "exact", "table exact", Limits{Connections: 5, Rate: 100}},
		{"x.example", nil, "below", "below", "table below", Limits{Connections: 20, Rate: 0.5}},
		{"x.a.example", nil, "below", "below", "table below", Limits{Connections: 20, Rate: 0.5}},
		{"x.b.example", nil, "deeper", "deeper", "x.b.example", Limits{Connections: 20, Rate: 100}},
		{"one.net", []string{"MX.google.com."}, "all", "host", "table host", Limits{Connections: 7, Rate: 100, Paused: true}},
		{"two.net", []string{"alt.google.com", "other.net"}, "all", "hosts", "table hosts", Limits{Connections: 8, Rate: 100}},
		{"three.net", []string{"mx.yahoodns.net", "my.yahoodns.net"}, "all", "provider", "table provider",
			Limits{Connections: 20, Rate: 2}},
		{"four.net", []string{"mx.yahoodns.net", "backup.net"}, "all", "all", "four.net", Limits{Connections: 20, Rate: 100}},
		{"five.net", []string{"mx.five.net"}, "all", "all", "five.net", Limits{Connections: 20, Rate: 100}},
	} {
		if d := table.Known(x.domain); d == nil || d.Name != x.before {
			t.Errorf("%s before: %+v", x.domain, d)
		}
		for _, d := range []*Destination{table.Learn(x.domain, x.hosts), table.Known(x.domain)} {
			if d == nil || d.Name != x.want {
				t.Errorf("%s at %q: %+v", x.domain, x.hosts, d)
			}
		}
		if group := table.Group(x.domain); group != x.group || table.Limits(group) != x.limits {
			t.Errorf("%s: group %q, limits %+v", x.domain, group, table.Limits(group))
		}
	}
	if d := table.Learn("one.net", []string{"mx.elsewhere.net"}); d.Name != "all" || table.Known("one.net").Name != "all" {
		t.Errorf("a domain whose hosts have changed: %+v", d)
	}
	if diff := cmp.Diff([]string{"table below", "table exact", "table host", "table hosts", "table provider"},
		table.Groups()); diff != "" {
		t.Error(diff)
	}
	if l := table.Limits("relay x"); l != (Limits{Connections: 500, First: 20, Rate: 100}) {
		t.Errorf("a relay: %+v", l)
	}
}

func TestLearnedDomainsAreBounded(t *testing.T) {
	t.Parallel()
	table := New(Config{Direct: true, Destinations: destinations})
	for i := range learnedMax + 10 {
		table.Learn(fmt.Sprintf("d%d.net", i), []string{"mx.google.com"})
	}
	if n := len(table.learned); n != 10 {
		t.Errorf("%d domains are remembered", n)
	}
}

// many returns a table with n destinations and hosts that are known for a domain.
func many(n int) *Table {
	c := Config{Direct: true, Relays: []Relay{{Name: "corp", Domains: []string{"*.corp.example"}}},
		Destinations: slices.Clone(destinations), Connections: 20}
	for i := range n {
		c.Destinations = append(c.Destinations, Destination{Name: fmt.Sprint("t", i),
			Domains: []string{fmt.Sprintf("d%d.net", i), fmt.Sprintf("*.d%d.net", i)}, Connections: 2})
	}
	t := New(c)
	t.Learn("learned.net", []string{"mx.google.com"})
	return t
}

var lookUps = []string{"d500.net", "a.b.c.d500.net", "learned.net", "unknown.net", "x.corp.example"}

func TestLookUpAllocatesNothing(t *testing.T) {
	table := many(1000)
	for _, domain := range lookUps {
		if n := testing.AllocsPerRun(100, func() { table.Limits(table.Group(domain)) }); n != 0 {
			t.Errorf("%s: %v allocations", domain, n)
		}
	}
	hosts := []string{"mx.google.com"}
	if n := testing.AllocsPerRun(100, func() { table.Learn("learned.net", hosts) }); n != 0 {
		t.Errorf("the same hosts again: %v allocations", n)
	}
}

func BenchmarkLookUp(b *testing.B) {
	table := many(1000)
	for _, domain := range lookUps {
		b.Run(domain, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				table.Limits(table.Group(domain))
			}
		})
	}
}

// FuzzFind compares the matcher with a simple one.
func FuzzFind(f *testing.F) {
	f.Add("a.example *.example *.b.example *", "x.b.example")
	f.Add("*.a *", "a")
	f.Add("", "..")
	f.Fuzz(func(t *testing.T, all, name string) {
		var p patterns[string]
		best, length := "", -1
		for pattern := range strings.FieldsSeq(all) {
			p.add(pattern, normalize(pattern))
			switch pattern = normalize(pattern); {
			case pattern == "*":
			case pattern == name && !strings.HasPrefix(pattern, "*."):
				best, length = pattern, len(name)+1
			case strings.HasPrefix(pattern, "*.") && strings.HasSuffix(name, pattern[1:]) && len(pattern) > length:
				best, length = pattern, len(pattern)
			}
		}
		if got, ok := p.find(name); got != best || ok != (length >= 0) {
			t.Errorf("%q among %q: %q, %v, want %q", name, all, got, ok, best)
		}
	})
}
