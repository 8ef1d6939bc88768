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

// MaxReport is the maximum total size of the outputs, variables and bodies in a report, in bytes. Outputs, variables
// and bodies that no longer fit are omitted.
const MaxReport = 1 << 20

// Text is a string in a report. An empty Text is encoded as null in JSON.
type Text string

// MarshalJSON encodes the text.
func (t Text) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(t))
}

// Output is the output of a step. A nil Output is encoded as null in JSON.
type Output map[string]any

// MarshalJSON encodes the output.
func (o Output) MarshalJSON() ([]byte, error) {
	if o == nil {
		return []byte("null"), nil
	}
	return json.Marshal(map[string]any(o), json.Deterministic(true))
}

// Report is the result of a simulation. A report contains no secrets except those that are in the graph or the
// scenario.
type Report struct {
	Status    string    `json:"status"`                  // completed, failed or cancelled
	Reason    Text      `json:"reason" nullable:"true"`  // why the run failed or was cancelled
	Message   Text      `json:"message" nullable:"true"` // the reason as a sentence
	StartedAt time.Time `json:"started_at"`
	EndedAt   time.Time `json:"ended_at"`
	Took      string    `json:"took"` // in words

	Entries []Entry `json:"entries"` // in chronological order
	Emails  []Mail  `json:"emails"`
	Calls   []Post  `json:"calls"`
	Contact *Person `json:"contact"` // contact at the end of the run; nil if the contact was deleted
	Ignored int     `json:"ignored"` // number of timetable entries that were due after the end of the run
	Omitted int     `json:"omitted"` // number of outputs, variables and bodies that exceeded MaxReport
}

// Entry describes one step of the run or one timetable entry in a report. The fields starting with Step are set only
// for steps.
type Entry struct {
	At       time.Time `json:"at"`
	After    string    `json:"after"`    // time since the start, in words
	Sentence string    `json:"happened"` // as a sentence
	Event    Text      `json:"event" nullable:"true"`
	Step     Text      `json:"step" nullable:"true"`
	Type     Text      `json:"type" nullable:"true"`
	Status   Text      `json:"status" nullable:"true"`
	Output   Output    `json:"output" nullable:"true"`
	Reason   Text      `json:"reason" nullable:"true"` // why the step failed
	Next     Text      `json:"next" nullable:"true"`   // key of the next step; empty while the step waits
}

// Mail is an email that a run would send.
type Mail struct {
	At        time.Time      `json:"at"`
	After     string         `json:"after"`
	Step      string         `json:"step"`
	To        string         `json:"to"`
	Template  string         `json:"template_id"`
	Variables map[string]any `json:"variables"` // strings and numbers; the template has fallbacks for missing variables
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

// Person is the simulated contact in a report.
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

// describeStep returns a sentence that describes what a step did, given the contact's email address.
func describeStep(r engine.Record, a engine.Action, to string) string {
	switch {
	case r.Failure != nil:
		return "Fails: " + r.Failure.Message
	case r.Status == engine.StepSkipped:
		return describeSkip(fmt.Sprint(r.Output["reason"]))
	case r.Status == engine.StepWaiting:
		return describeWait(a)
	}
	switch effect := a.Effect.(type) {
	case *engine.Email:
		return "Sends the template `" + effect.TemplateID + "` to " + to + "."
	case *engine.Update:
		return fmt.Sprintf("Changes %s.", joinNames(r.Output["changed"].([]any)))
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
		return "Follows the branch `" + a.Branch + "`."
	}
	return "The time has come."
}

// joinNames returns the names of the fields changed by an update, separated by commas.
func joinNames(names []any) string {
	all := make([]string, len(names))
	for i, name := range names {
		all[i] = fmt.Sprint(name)
	}
	return strings.Join(all, ", ")
}

func describeSkip(reason string) string {
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
		return "Does not wait, because the contact has no value for the date."
	case engine.BadDate:
		return "Does not wait, because the property is not a date."
	}
	return "Is skipped: " + reason + "."
}

func describeWait(a engine.Action) string {
	until := a.Wait.Until.Format("2006-01-02 15:04:05 MST")
	if a.Wait.Event == "" {
		return "Waits until " + until + "."
	}
	return fmt.Sprintf("Waits for the event `%s` until %s.", a.Output["event"], until)
}

// elapsed returns the time between start and at, in words.
func elapsed(start, at time.Time) string {
	if at.Sub(start) < time.Second {
		return "at once"
	}
	return schedule.Words(at.Sub(start))
}
