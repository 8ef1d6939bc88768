//go:build chaos

package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/lib/freeport"
)

const (
	slowEmails = 20
	// slowAnswer is how long the slow host takes for each message. It is longer than the time after which a
	// conversation counts as stalled.
	slowAnswer = 31 * time.Second
	// slowWithin is the time within which the slow host must have got all messages. With one connection at a time it
	// would get three, and with the limits of a stalled host seven.
	slowWithin = 80 * time.Second
)

// slowHosts sends email to a host that takes half a minute for each message and accepts all of them, and to a host that
// answers promptly. Each answer of the slow host earns connections, and the mail to the other host does not wait.
func slowHosts(t *testing.T, engine string) sum {
	_, port, _ := net.SplitHostPort(freeport.Addr(t))
	w := newCluster(t, engine, setup{direct: true, args: []string{"--transport", "direct", "--smtp-port", port,
		"--dns-servers", serveDNS(t, "example.net. 60 IN MX 10 example.net.", "example.net. 60 IN A 127.0.0.1",
			"slow.example. 60 IN MX 10 slow.example.", "slow.example. 60 IN A 127.0.2.1")},
		env: []string{"POSTRIDER_BENCH_LOOPBACK=1"}})
	w.mail.listen("127.0.0.1:"+port, nil)
	slow := newMailbox(t)
	slow.slow(slowAnswer)
	slow.listen("127.0.2.1:"+port, nil)
	got := func() (n int) {
		for i := range slowEmails {
			n += min(len(slow.copies(i)), 1)
		}
		return n
	}
	var took time.Duration
	w.during(func() {
		var batch []map[string]any
		for i := range slowEmails {
			batch = append(batch, map[string]any{"from": "hello@acme.example", "subject": "Receipt", "text": "Thank you.",
				"to": fmt.Sprintf("u%d@slow.example", i)})
		}
		body, err := json.Marshal(batch)
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		w.nodes[0].must(http.MethodPost, "/emails/batch", string(body), nil)
		if !within(slowWithin, func() bool { return got() == slowEmails }) {
			t.Errorf("the slow host got %d of %d emails in %v", got(), slowEmails, slowWithin)
		}
		took = time.Since(start)
	})
	w.repeat()
	if !within(5*time.Second, func() bool { return len(w.missing()) == 0 }) {
		t.Errorf("the prompt host has not got %d emails", len(w.missing()))
	}
	s := w.sum()
	copies := 0
	for i := range slowEmails {
		copies += len(slow.copies(i))
	}
	s.more = fmt.Sprintf("the slow host got %d emails, %d copies, in %.0f s", got(), copies, took.Seconds())
	if copies > slowEmails {
		t.Error(s.more)
	}
	return s
}
