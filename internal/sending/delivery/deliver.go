package delivery

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/jobs"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/evidence"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
	"github.com/postrider/postrider/internal/sending/tokens"
)

// These are reasons in email.failed events.
const (
	reasonLost    = "content_missing" // the email exists, but its content does not
	reasonInvalid = "invalid_message" // the email cannot be composed or signed
)

// try is one attempt to run a delivery job.
type try struct {
	job     jobs.Job
	d       emails.Delivery
	o       *emails.Outgoing
	began   time.Time // when the job was claimed
	started time.Time // when the SMTP conversation began
	seen    observed
	route   *route               // nil if no host is contacted
	rules   *routing.Destination // what the operator has set for the destination; nil if nothing
	token   string               // quoted by complaints; see tokens.Feedback

	suppressionsReadAt time.Time      // when the suppressions were last read; zero if not yet read
	skipped            []events.Event // events for recipients suppressed after acceptance; recorded with the outcome
}

// deliver handles one delivery job.
func (s *Service) deliver(ctx context.Context, j jobs.Job) error {
	d, err := emails.DecodeDelivery(j.Payload, j.Lane)
	if err != nil {
		return err
	}
	d.First = j.Attempt == 1
	began, seen := s.p.DB.Now(), observed{lapAt: time.Now()}
	// Memory for the email is reserved before the email is read.
	size := d.Size
	if size == 0 {
		size, err = s.p.Emails.Size(ctx, d.TeamID, d.EmailID)
	}
	if err == nil {
		size, err = s.reserveMemory(ctx, j.TeamID, size)
	}
	if err != nil && !errors.Is(err, emails.ErrGone) {
		return err
	}
	defer func() { s.memory.Release(j.TeamID, size) }()
	seen.lap(evidence.Memory)
	loaded := s.p.DB.Now()
	o, err := s.p.Emails.Outgoing(ctx, d)
	if errors.Is(err, emails.ErrGone) || err == nil && (len(o.To) == 0 || o.LastEvent == emails.Canceled) {
		return s.p.Queue.End(ctx, j)
	}
	if err != nil {
		return err
	}
	t := &try{job: j, d: d, o: o, began: began, started: s.p.DB.Now(), seen: seen}
	s.observe(t, began)
	if !o.MayBeRefused {
		t.suppressionsReadAt = loaded
	}
	if o.ContentMissing {
		s.p.Log.Error("the content of a queued email is missing; the email fails", "email", o.ID, "team", o.TeamID)
		return s.fail(ctx, t, reasonLost)
	}
	if left, err := s.dropSuppressed(ctx, t); err != nil || !left {
		return err
	}
	from, err := s.p.Domains.Signing(ctx, o.DomainID)
	switch gone := fault.KindOf(err) == fault.NotFound; {
	case gone && o.ForwardRule() != "":
		return s.fail(ctx, t, emails.ReasonDomain)
	case gone, err == nil && !from.MaySend && o.ForwardRule() == "":
		return s.withhold(ctx, t)
	}
	if err != nil {
		return err
	}
	if ok, err := s.mayGoOn(ctx, t); err != nil || !ok {
		return err
	}
	if s.isSandbox(d.Domain) {
		_, err := s.record(ctx, t, simulate(o.To))
		return err
	}
	t.seen.lap(evidence.Work)
	r, group := &route{team: j.TeamID}, s.group(j.Lane)
	if s.c.Transport != Capture {
		t.route = r
		if ended, err := s.prepareRoute(ctx, t, r, from.TLS, &group); err != nil || ended {
			return err
		}
		t.seen.lap(evidence.DNS)
	}
	msg, err := s.prepare(ctx, t, from)
	if file, ok := errors.AsType[*emails.FileError](err); ok && s.concernsFile(ctx, file) {
		if msg, err = s.prepare(ctx, t, from); err != nil { // the file may have become readable together with the store
			if file, ok = errors.AsType[*emails.FileError](err); ok {
				return s.waitForFile(ctx, t, file)
			}
		}
	}
	if fault.KindOf(err) == fault.Invalid {
		s.p.Log.Warn("an email cannot be composed and fails", "email", o.ID, "team", o.TeamID, "error", err)
		return s.fail(ctx, t, reasonInvalid)
	}
	if err != nil {
		return err
	}
	o.ReleaseContent()
	size = s.shrinkReservation(j.TeamID, size, msg)
	t.seen.lap(evidence.Prepare)
	return s.transmit(ctx, t, r, group, from, msg)
}

// reserveMemory waits until the team may use size bytes of memory, and returns the number of bytes reserved.
func (s *Service) reserveMemory(ctx context.Context, team string, size int64) (int64, error) {
	size = min(size, memory)
	if err := s.memory.Acquire(ctx, team, size); err != nil {
		return 0, err
	}
	return size, nil
}

// shrinkReservation releases memory that was needed only to compose the message, if it is at least 1 MiB. The result is
// the number of bytes that stay reserved.
func (s *Service) shrinkReservation(team string, size int64, msg [][]byte) int64 {
	left := int64(0)
	for _, part := range msg {
		left += int64(len(part))
	}
	if size-left < 1<<20 {
		return size
	}
	s.memory.Release(team, size-left)
	return left
}

// prepareRoute finds the hosts or relays to try, and sets the group whose limits apply. If nothing can be tried now, or
// the group takes no message now, prepareRoute ends or releases the job and returns true.
func (s *Service) prepareRoute(ctx context.Context, t *try, r *route, tls string, group *string) (ended bool,
	err error) {
	claimed := *group
	out, ok, err := s.chooseRoute(ctx, t, r, tls, group)
	if err != nil {
		return false, err
	}
	if held, err := s.holdBack(ctx, t, claimed, *group); err != nil || held {
		return held, err
	}
	if !ok {
		t.seen.Forget(evidence.Work) // the look-up of hosts is the attempt
		_, err = s.record(ctx, t, out)
	}
	return !ok, err
}

// chooseRoute finds the hosts or relays to try for an attempt, and sets the group whose limits apply. If nothing can be
// tried now, chooseRoute returns ok == false, and out contains the reason.
func (s *Service) chooseRoute(ctx context.Context, t *try, r *route, tls string, group *string) (out outcome, ok bool,
	err error) {
	sender := ""
	if s.routes.Load().BySender() {
		if sender, err = t.o.SenderDomain(); err != nil {
			return out, false, err
		}
		sender = strings.ToLower(sender)
	}
	w, err := s.choose(ctx, t.d.Domain, sender, tls, func(d *routing.Destination) bool { return s.lastTry(t, d) })
	r.hops, r.seen, t.rules, *group = w.hops, w.seen, w.destination, w.group
	if err != nil {
		if ctx.Err() != nil {
			return out, false, context.Cause(ctx)
		}
		if fault.IsOutage(err) && !t.job.Outlasted(s.p.DB.Now()) { // The queue repeats the job soon, without a try.
			if errors.Is(err, tlspolicies.ErrUnknown) {
				return out, false, err // says nothing about the name servers
			}
			return out, false, fmt.Errorf(noHostError+"%s: %w", t.d.Domain, err)
		}
		a := answerForPlanError(err)
		return outcome{answers: repeatAnswer(a, len(t.o.To)), conversation: "* " + a.reply.Text + "\n", rule: w.rule}, false,
			nil
	}
	s.routed(t, w)
	if len(r.hops) > 0 {
		s.hosts.requestShare(r.hops[0].at())
	}
	out, silent := s.allInBackoff(r, len(t.o.To))
	return out, !silent, nil
}

// errLeaseTooShort is returned if a job has waited so long for a connection that its lease might end during the SMTP
// conversation.
var errLeaseTooShort = errors.New("no connection became free in time")

// transmit passes a message to the transport and records the outcome.
func (s *Service) transmit(ctx context.Context, t *try, r *route, destination string, from domains.Signing,
	msg [][]byte) error {
	host := from.ReturnPathHost
	if host == "" || !from.MaySend { // the domain of a forwarded email may be enabled only for receiving
		host = s.c.Hostname
	}
	env := smtpclient.Envelope{From: tokens.ReturnPath(s.p.Keys, t.o.Ref, t.d.Domain) + "@" + host, To: t.o.To,
		UTF8:   t.o.UTF8,
		Commit: func() error { return t.job.Sure(ctx) }}
	msg = slices.Insert(msg, 0, []byte(tokens.FeedbackField+": "+t.token+"\r\n"))
	t.started = s.p.DB.Now()
	if s.c.Transport == Capture {
		if err := t.job.Sure(ctx); err != nil {
			return err
		}
		out, err := s.capture(ctx, t.o, env, msg)
		if err != nil {
			return err
		}
		_, err = s.record(ctx, t, out)
		return err
	}
	for {
		news, err := s.withConnection(ctx, t, r, destination, env, msg)
		if err != nil {
			return err
		}
		if news == nil {
			break
		}
		select {
		case <-news:
			t.waitedFor(evidence.Address, r)
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	if len(t.o.To) == 0 { // dropSuppressed has finished or released the job
		return nil
	}
	took := time.Since(t.started)
	s.shape.learn(destination, r.out)
	verdicts, err := s.record(ctx, t, r.out)
	s.shape.recordVerdicts(destination, verdicts, took, s.shape.now())
	return err
}

// withConnection acquires two permits and calls talk. The first permit is a connection permit from the team's share.
// The second permit is a slot at the destination; teams take turns to get slots. A message that holds a slot waits only
// for the destination's host. A team's mail to one destination therefore never blocks other teams' mail to another
// destination.
//
// A message holds neither a permit nor a slot while it is being signed or waits for the disk. The same applies while a
// message waits for the result of another connection to the same host. The returned channel has the same meaning as in
// talk.
func (s *Service) withConnection(ctx context.Context, t *try, r *route, destination string, env smtpclient.Envelope,
	msg [][]byte) (
	news <-chan struct{}, err error) {
	if err := s.pool.permits.Acquire(ctx, r.team, 1); err != nil {
		return nil, err
	}
	defer s.pool.permits.Release(r.team, 1)
	t.waitedFor(evidence.Permit, r)
	at, err := s.shape.acquire(ctx, destination, r.team, emails.LaneTurn(t.job.Lane))
	if err != nil {
		return nil, err
	}
	t.waitedFor(evidence.Slot, r)
	what := untried
	defer func() { at.release(news == nil, what) }()
	if left, err := s.dropSuppressed(ctx, t); err != nil || !left {
		return nil, err
	}
	env.To, env.UTF8 = t.o.To, t.o.UTF8
	if err := t.job.Sure(ctx); err != nil {
		return nil, err
	}
	if until, ok := ctx.Deadline(); ok && time.Until(until) < talkMax {
		return nil, errLeaseTooShort
	}
	if r.next == 0 {
		t.seen.lap(evidence.Work)
		t.started = s.p.DB.Now()
		s.prefer(r.hops)
	}
	if news, err = s.talk(ctx, r, env, msg); err == nil && news == nil {
		what = r.out.response
	}
	t.seen.lapAt = time.Now()
	return news, err
}

// prepare composes and signs a message. Both steps are CPU-intensive, so the number of messages composed or signed
// concurrently is limited. The limit for signing is lower than the limit for composing, so that signing does not slow
// down other work. Teams take turns to compose and sign, because one team's messages may be a thousand times as large
// as another team's.
func (s *Service) prepare(ctx context.Context, t *try, from domains.Signing) (msg [][]byte, err error) {
	turn := emails.LaneTurn(t.job.Lane)
	if err := s.preparing.Acquire(ctx, turn); err != nil {
		return nil, err
	}
	defer s.preparing.Release(turn)
	t.token = tokens.Feedback(s.p.Keys, t.o.Ref, t.d.Domain)
	t.o.ComplaintLoop = s.complaintLoop(t, &from)
	body, err := s.p.Emails.Compose(ctx, t.o)
	if err != nil {
		return nil, err
	}
	if s.c.Unsigned || t.o.ForwardRule() != "" { // a forwarded message keeps the signatures of its author
		return [][]byte{body}, nil
	}
	header, err := s.sign(ctx, turn, body, from)
	switch {
	case errors.Is(err, dkim.ErrBadHeader), errors.Is(err, dkim.ErrNoFrom):
		return nil, fault.Invalidf("", "The email cannot be signed: %s", err).Because(err)
	case err != nil:
		return nil, fmt.Errorf("sign email %s: %w", t.o.ID, err)
	}
	t.seen.signed(from.Signers)
	return [][]byte{header, body}, nil
}

// yieldEvery is the number of signatures after which one lets all goroutines that can run go first. A goroutine that
// releases its permit to sign starts the next one that waits for it at once, ahead of others. While a backlog is
// delivered, signatures would otherwise keep all processors for ten milliseconds at a time, which each step of a
// request would wait for. If every signature yielded, requests would be answered faster still, but two processors would
// deliver 7 % fewer emails.
const yieldEvery = 4

func (s *Service) sign(ctx context.Context, turn string, body []byte, from domains.Signing) ([]byte, error) {
	if err := s.signing.Acquire(ctx, turn); err != nil {
		return nil, err
	}
	defer s.signing.Release(turn)
	if s.signed.Add(1)%yieldEvery == 0 {
		runtime.Gosched()
	}
	return dkim.Sign(body, time.Now(), from.Signers...)
}

// fail ends a job that cannot deliver its email because of an error on our side. Recipients at other destinations have
// separate jobs and outcomes.
func (s *Service) fail(ctx context.Context, t *try, reason string) error {
	return s.p.DB.Update(ctx, func(tx *db.Tx) error { return s.failIn(ctx, tx, t, reason) })
}

func (s *Service) failIn(ctx context.Context, tx *db.Tx, t *try, reason string) error {
	return s.failBecause(ctx, tx, t, &events.Failed{Reason: reason})
}

// failBecause is like failIn, with a reason that has a message.
func (s *Service) failBecause(ctx context.Context, tx *db.Tx, t *try, why *events.Failed) error {
	s.p.Queue.Finish(ctx, tx, t.job)
	s.failed(tx, t, why.Reason)
	return s.p.Recorder.Record(ctx, tx, t.forAll(events.EmailFailed, why)...)
}

// forAll returns the events for skipped recipients and an event for the remaining recipients. If the email has no other
// job, the event is one for the whole email; otherwise each recipient has an event.
func (t *try) forAll(kind events.Type, data any) []events.Event {
	all := slices.Clone(t.skipped)
	if t.d.Only {
		return append(all, t.event(kind, "", data))
	}
	for _, to := range t.o.To {
		all = append(all, t.event(kind, to, data))
	}
	return all
}

func (t *try) event(kind events.Type, to string, data any) events.Event {
	return events.Event{TeamID: t.o.TeamID, EmailID: t.o.ID, DomainID: t.o.DomainID, BroadcastID: t.o.BroadcastID,
		Type: kind, Recipient: to, ContactID: t.o.ContactID, OneRecipient: t.o.OneRecipient, Email: t.o.EventSummary,
		ForwardRule: t.o.ForwardRule(), Data: data}
}
