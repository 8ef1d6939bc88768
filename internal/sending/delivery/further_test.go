package delivery

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/events"
)

// A host that announces a maximum of two recipients gets a message to five in three transactions, in one try.
func TestRecipientsBeyondLimits(t *testing.T) {
	t.Parallel()
	server := smtptest.NewServer(t, smtptest.Config{MaxRecipients: 2, Rcpt: func(_, to string) string {
		if to == address(3) {
			return "550 5.1.1 no such user"
		}
		return ""
	}})
	n := one(server.Addr)
	f := newFixture(t, dbtest.SQLite(t), n.config(1), n.dns).run()
	x := f.send(address(1), address(2), address(3), address(4), address(5))
	f.wait(x, events.EmailDelivered, events.EmailDelivered, events.EmailDelivered, events.EmailDelivered,
		events.EmailBounced)
	var all [][]string
	for _, m := range server.Messages() {
		all = append(all, m.To)
	}
	if diff := cmp.Diff([][]string{{address(1), address(2)}, {address(4)}, {address(5)}}, all); diff != "" {
		t.Errorf("received (-want +got):\n%s", diff)
	}
	if a := f.attempts(x); len(a) != 1 || a[0].Outcome != "mixed" || strings.Count(a[0].Conversation, "MAIL FROM") != 3 {
		t.Errorf("attempts: %+v", a)
	}
	if n := server.Connections(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// transactionTo is a transaction of a dialogue with one recipient and the given final reply.
func transactionTo(to, final string) string {
	return "C: MAIL *\nS: 250 ok\nC: RCPT TO:<" + to + ">\nS: 250 ok\nC: DATA\nS: 354 go on\n(data)\nS: " + final + "\n"
}

// A host that accepts one message over a connection gets each further one over another connection.
func TestMessagesBeyondLimits(t *testing.T) {
	t.Parallel()
	const opening = "S: 220 mx.test\nC: EHLO *\nS: 250-mx.test\nS: 250 LIMITS MAILMAX=1 RCPTMAX=1\n"
	var dialogue []string
	for i := range 3 {
		dialogue = append(dialogue, opening+transactionTo(address(i), "250 ok")+"C: QUIT\nS: 221 bye\n")
	}
	p := smtptest.Script(t, strings.Join(dialogue, "(next)\n"))
	n := one(p.Addr)
	f := newFixture(t, dbtest.SQLite(t), n.config(1), n.dns).run()
	x := f.send(address(0), address(1), address(2))
	f.wait(x, events.EmailDelivered, events.EmailDelivered, events.EmailDelivered)
	if a := f.attempts(x); len(a) != 1 || a[0].Outcome != "delivered" {
		t.Errorf("attempts: %+v", a)
	}
}

// If a further transaction fails, the next try is for its recipients alone, so no recipient gets a second copy.
func TestFurtherTransactionFails(t *testing.T) {
	t.Parallel()
	const opening = "S: 220 mx.test\nC: EHLO *\nS: 250-mx.test\nS: 250 LIMITS RCPTMAX=1\n"
	for name, fails := range map[string]string{
		"refused":     "C: MAIL *\nS: 250 ok\nC: RCPT *\nS: 451 later\nC: RSET\nS: 250 ok\nC: MAIL *\nS: 451 later\n(drop)\n",
		"ended":       "C: MAIL *\nS: 250 ok\nC: RCPT *\n(drop)\n",
		"unreachable": "(drop)\n(next)\nS: 421 busy\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := smtptest.Script(t, opening+transactionTo(address(0), "250 ok")+fails+"(next)\n"+opening+
				transactionTo(address(1), "250 ok")+transactionTo(address(2), "250 ok"))
			n := one(p.Addr)
			f := newFixture(t, dbtest.SQLite(t), n.config(5), n.dns).run()
			x := f.send(address(0), address(1), address(2))
			all := f.wait(x, events.EmailDelivered, events.EmailDelivered, events.EmailDelivered)
			var got []string
			for _, e := range all {
				if to, ok := strings.CutPrefix(e, "delivered "); ok {
					got = append(got, to)
				}
			}
			slices.Sort(got)
			if want := []string{address(0), address(1), address(2)}; !slices.Equal(got, want) {
				t.Errorf("delivered %q", got)
			}
			if bodies := p.Bodies(); len(bodies) != 3 {
				t.Errorf("the host received %d messages", len(bodies))
			}
		})
	}
}

// A message that is larger than the host's SIZE bounces without a MAIL command, and the answer names both sizes.
func TestMessageBeyondSize(t *testing.T) {
	t.Parallel()
	p := smtptest.Script(t, "S: 220 mx.test\nC: EHLO *\nS: 250-mx.test\nS: 250 SIZE 200\n(quiet)\nC: QUIT\nS: 221 bye\n")
	n := one(p.Addr)
	f := newFixture(t, dbtest.SQLite(t), n.config(3), n.dns).run()
	x := f.send(address(1))
	f.wait(x, events.EmailBounced)
	if why := f.bounce(x); why.SubType != "MessageTooLarge" || !strings.Contains(why.DiagnosticCode[0], "552 5.3.4") ||
		!strings.Contains(why.DiagnosticCode[0], "the host accepts 200") {
		t.Errorf("%+v", why)
	}
	if a := f.attempts(x); len(a) != 1 || strings.Contains(a[0].Conversation, "MAIL FROM") {
		t.Errorf("attempts: %+v", a)
	}
}
