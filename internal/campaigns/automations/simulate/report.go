package simulate

import (
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/platform/schedule"
)

// MaxReport limits the texts of all outputs, variables and bodies of a report together, in octets. Those for which
// there is no room are left out.
const MaxReport = 1 << 20

// Text is a text of a report. It is null in JSON when it is empty.
type Text string

// MarshalJSON returns the text as JSON.
func (t Text) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(t))
}

// Output is the output of a step. It is null in JSON when there is none.
type Output map[string]any

// MarshalJSON returns the output as JSON.
func (o Output) MarshalJSON() ([]byte, error) {
	if o == nil {
		return []byte("null"), nil
	}
	return json.Marshal(map[string]any(o), json.Deterministic(true))
}

// Report is what a simulation showed. It has no secrets but what the graph and the scenario have.
type Report struct {
	Status    string    `json:"status"`                  // completed, failed or cancelled
	Reason    Text      `json:"reason" nullable:"true"`  // why it failed or was cancelled
	Message   Text      `json:"message" nullable:"true"` // the reason as a sentence
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	Took      string    `json:"took"` // in words

	Entries []Entry `json:"entries"` // in the order of time
	Emails  []Mail  `json:"emails"`
	Calls   []Post  `json:"calls"`
	Contact *Person `json:"contact"` // as it is at the end; nil once it was deleted
	Ignored int     `json:"ignored"` // entries of the timetable from after the end
	Omitted int     `json:"omitted"` // outputs, variables and bodies that are left out because of MaxReport
}

// Entry is something that happened in a simulation: a step did something, began to wait or went on, or an entry of the
// timetable came. Step and what follows it are of steps only.
type Entry struct {
	At       time.Time `json:"at"`
	After    string    `json:"after"`    // the time since the start in words
	Happened string    `json:"happened"` // as a sentence
	Event    Text      `json:"event" nullable:"true"`
	Step     Text      `json:"step" nullable:"true"`
	Type     Text      `json:"type" nullable:"true"`
	Status   Text      `json:"status" nullable:"true"`
	Output   Output    `json:"output" nullable:"true"`
	Reason   Text      `json:"reason" nullable:"true"` // why it failed
	Next     Text      `json:"next" nullable:"true"`   // the key of the next step; not while it waits
}

// Mail is an email that would be sent.
type Mail struct {
	At        time.Time      `json:"at"`
	After     string         `json:"after"`
	Step      string         `json:"step"`
	To        string         `json:"to"`
	Template  string         `json:"template_id"`
	Variables map[string]any `json:"variables"` // texts and numbers; the template has fallbacks for the others
	From      Text           `json:"from" nullable:"true"`
	Subject   Text           `json:"subject" nullable:"true"`
	ReplyTo   Text           `json:"reply_to" nullable:"true"`
	TopicID   Text           `json:"topic_id" nullable:"true"`
}

// Post is a request that a webhook step would make.
type Post struct {
	At      time.Time         `json:"at"`
	After   string            `json:"after"`
	Step    string            `json:"step"`
	URL     string            `json:"url"`
	Headers map[string]string `json:"headers,omitzero"`
	Body    jsontext.Value    `json:"body"`
}

// Person is a made-up contact.
type Person struct {
	ID           string            `json:"id"`
	Email        string            `json:"email"`
	FirstName    string            `json:"first_name"`
	LastName     string            `json:"last_name"`
	Unsubscribed bool              `json:"unsubscribed"`
	Properties   map[string]any    `json:"properties"`
	Segments     []string          `json:"segments"`
	Topics       map[string]string `json:"topics"`
}

// happened says in a sentence what a step did.
func happened(r engine.Record, a engine.Action, to string) string {
	switch {
	case r.Failure != nil:
		return "Fails: " + r.Failure.Message
	case r.Status == engine.StepSkipped:
		return skipped(fmt.Sprint(r.Output["reason"]))
	case r.Status == engine.StepWaiting:
		return waits(a)
	}
	switch effect := a.Effect.(type) {
	case *engine.Email:
		return "Sends the template `" + effect.TemplateID + "` to " + to + "."
	case *engine.Update:
		return fmt.Sprintf("Changes %s.", listed(r.Output["changed"].([]any)))
	case engine.Deletion:
		return "Deletes the contact."
	case *engine.Addition:
		return "Adds the contact to the segment " + effect.SegmentID + "."
	case *engine.Call:
		return "Posts to " + effect.URL + "."
	}
	switch r.Type {
	case engine.Trigger:
		return fmt.Sprintf("The event `%s` begins the run.", r.Output["event"])
	case engine.WaitForEvent:
		return fmt.Sprintf("The event `%s` did not come in time.", r.Output["event"])
	case engine.Condition:
		if a.Branch == engine.ConditionMet {
			return "The condition is met."
		}
		return "The condition is not met."
	case engine.Split:
		return "Goes by the branch `" + a.Branch + "`."
	}
	return "The time has come."
}

// listed returns the names that an update has changed.
func listed(names []any) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = fmt.Sprint(name)
	}
	return strings.Join(all, ", ")
}

func skipped(reason string) string {
	switch reason {
	case engine.NoContact:
		return "Does nothing, because the contact was deleted."
	case engine.IsUnsubscribed:
		return "Sends nothing, because the contact is unsubscribed."
	case optedOut:
		return "Sends nothing, because the contact opted out of the topic."
	case notOptedIn:
		return "Sends nothing, because the contact did not opt in to the topic."
	case engine.NoDate:
		return "Does not wait, because the contact has no such date."
	case engine.BadDate:
		return "Does not wait, because the property is no date."
	}
	return "Is skipped: " + reason + "."
}

func waits(a engine.Action) string {
	until := a.Wait.Until.Format("2006-01-02 15:04:05 MST")
	if a.Wait.Event == "" {
		return "Waits until " + until + "."
	}
	return fmt.Sprintf("Waits for the event `%s` until %s.", a.Output["event"], until)
}

// since returns the time since the start in words.
func since(start, at time.Time) string {
	if at.Sub(start) < time.Second {
		return "at once"
	}
	return schedule.Words(at.Sub(start))
}
