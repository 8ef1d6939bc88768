// Package tracking records opens and clicks, which are requests for the pixels and links in sent emails.
//
// # How it works
//
// Package links responds to each request without using the database and passes the request to [Service.Add] as a hit.
// Add stores the hit in memory and returns immediately. The method [Service.Run] records the hits in transactions of up
// to 500 hits, at most every 200 ms unless 500 hits wait. Each hit becomes an event for the recipient whose message
// contained the link or pixel. Listeners of the event recorder update the emails' states and enqueue webhooks.
//
// A hit by a bot is recorded like any other hit, but is marked with the reason why it is attributed to a bot (see
// [Reason]). Bots are recognized only by their requests and by the timing of those requests. Bots that behave like
// people are counted as people.
//
// # Invariants
//
// A hit is recorded at most once. If the outcome of a commit is unknown, the event keeps its id, and the next attempt
// first checks whether that id is stored. Hits on deleted emails and on emails of deleted teams are dropped.
//
// For each recipient of an email, at most 1,000 opens and 1,000 clicks by people are recorded, and as many of each by
// bots. Hits beyond the limit get a response but are not recorded, so that a link cannot be used to fill the database.
// The limit counts stored events, so it also applies after a restart and to all nodes together. If several nodes record
// hits at the same moment, each may exceed the limit by one batch.
//
// # Failures
//
// While the database is unavailable, up to 64 MB of hits wait in memory. Hits beyond the 64 MB are dropped, and their
// number is logged once a minute. When Run ends, it spends at most 10 s on recording the waiting hits. A crash loses
// the hits that are not yet recorded. A hit that itself causes an error is logged and dropped, and does not delay other
// hits.
//
// # Out of scope
//
// Package tracking creates no links and verifies no tokens; packages emails and tokens do. Package tracking does not
// respond to requests.
package tracking

import (
	"net/netip"
	"time"

	"github.com/postrider/postrider/internal/sending/tokens"
)

// Hit is a request for a tracked link or a tracking pixel.
type Hit struct {
	tokens.Ref            // the email
	Position   int        // position of the recipient in the email (see tokens.TrackedLink)
	URL        string     // the target of the link; "" for a pixel
	Addr       netip.Addr // of the client
	UserAgent  string
	Prefetch   bool // whether the request is marked as a prefetch
	Head       bool // whether the request is a HEAD request, which is never recorded but shows that the client is a bot
}

// Reason states why a hit is attributed to a bot; "" means that the hit is attributed to a person.
type Reason string

const (
	ByUserAgent Reason = "user_agent" // the user agent names a crawler, a link previewer or a library
	ByPrefetch  Reason = "prefetch"   // the client loaded the URL in advance and may never show it to anyone
	ByAddress   Reason = "address"    // the IP address belongs to a mail filter (see ranges.txt)
	ByTiming    Reason = "timing"     // the hit came before the delivery or right after it
	ByBurst     Reason = "burst"      // the client followed several links in the email within seconds
	ByHead      Reason = "head"       // the client sent a HEAD request within seconds of the hit
)

const (
	// deliveredWithin is the time after a delivery during which hits are attributed to a scanner at the recipient's
	// mail host. A person needs longer than deliveredWithin to notice the message, open it and find a link. A scanner
	// that checks messages before they are shown starts immediately, often before the mail host has responded.
	deliveredWithin = 2 * time.Second
	// outcomeWithin is the normal delay between a delivery and the recording of its outcome. If the email is still
	// being delivered when a hit is recorded within outcomeWithin, the hit came during the delivery. A hit that is
	// recorded after outcomeWithin may come from a person.
	outcomeWithin = 5 * time.Second

	// A client that follows two links in an email within pairWithin, or three within burstWithin, is considered a bot
	// that follows all links. A person looks at the first page before opening the next link.
	pairWithin  = time.Second
	burstWithin = 5 * time.Second
)
