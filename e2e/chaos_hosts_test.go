//go:build chaos

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/freeport"
)

// badEndings lists the kinds of misbehaving hosts in badHosts. Each kind of misbehaving host has its own domains.
var badEndings = []struct {
	name    string
	domains int
	end     ending
}{{"stalls", 30, stall}, {"drops", 5, drop}, {"endless", 5, endless}}

// badHosts sends email to well-behaved and misbehaving hosts. A misbehaving host stores a message but never confirms
// it: after the final dot, the host stalls, closes the connection, or sends an endless response.
func badHosts(t *testing.T, engine string) sum {
	_, port, _ := net.SplitHostPort(freeport.Addr(t))
	records := []string{"example.net. 60 IN MX 10 example.net.", "example.net. 60 IN A 127.0.0.1"}
	for b, bad := range badEndings {
		for d := range bad.domains {
			name := fmt.Sprintf("%s%d.example.", bad.name, d)
			records = append(records, name+" 60 IN MX 10 "+name, fmt.Sprintf("%s 60 IN A 127.0.%d.%d", name, 2+b, 1+d))
		}
	}
	w := newCluster(t, engine, setup{direct: true, args: []string{"--transport", "direct", "--smtp-port", port,
		"--dns-servers", serveDNS(t, records...)}, env: []string{"POSTRIDER_BENCH_LOOPBACK=1", "POSTRIDER_RETRY_SCHEDULE=" +
		strings.TrimSuffix(strings.Repeat("2s,", 30), ",")}})
	w.mail.listen("127.0.0.1:"+port, nil)
	bad := newMailbox(t) // messages that misbehaving hosts stored without confirming
	var sent int
	for b, how := range badEndings {
		for d := range how.domains {
			bad.listen(fmt.Sprintf("127.0.%d.%d:%s", 2+b, 1+d, port), func(int, int) ending { return how.end })
			var batch []map[string]any
			for range 30 {
				batch = append(batch, map[string]any{"from": "hello@acme.example", "subject": "Receipt", "text": "Thank you.",
					"to": fmt.Sprintf("u%d@%s%d.example", sent, how.name, d)})
				sent++
			}
			body, err := json.Marshal(batch)
			if err != nil {
				t.Fatal(err)
			}
			w.nodes[d%len(w.nodes)].must(http.MethodPost, "/emails/batch", string(body), nil)
		}
	}
	w.during(func() { time.Sleep(60 * time.Second) })
	w.repeat()
	if !within(arrivalWait, func() bool { return len(w.missing()) == 0 }) {
		t.Fatalf("good hosts have not got %d emails", len(w.missing()))
	}
	time.Sleep(stillness)
	s := w.sum()
	var waits []time.Duration
	for i, at := range w.posted {
		if c := w.mail.copies(i); len(c) > 0 {
			waits = append(waits, c[0].at.Sub(at))
		}
	}
	slices.Sort(waits)
	most, total, strange := 0, 0, 0
	bad.mu.Lock()
	for _, all := range bad.arrivals {
		most, total = max(most, len(all)), total+len(all)
		for _, a := range all {
			if a.id != all[0].id {
				strange++
			}
		}
	}
	heard := len(bad.arrivals)
	bad.mu.Unlock()
	s.more = fmt.Sprintf("good hosts waited %.1f s (p50), %.1f s (most); "+
		"bad hosts: %d emails, %d copies of %d, at most %d of one, %d with another Message-ID",
		waits[len(waits)/2].Seconds(), waits[len(waits)-1].Seconds(), sent, total, heard, most, strange)
	if most > copiesMax || strange > 0 || heard == 0 {
		t.Error(s.more)
	}
	return s
}

// copiesMax is the maximum number of copies of an unconfirmed message that a host may receive. After two unconfirmed
// attempts, a node waits so long that the next attempt comes after badHosts has ended.
const copiesMax = 2
