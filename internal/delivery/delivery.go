// Package delivery brings emails to the hosts of their recipients.
//
// # One job
//
// A job is one email to one destination domain, with all its recipients there. It goes plan -> talk -> judge: plan finds the
// hosts, talk speaks SMTP and comes back with what was said, judge decides what that means for each recipient. Then one
// transaction ends or reschedules the job, keeps the conversation, and records the events. No transaction is open while the
// network is used, and what a host answers is data, not an error.
//
// # Guarantees
//
// At least once, never zero. A second copy can only come from a break between a host's final 250 and our commit, or from a
// host that took the message and whose answer did not arrive (the outcome is unknown then, and it is tried again). The
// Message-ID and every other byte but the signatures' time stay the same, so a receiver can tell.
//
// # Failure
//
// Temporary refusals, and hosts that cannot be reached, are tried again by the schedule; after its last wait the email bounces
// as transient, which suppresses nobody. Refusals that are the recipient's own suppress; those for our address, content or
// reputation never do. A host that asks for patience gets it: its lane is paused and narrowed ([shaper]).
//
// The package does not decide who may send, and it does not read what comes back by mail.
package delivery

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/postrider/postrider/internal/blob"
	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/domains"
	"github.com/postrider/postrider/internal/emails"
	"github.com/postrider/postrider/internal/events"
	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/jobs"
	"github.com/postrider/postrider/internal/keyring"
	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
)

// Transports, by which mail leaves.
const (
	Direct  = "direct"  // to the recipients' hosts
	Relay   = "relay"   // through one smarthost
	Capture = "capture" // kept and shown, never sent
)

// Config is what of the configuration concerns delivery.
type Config struct {
	Transport       string
	Hostname        string // in EHLO
	RelayAddr       string
	RelayUsername   string
	RelayPassword   string
	RelayTLS        smtpclient.TLSMode
	SMTPPort        int // of direct delivery; 0 is 25
	Schedule        []time.Duration
	Workers         int // jobs in hand
	Signers         int // signatures made at once
	LaneConnections int // connections to one destination
	LaneRate        float64
	MaxConnections  int
	SandboxDomains  []string // of the test addresses
	AllowPrivate    bool     // direct delivery may reach private addresses; for tests
	RootCAs         *x509.CertPool
	Timeouts        smtpclient.Timeouts
}

// memory is how many octets of messages may be in hand at once. One that is larger by itself goes alone.
const memory = 256 << 20

// lease is longer than the longest wait in a conversation, the ten minutes for the answer to a message.
const lease = 15 * time.Minute

// Parts are the rooms that delivery stands on.
type Parts struct {
	DB      *db.DB
	Queue   *jobs.Queue
	Hallway *events.Hallway
	Emails  *emails.Service
	Domains *domains.Service
	Keys    *keyring.Keyring
	DNS     resolve.Resolver
	Blobs   *blob.Store // of the capture transport
	Log     *slog.Logger
}

// Service delivers.
type Service struct {
	Config
	Parts
	pool    *pool
	shape   *shaper
	memory  *semaphore.Weighted
	signing chan struct{}
}

// New returns the service.
func New(c Config, p Parts) *Service {
	if c.SMTPPort == 0 {
		c.SMTPPort = 25
	}
	c.Signers, c.LaneConnections, c.Workers = max(c.Signers, 1), max(c.LaneConnections, 1), max(c.Workers, 1)
	if c.MaxConnections <= 0 {
		c.MaxConnections = 500
	}
	return &Service{Config: c, Parts: p, pool: newPool(c.MaxConnections), shape: newShaper(c.LaneConnections, c.LaneRate),
		memory: semaphore.NewWeighted(memory), signing: make(chan struct{}, c.Signers)}
}

// Kind is how delivery jobs are worked. All lanes to one destination share its limits; through a relay there is only one
// destination, the relay.
func (s *Service) Kind() jobs.Kind {
	// More jobs are claimed than there are connections, so that the next is at hand when one is done.
	return jobs.Kind{Name: emails.DeliveryKind, Handle: s.deliver, Workers: max(s.Workers, 4*s.LaneConnections),
		PerLane: 4 * s.LaneConnections, Group: s.group, Limit: s.limit, Lease: lease,
		Schedule: []time.Duration{5 * time.Second, 30 * time.Second, time.Minute, 5 * time.Minute, 15 * time.Minute, time.Hour, 3 * time.Hour}}
}

func (s *Service) group(lane string) string {
	domain := emails.Destination(lane)
	switch {
	case s.sandboxed(domain):
		return domain
	case s.Transport == Relay:
		return s.RelayAddr
	case s.Transport == Capture:
		return Capture
	}
	return domain
}

func (s *Service) limit(group string) (int, time.Time) { return s.shape.limit(group, 4) }

// Run closes idle connections until ctx ends, and then all.
func (s *Service) Run(ctx context.Context) error {
	s.pool.run(ctx)
	return nil
}

func (s *Service) sandboxed(domain string) bool { return slices.Contains(s.SandboxDomains, domain) }

// deliver works one job.
func (s *Service) deliver(ctx context.Context, j jobs.Job) error {
	d, err := emails.DecodeDelivery(j.Payload)
	if err != nil {
		return err
	}
	dest := s.group(emails.Lane(d.Domain, j.TeamID))
	release, err := s.shape.enter(ctx, dest)
	if err != nil {
		return err
	}
	defer release()
	o, err := s.Emails.Outgoing(ctx, d)
	if errors.Is(err, emails.ErrGone) || err == nil && (len(o.To) == 0 || o.LastEvent == emails.Canceled) {
		return s.DB.Update(ctx, func(tx *db.Tx) error { return s.Queue.Finish(ctx, tx, j) })
	}
	if err != nil {
		return err
	}
	t := &try{job: j, d: d, o: o, started: db.Now()}
	if s.sandboxed(d.Domain) {
		return s.record(ctx, t, actOut(o.To))
	}
	size := min(o.Size(), memory)
	if err := s.memory.Acquire(ctx, size); err != nil {
		return err
	}
	defer s.memory.Release(size)
	msg, sign, err := s.prepare(ctx, o)
	switch kind := fault.KindOf(err); {
	case err == nil:
	case kind == fault.NotFound:
		return s.fail(ctx, t, "domain_not_verified")
	case kind == fault.Invalid:
		return s.fail(ctx, t, "invalid_message")
	default:
		return err
	}
	if s.Transport == Capture {
		return s.capture(ctx, t, sign, msg)
	}
	r := s.talk(ctx, d.Domain, smtpclient.Envelope{From: s.returnPath(o.ID, sign), To: o.To, UTF8: o.UTF8}, sign.TLS, msg)
	if ctx.Err() != nil && r.final == nil && !r.unknown {
		return context.Cause(ctx) // stopping, or out of time before anything was said: the attempt does not count
	}
	s.shape.heard(dest, r, time.Now())
	return s.record(ctx, t, judge(r, o.To))
}

// try is one attempt at one job.
type try struct {
	job     jobs.Job
	d       emails.Delivery
	o       *emails.Outgoing
	started time.Time
}

// prepare composes and signs. Signatures are the dearest part of an email, so only so many are made at once: the rest of the
// program must not wait behind them.
func (s *Service) prepare(ctx context.Context, o *emails.Outgoing) (msg [][]byte, sign domains.Signing, err error) {
	if sign, err = s.Domains.Signing(ctx, o.DomainID); err != nil {
		return nil, sign, err
	}
	body, err := s.Emails.Compose(ctx, o)
	if err != nil {
		return nil, sign, err
	}
	select {
	case s.signing <- struct{}{}:
	case <-ctx.Done():
		return nil, sign, ctx.Err()
	}
	header, err := dkim.Sign(body, time.Now(), sign.Signers...)
	<-s.signing
	if err != nil {
		return nil, sign, fmt.Errorf("sign email %s: %w", o.ID, err)
	}
	return [][]byte{header, body}, sign, nil
}

// fail ends an email that cannot be delivered at all, for a reason of ours.
func (s *Service) fail(ctx context.Context, t *try, reason string) error {
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		if err := s.Queue.Finish(ctx, tx, t.job); err != nil {
			return err
		}
		return s.Hallway.Record(ctx, tx, t.event(events.EmailFailed, "", &events.Failed{Reason: reason}))
	})
}

func (t *try) event(kind events.Type, to string, data any) events.Event {
	return events.Event{TeamID: t.o.TeamID, EmailID: t.o.ID, DomainID: t.o.DomainID, BroadcastID: t.o.BroadcastID, Type: kind,
		Recipient: to, Data: data}
}

// record ends or reschedules the job and records what became of each recipient, in one transaction.
func (s *Service) record(ctx context.Context, t *try, v verdict) error {
	// What a host has done must be recorded even when the caller is stopping.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	took := time.Since(t.started)
	var next time.Time
	if v.delayed() {
		if t.job.Attempt > len(s.Schedule) {
			v.giveUp()
		} else {
			next = time.Now().Add(max(jobs.Jitter(s.Schedule[t.job.Attempt-1]), v.patience()))
		}
	}
	return s.DB.Update(ctx, func(tx *db.Tx) (err error) {
		if next.IsZero() {
			err = s.Queue.Finish(ctx, tx, t.job)
		} else {
			err = s.Queue.Retry(ctx, tx, t.job, next, v.reply)
		}
		if err != nil {
			return err
		}
		all, err := t.events(ctx, tx, v)
		if err != nil {
			return err
		}
		if err := emails.RecordAttempt(ctx, tx, emails.Attempt{TeamID: t.o.TeamID, EmailID: t.o.ID, Destination: t.d.Domain,
			Recipients: t.o.To, Host: v.host, TLS: v.tls, Outcome: v.outcome(), Reply: clip(v.reply), Conversation: v.conversation,
			StartedAt: t.started, Duration: took, NextAt: next}); err != nil {
			return err
		}
		return s.Hallway.Record(ctx, tx, all...)
	})
}

// events are what the verdict says happened. The event sent is recorded once for the email, at the time when talking began.
func (t *try) events(ctx context.Context, tx *db.Tx, v verdict) (all []events.Event, err error) {
	sent := false
	if !t.d.Only || t.job.Attempt > 1 {
		if sent, err = emails.SentYet(ctx, tx, t.o.ID); err != nil {
			return nil, err
		}
	}
	if !sent && !v.silent {
		e := t.event(events.EmailSent, "", nil)
		e.At = t.started
		all = append(all, e)
	}
	for _, r := range v.recipients {
		switch r.class {
		case delivered:
			all = append(all, t.event(events.EmailDelivered, r.address, nil))
		case delayed:
			all = append(all, t.event(events.EmailDelayed, r.address, nil))
		case bounced:
			all = append(all, t.event(events.EmailBounced, r.address, r.bounce))
		case complained:
			all = append(all, t.event(events.EmailDelivered, r.address, nil),
				t.event(events.EmailComplained, r.address, &events.Complaint{Simulated: true}))
		case suppressed:
			all = append(all, t.event(events.EmailSuppressed, r.address, &events.Suppressed{Type: "Suppressed", Reason: "previous_bounce",
				Message: "This is a test address that acts as if it were suppressed.", DiagnosticCode: []string{}}))
		}
	}
	return all, nil
}

// clip keeps a text to what a list of attempts shows.
func clip(s string) string {
	const limit = 1000
	if len(s) > limit {
		s = s[:limit]
	}
	return strings.ToValidUTF8(strings.ReplaceAll(s, "\x00", ""), "?")
}

// hostOf is an address without its port.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
