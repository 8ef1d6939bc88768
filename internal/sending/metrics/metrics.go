// Package metrics counts what happened to emails, for the metrics of teams and for their usage.
//
// # How it works
//
// Recording an event changes no counter: a counter that every transaction changes would make PostgreSQL's
// transactions wait for each other and double SQLite's writes. Instead [Service.RollUp], which runs every minute,
// counts the events of each team up to a few minutes ago ([margin]) by quarter hour, domain, broadcast and type.
// Queries add the events since then, so that their results are up to date; those by email read all events of their
// time span instead of the counters.
//
// An event counts at its own time. An event whose time is more than [lateness] before the transaction that records it
// is also inserted as late, in that transaction. The quarter hours of late events are counted again: by each query at
// once, and permanently by the next RollUp.
//
// Events of deleted emails stay counted: [RetainCounts] adds them to separate counts by quarter hour (email_counts_kept), and
// when a quarter hour is counted again, its counters are the sum of these and of its remaining events. Of deleted
// events only the quarter hour is known: they count at its start, and are left out of breakdowns by email. An open or
// a click that is recorded after the earlier ones of its email were deleted counts as the first.
//
// # What is counted
//
// Each event counts once, except queued, scheduled and canceled, which are not counted. In addition recipients are
// counted: for sent events those that the email is sent to, and for opens and clicks those that open or click the email
// for the first time. So periods add up: the unique opens of a week are the sum of those of its days. Opens and clicks
// by machines count like others, under a detail of their own. Recipients are counted once more without them (people),
// because a recipient may open what a machine opened before.
//
// # Invariants
//
// Counts always equal a plain count of the events, including deleted ones, whatever the order in which events were
// recorded. An event that is not late is committed before its time is counted, provided that transactions take less
// than margin-lateness and the nodes' clocks differ by less than that.
//
// # When it fails
//
// Each step of RollUp writes in one transaction, fenced by a version, and late entries are deleted after the counters of
// all their slots are right: RollUp may stop at any point and may run twice at the same time. While it does not run,
// results stay right and queries become slower. Errors of the database are returned.
//
// # What it does not do
//
// It records no events and sets no limits by usage.
package metrics

import "time"

// slot is the shortest period that is counted: in every time zone, hours begin at a multiple of it since 1970.
const slot = 15 * time.Minute

const (
	lateness = time.Minute
	margin   = 3 * time.Minute
)

// Query selects counts in a time span (API reference section 8.9).
type Query struct {
	From, To     time.Time // To is excluded
	DomainIDs    []string  // empty: all
	EmailIDs     []string
	BroadcastIDs []string
	ByPeriod     func(time.Time) string // returns the name of the period of a time; nil: no breakdown by period
	ByDomain     bool
	ByEmail      bool
	ByBroadcast  bool
}

// Count is one row of a breakdown.
type Count struct {
	Period, DomainID, DomainName, EmailID, BroadcastID string // empty where not broken down by it

	Type       string // an event's type without "email."
	Detail     string // a bounce's type; "machine" of an open or a click by a machine
	Events     int
	Recipients int // see the package comment
	People     int // of opens and clicks, recipients whose first one by a person this is
}

// Usage is what a team sent and received in a time span: addresses mailed, and emails received.
type Usage struct{ Sent, Received int }

// span is the time from its first moment up to but not including its second, in microseconds.
type span struct{ from, to int64 }

// down and up return the number of the last slot boundary at or before, and of the first at or after, a time.
func down(us int64) int64 { return us / slot.Microseconds() }
func up(us int64) int64   { return down(us + slot.Microseconds() - 1) }

// split returns how to count a span when counters are complete before until, except in the dirty slots: the slots
// from low up to but not including high by their counters, and the spans live by their events.
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
