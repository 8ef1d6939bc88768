package delivery

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/internal/sending/delivery/routing"
)

// pausesMax is the maximum number of tables with paused destinations that a node remembers.
const pausesMax = 50

// pauses remembers when the operator had paused destinations. The time of a pause does not count for the retries of the
// mail that it held. A node that starts knows only the pauses that have not ended.
type pauses struct {
	all atomic.Pointer[[]pause] // oldest first; the slice never changes
}

// pause is a time in which a table with paused destinations was in use.
type pause struct {
	table    *routing.Table
	from, to time.Time // to is zero while the table is in use
	earlier  bool      // whether the table was in use when the node started, so that its pauses may have begun earlier
}

// pausedTime is the time for which the destination of an email was paused.
type pausedTime struct {
	first, last time.Time // when the first pause is known to have begun, and when the last one ended
	total       time.Duration
}

// use notes that the node uses another table from now on. The parameter first means that it is the first one. Calls of
// use must not overlap.
func (p *pauses) use(next *routing.Table, first bool, now time.Time) {
	var all []pause
	if known := p.all.Load(); known != nil {
		all = slices.Clone(*known)
	}
	if n := len(all); n > 0 && all[n-1].to.IsZero() {
		all[n-1].to = now
	}
	if next.Pauses() {
		all = append(all, pause{table: next, from: now, earlier: first})
	}
	all = all[max(len(all)-pausesMax, 0):]
	p.all.Store(&all)
}

// during returns for how long the destination of mail to a domain was paused between two times. The function hosts
// returns the domain's mail hosts in the order of their preference, as far as they are known.
func (p *pauses) during(domain string, hosts func() []string, from, to time.Time) (sum pausedTime) {
	known := p.all.Load()
	if known == nil || len(*known) == 0 {
		return sum
	}
	var names []string
	for _, x := range *known {
		if !x.to.IsZero() && !x.to.After(from) {
			continue
		}
		if names == nil && x.table.ByHost() {
			names = hosts()
		}
		if d := x.table.Learn(domain, names); d == nil || !d.Paused {
			continue
		}
		begin, end := laterOf(x.from, from), to
		if !x.to.IsZero() {
			end = earlier(x.to, to)
		}
		if sum.first.IsZero() && end.After(begin) {
			sum.first = begin
		}
		if x.earlier {
			begin = from
		}
		if end.After(begin) {
			sum.last, sum.total = end, sum.total+end.Sub(begin)
		}
	}
	return sum
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// pausedFor returns for how long the destination of a try's email was paused between two times.
func (s *Service) pausedFor(t *try, from, to time.Time) pausedTime {
	return s.pauses.during(t.d.Domain, func() []string {
		if t.route == nil {
			return nil
		}
		return t.route.seen.preferred()
	}, from, to)
}
