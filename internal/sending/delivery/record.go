package delivery

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// outcome is the result of a delivery attempt.
type outcome struct {
	host         string // the host's name and address
	relay        string // name of the relay; "" if the host is none
	tls          string
	conversation string
	answers      []answer // one answer per recipient
	withheld     error    // why the final dot was not sent
	response     response
	took         time.Duration // how long the last conversation took, without the opening of the connection
	spent        time.Duration // how long the last host took in all
	earlier      time.Duration // how long earlier hosts took
	link         link
	rule         evidence.Rule
}

// record evaluates the outcome of a try and stores it. In one transaction, record finishes or reschedules the job and
// records the result for each recipient.
func (s *Service) record(ctx context.Context, t *try, out outcome) ([]verdict, error) {
	now := s.p.DB.Now()
	wait, exhausted := s.nextWait(t, now)
	wait = max(jobs.Jitter(wait), s.holdUnknown(ctx, t, &out))
	verdicts := make([]verdict, len(out.answers))
	for i, a := range out.answers {
		verdicts[i] = judge(a, wait, exhausted, now)
	}
	a, deciding := t.attempt(out, verdicts, now)
	a.Evidence = s.evidence(t, out, out.answers[deciding], verdicts[deciding].state == delivered)
	err := s.p.Queue.Record(ctx, func(tx *db.Tx) error {
		if a.NextAt.IsZero() {
			s.p.Queue.Finish(ctx, tx, t.job)
		} else {
			s.p.Queue.Retry(ctx, tx, t.job, a.NextAt, a.Reply)
		}
		all, err := t.events(ctx, tx, verdicts, &a)
		if err != nil {
			return err
		}
		return s.p.Recorder.Record(ctx, tx, all...)
	})
	if err == nil {
		s.recorded(t, out, verdicts, &a, deciding)
	}
	return verdicts, err
}

// nextWait returns the wait before a try's next one, and whether there is none, by the operator's rules for the
// destination or else by the settings. The time for which the operator had paused the destination does not count.
func (s *Service) nextWait(t *try, now time.Time) (wait time.Duration, exhausted bool) {
	schedule, j := *s.schedule.Load(), t.job
	j.CreatedAt = j.CreatedAt.Add(s.pausedFor(t, j.CreatedAt, now).total)
	if t.rules == nil {
		return nextWait(schedule, j, now)
	}
	if len(t.rules.Schedule) > 0 {
		schedule = t.rules.Schedule
	}
	wait, exhausted = nextWait(schedule, j, now)
	if life := t.rules.Lifetime; life > 0 && now.Sub(j.CreatedAt)+wait > life {
		exhausted = true
	}
	return wait, exhausted
}

// nextWait returns the wait before a job's next try, and whether the schedule is exhausted. The schedule is exhausted
// after its last try, but not until three quarters of its total time have passed. Without a minimum time, a job could
// end early, because tries that contacted no host also count. Even with fewer tries, a job ends after one and a half
// times the total time plus one hour.
func nextWait(schedule []time.Duration, j jobs.Job, now time.Time) (wait time.Duration, exhausted bool) {
	var total time.Duration
	for _, d := range schedule {
		total += d
	}
	age := now.Sub(j.CreatedAt)
	exhausted = j.Tries >= len(schedule) && age >= total*3/4 || age > total*3/2+time.Hour
	return schedule[min(j.Tries, len(schedule)-1)], exhausted
}

// attempt returns the record of a try that is stored in the database, and the index of the answer that decided.
func (t *try) attempt(out outcome, verdicts []verdict, now time.Time) (a events.Attempt, deciding int) {
	a = events.Attempt{Destination: t.d.Domain, Recipients: t.o.To, Host: out.host, TLS: out.tls,
		Conversation: elideMiddle(out.conversation, conversationMax), StartedAt: t.started, Duration: now.Sub(t.started)}
	for i, v := range verdicts {
		if v.state == delayed && v.until.After(a.NextAt) {
			a.NextAt = v.until
		}
		if v.state != delivered && verdicts[deciding].state == delivered {
			deciding = i
		}
		switch name := v.name(); {
		case out.answers[i].unknown:
			a.Outcome = emails.OutcomeUnknown
		case a.Outcome == "":
			a.Outcome = name
		case a.Outcome != name && a.Outcome != emails.OutcomeUnknown:
			a.Outcome = "mixed"
		}
	}
	a.Reply = elideMiddle(out.answers[deciding].reply.String(), replyMax)
	return a, deciding
}

func (v *verdict) name() string {
	switch v.state {
	case delivered:
		return "delivered"
	case delayed:
		return "delayed"
	}
	return "bounced"
}

// These are the maximum sizes, in bytes, of the strings stored for an attempt.
const (
	conversationMax = 16 << 10
	replyMax        = 1000
)

// elideMiddle shortens a string to limit bytes by removing its middle, because the beginning and the end are the most
// useful.
func elideMiddle(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	const mark = "\n…\n"
	head := (limit - len(mark)) / 2
	tail := len(s) - (limit - len(mark) - head)
	for head > 0 && s[head]&0xc0 == 0x80 {
		head--
	}
	for tail < len(s) && s[tail]&0xc0 == 0x80 {
		tail++
	}
	return s[:head] + mark + s[tail:]
}

// events returns the events to record for the verdicts. The event email.sent is recorded once per email, together with
// the first outcome. The time of email.sent is the time at which the SMTP conversation started. The event of the first
// verdict has the attempt.
func (t *try) events(ctx context.Context, tx *db.Tx, verdicts []verdict, a *events.Attempt) (all []events.Event,
	err error) {
	talked := false
	for _, v := range verdicts {
		talked = talked || v.state != suppressed
	}
	// If the email has no other destination and was queued when its job began, no delivery event exists yet. Fencing
	// prevents any other worker from recording one for this job. In all other cases, the database determines which outcome
	// is the first.
	first := talked && t.d.Only && t.o.LastEvent == emails.Queued
	if talked && !first {
		if first, err = emails.MarkSent(ctx, tx, t.o.TeamID, t.o.ID); err != nil {
			return nil, err
		}
	}
	if first {
		e := t.event(events.EmailSent, "", nil)
		e.At = t.started
		all = append(all, e)
	}
	all = append(all, t.skipped...)
	tried := len(all)
	for i, v := range verdicts {
		to := t.o.To[i]
		switch v.state {
		case delivered:
			all = append(all, t.event(events.EmailDelivered, to, nil))
			if v.complain {
				all = append(all, t.event(events.EmailComplained, to, &events.Complaint{Simulated: true}))
			}
		case delayed:
			all = append(all, t.event(events.EmailDelayed, to, nil))
		case bounced:
			all = append(all, t.event(events.EmailBounced, to, v.bounce))
		case suppressed:
			all = append(all, t.event(events.EmailSuppressed, to, simulatedSuppression()))
		}
	}
	if tried < len(all) {
		all[tried].Attempt = a
	}
	return all, nil
}
