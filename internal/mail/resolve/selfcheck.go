package resolve

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/miekg/dns"
)

// standing is what the self-check has found about a server.
type standing int

const (
	unchecked         standing = iota // no self-check got an answer yet
	validates                         // the last answer was marked as authenticated
	ignoresSignatures                 // the last answer was not
)

// maxSecure is the number of questions whose answers were secure that are kept.
const maxSecure = 10_000

// Belief is the result of the self-check for one server that secure look-ups ask.
type Belief struct {
	Server string
	// MayBelieve is whether DNS may believe the server: it was named as a validating one, or it is on a loopback
	// address.
	MayBelieve bool
	// Authentic is whether the server marked the answer as authenticated.
	Authentic bool
	// Believed is whether the AD bit of the server counts from now on: it may be believed, and its last answer to a
	// self-check was authentic.
	Believed bool
	// Lost is whether the server was believed before this self-check and is not any more.
	Lost bool
	// Err is set if the server gave no answer. The server keeps its standing then. The error is ErrBogus if the server
	// finds wrong signatures: its clock or its trust anchor is wrong.
	Err error
}

// MayBelieve reports whether DNS may believe a server of secure look-ups. Otherwise no answer is secure.
func (d *DNS) MayBelieve() bool {
	for _, s := range d.secure {
		if s.believed {
			return true
		}
	}
	return false
}

// Believes asks each server of secure look-ups for the SOA record of the root zone, which is signed. From then on, DNS
// believes only the servers that may be believed, marked the answer as authenticated and answer a question about TLSA
// records. A server without an answer, or with a failure in its place, keeps the standing that it had. If it had none
// and was not named, it is not believed. Believes reports what it found about each server, and whether secure look-ups
// can find secure answers at present: a server that is believed marked its answer as authenticated. It takes at most a
// few seconds.
//
// Call Believes at start and about hourly. The first secure look-up calls it too, if that has not happened.
func (d *DNS) Believes(ctx context.Context) (works bool, servers []Belief) {
	servers = make([]Belief, len(d.secure))
	var asked sync.WaitGroup
	for i, s := range d.secure {
		asked.Go(func() { servers[i] = d.check(ctx, s) })
	}
	asked.Wait()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.checked = true
	for _, b := range servers {
		works = works || b.Believed && b.Authentic
	}
	return works, servers
}

// firstCheck runs the self-check if it has not run yet. Concurrent callers share it.
func (d *DNS) firstCheck(ctx context.Context) {
	d.mu.Lock()
	checked := d.checked
	d.mu.Unlock()
	if !checked {
		d.probes.Do("self-check", func() (any, error) {
			d.Believes(context.WithoutCancel(ctx))
			return nil, nil
		})
	}
}

// signedZone returns the question of the self-check.
func (d *DNS) signedZone() question {
	if d.SignedZone == "" {
		return question{".", dns.TypeSOA}
	}
	return question{clean(d.SignedZone), dns.TypeSOA}
}

// check runs the self-check for one server.
func (d *DNS) check(ctx context.Context, s *server) Belief {
	q := d.signedZone()
	m, err := try(ctx, s.addr, q, false)
	b := Belief{Server: s.addr, MayBelieve: s.believed, Err: err}
	switch {
	case err != nil:
	case definite(m):
		b.Authentic = m.Rcode == dns.RcodeSuccess && len(m.Answer) > 0 && m.AuthenticatedData
		if b.Authentic && !answersTLSA(ctx, s.addr, q.name) {
			b.Authentic, b.Err = false, fmt.Errorf("server %s does not answer questions about TLSA records", s.addr)
		}
	case wrongSignatures(ctx, s.addr, q, m):
		b.Err = fmt.Errorf("%w: server %s finds wrong signatures in the zone %s; check its clock and its trust anchor",
			ErrBogus, s.addr, q.name)
	default:
		b.Err = fmt.Errorf("server %s answers %d %s", s.addr, m.Rcode, dns.RcodeToString[m.Rcode])
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	before := s.believed && s.standing == validates
	switch {
	case b.Err != nil && s.standing == unchecked && !d.named:
		s.standing = ignoresSignatures // nobody relies on it, and mail to signed domains would wait for it
	case b.Err != nil:
	case b.Authentic:
		s.standing = validates
	default:
		s.standing = ignoresSignatures
	}
	b.Believed = s.believed && s.standing == validates
	b.Lost = before && !b.Believed
	return b
}

// answersTLSA reports whether a server answers a question about TLSA records, of which the zone has none. Some servers
// drop questions about types that they do not know, and each mail host of a signed zone would then be unusable.
func answersTLSA(ctx context.Context, server, zone string) bool {
	m, err := try(ctx, server, question{zone, dns.TypeTLSA}, false)
	return err == nil && definite(m)
}

// authentic reports whether a server that is believed has authenticated the answer to a question. The error says that
// this cannot be decided, because the server does not answer the self-check.
func (d *DNS) authentic(ctx context.Context, s *server, q question, m *dns.Msg) (bool, error) {
	secure := false
	if s.believed && m.AuthenticatedData {
		believed, err := d.believes(ctx, s)
		if err != nil {
			return false, err
		}
		secure = believed
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if secure {
		d.wasSecure.Add(q, struct{}{})
	} else if d.wasSecure.Remove(q) {
		d.counts.lapsed.Add(1)
	}
	return secure, nil
}

// believes reports whether a server has passed the self-check. A server that did not answer before is checked again.
func (d *DNS) believes(ctx context.Context, s *server) (bool, error) {
	d.mu.Lock()
	now := s.standing
	d.mu.Unlock()
	if now != unchecked {
		return now == validates, nil
	}
	v, _, _ := d.probes.Do("check "+s.addr, func() (any, error) { return d.check(context.WithoutCancel(ctx), s), nil })
	b := v.(Belief)
	if b.Err != nil {
		return false, fmt.Errorf("%w: %w: it is unknown whether server %s validates: %w", ErrTemporary, ErrNoServer, s.addr,
			b.Err)
	}
	return b.Believed, nil
}

// bogus returns the error of a look-up for which a server found wrong signatures. If the server finds wrong signatures
// in the zone of the self-check too, its clock or its trust anchor is wrong, and the domain is not to blame. A server
// that has a valid answer about that zone in its cache does not notice this before the answer expires.
func (d *DNS) bogus(ctx context.Context, s *server, q question, last error) error {
	v, _, _ := d.probes.Do("bogus "+s.addr, func() (any, error) { return d.check(context.WithoutCancel(ctx), s), nil })
	b, cause := v.(Belief), ErrBogus
	if errors.Is(b.Err, ErrBogus) {
		// The failure is not reported as ErrBogus, which is a verdict about the domain.
		cause, last = ErrTemporary, fmt.Errorf("%w: server %s finds wrong signatures in the zone %s too; check its clock "+
			"and its trust anchor: %w", ErrNoServer, s.addr, d.signedZone().name, last)
	}
	return fmt.Errorf("%w: %s %s: %w", cause, dns.TypeToString[q.qtype], q.name, last)
}

// Counts are the numbers of secure look-ups since the start, by their outcomes.
type Counts struct {
	Secure, Absent, Insecure, Bogus, Failed uint64
	// Lapsed is the number of answers that were not authenticated although the last answer to the same question was.
	// Many of them mean that a server has stopped validating.
	Lapsed uint64
}

type counts struct{ secure, absent, insecure, bogus, failed, lapsed atomic.Uint64 }

// Counts returns the numbers of secure look-ups that were not answered from a cache. If Insecure grows and Secure and
// Absent do not, no server validates.
func (d *DNS) Counts() Counts {
	c := &d.counts
	return Counts{c.secure.Load(), c.absent.Load(), c.insecure.Load(), c.bogus.Load(), c.failed.Load(), c.lapsed.Load()}
}

func (c *counts) add(o Outcome) {
	map[Outcome]*atomic.Uint64{OutcomeSecure: &c.secure, OutcomeAbsent: &c.absent, OutcomeInsecure: &c.insecure,
		OutcomeBogus: &c.bogus, OutcomeFailed: &c.failed}[o].Add(1)
}
