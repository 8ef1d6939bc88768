package explain_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/evidence"
	"github.com/postrider/postrider/internal/sending/explain"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

const reply = "451 4.7.1 Greylisting in action"

// deferred sends an email to a number of recipients in different domains, and records a number of attempts for each.
// The result is the email's id.
func deferred(n *testnode.Node, recipients, attempts int, packed []byte) string {
	n.T.Helper()
	var to []string
	for i := range recipients {
		to = append(to, fmt.Sprintf("ann@d%d.example", i))
	}
	emailID := n.Send(testnode.Hello(to...))
	conversation := "0 S: 220 mx.example ESMTP\n1 C: EHLO out.postrider.test\n2 S: 250 mx.example\n" +
		"3 C: MAIL FROM:<b-x@send." + testnode.Domain + ">\n4 S: 250 ok\n" + strings.Repeat("5 S: 451-please wait\n", 40)
	for i := range attempts {
		n.Update(func(tx *db.Tx) error {
			var all []events.Event
			for _, address := range to {
				all = append(all, events.Event{TeamID: n.Acme.TeamID, EmailID: emailID, Type: events.EmailDelayed,
					Recipient: address, OneRecipient: recipients == 1, Attempt: &events.Attempt{
						Destination: address[4:], Recipients: []string{address}, Host: "mx.example [192.0.2.1]",
						Outcome: "delayed", Reply: reply, Conversation: conversation, Evidence: packed,
						StartedAt: tx.Now().Add(time.Duration(i) * time.Minute), Duration: time.Second,
						NextAt: tx.Now().Add(time.Duration(i+1) * time.Minute)}})
			}
			return n.Recorder.Record(context.Background(), tx, all...)
		})
	}
	return emailID
}

// usual is the evidence of a deferred attempt.
func usual() []byte {
	e := &evidence.Evidence{Provider: evidence.Other, Hello: "out.postrider.test", SigningDomain: testnode.Domain,
		Selectors: []string{"postrider"}, Stage: evidence.StageOf("rcpt"), Trouble: &evidence.Trouble{
			Route: evidence.Route{Hosts: []evidence.Host{{Name: "mx.example", Pref: 10}}},
			Same:  evidence.Same{Counted: true, Own: 12}}}
	for x := evidence.DNS; x <= evidence.Envelope; x++ {
		e.Set(x, 100*time.Millisecond)
	}
	return e.Pack()
}

// The number of statements does not grow with the recipients or the attempts, and all of them are explained.
func TestStatements(t *testing.T) {
	t.Parallel()
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		n := testnode.New(t, d, testnode.Options{})
		count := map[int]int{}
		for _, recipients := range []int{2, 50} {
			emailID := deferred(n, recipients, 20, usual())
			trace.Take()
			a := testnode.Must(n.Explanations.Explain(t.Context(), n.Acme, emailID))
			count[recipients] = len(trace.Take())
			if len(a.Recipients) != recipients || len(a.Attempts) != 20*recipients || len(a.NotRecorded) > 0 {
				t.Errorf("%d recipients, %d attempts, not recorded: %q", len(a.Recipients), len(a.Attempts), a.NotRecorded)
			}
			for _, r := range a.Recipients {
				if r.Act != explain.Nobody || r.NextAt == nil || r.Meaning == nil || r.Meaning.Class != explain.Greylisting {
					t.Errorf("%+v", r)
				}
			}
		}
		if count[2] != count[50] || count[50] > 4 {
			t.Errorf("statements by number of recipients: %v", count)
		}
	})
}

// An email whose attempts have evidence that is missing, damaged or of a later release is explained without it, and the
// answer says why.
func TestUnreadableEvidence(t *testing.T) {
	t.Parallel()
	testnode.Each(t, testnode.Options{}, func(t *testing.T, n *testnode.Node) {
		later := usual()
		later[0]++
		for want, packed := range map[string][]byte{"provider": nil, "format of a later release": later,
			"is damaged": usual()[:20]} {
			a := testnode.Must(n.Explanations.Explain(t.Context(), n.Acme, deferred(n, 1, 1, packed)))
			if missing := strings.Join(a.Attempts[0].NotRecorded, "; "); !strings.Contains(missing, want) ||
				!strings.Contains(missing, "MX records") {
				t.Errorf("%q is not in %q", want, missing)
			}
			if a.Recipients[0].Advice != explain.Wait || a.Attempts[0].Signing.ReturnPath != "send."+testnode.Domain {
				t.Errorf("%+v", a)
			}
		}
	})
}

// BenchmarkExplain explains an email with 50 recipients and 20 attempts for each.
func BenchmarkExplain(b *testing.B) {
	for name, open := range map[string]func(testing.TB) *db.DB{"sqlite": dbtest.SQLite, "postgres": dbtest.Postgres} {
		b.Run(name, func(b *testing.B) {
			n := testnode.New(b, open(b), testnode.Options{})
			emailID := deferred(n, 50, 20, usual())
			var took []time.Duration
			for b.Loop() {
				began := time.Now()
				if _, err := n.Explanations.Explain(b.Context(), n.Acme, emailID); err != nil {
					b.Fatal(err)
				}
				took = append(took, time.Since(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
		})
	}
}
