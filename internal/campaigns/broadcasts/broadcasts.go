// Package broadcasts sends an email to each contact of a segment, immediately or at a scheduled time. A broadcast can
// have a limited pace and an A/B test. Package broadcasts also counts the results.
//
// # How a broadcast is sent
//
// A broadcast that is being sent has one job. The job reads the audience page by page, ordered by contact id. For each
// page, one transaction locks the broadcast's row, records which contacts are left out and why, enqueues an email for
// each of the other contacts ([emails.Service.Enqueue]), and advances the position. Package delivery delivers the
// emails. After the last page, the job waits until each email has been handed to a mail server at least once or has
// ended.
//
// # Invariants
//
// A contact has at most one row per broadcast, because of the primary key. The transaction that enqueues an email also
// writes the contact's row, so no contact is missed or mailed twice, even if a process is killed. Contacts that are
// added after a broadcast has started are not mailed. Once a broadcast has started, its content never changes, except
// for the sender of a broadcast that waits for its sender's domain. Each email goes from the broadcast's current
// sender.
//
// The broadcast's row is locked for each status change and for each page of the audience, so no more emails are
// enqueued after Pause or Cancel has returned. Package delivery calls [Service.CachedDecision] before each attempt.
// Within seconds after a pause or cancellation, emails that have not been handed to a mail server are withheld or end
// as canceled.
//
// The A/B test variant that a contact receives depends only on the ids of the contact and the broadcast, except for the
// first contacts, who receive the variants that have no recipient yet.
//
// # Failures
//
// A problem that a user can fix, such as a domain that is no longer verified, pauses the broadcast. A problem that
// cannot be fixed, such as a deleted segment, ends the broadcast with the status failed. If a problem pauses or ends a
// broadcast, the reason is stored and the team is notified. After a database error, the broadcast's job is retried
// without limit.
//
// # Out of scope
//
// Package broadcasts does not deliver emails, detect opens, or serve the unsubscribe pages. Package broadcasts receives
// deliveries, opens and unsubscribes as events.
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
	Canceled  Status = "canceled" // canceled after sending has started
	Sent      Status = "sent"
	Failed    Status = "failed"
)

// phase is the current phase of a broadcast's job.
type phase string

const (
	walkAll  phase = "all"    // enqueues emails to the whole audience
	walkTest phase = "test"   // enqueues emails to the contacts that receive the variants of an A/B test
	choose   phase = "wait"   // waits until the winning variant is chosen
	walkRest phase = "rest"   // enqueues emails to the contacts that receive the winning variant
	settle   phase = "settle" // waits until each email has been handed to a mail server
)

// Limits of broadcasts.
const (
	MaxName     = 255 // characters
	MaxPreview  = 998 // bytes
	MaxVariants = 5
	MaxTestSend = 10        // maximum number of addresses per test email
	MaxPace     = 1_000_000 // recipients an hour
	copiedName  = 70        // maximum length of the name of a copy, in characters
	maxWait     = 7 * 24 * time.Hour
)

// Text is the content of a broadcast. The fields of Text may contain placeholders; see package render.
type Text struct {
	From        string
	Subject     string
	ReplyTo     []string
	PreviewText string  // shown by mail clients next to the subject
	HTML        *string // nil if not given
	Plain       *string // nil means that the plain text is generated from the HTML
}

// Variant is a variant of an A/B test. If a field is nil, the variant uses the broadcast's own text.
type Variant struct {
	From, Subject, PreviewText, HTML, Plain *string

	contentID string // id of the content to send; set when the broadcast starts
}

// Metric is the criterion by which the winning variant is chosen.
type Metric string

// The metrics. For every metric, each person counts only once, and bots do not count.
const (
	ByOpens  Metric = "opens"
	ByClicks Metric = "clicks"
	ByHand   Metric = "manual"
)

// Options are the sending options of a broadcast.
type Options struct {
	Pace int `json:"pace,omitzero"` // recipients per hour; 0 means as fast as possible

	// TestShare is the percentage of the audience that receives the variants of an A/B test. The contacts outside this
	// share receive the winning variant later. If TestShare is 100, the whole audience receives the variants.
	TestShare float64 `json:"test_share,omitzero"`
	Metric    Metric  `json:"metric,omitzero"`
	Wait      int64   `json:"wait,omitzero"` // minutes until the winner is chosen; not used with the metric ByHand

	HoldOut float64 `json:"hold_out,omitzero"` // percentage of the audience that receives no email (control group)

	// BounceLimit and ComplaintLimit are percentages of the emails handed to mail servers. The broadcast pauses when the
	// bounce limit or the complaint limit is exceeded. BounceLimit applies to permanent bounces. Whatever their type, the
	// broadcast also pauses if more than refusedLimit percent bounce, or more than BounceLimit if that is higher. If a
	// limit is nil, the installation's setting applies. A limit of 100 never causes the broadcast to pause.
	BounceLimit    *float64 `json:"bounce_limit,omitzero"`
	ComplaintLimit *float64 `json:"complaint_limit,omitzero"`
}

// Broadcast is an email that is sent to each contact in a segment.
type Broadcast struct {
	ID        string
	TeamID    string
	Name      string
	SegmentID string
	TopicID   string // "" for none
	Text             // list results contain only PreviewText
	Options   Options
	Variants  []Variant // empty if there is no A/B test; always empty in list results

	Status      Status
	Reason      Reason // reason why the broadcast is paused or has failed
	CreatedAt   time.Time
	ScheduledAt time.Time // zero if the broadcast is not scheduled
	StartedAt   time.Time // zero if the broadcast has not started
	SentAt      time.Time // zero if the broadcast has not ended
	Entered     int64     // number of emails enqueued so far
	LeftOut     int64     // number of contacts left out so far
	Winner      int       // index of the winning variant; -1 if no variant has won yet

	// TopicDeleted says that the topic no longer exists. A draft whose topic was deleted cannot be sent, because it is no
	// longer known which contacts had opted out of the topic.
	TopicDeleted bool

	contentID string
	phase     phase
	position  string
	nextAt    time.Time
	pausedAt  time.Time // zero if the broadcast is not paused

	significance significance
	guarded      bool
	by           teams.ActorRef
	revision     int64
}

// waitsForWinner reports whether part of the audience receives its emails only after a variant has won.
func (b *Broadcast) waitsForWinner() bool { return len(b.Variants) > 1 && b.Options.TestShare < 100 }

// Testing reports whether an A/B test is running and its winner has not been chosen yet.
func (b *Broadcast) Testing() bool {
	return b.Winner < 0 && (b.phase == walkTest && b.waitsForWinner() || b.phase == choose)
}

// Reason is the reason why a broadcast is paused or has failed. Reason is "" if a user paused the broadcast.
type Reason string

const (
	TooManyBounces    Reason = "too_many_bounces"
	TooManyComplaints Reason = "too_many_complaints"
	TeamSuspended     Reason = "team_suspended"
	DailyQuota        Reason = "daily_quota_exceeded"
	MonthlyQuota      Reason = "monthly_quota_exceeded"
	KeyDeleted        Reason = "api_key_deleted"
	AppNotAllowed     Reason = "app_not_allowed"
	DomainNotVerified Reason = "domain_not_verified"
	SenderChanged     Reason = "sender_changed"
	NotAllowed        Reason = "sender_not_allowed"
	BadContent        Reason = "content_refused"
	BadFilter         Reason = "segment_filter_refused"
	SegmentDeleted    Reason = "segment_deleted"
	TopicDeleted      Reason = "topic_deleted"
)

// reasons contains the message for each Reason.
var reasons = map[Reason]string{
	TooManyBounces: "Too many of its emails bounced. Remove addresses that are old or were not confirmed from the " +
		"segment, and resume the broadcast. If mail servers refused the sender, for example because of a block list, mend " +
		"that first.",
	TooManyComplaints: "Too many recipients reported it as spam. Make sure that they all asked for it before you resume " +
		"the broadcast.",
	TeamSuspended: "The team may not send at present. Resume the broadcast when the operator has restored it.",
	DailyQuota: "The team's quota of emails of this day is used up. Resume the broadcast on another day (UTC), or ask " +
		"the operator for more.",
	MonthlyQuota: "The team's quota of emails of this month is used up. Resume the broadcast in another month (UTC), or " +
		"ask the operator for more.",
	KeyDeleted: "The API key that it was sent with was deleted. Resume the broadcast with another one.",
	AppNotAllowed: "The connected app that sent it may not send broadcasts any more: it was revoked or limited, a " +
		"person must approve its emails, or the role of the person who connected it was lowered. Resume the broadcast as " +
		"a person or with an API key, or cancel it.",
	DomainNotVerified: "The domain of its sender was deleted, is not verified any more, or may not send. The broadcast " +
		"goes on by itself when this team has verified the domain again. To use another sender, change its `from` and " +
		"resume it.",
	SenderChanged: "Its sender was changed, because the domain of the former sender may not send. Resume the broadcast " +
		"to send the rest of its emails from the new sender.",
	NotAllowed: "Its sender may not be used any more. Change that and resume the broadcast.",
	BadContent: "Its content is refused. Cancel the broadcast, and send a corrected duplicate.",
	BadFilter: "The filter of its segment names something that was deleted. Change the filter and resume the " +
		"broadcast.",
	SegmentDeleted: "Its segment was deleted while it was being sent. The contacts that got no email yet " +
		"are not known any more.",
	TopicDeleted: "Its topic was deleted, so the choices of the contacts about it are not known.",
}

// Message returns a message that explains the reason and tells the user what to do, or "" if there is no reason.
func (r Reason) Message() string { return reasons[r] }

// Reasons why a contact is left out. Packages emails and contacts define more reasons.
const (
	heldOut = "hold_out"
	refused = contacts.Unmailable // the address cannot be mailed, or the email to it is invalid
)
