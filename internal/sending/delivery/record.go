package delivery

import (
	"context"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
)

// outcome is the result of an attempt.
type outcome struct {
	host         string // name and address of the host
	tls          string
	conversation string
	answers      []answer // one for each recipient
	withheld     error    // why we did not send the end of the message
	response     response
}

// record judges an outcome. In one transaction it finishes or reschedules the job and records the result for each
// recipient.
func (s *Service) record(ctx context.Context, t *try, out outcome) ([]verdict, error) {
	now := s.p.DB.Now()
	wait, exhausted := nextWait(s.c.Schedule, t.job, now)
	wait = max(jobs.Jitter(wait), s.holdUnknown(ctx, t, &out))
	verdicts := make([]verdict, len(out.answers))
	for i, a := range out.answers {
		verdicts[i] = judge(a, wait, exhausted, now)
	}
	a := t.attempt(out, verdicts, now)
	return verdicts, s.p.Queue.Record(ctx, func(tx *db.Tx) error {
		if a.NextAt.IsZero() {
			s.p.Queue.Finish(ctx, tx, t.job)
		} else {
			s.p.Queue.Retry(ctx, tx, t.job, a.NextAt, a.Reply)
		}
		all, err := t.events(ctx, tx, verdicts)
		if err != nil {
			return err
		}
		if err := emails.RecordAttempt(ctx, tx, a); err != nil {
			return err
		}
		return s.p.Recorder.Record(ctx, tx, all...)
	})
}

// nextWait returns the wait before a job's next try, and whether the schedule is exhausted. The number of tries alone
// does not decide whether it is exhausted, because a try counts even if its hosts were not contacted: at least three
// quarters of the schedule's time must also have passed. A job that is tried rarely ends after one and a half times the
// schedule's time plus an hour.
func nextWait(schedule []time.Duration, j jobs.Job, now time.Time) (wait time.Duration, exhausted bool) {
	var total time.Duration
	for _, d := range schedule {
		total += d
	}
	age := now.Sub(j.CreatedAt)
	exhausted = j.Tries >= len(schedule) && age >= total*3/4 || age > total*3/2+time.Hour
	return schedule[min(j.Tries, len(schedule)-1)], exhausted
}

// attempt returns the attempt as it is stored.
func (t *try) attempt(out outcome, verdicts []verdict, now time.Time) emails.Attempt {
	a := emails.Attempt{TeamID: t.o.TeamID, EmailID: t.o.ID, Destination: t.d.Domain, Recipients: t.o.To, Host: out.host,
		TLS: out.tls, Conversation: elideMiddle(out.conversation, conversationMax), StartedAt: t.started,
		Duration: now.Sub(t.started)}
	deciding := 0
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
	return a
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

// Sizes of the stored parts of an attempt, in bytes.
const (
	conversationMax = 16 << 10
	replyMax        = 1000
)

// elideMiddle cuts the middle out of a text that is longer than limit, because its beginning and its end are the most
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

// events returns the events of the verdicts. The event email.sent is recorded once for the email, with its first
// outcome. The time of this event is when the conversation began.
func (t *try) events(ctx context.Context, tx *db.Tx, verdicts []verdict) (all []events.Event, err error) {
	talked := false
	for _, v := range verdicts {
		talked = talked || v.state != suppressed
	}
	// If the email has no other destination and was queued when its job began, no event of delivery exists yet: the
	// job's fence keeps other workers from recording one. Otherwise the database decides which outcome is the first.
	first := talked && t.d.Only && t.o.LastEvent == emails.Queued
	if talked && !first {
		if first, err = emails.MarkSent(ctx, tx, t.o.ID); err != nil {
			return nil, err
		}
	}
	if first {
		e := t.event(events.EmailSent, "", nil)
		e.At = t.started
		all = append(all, e)
	}
	all = append(all, t.skipped...)
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
	return all, nil
}
