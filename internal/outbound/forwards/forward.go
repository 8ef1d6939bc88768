package forwards

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/quotas"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/emails"
)

// forwardKind is the kind of the jobs that forward a message to an address. Each team has one lane.
const forwardKind = "forwards.forward"

// payload is the payload of a job that forwards a received email by a rule.
type payload struct {
	EmailID string `json:"email"`
	RuleID  string `json:"rule"`
	For     string `json:"for"` // the address at which the email arrived
}

func (p payload) encode() string {
	text, err := json.Marshal(p)
	if err != nil {
		panic("forwards: a payload cannot be encoded: " + err.Error()) // strings can always be encoded
	}
	return string(text)
}

// work is a job with what it works on.
type work struct {
	job     jobs.Job
	payload payload
	rule    Rule
	message Message
}

// stopped is the reason why a message is not forwarded, as text for users.
type stopped string

const quotaUsed stopped = "the team's quota is used up"

// full reports whether a rule has used up its limit for this hour, and how long the next message must wait.
func (r *Rule) full(now time.Time) (full bool, again time.Duration) {
	hour := now.Truncate(time.Hour)
	return r.hour >= hour.UnixMicro() && r.hourCount >= perHour, hour.Add(time.Hour + time.Minute).Sub(now)
}

// open loads the rule and the message of a job. If ok is false, open has ended or postponed the job. It reads the
// message last, so that postponed jobs cost little.
func (s *Service) open(ctx context.Context, j jobs.Job) (w work, ok bool, err error) {
	w.job = j
	if err := json.Unmarshal([]byte(j.Payload), &w.payload); err != nil {
		return w, false, fmt.Errorf("read the payload of a forwarding job: %w", err)
	}
	w.rule, err = ruleByID(ctx, s.p.DB.Reader, j.TeamID, w.payload.RuleID)
	if fault.KindOf(err) == fault.NotFound || err == nil && w.rule.State() != Active && w.rule.State() != Failing {
		return w, false, s.p.Queue.End(ctx, j)
	}
	if err != nil {
		return w, false, err
	}
	team, err := s.p.Teams.Get(ctx, j.TeamID)
	if fault.KindOf(err) == fault.NotFound {
		return w, false, s.p.Queue.End(ctx, j)
	}
	if err != nil {
		return w, false, err
	}
	if team.Suspended {
		return w, false, s.wait(ctx, &w, 15*time.Minute, "the team is suspended")
	}
	if full, again := w.rule.full(s.c.Now()); full {
		why := stopped(fmt.Sprintf("the rule has reached its limit of %d messages an hour", perHour))
		return w, false, s.wait(ctx, &w, again, why)
	}
	if w.rule.Address != "" { // before a large message is read and stored again
		err := s.p.Emails.Quotas.Check(ctx, j.TeamID, 1)
		if quotas.Exceeded(err) {
			return w, false, s.wait(ctx, &w, 15*time.Minute, quotaUsed)
		}
		if err != nil {
			return w, false, err
		}
	}
	w.message, err = s.p.Received(ctx, j.TeamID, w.payload.EmailID)
	if fault.KindOf(err) == fault.NotFound { // the email was deleted
		return w, false, s.p.Queue.End(ctx, j)
	}
	if err != nil {
		return w, false, err
	}
	if why := stopReason(&w.message, w.rule.ID); why != "" {
		w.close()
		return w, false, s.stop(ctx, &w, why)
	}
	return w, true, nil
}

func (w *work) close() {
	if w.message.Close != nil {
		w.message.Close()
	}
}

// wait postpones the job by d. If the job is older than waitFor, wait stops the message with the given reason instead.
func (s *Service) wait(ctx context.Context, w *work, d time.Duration, why stopped) error {
	if s.c.Now().Sub(w.job.CreatedAt) > waitFor {
		return s.stop(ctx, w, why)
	}
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		s.p.Queue.Wait(ctx, tx, w.job, tx.Now().Add(jobs.Jitter(d)), string(why))
		return nil
	})
}

// stop ends the job without forwarding the message, and stores the reason in the rule.
func (s *Service) stop(ctx context.Context, w *work, why stopped) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		s.p.Queue.Finish(ctx, tx, w.job)
		countStopped(ctx, tx, w.rule.TeamID, w.rule.ID, string(why), tx.Now())
		return nil
	})
}

// forward handles jobs of the kind forwardKind.
func (s *Service) forward(ctx context.Context, j jobs.Job) error {
	w, ok, err := s.open(ctx, j)
	if err != nil || !ok {
		return err
	}
	defer w.close()
	now := s.c.Now()
	hour := now.Truncate(time.Hour)
	to, err := message.ParseAddress(w.rule.Address)
	if err != nil {
		return fmt.Errorf("read the address of a forwarding rule: %w", err)
	}
	added, err := s.addedFields(ctx, &w, now)
	if errors.Is(err, errDNS) {
		return s.p.DB.Update(ctx, func(tx *db.Tx) error {
			s.p.Queue.Wait(ctx, tx, j, tx.Now().Add(jobs.Jitter(5*time.Minute)), err.Error())
			return nil
		})
	}
	if err != nil {
		return err
	}
	if err := j.Sure(ctx); err != nil {
		return err
	}
	from := w.message.From
	if _, err := message.ParseFrom(from); err != nil {
		from = w.payload.For // the From field cannot be parsed, but lists of emails show a sender
	}
	_, err = s.p.Emails.Forward(ctx, emails.Forward{TeamID: j.TeamID, DomainID: w.rule.DomainID, RuleID: w.rule.ID,
		From: from, Subject: w.message.Subject, MessageID: w.message.MessageID, To: to, Added: added,
		Message: w.message.Raw, UTF8: w.message.UTF8},
		func(ctx context.Context, tx *db.Tx, emailID string) error {
			insertCopy(ctx, tx, j.TeamID, forwardedCopy{w.payload.EmailID, emailID})
			s.p.Queue.Finish(ctx, tx, j)
			countForwarded(ctx, tx, j.TeamID, w.rule.ID, hour.UnixMicro())
			return nil
		})
	switch {
	case quotas.Exceeded(err):
		return s.wait(ctx, &w, 15*time.Minute, quotaUsed)
	case errors.Is(err, emails.ErrTooLarge):
		return s.stop(ctx, &w, "the message is larger than emails may be")
	}
	return err
}
