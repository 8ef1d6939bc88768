// Package broadcasts sends an email to each contact of a segment, at once or at a scheduled time. A broadcast can have
// a limited pace and an A/B test. The package also counts the results.
//
// # How a broadcast is sent
//
// A broadcast that is being sent has one job. The job walks the audience in the order of the contacts' ids, page by
// page. For each page, one transaction locks the broadcast's row and records which contacts are left out and why. It
// enqueues an email for each of the other contacts ([emails.Service.Enqueue]) and advances the position. Package
// delivery does the rest. After the walk, the job waits until each email has been handed to a host once, or has ended.
//
// # Invariants
//
// A contact has at most one row per broadcast, because of the primary key. The row is written in the transaction that
// enqueues the email. So no contact is missed or mailed twice, whenever a process is killed. Contacts that were added
// after the start are not mailed. The content of a broadcast never changes after its start.
//
// Each change of the status locks the row, and so does each page. So once Pause or Cancel has returned, no more emails
// are enqueued. Delivery calls [Service.CachedDecision] before each attempt: an email that has not been handed to a
// host waits, or ends as canceled, within seconds.
//
// The variant of a contact in an A/B test depends only on the ids of the contact and the broadcast.
//
// # Errors
//
// A problem that a user can fix, such as a domain that is not verified any more, pauses the broadcast. A problem that
// nobody can fix, such as a deleted segment, ends it as failed. Both kinds of problems store a reason, and the team
// gets a notification. After an error of the database the job is retried without limit.
//
// # Limits of this package
//
// The package does not deliver emails, detect opens, or serve the unsubscribe pages. It gets the results of these as
// events.
package broadcasts

import (
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/audience/contacts"
)

// Status is the status of a broadcast.
type Status string

const (
	Draft     Status = "draft"
	Scheduled Status = "scheduled"
	Queued    Status = "queued" // being sent
	Paused    Status = "paused"
	Canceled  Status = "canceled" // canceled after the start
	Sent      Status = "sent"
	Failed    Status = "failed"
)

// phase is what the job of a broadcast does next.
type phase string

const (
	walkAll  phase = "all"    // enqueues the emails of the whole audience
	walkTest phase = "test"   // enqueues the emails of the contacts that get the variants of an A/B test
	choose   phase = "wait"   // waits until the winner is chosen
	walkRest phase = "rest"   // enqueues the emails of the contacts that get the winner
	settle   phase = "settle" // waits until each email has been handed to a host
)

// Limits of broadcasts.
const (
	MaxName     = 255 // characters
	MaxPreview  = 998 // bytes
	MaxVariants = 5
	MaxTestSend = 10        // addresses of a test email
	MaxPace     = 1_000_000 // recipients an hour
	copiedName  = 70        // characters of the name of a copy
	maxWait     = 7 * 24 * time.Hour
)

// Text is the content of a broadcast. The fields of a Text are templates; see package render.
type Text struct {
	From        string
	Subject     string
	ReplyTo     []string
	PreviewText string  // shown by mail clients next to the subject
	HTML        *string // nil if not given
	Plain       *string // nil to make it from the HTML
}

// Variant is a variant of an A/B test. Nil fields are those of the broadcast's own text.
type Variant struct {
	From, Subject, PreviewText, HTML, Plain *string

	contentID string // set at the start: what is sent
}

// Metric decides which variant wins.
type Metric string

// The metrics. Each person counts once; bots do not count.
const (
	ByOpens  Metric = "opens"
	ByClicks Metric = "clicks"
	ByHand   Metric = "manual"
)

// Options say how a broadcast is sent.
type Options struct {
	Pace int `json:"pace,omitzero"` // recipients an hour; 0 is as fast as possible

	// TestShare is the percentage of the audience that gets the variants; the others wait for the winner. If TestShare
	// is 100, the whole audience gets the variants.
	TestShare float64 `json:"test_share,omitzero"`
	Metric    Metric  `json:"metric,omitzero"`
	Wait      int64   `json:"wait,omitzero"` // minutes until the winner is chosen; unused with ByHand

	HoldOut float64 `json:"hold_out,omitzero"` // percentage of the audience that gets no email, as a control group

	// BounceLimit and ComplaintLimit are percentages of the emails handed over. The broadcast pauses when one is
	// exceeded. Nil is the setting of the installation, and 100 never pauses.
	BounceLimit    *float64 `json:"bounce_limit,omitzero"`
	ComplaintLimit *float64 `json:"complaint_limit,omitzero"`
}

// Broadcast is an email to each contact of a segment.
type Broadcast struct {
	ID        string
	TeamID    string
	Name      string
	SegmentID string
	TopicID   string // "" for none
	Text             // lists set only PreviewText
	Options   Options
	Variants  []Variant // empty without an A/B test, and in lists

	Status      Status
	Reason      Reason // why the broadcast is paused or has failed
	CreatedAt   time.Time
	ScheduledAt time.Time // zero if the broadcast was not scheduled
	StartedAt   time.Time // zero if the broadcast has not started
	SentAt      time.Time // zero if the broadcast has not ended
	Entered     int64     // emails enqueued so far
	LeftOut     int64     // contacts left out so far
	Winner      int       // the winning variant; -1 if no variant has won yet

	// TopicDeleted says that the topic does not exist any more. A draft is not sent then, because the choices of the
	// contacts about the topic are not known.
	TopicDeleted bool

	contentID string
	phase     phase
	position  string
	nextAt    time.Time
	guarded   bool
	by        teams.ActorRef
	revision  int64
}

// waitsForWinner reports whether a part of the audience waits until a variant wins.
func (b *Broadcast) waitsForWinner() bool { return len(b.Variants) > 1 && b.Options.TestShare < 100 }

// Testing reports whether a winner has yet to be chosen.
func (b *Broadcast) Testing() bool {
	return b.Winner < 0 && (b.phase == walkTest && b.waitsForWinner() || b.phase == choose)
}

// Reason is why a broadcast is paused or has failed. It is "" if a user paused it.
type Reason string

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

// reasons has the message of each Reason.
var reasons = map[Reason]string{
	TooManyBounces: "Too many of its emails bounced. Remove addresses that are old or were not confirmed from the " +
		"segment, and resume the broadcast.",
	TooManyComplaints: "Too many recipients reported it as spam. Make sure that they all asked for it before you resume " +
		"the broadcast.",
	TeamSuspended: "The team may not send at present. Resume the broadcast when the operator has restored it.",
	DailyQuota: "The team's quota of emails of this day is used up. Resume the broadcast on another day (UTC), or ask " +
		"the operator for more.",
	MonthlyQuota: "The team's quota of emails of this month is used up. Resume the broadcast in another month (UTC), or " +
		"ask the operator for more.",
	KeyDeleted: "The API key that it was sent with was deleted. Resume the broadcast with another one.",
	NotAllowed: "Its sender may not be used any more. Verify the domain again and resume the broadcast.",
	BadContent: "Its content is refused. Cancel the broadcast, and send a corrected duplicate.",
	BadFilter: "The filter of its segment names something that was deleted. Change the filter and resume the " +
		"broadcast.",
	SegmentDeleted: "Its segment was deleted while it was being sent. The contacts that got no email yet " +
		"are not known any more.",
	TopicDeleted: "Its topic was deleted, so the choices of the contacts about it are not known.",
}

// Message returns the reason as sentences that say what to do, or "" for no reason.
func (r Reason) Message() string { return reasons[r] }

// Reasons why a contact is left out. Packages emails and contacts have further ones.
const (
	heldOut = "hold_out"
	refused = contacts.Unmailable // the address cannot be mailed, or the email breaks a rule
)
