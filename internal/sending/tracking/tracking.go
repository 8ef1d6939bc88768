// Package tracking records opens and clicks: the loaded pixels and followed links of sent emails.
//
// # How it works
//
// A hit is answered by package links, without the database, and handed to [Service.Hit], which keeps it in memory and
// returns at once. [Service.Run] records what has come, in transactions of up to 500 hits, five a second or as soon as
// there are so many: an event for each hit, by its time, for the recipient to whom the message with that link was sent.
// Listeners of the recorder advance states and enter webhooks.
//
// A hit by a program rather than a person is recorded like any other, marked as such and with the reason; see
// [Reason]. Programs that behave like people are not recognised, and nobody is recognised by more than what the request
// and its time show.
//
// # Invariants
//
// A hit is recorded at most once, also when the outcome of a commit is not known: its event then keeps its id, and is
// looked for before it is recorded again. Hits of emails that were deleted, and of deleted teams, are dropped.
//
// Of one recipient of an email, 1,000 opens and 1,000 clicks are recorded, and as many of each by machines. Further
// ones are answered and dropped, so that nobody who has a link can fill the database by it. What is stored counts, so
// the limit holds after a restart and for all nodes together; nodes that record at the same moment may exceed it by a
// batch each.
//
// # When it fails
//
// While the database is away, hits wait in memory, up to 64 MB; those beyond are dropped, which is counted and logged
// once a minute. When Run is asked to stop it records what waits, for 10 s at most. A crash loses what waits. A hit
// that cannot be recorded for a reason of its own is logged and dropped, and keeps no others waiting.
//
// # What it does not do
//
// It makes no links and checks no tokens: emails does. It answers no requests.
package tracking

import (
	"net/netip"
	"time"
)

// Hit is a request for a tracked link or a pixel.
type Hit struct {
	EmailID   string
	Position  int        // of the recipient; see tokens.TrackedLink
	URL       string     // where the link leads; "" for a pixel
	Addr      netip.Addr // of the client
	UserAgent string
	Prefetch  bool // the client says that nobody has asked for the answer yet
	Head      bool // it asked for the header only: this is never recorded, but tells of the client
}

// Reason is by what the hit of a machine is recognised; "" is a person, as far as can be seen.
type Reason string

const (
	ByUserAgent Reason = "user_agent" // it names a crawler, a link previewer or a library
	ByPrefetch  Reason = "prefetch"   // loaded in advance, for somebody who may never look
	ByAddress   Reason = "address"    // of a mail filter; see ranges.txt
	ByTiming    Reason = "timing"     // before or right after the delivery
	ByBurst     Reason = "burst"      // several links of the email within seconds
	ByHead      Reason = "head"       // the same client asked for the header only, seconds before
)

const (
	// deliveredWithin is how long after a delivery a hit is taken to be by a scanner of the recipient's host. Within it,
	// a person would have to be notified, open the message and, for a click, find the link; while scanners that check
	// messages before they are shown begin at once, often before the host has answered.
	deliveredWithin = 2 * time.Second
	// outcomeWithin is how long the outcome of a delivery may take to be recorded, in order. A hit that is recorded
	// within it although the email is still being delivered came during the delivery; a later one may be a person's.
	outcomeWithin = 5 * time.Second

	// A client that follows two links of an email within pairWithin, or three within burstWithin, follows them all. A
	// person looks at the page before the next one.
	pairWithin  = time.Second
	burstWithin = 5 * time.Second
)
