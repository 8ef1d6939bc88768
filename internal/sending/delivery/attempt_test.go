package delivery

import (
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/sending/emails"
)

// The stored attempt contains the first unsuccessful reply. The next attempt starts when all delayed recipients may be
// retried.
func TestAttempt(t *testing.T) {
	now := time.Now()
	of := func(all ...state) (out outcome, verdicts []verdict) {
		for i, s := range all {
			out.answers = append(out.answers, answer{reply: smtpclient.Reply{Code: 200 + i, Text: "reply"}})
			v := verdict{state: s}
			if s == delayed {
				v.until = now.Add(time.Duration(i+1) * time.Minute)
			}
			verdicts = append(verdicts, v)
		}
		return out, verdicts
	}
	for _, c := range []struct {
		states  []state
		unknown int // index of the recipient whose outcome is unknown, or -1
		outcome string
		code    string
		next    time.Duration
	}{
		{[]state{delivered}, -1, "delivered", "200", 0},
		{[]state{delivered, delivered}, -1, "delivered", "200", 0},
		{[]state{delivered, bounced, delivered}, -1, "mixed", "201", 0},
		{[]state{bounced, delivered}, -1, "mixed", "200", 0},
		{[]state{delivered, delivered, bounced, delayed}, -1, "mixed", "202", 4 * time.Minute},
		{[]state{delayed, bounced, delayed, delivered}, -1, "mixed", "200", 3 * time.Minute},
		{[]state{delayed, delayed}, -1, "delayed", "200", 2 * time.Minute},
		{[]state{bounced, bounced}, -1, "bounced", "200", 0},
		{[]state{delayed, delayed}, 0, emails.OutcomeUnknown, "200", 2 * time.Minute},
		{[]state{delayed, bounced}, 0, emails.OutcomeUnknown, "200", time.Minute},
		{[]state{bounced, delayed}, 1, emails.OutcomeUnknown, "200", 2 * time.Minute},
	} {
		out, verdicts := of(c.states...)
		if c.unknown >= 0 {
			out.answers[c.unknown].unknown = true
		}
		tr := &try{o: &emails.Outgoing{}, started: now.Add(-time.Second)}
		a, _ := tr.attempt(out, verdicts, now)
		var next time.Duration
		if !a.NextAt.IsZero() {
			next = a.NextAt.Sub(now)
		}
		if a.Outcome != c.outcome || a.Reply[:3] != c.code || next != c.next || a.Duration != time.Second {
			t.Errorf("%v, unknown %d: %s by %q, again in %v after %v", c.states, c.unknown, a.Outcome, a.Reply, next, a.Duration)
		}
	}
}
