// Package tracking records opens and clicks: requests for the pixels and links in sent emails.
//
// # How it works
//
// Package links answers a request without using the database and passes it to [Service.Add] as a hit. Add keeps the hit
// in memory and returns at once. [Service.Run] records the hits in transactions of up to 500, at most every 200 ms
// unless 500 hits wait. Each hit becomes an event of the recipient whose message contained the link. Listeners of the
// recorder advance the emails' states and enqueue webhooks.
//
// A hit by a bot is recorded like any other, with a mark and the reason; see [Reason]. Bots are recognized only by
// their requests and the timing of these. Bots that behave like people count as people.
//
// # Invariants
//
// A hit is recorded at most once. If the outcome of a commit is unknown, the event keeps its id, and the next attempt
// looks for that id first. Hits of deleted emails and deleted teams are dropped.
//
// Each recipient of an email can have 1,000 opens and 1,000 clicks by people, and as many of each by bots. Further hits
// are answered but not recorded, so that a link cannot be used to fill the database. The limit counts stored events: it
// holds after a restart and for all nodes together. Nodes that record at the same moment may each exceed this limit by
// one batch.
//
// # When it fails
//
// While the database is away, up to 64 MB of hits wait in memory. Further hits are dropped; their number is logged once
// a minute. When Run stops, it records the waiting hits for at most 10 s. A crash loses the waiting hits. A hit that
// causes an error of its own is logged and dropped, and does not delay the others.
//
// # What it does not do
//
// The package creates no links and verifies no tokens: packages emails and tokens do. It answers no requests.
package tracking

import (
	"net/netip"
	"time"
)

// Hit is a request for a tracked link or a pixel.
type Hit struct {
	EmailID   string
	Position  int        // position of the recipient in the email; see tokens.TrackedLink
	URL       string     // the target of the link; "" for a pixel
	Addr      netip.Addr // of the client
	UserAgent string
	Prefetch  bool // the request says that it is a prefetch
	Head      bool // a HEAD request: never recorded, but shows that the client is a bot
}

// Reason says why a hit is attributed to a bot; "" means that it is attributed to a person.
type Reason string

const (
	ByUserAgent Reason = "user_agent" // the user agent names a crawler, a link previewer or a library
	ByPrefetch  Reason = "prefetch"   // loaded in advance, perhaps never shown to anybody
	ByAddress   Reason = "address"    // the address belongs to a mail filter; see ranges.txt
	ByTiming    Reason = "timing"     // before or right after the delivery
	ByBurst     Reason = "burst"      // several links of the email within seconds
	ByHead      Reason = "head"       // the same client sent a HEAD request within seconds
)

const (
	// deliveredWithin is how long after a delivery a hit is attributed to a scanner of the recipient's host. A person
	// needs longer to notice the message, open it and find a link. A scanner that checks messages before they are shown
	// begins at once, often before the host has replied.
	deliveredWithin = 2 * time.Second
	// outcomeWithin is the normal delay between a delivery and its record. If a hit is recorded within this time and
	// the email is still being delivered, the hit came during the delivery. A later hit may be a person's.
	outcomeWithin = 5 * time.Second

	// A client that follows two links of an email within pairWithin, or three within burstWithin, is a bot that follows
	// all of them. A person looks at the first page before opening the next.
	pairWithin  = time.Second
	burstWithin = 5 * time.Second
)
