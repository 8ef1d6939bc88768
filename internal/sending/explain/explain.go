// Package explain explains the delivery of an email from what was recorded at the time: whether each recipient has it,
// who must act, where the time went, and what the answers of mail hosts mean.
//
// [Explain] is a pure function of stored facts. [Service] reads the facts and calls it.
//
// # Invariants
//
// The intervals of a recipient begin at the email's acceptance, follow each other without gaps, and end at the outcome
// or, without one, now. Their lengths therefore add up to the whole time. An answer never looks anything up, and says
// of each fact that was not recorded that it is unknown. It contains no data of other teams.
//
// # Failures
//
// Evidence that cannot be read, because it is damaged or has the format of a later release, counts as not recorded. The
// answer says so.
//
// # Out of scope
//
// The package does not decide what happens to an email; package delivery does. It does not check the content of an
// email; package preflight does.
package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// Facts are the stored facts about an email.
type Facts struct {
	Now          time.Time
	EmailID      string
	SenderDomain string // the domain of the address in From
	State        string
	CreatedAt    time.Time
	ScheduledAt  time.Time // zero if the email was not scheduled
	Recipients   []To
	Events       []events.Entry // oldest first
	MoreEvents   bool           // there are later events than those in Events
	Attempts     []Try          // oldest first
	MoreAttempts bool           // there are earlier attempts than those in Attempts
	Broadcast    bool           // the email belongs to a broadcast
	Paused       bool           // the broadcast is paused now
	Forwarded    bool           // a forwarding rule sent the email, whose author is somebody else
	// Held has the recipients' domains to which the operator has paused mail.
	Held map[string]Hold
}

// To is a recipient of the email.
type To struct {
	Address, State string
	UpdatedAt      time.Time
}

// Try is a stored attempt with its evidence, which is nil if none was recorded.
type Try struct {
	events.StoredAttempt
	Evidence *evidence.Evidence

	unreadable error // why Evidence is nil although some was recorded
}

// Answer explains the delivery of an email.
type Answer struct {
	Object      string            `json:"object"`
	EmailID     string            `json:"email_id"`
	State       string            `json:"state" doc:"The state of the email, as in last_event."`
	Verdict     string            `json:"verdict" doc:"One or two sentences that say what happened to the email."`
	Act         Actor             `json:"who_must_act" enum:"nobody,you,domain_owner,recipient,operator,provider" doc:"The one that must act so that the email, or the next one, arrives: nobody, you (the sender), the owner of the sending domain, the recipient, the operator of this installation, or the recipient's mail provider. If several must act, the one for the recipient whose outcome is worst."`
	AcceptedAt  time.Time         `json:"accepted_at"`
	Recipients  []RecipientAnswer `json:"recipients" doc:"The envelope recipients, the one with the worst outcome first."`
	Attempts    []AttemptAnswer   `json:"attempts" doc:"The delivery attempts, oldest first."`
	Afterwards  []LaterEvent      `json:"afterwards" doc:"Events after the delivery, such as opens and complaints; at most 100."`
	NotRecorded []string          `json:"not_recorded" doc:"Facts about the whole email that were not recorded."`

	// Timeline holds the events that the answer was made from, for pages that show both.
	Timeline []events.Entry `json:"-"`
}

// RecipientAnswer explains the delivery to one recipient.
type RecipientAnswer struct {
	Address   string        `json:"address"`
	State     string        `json:"state" doc:"The state of the recipient."`
	Verdict   string        `json:"verdict" doc:"One or two sentences that say what happened."`
	Act       Actor         `json:"who_must_act" enum:"nobody,you,domain_owner,recipient,operator,provider"`
	Advice    Advice        `json:"advice" doc:"The name of the advice, which does not change."`
	Steps     []string      `json:"steps" doc:"The steps to take, at most three; empty if nobody must act."`
	Meaning   *ReplyMeaning `json:"meaning" doc:"The translation of the reply that decided; null if no host has replied."`
	Reply     string        `json:"reply" doc:"The reply that decided, word for word; empty if there is none."`
	NextAt    *time.Time    `json:"next_at" nullable:"true" doc:"When Postrider tries again; null if it does not, or if the time is not known."`
	Next      string        `json:"next" doc:"The next step, in one sentence."`
	EndedAt   *time.Time    `json:"ended_at" nullable:"true" doc:"When the delivery ended; null if it goes on."`
	TotalMS   float64       `json:"total_ms" doc:"The time from acceptance to the end or, if the delivery goes on, until now."`
	Intervals []Interval    `json:"intervals" doc:"The intervals of the whole time, without gaps. The lengths add up to total_ms."`
	Sums      []IntervalSum `json:"sums" doc:"The lengths of the intervals by cause."`
}

// LaterEvent is an event after the delivery.
type LaterEvent struct {
	Type      string    `json:"type"`
	Recipient string    `json:"recipient" doc:"Empty if the event concerns the whole email."`
	At        time.Time `json:"at"`
	Says      string    `json:"says"`
}

// laterMax is the maximum number of events after the delivery in an answer.
const laterMax = 100

// Explain explains the delivery of an email.
func Explain(f Facts) Answer {
	a := Answer{Object: "email_explanation", EmailID: f.EmailID, State: f.State, AcceptedAt: f.CreatedAt,
		Recipients: []RecipientAnswer{}, Attempts: []AttemptAnswer{}, Afterwards: []LaterEvent{}, NotRecorded: []string{},
		Timeline: f.Events}
	for i := range f.Attempts {
		a.Attempts = append(a.Attempts, f.attempt(i))
	}
	trimTranscripts(a.Attempts)
	for _, to := range f.Recipients {
		a.Recipients = append(a.Recipients, f.recipient(to))
	}
	slices.SortStableFunc(a.Recipients, func(x, y RecipientAnswer) int { return severity[y.State] - severity[x.State] })
	a.Verdict, a.Act = overall(a.Recipients)
	for _, e := range f.Events {
		if says := afterwards[e.Type]; says != "" && len(a.Afterwards) < laterMax {
			a.Afterwards = append(a.Afterwards, LaterEvent{e.Type, e.Recipient, e.At, says})
		}
	}
	if f.MoreEvents {
		a.NotRecorded = append(a.NotRecorded, "later events: there are too many for this answer")
	}
	if f.MoreAttempts {
		a.NotRecorded = append(a.NotRecorded, "earlier attempts: there are too many for this answer")
	}
	if f.lostTimeline() {
		a.NotRecorded = append(a.NotRecorded, "events and attempts: they were deleted after the time for which "+
			"they are kept")
	}
	return a
}

// lostTimeline reports whether the events of an email that has left the queue were deleted.
func (f *Facts) lostTimeline() bool {
	return len(f.Events) == 0 && len(f.Attempts) == 0 && f.State != "queued" && f.State != "scheduled"
}

// severity orders the states: a recipient with a higher one is shown first.
var severity = map[string]int{"bounced": 9, "failed": 9, "complained": 8, "suppressed": 7, "delivery_delayed": 6,
	"sent": 5, "queued": 4, "scheduled": 3, "canceled": 2, "delivered": 1, "opened": 1, "clicked": 1}

// afterwards explains the events that follow a delivery.
var afterwards = map[string]string{
	"opened":       "The email was opened, by a person or by a program.",
	"clicked":      "A link was followed, by a person or by a program.",
	"complained":   "The recipient reported the email as spam. The address is suppressed since then.",
	"unsubscribed": "The recipient unsubscribed.",
}

// groups names the states in the verdict on an email with several recipients, in their order.
var groups = []struct{ state, says string }{
	{"bounced", "bounced for %d"}, {"failed", "failed for %d"}, {"complained", "marked as spam by %d"},
	{"suppressed", "suppressed for %d"}, {"delivery_delayed", "delayed for %d"}, {"sent", "on the way to %d"},
	{"queued", "queued for %d"}, {"scheduled", "scheduled for %d"}, {"canceled", "canceled for %d"},
	{"delivered", "delivered to %d"}, {"opened", "opened by %d"}, {"clicked", "clicked by %d"},
	{string(Captured), "captured for %d"}, {string(Simulated), "simulated for %d"},
}

// group returns the state that the verdict on several recipients counts. An email that no mail server has seen was not
// delivered.
func (r *RecipientAnswer) group() string {
	if r.Meaning != nil && (r.Meaning.Class == Captured || r.Meaning.Class == Simulated) {
		return string(r.Meaning.Class)
	}
	return r.State
}

// overall returns the verdict on the whole email. The recipient with the worst outcome comes first.
func overall(all []RecipientAnswer) (string, Actor) {
	switch len(all) {
	case 0:
		return "The recipients of this email are not recorded.", Nobody
	case 1:
		return all[0].Verdict, all[0].Act
	}
	count, parts := map[string]int{}, []string{}
	for i := range all {
		count[all[i].group()]++
	}
	for _, g := range groups {
		if n := count[g.state]; n > 0 {
			parts = append(parts, fmt.Sprintf(g.says, n))
		}
	}
	if len(count) == 1 && severity[all[0].State] <= severity["canceled"] {
		return fmt.Sprintf("All %d recipients: %s", len(all), all[0].Verdict), all[0].Act
	}
	text := strings.Join(parts, ", ")
	return strings.ToUpper(text[:1]) + text[1:] + ". For " + all[0].Address + ": " + all[0].Verdict, all[0].Act
}
