// Package metrics counts what happened to emails: for the metrics that teams ask for and for their usage.
//
// # How it counts
//
// Nothing is counted while an event is recorded: a counter that every transaction changes would make PostgreSQL's transactions wait for
// each other and double SQLite's writes. Instead [Service.Roll], which runs every minute, adds up the events of each team
// up to a few minutes ago ([margin]) by quarter hour, domain, broadcast and type; what came since then is counted when it is
// asked for. So an answer is right at once, and reads a few thousand rows however many emails there were.
//
// An event's own time decides where it counts. One whose time is more than [lateness] behind the transaction that records it is
// also entered as late, in that transaction. Quarter hours that late events fall into are counted afresh: by readers at once, and for
// good by the next Roll.
//
// Events of emails that are deleted stay counted: [Keep] adds them to counts of their own by quarter hour
// (email_counts_kept), and where a quarter hour is counted afresh, its counters are what is left of its events and
// these. Of deleted events no more than the quarter hour is known: they count at its beginning, and no breakdown by
// email has them. An open or a click that comes when the earlier ones of its email are deleted counts as the first.
//
// # What is counted
//
// Each event counts once. Besides, recipients are counted: with sent events those that the email goes to, and with opens and
// clicks those that open or click the email for the first time. So periods add up: the unique opens of a week are the
// sum of those of its days.
//
// # Invariants
//
// Counts equal a plain count of the events, deleted ones included, at any moment, whatever the order in which events
// came. An event that is not late is committed before its time is counted, provided that transactions take less than
// margin-lateness and the nodes' clocks differ by less than the same.
//
// # When it fails
//
// Roll is one transaction for each step, fenced by a version; it may stop or run twice anywhere. While it does not run, answers stay
// right and become slower.
package metrics

import "time"

// slot is the finest period that is kept: in every zone, hours begin at a whole number of these since 1970.
const slot = 15 * time.Minute

const (
	lateness = time.Minute
	margin   = 3 * time.Minute
)

// Query asks for counts in a span of time (API reference section 8.9).
type Query struct {
	From, To     time.Time // To itself is left out
	DomainIDs    []string  // empty: all
	EmailIDs     []string
	BroadcastIDs []string
	ByPeriod     func(time.Time) string // names the period that a time is in; nil when not broken down by it
	ByDomain     bool
	ByEmail      bool
	ByBroadcast  bool
}

// Count is one row of the breakdown.
type Count struct {
	Period, DomainID, DomainName, EmailID, BroadcastID string // empty where not broken down by it

	Type       string // an event's type without "email."
	Detail     string // a bounce's type
	Events     int
	Recipients int // see the package comment
}

// Usage is how much a team sent and received in a span: addresses mailed, and emails that came in.
type Usage struct{ Sent, Received int }

// span is a time from its first moment to before its second, in microseconds.
type span struct{ from, to int64 }

// down and up are the whole number of slots at or before, and at or after, a time.
func down(us int64) int64 { return us / slot.Microseconds() }
func up(us int64) int64   { return down(us + slot.Microseconds() - 1) }

// split says how a span is counted when everything before until is in counters, but for the dirty slots: the slots from low to before
// high by their counters, and the rest from the events.
func split(all span, until int64, dirty []int64) (low, high int64, live []span) {
	low, high = up(all.from), down(all.to)
	high = max(low, min(high, up(until)))
	add := func(from, to int64) {
		from, to = max(from, all.from), min(to, all.to)
		if from >= to {
			return
		}
		if n := len(live); n > 0 && live[n-1].to >= from {
			live[n-1].to = max(live[n-1].to, to)
			return
		}
		live = append(live, span{from, to})
	}
	us := slot.Microseconds()
	add(all.from, low*us)
	for _, d := range dirty {
		if d >= low && d < high {
			add(d*us, min((d+1)*us, until))
		}
	}
	add(min(high*us, until), all.to)
	return low, high, live
}
