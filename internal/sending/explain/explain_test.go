package explain

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/evidence"
)

const ann = "ann@example.net"

var accepted = time.Date(2026, 11, 29, 9, 0, 0, 0, time.UTC)

func after(d time.Duration) time.Time { return accepted.Add(d) }

// facts returns the facts about an email to ann, as seen an hour after its acceptance.
func facts(state string, happened []events.Entry, tries ...Try) Facts {
	return Facts{Now: after(time.Hour), EmailID: "e", SenderDomain: "example.com", State: state, CreatedAt: accepted,
		Recipients: []To{{Address: ann, State: state}}, Events: happened, Attempts: tries}
}

func try(outcome, reply string, at, took, next time.Duration, e *evidence.Evidence) Try {
	t := Try{events.StoredAttempt{Attempt: events.Attempt{Destination: "example.net", Recipients: []string{ann},
		Host: "mx.example.net [192.0.2.1]", Outcome: outcome, Reply: reply, StartedAt: after(at), Duration: took}}, e, nil}
	if next > 0 {
		t.NextAt = after(next)
	}
	return t
}

func event(kind string, at time.Duration, data string) events.Entry {
	return events.Entry{ID: kind, Type: kind, Recipient: ann, Data: data, At: after(at)}
}

// recorded returns the evidence of an attempt that was claimed 30 ms before it started, and took 60 ms.
func recorded() *evidence.Evidence {
	e := &evidence.Evidence{Provider: evidence.Google, Source: netip.MustParseAddr("192.0.2.9"),
		Hello: "mail.example.com",
		Cert:  evidence.Valid, Hosts: 4, SigningDomain: "example.com", Selectors: []string{"postrider"},
		Stage: evidence.StageOf("final")}
	e.Set(evidence.DNS, 10*time.Millisecond)
	e.Set(evidence.Prepare, 20*time.Millisecond)
	for x := evidence.Connect; x <= evidence.Final; x++ {
		e.Set(x, 10*time.Millisecond)
	}
	return e
}

// check fails the test if the intervals have gaps or do not add up to the whole.
func check(t *testing.T, name string, f *Facts, a *Answer) {
	t.Helper()
	for _, r := range a.Recipients {
		end := f.Now
		if r.EndedAt != nil {
			end = *r.EndedAt
		}
		cursor, sum := f.CreatedAt, 0.0
		for _, i := range r.Intervals {
			if !i.From.Equal(cursor) || !i.To.After(i.From) {
				t.Errorf("%s: the interval %s begins at %v, not at %v, and ends at %v", name, i.Reason, i.From,
					cursor, i.To)
			}
			if i.Says == "" || i.Cause == "" {
				t.Errorf("%s: the reason %s has no sentence", name, i.Reason)
			}
			cursor, sum = i.To, sum+i.Duration
		}
		if !cursor.Equal(end) && end.After(f.CreatedAt) {
			t.Errorf("%s: the intervals end at %v, not at %v", name, cursor, end)
		}
		bySum := 0.0
		for _, s := range r.Sums {
			bySum += s.Duration
		}
		if math.Abs(sum-r.TotalMS) > 0.001 || math.Abs(bySum-r.TotalMS) > 0.001 {
			t.Errorf("%s: the intervals add up to %v ms, the sums to %v, and the whole is %v", name, sum, bySum,
				r.TotalMS)
		}
	}
}

// reasonsOf returns the reasons of the intervals, one after another.
func reasonsOf(a *Answer) string {
	var all []string
	for _, i := range a.Recipients[0].Intervals {
		all = append(all, string(i.Reason))
	}
	return strings.Join(all, " ")
}

// Each state has a verdict, an actor, advice and intervals that follow from the facts.
func TestExplain(t *testing.T) {
	bounce := func(code string) string {
		return `{"type":"Permanent","subType":"General","message":"","diagnosticCode":["smtp; ` + code + `"]}`
	}
	full := recorded()
	full.Stage = evidence.StageOf("rcpt")
	waited := recorded()
	waited.Limits = evidence.TeamShare
	stopped := recorded()
	stopped.PauseEnd, stopped.PauseLength, stopped.PauseReply = time.Second, 2*time.Second, "421 4.7.28"
	held := recorded()
	held.PauseEnd, held.PauseLength, held.Limits = time.Second, 2*time.Second, evidence.OperatorPause|evidence.TeamShare
	away := recorded()
	away.Outage, away.OutageOf = evidence.Database, 3*time.Second
	noHost := &evidence.Evidence{Local: true, Provider: evidence.NotRecorded}
	const ms, s = time.Millisecond, time.Second
	for name, c := range map[string]struct {
		f       Facts
		says    string
		who     Actor
		advice  Advice
		reasons string
	}{
		"delivered": {facts("delivered", []events.Entry{event("sent", 30*ms, ""), event("delivered", 100*ms, "")},
			try("delivered", "250 2.0.0 OK", 30*ms, 65*ms, 0, recorded())),
			"Google's mail server accepted the email 100 ms after it was accepted here.", Nobody, NothingToDo,
			"dns prepare connect greeting tls envelope data handover recording"},
		"without evidence": {facts("delivered", []events.Entry{event("delivered", 100*ms, "")},
			try("delivered", "250 ok", 30*ms, 65*ms, 0, nil)),
			"The recipient's mail server accepted the email 100 ms", Nobody, NothingToDo,
			"queue conversation recording"},
		"captured": {facts("delivered", []events.Entry{event("delivered", 20*ms, "")}, func() Try {
			x := try("delivered", "250 2.0.0 captured as 01", 10*ms, 5*ms, 0, nil)
			x.Host = "outbox"
			return x
		}()), "captured by this installation's outbox. It was not sent, and no mail server has seen it, unless", Nobody,
			NothingToDo,
			"queue capture recording"},
		"full mailbox": {facts("bounced", []events.Entry{event("bounced", 100*ms, bounce("552 5.2.2 over quota"))},
			try("bounced", "552 5.2.2 over quota", 30*ms, 65*ms, 0, full)),
			"Google's mail server refused the email for good. The recipient's mailbox is full.", Recipient,
			AskForSpace,
			"dns prepare connect greeting tls envelope data final_answer recording"},
		"returned later": {facts("bounced", []events.Entry{event("delivered", 100*ms, ""),
			event("bounced", 10*s, bounce("550 5.1.1 user unknown"))}, try("delivered", "250 ok", 30*ms, 65*ms,
			0, recorded())),
			"Google's mail server accepted the email and returned it later. The recipient's mail server does not " +
				"know",
			You, RemoveAddress, "dns prepare connect greeting tls envelope data handover recording"},
		"deferred": {facts("delivery_delayed", []events.Entry{event("delivery_delayed", 100*ms, "")},
			try("delayed", "451 4.7.1 Greylisting in action", 30*ms, 65*ms, 61*time.Minute, full)),
			"Google's mail server deferred the email. The recipient's mail server takes mail from a new sender " +
				"only", Nobody,
			Wait, "dns prepare connect greeting tls envelope data final_answer recording retry_schedule"},
		"overdue": {facts("delivery_delayed", []events.Entry{event("delivery_delayed", 100*ms, "")},
			try("delayed", "451 4.3.0 try again", 0, 65*ms, 10*s, nil)), "deferred the email", Nobody, Wait,
			"conversation retry_schedule queue"},
		"no host reached": {facts("delivery_delayed", []events.Entry{event("delivery_delayed", 100*ms, "")},
			func() Try {
				x := try("delayed", "451 4.4.3 no name server answered", 0, 65*ms, 61*time.Minute, noHost)
				x.Host = ""
				return x
			}()), "The email could not be delivered yet. The name servers of the recipient's domain do not answer.",
			Nobody, Wait,
			"dns retry_schedule"},
		"expired": {facts("bounced", []events.Entry{event("delivery_delayed", 100*ms, ""),
			event("bounced", 50*time.Minute, bounce("451 4.3.0 try again"))},
			try("delayed", "451 4.3.0 try again", 0, 65*ms, 49*time.Minute, nil),
			try("bounced", "451 4.3.0 try again", 49*time.Minute, time.Minute, 0, nil)),
			"The email could not be delivered in 50 min and 2 attempts. The recipient's mail server has trouble",
			Provider,
			TellRecipient, "conversation retry_schedule conversation"},
		"team's share": {facts("delivered", []events.Entry{event("delivered", 5100*ms, "")},
			try("delivered", "250 ok", 5*s, 65*ms, 0, waited)), "accepted the email 5.1 s after", Nobody, NothingToDo,
			"team_share dns prepare connect greeting tls envelope data handover recording"},
		"pause": {facts("delivered", []events.Entry{event("delivered", 5100*ms, "")},
			try("delivered", "250 ok", 5*s, 65*ms, 0, stopped)), "accepted", Nobody, NothingToDo,
			"queue pause queue dns prepare connect greeting tls envelope data handover recording"},
		"operator's pause": {facts("delivered", []events.Entry{event("delivered", 5100*ms, "")},
			try("delivered", "250 ok", 5*s, 65*ms, 0, held)), "accepted", Nobody, NothingToDo,
			"team_share operator_pause team_share dns prepare connect greeting tls envelope data handover recording"},
		"database away": {facts("delivered", []events.Entry{event("delivered", 5100*ms, "")},
			try("delivered", "250 ok", 5*s, 65*ms, 0, away)), "accepted", Nobody, NothingToDo,
			"queue outage dns prepare connect greeting tls envelope data handover recording"},
		"withheld": {facts("delivery_delayed", []events.Entry{event("delivery_delayed", s,
			`{"reason":"domain_not_verified"}`)}),
			"The email waits, because its sender's domain may not send at present.", DomainOwner, VerifyDomain,
			"queue domain_not_verified"},
		"withheld and sent": {facts("delivered", []events.Entry{event("delivery_delayed", s,
			`{"reason":"domain_not_verified"}`),
			event("delivered", time.Minute, "")}, try("delivered", "250 ok", 50*s, 65*ms, 0, recorded())),
			"accepted", Nobody,
			NothingToDo, "queue domain_not_verified dns prepare connect greeting tls envelope data handover " +
				"recording"},
		"queued": {facts("queued", nil), "The email waits in the queue since 2026-11-29 09:00:00 UTC.", Nobody,
			Wait, "queue"},
		"suppressed": {facts("suppressed", []events.Entry{event("suppressed", 0,
			`{"message":"It bounced before."}`)}),
			"The email was not sent to this recipient. It bounced before.", You, LiftSuppression, ""},
		"failed": {facts("failed", []events.Entry{event("failed", s, `{"reason":"account_suspended"}`)}),
			"The email was not sent. The team is suspended.", Operator, AskOperator, "queue"},
		"canceled": {facts("canceled", []events.Entry{event("canceled", s, "")}), "canceled", Nobody,
			NothingToDo, "queue"},
		"timeline lost": {facts("delivered", nil), "How it was delivered is not recorded.", Nobody, NothingToDo,
			"not_recorded"},
		"spam": {facts("complained", []events.Entry{event("delivered", s, "")}, try("delivered", "250",
			0, s, 0, nil)), "reported it as spam", You, RespectChoice, "conversation"},
		"unknown answer": {facts("delivery_delayed", []events.Entry{event("delivery_delayed", s, "")},
			try("unknown", "451 4.4.2 the connection ended before the host said whether it took the message", 0,
				s, 61*time.Minute, &evidence.Evidence{Local: true, Stage: 10})), "A copy may have arrived.", Nobody,
			Wait, "conversation retry_schedule"},
	} {
		a := Explain(c.f)
		check(t, name, &c.f, &a)
		r := a.Recipients[0]
		if !strings.Contains(r.Verdict, c.says) || a.Verdict != r.Verdict {
			t.Errorf("%s: the verdict is %q, want %q", name, r.Verdict, c.says)
		}
		if r.Act != c.who || r.Advice != c.advice || len(r.Steps) > 3 || (len(r.Steps) == 0) != (r.Act == Nobody) {
			t.Errorf("%s: %s must act by %s %q; want %s, %s", name, r.Act, r.Advice, r.Steps, c.who, c.advice)
		}
		if got := reasonsOf(&a); got != c.reasons {
			t.Errorf("%s: the intervals are %q, want %q", name, got, c.reasons)
		}
	}
}

// The verdict on an email with several recipients counts them, and names the worst outcome.
func TestSeveralRecipients(t *testing.T) {
	f := facts("bounced", []events.Entry{event("delivered", time.Second, ""),
		{Type: "bounced", Recipient: "bob@example.net", At: after(time.Second),
			Data: `{"diagnosticCode":["smtp; 550 5.1.1 user unknown"]}`}})
	both := try("mixed", "550 5.1.1 user unknown", 0, time.Second, 0, nil)
	both.Recipients = []string{ann, "bob@example.net"}
	f.Attempts = []Try{both}
	f.Recipients = []To{{Address: ann, State: "delivered"}, {Address: "bob@example.net", State: "bounced"}}
	a := Explain(f)
	check(t, "two", &f, &a)
	if want := "Bounced for 1, delivered to 1. For bob@example.net: "; !strings.HasPrefix(a.Verdict,
		want) || a.Act != You {
		t.Errorf("the verdict is %q, and %s must act; want %q", a.Verdict, a.Act, want)
	}
}

// A retry that only another recipient needs does not appear in the intervals of a recipient who has the email, and the
// answer to the message is the handover.
func TestMixedOutcome(t *testing.T) {
	f := facts("delivery_delayed", []events.Entry{event("delivered", 101*time.Millisecond, ""),
		{Type: "delivery_delayed", Recipient: "bob@example.net", At: after(101 * time.Millisecond)}})
	both := try("mixed", "452 4.2.2 over quota", 30*time.Millisecond, 65*time.Millisecond, 61*time.Minute, recorded())
	both.Recipients = []string{ann, "bob@example.net"}
	f.Attempts = []Try{both}
	f.Recipients = []To{{Address: "bob@example.net", State: "delivery_delayed"}, {Address: ann, State: "delivered"}}
	a := Explain(f)
	check(t, "mixed", &f, &a)
	const before = "dns prepare connect greeting tls envelope data "
	for i, want := range []string{before + "final_answer recording retry_schedule", before + "handover recording"} {
		one := Answer{Recipients: a.Recipients[i:]}
		if got := reasonsOf(&one); got != want {
			t.Errorf("the intervals of %s are %q, want %q", a.Recipients[i].Address, got, want)
		}
	}
}

// The reply to one of several recipients is found in the transcript, also if the host pipelines.
func TestReplyFromTranscript(t *testing.T) {
	const text = "3 S: 250 hello\n4 C: MAIL FROM:<a@b> SIZE=3\n4 C: RCPT TO:<ann@example.net>\n" +
		"4 C: RCPT TO:<bob@example.net>\n4 C: DATA\n5 S: 250 ok\n5 S: 250 ok\n5 S: 450-4.2.1 busy\n5 S: 450 4.2.1 " +
		"later\n" +
		"5 S: 354 go on\n"
	for address, want := range map[string]string{"bob@example.net": "450 4.2.1 later", ann: "",
		"eve@example.net": ""} {
		if got := replyFromTranscript(text, address); got != want {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}

// For all histories, also impossible ones, the intervals add up to the whole.
func TestIntervalsAddUp(t *testing.T) {
	states := []string{"scheduled", "queued", "sent", "delivery_delayed", "delivered", "opened", "clicked", "bounced",
		"failed", "suppressed", "canceled", "complained", "else"}
	kinds := []string{"queued", "scheduled", "sent", "delivered", "bounced", "failed", "suppressed", "canceled",
		"delivery_delayed", "opened", "complained"}
	data := []string{"", "{", `{"reason":"domain_not_verified"}`,
		`{"reason":"attachment_missing","message":"It is missing."}`,
		`{"diagnosticCode":["smtp; 550 5.1.1 no"]}`}
	outcomes := []string{"delivered", "delayed", "bounced", "mixed", "unknown"}
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 0))
		some := func() time.Duration { // a time of any order of magnitude, in microseconds as in the database
			return time.Duration(r.Int64N(1<<(4+r.IntN(34)))-8) * time.Microsecond
		}
		f := facts(states[r.IntN(len(states))], nil)
		f.Now = after(some())
		if r.IntN(3) == 0 {
			f.ScheduledAt = after(some())
		}
		if r.IntN(2) == 0 {
			f.Recipients[0].UpdatedAt = after(some())
		}
		for range r.IntN(6) {
			f.Events = append(f.Events, event(kinds[r.IntN(len(kinds))], some(), data[r.IntN(len(data))]))
		}
		for range r.IntN(6) {
			x := try(outcomes[r.IntN(len(outcomes))], "450 4.2.0 later", some(), max(some(), 0), some(), nil)
			if r.IntN(3) > 0 {
				x.Evidence = randomEvidence(r, some)
			}
			f.Attempts = append(f.Attempts, x)
		}
		a := Explain(f)
		check(t, fmt.Sprintf("seed %d", seed), &f, &a)
		if a.Verdict == "" || a.Recipients[0].Act == "" {
			t.Errorf("seed %d: %+v has no verdict", seed, a)
		}
		if t.Failed() {
			break
		}
	}
}

func randomEvidence(r *rand.Rand, some func() time.Duration) *evidence.Evidence {
	e := &evidence.Evidence{Provider: evidence.Provider(r.IntN(20)), Stage: evidence.Stage(r.IntN(14)),
		Local: r.IntN(2) == 0, Limits: evidence.Limits(r.IntN(16)), Runs: r.IntN(3),
		Outage:   evidence.Outage(r.IntN(6)),
		OutageOf: max(some(), 0), PauseEnd: some(), PauseLength: some(), Enqueued: max(some(), 0),
		Cert: evidence.Cert(r.IntN(8)), Clear: evidence.Clear(r.IntN(6))}
	for x := evidence.Memory; x <= evidence.Final; x++ {
		if r.IntN(2) == 0 {
			e.Set(x, some())
		}
	}
	return e
}

// A team whose rule forwarded an email has no list with the address. It can change the rule.
func TestForwarded(t *testing.T) {
	for reply, want := range map[string]Advice{"550 5.1.1 user unknown": ChangeRule, "552 5.2.2 over quota": ReadReceived,
		"550 5.7.1 message looks like spam": ReadReceived, "550 5.7.25 no PTR record": FixReverseDNS} {
		f := facts("bounced", []events.Entry{event("bounced", time.Second, fmt.Sprintf(`{"type":"Permanent","diagnosticCode":[%q]}`, "smtp; "+reply))},
			try("bounced", reply, 0, time.Second, 0, recorded()))
		f.Forwarded = true
		a := Explain(f)
		steps := strings.Join(a.Recipients[0].Steps, " ")
		if r := a.Recipients[0]; r.Advice != want || strings.Contains(steps, "your lists") || steps == "" {
			t.Errorf("%s: %s, %s", reply, r.Advice, steps)
		}
	}
}

// The text of an answer gives the meaning of a reply once, although the verdict often contains it.
func TestTextGivesMeaningOnce(t *testing.T) {
	for verdict, want := range map[string]string{
		"The mail server refused the email for good. The mailbox is full.": "It means: what the first sentence says. (mailbox_full; blames: recipient)",
		"The email was delivered.": "It means: The mailbox is full. (mailbox_full; blames: recipient)",
	} {
		a := Answer{Verdict: verdict, Recipients: []RecipientAnswer{{Address: "laura@example.org", Verdict: verdict,
			Reply: "552 5.2.2 full", Meaning: &ReplyMeaning{Says: "The mailbox is full.", Class: "mailbox_full",
				Blames: "recipient"}}}}
		if text := a.Text(); strings.Count(text, "The mailbox is full.") != 1 || !strings.Contains(text, want) {
			t.Errorf("the text is:\n%s", text)
		}
	}
}
