// Package broadcasts sends an email to each contact of a segment: at once or at a time, at a pace, with an A/B test or
// without, and says what became of each.
//
// # How a broadcast is sent
//
// A broadcast that is sent has one job. It walks the audience by the ids of the contacts, a page at a time. One
// transaction locks the broadcast's row, reads the page that follows its position, notes those who are left out and
// why, enters an email for each of the others ([emails.Service.Enqueue]) and moves the position. Delivery does the
// rest. When the audience has been walked, the job waits until each email was given to a host once, or has ended.
//
// # Invariants
//
// A contact has one row of a broadcast, in the same transaction as its email, and the key of the table allows no
// second: whatever is killed at whatever moment, no contact is missed or mailed twice. Contacts that were added after
// the start are not mailed. What a broadcast sends never changes after its start.
//
// Each change of the status locks the row, as each page does. So a broadcast that is paused or canceled enters nothing
// from the moment on at which the operation returns. Delivery asks before each attempt ([Service.CachedDecision]): an email
// that no host was given yet waits, or ends as canceled, within seconds.
//
// A contact's part in an A/B test depends only on its id and the broadcast's.
//
// # When it fails
//
// What somebody can mend pauses a broadcast, such as a domain that is not verified any more, and what nobody can ends
// it as failed, such as a deleted segment. Both have a reason and are told by a notice. An error of the database is
// tried again without end.
//
// # What it does not do
//
// It does not deliver, count opens, or make the pages of unsubscribe links; it learns of them by events.
package broadcasts

import (
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
)

// Status is how far a broadcast is.
type Status string

// The statuses.
const (
	Draft     Status = "draft"
	Scheduled Status = "scheduled"
	Queued    Status = "queued" // it is being sent
	Paused    Status = "paused"
	Canceled  Status = "canceled" // after it had started
	Sent      Status = "sent"
	Failed    Status = "failed"
)

// phase is what the job of a broadcast does next.
type phase string

const (
	walkAll  phase = "all"    // enters the whole audience
	walkTest phase = "test"   // enters those who get the variants of an A/B test
	choose   phase = "wait"   // waits for the time to choose the winner
	walkRest phase = "rest"   // enters those who get the winner
	settle   phase = "settle" // waits until each email was given to a host
)

// Limits of broadcasts.
const (
	MaxName     = 255 // characters
	MaxPreview  = 998 // octets
	MaxVariants = 5
	MaxTrial    = 10        // addresses of a test send
	MaxPace     = 1_000_000 // recipients an hour, beyond which a pace limits nothing
	copiedName  = 70        // characters of the name of a duplicate
	maxWait     = 7 * 24 * time.Hour
)

// Text is what a broadcast says. Its texts are templates; see package render.
type Text struct {
	From        string
	Subject     string
	ReplyTo     []string
	PreviewText string  // shown by mail programs beside the subject
	HTML        *string // nil when not given
	Plain       *string // nil when not given, so that it is made from the HTML
}

// Variant has what a variant of an A/B test has in place of the broadcast's own text. What is nil is the broadcast's.
type Variant struct {
	From, Subject, PreviewText, HTML, Plain *string

	contentID string // what is sent, after the start
}

// Metric is what decides which variant wins.
type Metric string

// The metrics. People count, each once; machines do not.
const (
	ByOpens  Metric = "opens"
	ByClicks Metric = "clicks"
	ByHand   Metric = "manual"
)

// Options are how a broadcast is sent.
type Options struct {
	Pace int `json:"pace,omitzero"` // recipients an hour; 0 is as fast as possible

	// TestShare is how many percent of the audience get the variants; the others wait for the winner. 100 sends the
	// variants to all.
	TestShare float64 `json:"test_share,omitzero"`
	Metric    Metric  `json:"metric,omitzero"`
	Wait      int64   `json:"wait,omitzero"` // minutes until the winner is chosen; not for ByHand

	HoldOut float64 `json:"hold_out,omitzero"` // percent of the audience that get nothing, to compare with

	// BounceLimit and ComplaintLimit are the percentages of the emails handed over at which the broadcast pauses; nil is
	// the setting of the installation, and 100 is never.
	BounceLimit    *float64 `json:"bounce_limit,omitzero"`
	ComplaintLimit *float64 `json:"complaint_limit,omitzero"`
}

// Broadcast is emails to the contacts of a segment.
type Broadcast struct {
	ID        string
	TeamID    string
	Name      string
	SegmentID string
	TopicID   string // "" for none
	Text             // in lists only PreviewText
	Options   Options
	Variants  []Variant // none without an A/B test; empty in lists

	Status      Status
	Reason      Reason // why it is paused or failed
	CreatedAt   time.Time
	ScheduledAt time.Time // zero if it was not scheduled
	StartedAt   time.Time // zero before
	SentAt      time.Time // zero before
	Entered     int64     // contacts that got an email so far
	LeftOut     int64     // contacts that got none so far
	Winner      int       // the variant that won; -1 while none has

	// TopicDeleted says that there is no topic of TopicID any more. A draft is not sent then: who does not want to read
	// about it is not known.
	TopicDeleted bool

	contentID string
	phase     phase
	position  string
	nextAt    time.Time
	guarded   bool
	by        teams.ActorRef
	revision  int64
}

// waitsForWinner reports whether the rest of the audience waits for a variant to win.
func (b *Broadcast) waitsForWinner() bool { return len(b.Variants) > 1 && b.Options.TestShare < 100 }

// Testing reports whether a winner is still to be chosen.
func (b *Broadcast) Testing() bool {
	return b.Winner < 0 && (b.phase == walkTest && b.waitsForWinner() || b.phase == choose)
}

// Reason is why a broadcast was paused or has failed, "" if it was paused by hand.
type Reason string

// The reasons.
const (
	TooManyBounces    Reason = "too_many_bounces"
	TooManyComplaints Reason = "too_many_complaints"
	TeamSuspended     Reason = "team_suspended"
	DailyQuota        Reason = "daily_quota_exceeded"
	MonthlyQuota      Reason = "monthly_quota_exceeded"
	KeyDeleted        Reason = "api_key_deleted"
	NotAllowed        Reason = "sender_not_allowed"
	BadContent        Reason = "content_refused"
	BadFilter         Reason = "segment_filter_refused"
	SegmentDeleted    Reason = "segment_deleted"
	TopicDeleted      Reason = "topic_deleted"
)

var reasons = map[Reason]string{
	TooManyBounces: "Too many of its emails bounced. Remove addresses that are old or were not confirmed from the " +
		"segment, and resume the broadcast.",
	TooManyComplaints: "Too many recipients reported it as spam. Make sure that they all asked for it before you resume " +
		"the broadcast.",
	TeamSuspended: "The team may not send at present. Resume the broadcast when the operator has restored it.",
	DailyQuota: "The team's quota of emails of this day is used up. Resume the broadcast on another day (UTC), or ask the " +
		"operator for more.",
	MonthlyQuota: "The team's quota of emails of this month is used up. Resume the broadcast in another month (UTC), or " +
		"ask the operator for more.",
	KeyDeleted:     "The API key that it was sent with was deleted. Resume the broadcast with another one.",
	NotAllowed:     "Its sender may not be used any more. Verify the domain again and resume the broadcast.",
	BadContent:     "Its content is refused. Cancel the broadcast, and send a corrected duplicate.",
	BadFilter:      "The filter of its segment names something that was deleted. Change the filter and resume the broadcast.",
	SegmentDeleted: "Its segment was deleted while it was being sent. Those who got no email yet are not known any more.",
	TopicDeleted:   "Its topic was deleted, so it is not known who wants to read about it.",
}

// Message is the reason as sentences that say what to do; "" if there is none.
func (r Reason) Message() string { return reasons[r] }

// Why a contact was left out, besides the reasons of packages emails and contacts.
const (
	heldOut = "hold_out"
	refused = contacts.Unmailable // the address cannot be mailed, or the email filled for it breaks a rule
)
