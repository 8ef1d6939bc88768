package delivery

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// A wait shorter than spanMin is not recorded, so that most attempts store few bytes.
const spanMin = time.Millisecond

// observed collects the evidence of a try. The time of a try is divided into laps, one after another.
type observed struct {
	evidence.Evidence
	lapAt time.Time
}

// lap records the time since the last lap, or since the claim.
func (o *observed) lap(x evidence.Span) {
	now := time.Now()
	if took := now.Sub(o.lapAt); took >= spanMin {
		o.Set(x, took)
	}
	o.lapAt = now
}

// waitedFor records a wait between the laps. After a host of the route was tried, the wait belongs to the attempt.
func (t *try) waitedFor(x evidence.Span, r *route) {
	if r.next == 0 {
		t.seen.lap(x)
		return
	}
	r.earlier += time.Since(t.seen.lapAt)
	t.seen.lapAt = time.Now()
}

// observe records why a job that was claimed at the time began may have waited before.
func (s *Service) observe(t *try, began time.Time) {
	j := t.job
	if j.Tries == 0 && j.CreatedAt.Sub(t.o.CreatedAt) >= spanMin {
		t.seen.Enqueued = max(began.Sub(j.CreatedAt), 0)
	}
	t.seen.Runs = j.Failures
	if j.Tries == 0 {
		t.seen.Runs = j.Attempt - 1
	}
	if since, ok := j.OutageSince(); ok {
		t.seen.Outage, t.seen.OutageOf = outageOf(j.LastError), max(began.Sub(since), 0)
	}
	if s.c.Transport != Capture && !s.isSandbox(t.d.Domain) {
		s.shape.waited(s.group(j.Lane), j.TeamID, began.Sub(j.CreatedAt), &t.seen.Evidence)
	}
}

// noHostError begins the error of a job that ended because the name servers were away.
const noHostError = "find the hosts of "

// outageOf returns the part of this installation that a job's error names.
func outageOf(text string) evidence.Outage {
	switch {
	case strings.Contains(text, db.ErrUnavailable.Error()), strings.Contains(text, db.ErrUnknown.Error()):
		return evidence.Database
	case strings.Contains(text, noHostError):
		return evidence.NameServers
	case strings.Contains(text, "blob"), strings.Contains(text, "attachment"):
		return evidence.BlobStore
	}
	return evidence.SomePart
}

// routed records the hosts that were found for the destination.
func (s *Service) routed(t *try, w way) {
	t.seen.Hosts = len(w.hops)
	if w.relays {
		t.seen.Provider = evidence.Relay
		return
	}
	names := make([]string, len(w.hops))
	for i, h := range w.hops {
		names[i] = h.name
	}
	t.seen.Provider = evidence.ProviderOf(names)
}

// signed records the signatures of the message.
func (o *observed) signed(by []dkim.Signer) {
	for _, k := range by {
		o.SigningDomain = k.Domain
		o.Selectors = append(o.Selectors, k.Selector)
	}
}

// link describes the connection of the last conversation of a try.
type link struct {
	source netip.Addr // invalid if no connection was opened
	clear  evidence.Clear
	cert   evidence.Cert
	tls    smtpclient.TLSState
	reused bool
	times  smtpclient.Times
}

// link returns the description of a connection after a message was sent. The parameter kept says that the connection
// was not opened for this message.
func (l *pooledConn) link(kept bool) (d link) {
	if at, err := netip.ParseAddrPort(l.LocalAddr().String()); err == nil {
		d.source = at.Addr().Unmap()
	}
	d.reused, d.times = kept, l.Times()
	if kept {
		d.times.Connect, d.times.Greeting, d.times.Hello = 0, 0, 0
	}
	d.tls = l.TLSState()
	switch {
	case d.tls.On():
		d.cert = certOf(d.tls)
	case l.plain:
		d.clear = evidence.Broken
	case l.key.mode == smtpclient.TLSNone:
		d.clear = evidence.SwitchedOff
	case l.Extensions().StartTLS:
		d.clear = evidence.Refused
	default:
		d.clear = evidence.NotOffered
	}
	return d
}

func certOf(s smtpclient.TLSState) evidence.Cert {
	switch {
	case s.Verified:
		return evidence.Valid
	case strings.Contains(s.Problem, "expired"):
		return evidence.Expired
	case strings.Contains(s.Problem, "is valid for"), strings.Contains(s.Problem, "not valid for any names"):
		return evidence.OtherName
	case strings.Contains(s.Problem, "unknown authority"):
		return evidence.UnknownIssuer
	}
	return evidence.Invalid
}

// evidence returns the packed evidence of a try that ended with an outcome. The parameter deciding is the answer that
// decided, and well says that all recipients have the email.
func (s *Service) evidence(t *try, out outcome, deciding answer, well bool) []byte {
	e := t.seen.Evidence
	e.Selectors = slices.Clone(e.Selectors)
	l := out.link
	e.Source, e.Clear, e.Cert, e.Rule, e.Reused = l.source, l.clear, l.cert, out.rule, l.reused
	if l.source.IsValid() {
		e.Hello = s.c.Hostname
	}
	e.Stage, e.Local = evidence.StageOf(string(deciding.stage)), deciding.reply.Local
	if out.earlier >= spanMin {
		e.Set(evidence.Earlier, out.earlier)
	}
	for i, took := range []time.Duration{l.times.Connect, l.times.Greeting, l.times.Hello, l.times.Envelope,
		l.times.Body, l.times.Final} {
		if took > 0 {
			e.Set(evidence.Connect+evidence.Span(i), took)
		}
	}
	if held := s.pausedFor(t, t.job.CreatedAt, t.began); held.total >= spanMin {
		e.PauseEnd, e.PauseLength, e.PauseReply = t.began.Sub(held.last), held.last.Sub(held.first), ""
		e.Limits |= evidence.OperatorPause
	}
	if !well && t.route != nil {
		e.Trouble = s.trouble(t, out, deciding)
	}
	return e.Pack()
}

// waited records why a job may have waited before it was claimed now: pauses and limits of the destination that were
// in effect in the given time before.
func (s *shaper) waited(destination, team string, before time.Duration, e *evidence.Evidence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.shapes[destination]
	if h == nil || before < 10*spanMin {
		return
	}
	now := s.now()
	from := now.Add(-before)
	if until := earlier(h.until, now); until.After(from) && until.After(h.pausedAt) {
		e.PauseEnd, e.PauseLength, e.PauseReply = now.Sub(until), until.Sub(h.pausedAt), h.pausedBy
	}
	if h.fullAt.After(from) {
		e.Limits |= evidence.DestinationLimit
	}
	if h.spentAt.After(from) {
		e.Limits |= evidence.RateLimit
	}
	if f := h.windows[team]; f != nil && f.fullAt.After(from) {
		e.Limits |= evidence.TeamShare
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// codes returns the codes of a verdict's answer if the host asks for less mail, such as "421 4.7.28". The text of the
// answer may be about another team's email.
func codes(r smtpclient.Reply) string {
	return strings.TrimSpace(smtpclient.Reply{Code: r.Code, Enhanced: r.Enhanced}.String())
}
