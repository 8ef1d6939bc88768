// Package metrics counts email events and received emails for teams' metrics and usage.
//
// # How it works
//
// Recording an event does not update any counter. A counter that every transaction updates would make PostgreSQL
// transactions wait for each other and would double SQLite's writes. Instead of updating counters for each event,
// [Service.RollUp] runs every minute. RollUp counts each team's events up to a few minutes ago ([margin]), grouped by
// quarter hour, domain, broadcast and type. A query adds the events that RollUp has not yet counted to the stored
// counts, so that its result is up to date. Queries that group or filter by email read the events in their time span
// instead of the counters.
//
// An event is counted at the time at which it happened, not at the time of its recording. If an event happened more
// than [lateness] before the transaction that records it, the same transaction inserts a late entry. Queries
// immediately recount the quarter hours of late events; the next RollUp corrects the counters of those quarter hours.
//
// A received email counts as one event, at the time when it arrived. It has no row in email_events, so statements that
// count or look for events read received_emails too. In this package, events include received emails.
//
// Nodes share the work of RollUp: [Service.RollUpPart] does it for one range of teams.
//
// Events for deleted emails are still counted. [RetainCounts] and [RetainReceived] add them to separate counts per
// quarter hour (email_counts_kept). A recount of a quarter hour adds the retained counts of deleted events to the count
// of the remaining events. Deleted events count at the start of their quarter hour and are missing from breakdowns by
// email. If an email's earlier opens or clicks were deleted, its next open or click counts as the first.
//
// # Final counters
//
// On PostgreSQL, retention drops whole partitions with old events, without reading them ([Service.Release]). From then
// on, the counters of all slots that ended a day before are final: they are not recounted, and queries do not read the
// events of these slots. An event that is recorded even later is added to the final counter in its transaction. In
// final slots, all events count at the start of their slot.
//
// # What is counted
//
// Each event counts once, except that queued, scheduled and canceled events are not counted. In addition to events,
// recipients are counted. A sent event counts the recipients to whom the email is sent. An open or click counts a
// recipient only if it is that recipient's first open or click of the email. Recipient counts for periods add up: the
// unique opens of a week are the sum of the unique opens of its days. Opens and clicks by bots are counted like other
// events, but under a separate detail. A third number, People, counts recipients but ignores bots, because a person may
// open an email after a bot has opened it.
//
// # Invariants
//
// The results always equal a simple count of all events, including deleted ones. The results do not depend on the order
// in which events are recorded. An event that is not late is committed before RollUp counts the events of its time.
// This holds only if transactions take less time than margin minus lateness, and the nodes' clocks differ by less than
// that duration.
//
// # Failures
//
// Each step of RollUp writes in one transaction, which fails if another node has changed the version of the team's
// state. Late entries are deleted only after the counters of all their quarter hours are correct. RollUp may stop at
// any point, and may run concurrently on several nodes. While RollUp is not running, results remain correct but queries
// become slower. Database errors are returned to the caller.
//
// If the clock is set back after it was ahead, the counters may reach into the future. The next RollUp then deletes the
// counters of the last day and of all later times, and counts the events of the last day again. Until then, events that
// are recorded after the clock was set back are missing from results. If partitions were dropped while the clock was
// ahead by more than a day, some of the slots to come are final, and their events are not counted.
//
// # Out of scope
//
// Package metrics records no events and enforces no limits.
package metrics

import (
	"time"

	"github.com/postrider/postrider/internal/platform/events"
)

// slot is the shortest period of a counter, a quarter hour. In every time zone, each hour starts a whole number of
// slots after the start of 1970 in UTC.
const slot = 15 * time.Minute

const (
	lateness = time.Minute
	margin   = 3 * time.Minute
	finality = 24 * time.Hour // age of the slots that become final
)

// Query selects counts within a time span (API reference section 8.9).
type Query struct {
	From, To     time.Time // To is excluded
	DomainIDs    []string  // empty means all
	EmailIDs     []string
	BroadcastIDs []string
	Types        []events.Type          // of events
	ByPeriod     func(time.Time) string // names the period that contains a time; nil means no breakdown by period
	PeriodsOf    Unit                   // what each of these periods consists of; longer units make the query faster
	Zone         *time.Location         // time zone of these units; nil means UTC
	ByDomain     bool
	ByEmail      bool
	ByBroadcast  bool
	MaxRows      int // rows that the result is computed from; 0 means 200,000, or 50,000 for a breakdown by email
}

// Count is one row of a breakdown.
type Count struct {
	// A field is empty unless the query groups by that field. The names of deleted domains and broadcasts are empty too.
	Period, DomainID, DomainName, EmailID, BroadcastID, BroadcastName string

	Type       string // an event's type without "email."
	Detail     string // the type of a bounce; "machine" for an open or click by a bot
	Events     int
	Recipients int // number of recipients (see the package comment)
	People     int // number of recipients whose first open or click by a person is in this row
}

// Usage is a team's usage in a time span: the number of recipients to whom its emails were sent, and the number of
// emails that it received.
type Usage struct{ Sent, Received int }

// span is a half-open range of times in microseconds since 1970, which includes from but not to.
type span struct{ from, to int64 }

// down returns the number of the last slot that starts at or before a time. The function up returns the number of the
// first slot that starts at or after it.
func down(us int64) int64 { return us / slot.Microseconds() }
func up(us int64) int64   { return down(us + slot.Microseconds() - 1) }

// split divides a span into slots whose counters can be used, and spans whose events must be counted. Counters are
// complete for all times before until, except the counters of dirty slots. The counters of the slots from low to high-1
// can be used, except for dirty slots. The events in the returned spans must be counted. The slots before final only
// have counters, which count at the starts of their slots.
func split(all span, until, final int64, dirty []int64) (low, high int64, live []span) {
	if first, end := up(all.from), final*slot.Microseconds(); all.from < end {
		if all.to <= end {
			return first, max(first, up(all.to)), nil
		}
		_, high, live = split(span{end, all.to}, until, 0, dirty)
		return first, max(first, high), live
	}
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
