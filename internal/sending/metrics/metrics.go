// Package metrics counts the events of emails, for the metrics of teams and for their usage.
//
// # How it works
//
// Recording an event changes no counter. A counter that every transaction updates would make PostgreSQL's transactions
// wait for each other and double SQLite's writes. Instead [Service.RollUp] runs every minute. It counts each team's
// events up to a few minutes ago ([margin]) by quarter hour, domain, broadcast and type. Queries add the later events,
// so results are up to date. Queries by email read the events of their time span instead of the counters.
//
// An event counts at its own time. If an event's time is more than [lateness] before the transaction that records it,
// the same transaction inserts a late entry. Queries recount the quarter hours of late events at once; the next RollUp
// corrects their counters.
//
// Events of deleted emails stay counted. [RetainCounts] adds them to separate counts by quarter hour
// (email_counts_kept). A recounted quarter hour is the sum of these counts and of its remaining events. Deleted events
// count at the start of their quarter hour and are missing in breakdowns by email. If an email's earlier opens or
// clicks were deleted, its next one counts as the first.
//
// # What is counted
//
// Each event counts once, except queued, scheduled and canceled events, which are not counted. Recipients are counted
// too. A sent event counts the recipients that the email is sent to. An open or a click counts a recipient only if it
// is the first one of that recipient. So periods add up: the unique opens of a week are the sum of those of its days.
// Opens and clicks by bots count like others, with a detail of their own. A third number, people, counts recipients
// without bots, because a recipient may open an email that a bot opened before.
//
// # Invariants
//
// Counts always equal a plain count of the events, including deleted ones. The order in which events are recorded does
// not matter. An event that is not late is committed before its time is counted. This requires that transactions take
// less than the difference of margin and lateness, and that the nodes' clocks differ by less than that.
//
// # When it fails
//
// Each step of RollUp writes in one transaction, which fails if the state's version has changed. Late entries are
// deleted after the counters of all their quarter hours are right. So RollUp may stop at any point and may run twice at
// the same time. While RollUp does not run, results stay right and queries become slower. Errors of the database are
// returned.
//
// # What it does not do
//
// The package records no events and enforces no limits.
package metrics

import "time"

// slot is the shortest counted period, a quarter hour. In every time zone, hours begin at a multiple of a slot since
// 1970.
const slot = 15 * time.Minute

const (
	lateness = time.Minute
	margin   = 3 * time.Minute
)

// Query selects counts in a time span (API reference section 8.9).
type Query struct {
	From, To     time.Time // To is excluded
	DomainIDs    []string  // empty means all
	EmailIDs     []string
	BroadcastIDs []string
	ByPeriod     func(time.Time) string // returns the name of a time's period; nil means no breakdown by period
	ByDomain     bool
	ByEmail      bool
	ByBroadcast  bool
}

// Count is one row of a breakdown.
type Count struct {
	Period, DomainID, DomainName, EmailID, BroadcastID string // empty without a breakdown by that field

	Type       string // an event's type without "email."
	Detail     string // the type of a bounce; "machine" for an open or click by a bot
	Events     int
	Recipients int // see the package comment
	People     int // recipients with their first open or click by a person
}

// Usage is how many recipients a team's emails were sent to, and how many emails it received, in a time span.
type Usage struct{ Sent, Received int }

// span is a range of times in microseconds; to is excluded.
type span struct{ from, to int64 }

// down and up return the number of the last slot that begins at or before a time, and of the first at or after it.
func down(us int64) int64 { return us / slot.Microseconds() }
func up(us int64) int64   { return down(us + slot.Microseconds() - 1) }

// split divides a span into slots whose counters can be used and spans whose events must be counted. Counters are
// complete before the time until, except in the dirty slots. The counters can be used for the slots from low to high-1
// that are not dirty. The spans in live must be counted from events.
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
