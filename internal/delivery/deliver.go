package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/smtpclient"
)

// Reasons of the event failed.
const (
	reasonNoDomain = "domain_not_verified" // it was deleted since
	reasonInvalid  = "invalid_message"     // no message can be made of it
)

// try is one attempt at one job.
type try struct {
	job     jobs.Job
	d       emails.Delivery
	o       *emails.Outgoing
	started time.Time // when talking began
}

// deliver works one job.
func (s *Service) deliver(ctx context.Context, j jobs.Job) error {
	d, err := emails.DecodeDelivery(j.Payload)
	if err != nil {
		return err
	}
	d.First = j.Attempt == 1
	destination := s.group(j.Lane)
	o, err := s.p.Emails.Outgoing(ctx, d)
	if errors.Is(err, emails.ErrGone) || err == nil && (len(o.To) == 0 || o.LastEvent == emails.Canceled) {
		return s.p.DB.Update(ctx, func(tx *db.Tx) error { return s.p.Queue.Finish(ctx, tx, j) })
	}
	if err != nil {
		return err
	}
	t := &try{job: j, d: d, o: o, started: db.Now()}
	if s.isSandbox(d.Domain) {
		_, err := s.record(ctx, t, simulate(o.To))
		return err
	}
	size := min(o.Size(), memory)
	if err := s.memory.Acquire(ctx, size); err != nil {
		return err
	}
	defer s.memory.Release(size)
	msg, from, err := s.prepare(ctx, o)
	switch {
	case err == nil:
	case fault.KindOf(err) == fault.NotFound:
		return s.fail(ctx, t, reasonNoDomain)
	case fault.KindOf(err) == fault.Invalid:
		s.p.Log.Warn("an email cannot be made into a message and fails", "email", o.ID, "team", o.TeamID, "error", err)
		return s.fail(ctx, t, reasonInvalid)
	default:
		return err
	}
	return s.hand(ctx, t, destination, from, msg)
}

// hand gives a message to the transport and records what came of it.
func (s *Service) hand(ctx context.Context, t *try, destination string, from domains.Signing, msg [][]byte) error {
	host := from.ReturnPathHost
	if host == "" {
		host = s.c.Hostname
	}
	env := smtpclient.Envelope{From: emails.ReturnPath(s.p.Keys, t.o.ID, t.d.Domain) + "@" + host, To: t.o.To, UTF8: t.o.UTF8}
	msg = slices.Insert(msg, 0, []byte(emails.FeedbackField+": "+emails.Feedback(s.p.Keys, t.o.ID, t.d.Domain)+"\r\n"))
	t.started = db.Now()
	if s.c.Transport == Capture {
		out, err := s.outbox.keep(ctx, t.o, env, msg)
		if err != nil {
			return err
		}
		_, err = s.record(ctx, t, out)
		return err
	}
	// A place is for talking alone: while one message is signed, or waits for the disk, others use the connections.
	leave, err := s.shape.enter(ctx, destination)
	if err != nil {
		return err
	}
	t.started = db.Now()
	out, err := s.talk(ctx, t.d.Domain, env, from.TLS, msg)
	leave()
	if err != nil {
		return err
	}
	took := time.Since(t.started)
	verdicts, err := s.record(ctx, t, out)
	s.shape.heard(destination, verdicts, took, time.Now())
	return err
}

// prepare composes and signs. Both are work for the processor, so only so many do it at once, and fewer sign: the rest of
// the program must not wait behind signatures.
func (s *Service) prepare(ctx context.Context, o *emails.Outgoing) (msg [][]byte, from domains.Signing, err error) {
	if from, err = s.p.Domains.Signing(ctx, o.DomainID); err != nil {
		return nil, from, err
	}
	if err := take(ctx, s.preparing); err != nil {
		return nil, from, err
	}
	defer func() { <-s.preparing }()
	body, err := s.p.Emails.Compose(ctx, o)
	if err != nil {
		return nil, from, err
	}
	if s.c.Unsigned {
		return [][]byte{body}, from, nil
	}
	if err := take(ctx, s.signing); err != nil {
		return nil, from, err
	}
	header, err := dkim.Sign(body, time.Now(), from.Signers...)
	<-s.signing
	switch {
	case errors.Is(err, dkim.ErrBadHeader), errors.Is(err, dkim.ErrNoFrom):
		return nil, from, fault.Invalidf("", "The email cannot be signed: %s", err).Because(err)
	case err != nil:
		return nil, from, fmt.Errorf("sign email %s: %w", o.ID, err)
	}
	return [][]byte{header, body}, from, nil
}

// take waits for a place.
func take(ctx context.Context, places chan struct{}) error {
	select {
	case places <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// fail ends an email that cannot be delivered at all, for a reason of ours. Recipients at other destinations have jobs
// and outcomes of their own.
func (s *Service) fail(ctx context.Context, t *try, reason string) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error {
		if err := s.p.Queue.Finish(ctx, tx, t.job); err != nil {
			return err
		}
		if t.d.Only {
			return s.p.Hallway.Record(ctx, tx, t.event(events.EmailFailed, "", &events.Failed{Reason: reason}))
		}
		var all []events.Event
		for _, to := range t.o.To {
			all = append(all, t.event(events.EmailFailed, to, &events.Failed{Reason: reason}))
		}
		return s.p.Hallway.Record(ctx, tx, all...)
	})
}

func (t *try) event(kind events.Type, to string, data any) events.Event {
	return events.Event{TeamID: t.o.TeamID, EmailID: t.o.ID, DomainID: t.o.DomainID, BroadcastID: t.o.BroadcastID, Type: kind,
		Recipient: to, Data: data}
}
