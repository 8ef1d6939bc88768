package resolve

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/miekg/dns"
)

// ErrNoServer means that this installation's DNS servers do not work at present, or that a validating one finds all
// signatures wrong. It is always wrapped together with ErrTemporary. If only the name servers of the domain that was
// looked up do not work, the error is not ErrNoServer.
var ErrNoServer error = outage{}

type outage struct{}

func (outage) Error() string { return "our DNS servers do not work" }

// Outage reports that the DNS servers failed, and not the domain that was looked up (see fault.IsOutage).
func (outage) Outage() bool { return true }

// root is the question that is asked if no answer about another domain is known. Each recursive server knows the
// answer.
var root = question{".", dns.TypeNS}

type question struct {
	name  string
	qtype uint16
}

// domain returns the last two labels of the question's name. Names whose last two labels differ usually have different
// name servers.
func (q question) domain() string {
	i := strings.LastIndexByte(q.name, '.')
	return q.name[strings.LastIndexByte(q.name[:max(i, 0)], '.')+1:]
}

// maxKnown is the number of questions that are kept for probes.
const maxKnown = 3

// outage returns ErrNoServer if the DNS servers themselves do not work, or nil. It is called after all servers have
// failed to answer the question q. Name servers of a domain can cause this, too. Therefore, it repeats questions about
// other domains that the servers have answered before, or asks about the root zone if there are none. Questions about
// the domain of q prove nothing, because its name servers may have failed since.
//
// The parameter secure is whether the servers for secure look-ups failed. The parameter silent is whether no server has
// responded at all. If they responded with failures but have never answered a question about another domain, the
// failure is attributed to the domain.
func (d *DNS) outage(ctx context.Context, q question, secure bool, since time.Time, silent bool) error {
	servers := d.serversFor(secure)
	known, answered := d.others(q, servers)
	if answered.After(since) || len(known) == 0 && !silent {
		return nil
	}
	if len(known) == 0 {
		known = []question{root}
	}
	works, _, _ := d.probes.Do(fmt.Sprint(secure, known), func() (any, error) {
		return d.works(context.WithoutCancel(ctx), servers, known), nil
	})
	if works.(bool) || ctx.Err() != nil {
		return nil
	}
	return ErrNoServer
}

// others returns the known questions about other domains than that of q, and the time of the servers' last answer.
func (d *DNS) others(q question, servers []*server) (known []question, answered time.Time) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, other := range d.known {
		if other.name != "" && other.domain() != q.domain() {
			known = append(known, other)
		}
	}
	for _, s := range servers {
		if s.answeredAt.After(answered) {
			answered = s.answeredAt
		}
	}
	return known, answered
}

// Responds reports whether a DNS server responds to a question about the root zone. Any response will do, because a
// server may refuse this question. Concurrent calls share their questions.
func (d *DNS) Responds(ctx context.Context) bool {
	responds, _, _ := d.probes.Do("", func() (any, error) {
		return d.works(context.WithoutCancel(ctx), d.servers, []question{root}), nil
	})
	return responds.(bool)
}

// works asks the servers all questions at once, and reports within tryTimeout whether a server has answered one of
// them. Any response to the question about the root zone is an answer.
func (d *DNS) works(ctx context.Context, servers []*server, all []question) bool {
	ctx, cancel := context.WithTimeout(ctx, tryTimeout)
	defer cancel()
	results := make(chan bool, len(all)*len(servers))
	for _, q := range all {
		for _, s := range servers {
			go func() {
				m, err := try(ctx, s.addr, q, false)
				ok := err == nil && (q == root || definite(m))
				if ok {
					d.remember(s, q, m)
				}
				results <- ok
			}()
		}
	}
	for range cap(results) {
		if <-results {
			return true
		}
	}
	return false
}

// definite reports whether a response answers the question, even if it says that the name does not exist.
func definite(m *dns.Msg) bool { return m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError }

// remember records that a server has answered a question. It keeps the last question with a positive answer per domain,
// for the maxKnown domains that were looked up last.
func (d *DNS) remember(s *server, q question, m *dns.Msg) {
	d.mu.Lock()
	defer d.mu.Unlock()
	s.answeredAt = time.Now()
	if q == root || m.Rcode != dns.RcodeSuccess {
		return
	}
	i := 0
	for i < maxKnown-1 && d.known[i].domain() != q.domain() {
		i++
	}
	copy(d.known[1:i+1], d.known[:i])
	d.known[0] = q
}

// failure returns the error of a look-up that no server has answered.
func (d *DNS) failure(ctx context.Context, q question, secure bool, since time.Time, silent bool, last error) error {
	if err := d.outage(ctx, q, secure, since, silent); err != nil {
		last = errors.Join(err, last)
	}
	return fmt.Errorf("%w: %s %s: %w", ErrTemporary, dns.TypeToString[q.qtype], q.name, last)
}
