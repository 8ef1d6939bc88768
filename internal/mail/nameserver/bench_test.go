package nameserver

import (
	"fmt"
	"log/slog"
	"net/netip"
	"runtime"
	"strings"
	"testing"

	"github.com/miekg/dns"
)

// manyZones compiles n zones with the records of a delegated domain.
func manyZones(t testing.TB, n int) *Set {
	all := make([]*Compiled, n)
	for i := range all {
		name := fmt.Sprintf("mail.customer%d.example", i)
		c, err := Compile(Zone{Name: name, Serial: uint32(i), Mailbox: "postmaster.host.example",
			NS: []string{fmt.Sprintf("t%d.ns1.dns.host.example", i), fmt.Sprintf("t%d.ns2.dns.host.example", i)},
			Records: []Record{
				{Name: name, Type: "MX", TTL: 300, Value: "10 in.host.example"},
				{Name: name, Type: "TXT", TTL: 300, Value: "v=spf1 include:host.example -all"},
				{Name: "send." + name, Type: "MX", TTL: 300, Value: "10 bounce.host.example"},
				{Name: "send." + name, Type: "TXT", TTL: 300, Value: "v=spf1 include:host.example -all"},
				{Name: "a._domainkey." + name, Type: "TXT", TTL: 300, Value: "v=DKIM1; k=rsa; p=" + strings.Repeat("A", 392)},
				{Name: "b._domainkey." + name, Type: "TXT", TTL: 300, Value: "v=DKIM1; k=rsa; p=" + strings.Repeat("B", 392)},
				{Name: "c._domainkey." + name, Type: "TXT", TTL: 300, Value: "v=DKIM1; k=ed25519; p=" + strings.Repeat("C", 44)},
				{Name: "_dmarc." + name, Type: "TXT", TTL: 300, Value: "v=DMARC1; p=none; rua=mailto:t@reports.host.example"},
				{Name: "_smtp._tls." + name, Type: "TXT", TTL: 300, Value: "v=TLSRPTv1; rua=mailto:t@reports.host.example"},
				{Name: "_mta-sts." + name, Type: "TXT", TTL: 300, Value: "v=STSv1; id=1"},
				{Name: "mta-sts." + name, Type: "CNAME", TTL: 300, Value: "host.example"},
				{Name: "click." + name, Type: "CNAME", TTL: 300, Value: "host.example"},
			}})
		if err != nil {
			t.Fatal(err)
		}
		all[i] = c
	}
	s, err := NewSet(all)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// BenchmarkRespond measures answers from 30,000 zones on all processors, without the network. It also reports the
// memory of a zone.
func BenchmarkRespond(b *testing.B) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	const zones = 30_000
	set := manyZones(b, zones)
	runtime.GC()
	runtime.ReadMemStats(&after)
	s := New(Config{RateLimit: 1_000_000}, slog.New(slog.DiscardHandler))
	s.Use(set)
	queries := map[string][][]byte{}
	for i := range 1000 {
		for kind, name := range map[string]string{"key": "a._domainkey.mail.customer%d.example.",
			"missing": "x._domainkey.mail.customer%d.example.", "refused": "www.customer%d.example."} {
			q := new(dns.Msg).SetQuestion(fmt.Sprintf(name, i*29), dns.TypeTXT)
			q.SetEdns0(1232, true)
			packed, err := q.Pack()
			if err != nil {
				b.Fatal(err)
			}
			queries[kind] = append(queries[kind], packed)
		}
	}
	for _, kind := range []string{"key", "missing", "refused"} {
		b.Run(kind, func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(p *testing.PB) {
				buf := make([]byte, maxUDP)
				for i := 0; p.Next(); i++ {
					if r, _ := s.respond(queries[kind][i%1000], netip.AddrFrom4([4]byte{10, byte(i >> 8), byte(i), 1}), false,
						buf); r == nil {
						b.Fatal("no response")
					}
				}
			})
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "answers/s")
			b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/zones, "bytes/zone")
		})
	}
	runtime.KeepAlive(set)
}

// BenchmarkCompile measures how long a node needs for 30,000 zones at its start.
func BenchmarkCompile(b *testing.B) {
	for b.Loop() {
		manyZones(b, 30_000)
	}
}
