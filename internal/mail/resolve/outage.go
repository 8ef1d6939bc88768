package resolve

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/miekg/dns"
)

// ErrNoServer means that this installation's DNS servers do not work at present. It is always wrapped together with
// ErrTemporary. If only the name servers of the domain that was looked up do not work, the error is not ErrNoServer.
var ErrNoServer error = outage{}

type outage struct{}

func (outage) Error() string { return "our DNS servers do not answer any questions" }

// Outage reports that the DNS servers failed, and not the domain that was looked up (see fault.IsOutage).
func (outage) Outage() bool { return true }

// root is the question that is asked if no other question has been answered yet. Each recursive server knows the
// answer.
var root = question{".", dns.TypeNS}

type question struct {
	name  string
	qtype uint16
}

// outage returns ErrNoServer if the DNS servers themselves do not work, or nil. It is called after all servers have
// failed to answer one question. Name servers of a domain can cause this, too. Therefore, it asks again what the
// servers answered last, and about the root zone if they never answered.
//
// The parameter silent is whether no server has responded at all. If they responded with failures but have never given
// an answer, the failure is attributed to the domain.
func (d *DNS) outage(ctx context.Context, since time.Time, silent bool) error {
	d.mu.Lock()
	known, answered := d.answered, d.answeredAt
	d.mu.Unlock()
	if answered.After(since) || known == (question{}) && !silent {
		return nil
	}
	q := known
	if q == (question{}) {
		q = root
	}
	works, _, _ := d.probes.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), maxServers*tryTimeout)
		defer cancel()
		return d.works(ctx, q), nil
	})
	if works.(bool) || ctx.Err() != nil {
		return nil
	}
	return ErrNoServer
}

// works reports whether a server answers a question. Any response to the question about the root zone will do, because
// a server may refuse it.
func (d *DNS) works(ctx context.Context, q question) bool {
	for _, server := range d.servers {
		m, err := try(ctx, server, q.name, q.qtype)
		if err == nil && (q == root || definite(m)) {
			d.remember(q, m)
			return true
		}
	}
	return false
}

// definite reports whether a response answers the question, even if it says that the name does not exist.
func definite(m *dns.Msg) bool { return m.Rcode == dns.RcodeSuccess || m.Rcode == dns.RcodeNameError }

// remember records that a server has answered a question.
func (d *DNS) remember(q question, m *dns.Msg) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.answeredAt = time.Now(); q != root && m.Rcode == dns.RcodeSuccess {
		d.answered = q
	}
}

// failure returns the error of a look-up that no server has answered.
func (d *DNS) failure(ctx context.Context, q question, since time.Time, silent bool, last error) error {
	if err := d.outage(ctx, since, silent); err != nil {
		last = errors.Join(err, last)
	}
	return fmt.Errorf("%w: %s %s: %w", ErrTemporary, dns.TypeToString[q.qtype], q.name, last)
}
