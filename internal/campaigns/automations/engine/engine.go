// Package engine parses and checks the graphs of automations, and decides what a run does next (API reference section
// 22). docs/automations.md describes graphs for users.
//
// # How a run advances
//
// [Parse] returns a [Graph], which never changes. A [Run] is at one step. [Graph.Plan] says what that step does: it
// waits, has an effect, or fails. Plan decides from the run and from [Facts] that the caller has looked up. The caller
// carries out the effect and passes its [Outcome] to [Graph.Done], which moves the run to the next step.
// [Graph.Receive] delivers an event to a run that waits for one. Package automations calls these functions with rows
// and jobs; package simulate calls them with made-up data.
//
// # Invariants
//
// A graph has one to 150 steps and no cycle, and every step can be reached from a trigger, so every run ends. Plan,
// Done and Receive depend only on their arguments. A step whose transaction was lost can therefore be planned again.
//
// # When it fails
//
// Parse returns Invalid and Missing faults. The field of a fault is the path, such as steps[2].config.template.id, and
// its message names the step by its key. If a step cannot be done in a run, for example because a value is missing, the
// step gets a [Failure], not an error.
//
// # What it does not do
//
// The package reads no rows, sends nothing and knows no clock.
package engine

import (
	"time"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/scalar"
)

// Limits of graphs (API reference section 22.1).
const (
	MaxSteps    = 150
	MaxKey      = 100                 // characters of the key of a step
	MaxWait     = 30 * 24 * time.Hour // longest delay and longest wait for an event
	MaxBranches = 10                  // branches of a split
	MaxText     = 256 << 10           // bytes of JSON of all steps and connections
	MaxReceived = 128 << 10           // bytes of JSON that a run stores of the events it received
)

// Type is the type of a step.
type Type string

const (
	Trigger       Type = "trigger"
	SendEmail     Type = "send_email"
	Delay         Type = "delay"
	WaitForEvent  Type = "wait_for_event"
	Condition     Type = "condition"
	ContactUpdate Type = "contact_update"
	ContactDelete Type = "contact_delete"
	AddToSegment  Type = "add_to_segment"
	Webhook       Type = "webhook"
	Split         Type = "split"
	WaitUntil     Type = "wait_until"
)

// The types of connections. The names of the branches of a split are types too.
const (
	Default         = "default"
	ConditionMet    = "condition_met"
	ConditionNotMet = "condition_not_met"
	EventReceived   = "event_received"
	TimedOut        = "timeout"
)

// Event is something that happened to a contact.
type Event struct {
	Name    string
	Payload map[string]any // as encoding/json decodes an object
	At      time.Time
}

// Run is the part of a run that the engine needs.
type Run struct {
	ID       string           // chooses the branches of splits
	At       string           // the key of the current step; "" once the run has ended
	Waits    *Wait            // set while the run waits; nil before the step was planned
	Event    Event            // the event that began the run
	Received map[string]Event // events received, by the key of the waiting step; only members that a step refers to
}

// Wait says until when a run waits and which event ends the wait earlier.
type Wait struct {
	Until time.Time
	Event string // the name of an event that ends the wait earlier; "" for none
}

// Contact is the data of a contact that steps can read.
type Contact struct {
	ID           string
	Address      string
	FirstName    string
	LastName     string
	Unsubscribed bool
	CreatedAt    time.Time
	Properties   map[string]scalar.Value // by name; properties with a value or a fallback
}

// Facts are what the caller knows at the moment of a step.
type Facts struct {
	Now     time.Time
	Contact *Contact // nil after the contact was deleted

	// Fields returns the schema of the contact fields that a rule names. The returned function returns the value of
	// such a field for the contact of the run. Plan calls Fields for conditions that read contact fields, unless
	// Contact is nil. If Fields returns a fault, the step fails; Plan returns other errors.
	Fields func(rule *filter.Rule) (filter.Schema, func(name string) filter.Value, error)
}

// Action is what a step does. At most one of Wait, Effect and Failure is set. None of the three is set for a step that
// only chooses a connection, such as a condition.
type Action struct {
	Step    *Step
	Wait    *Wait
	Effect  any // *Email, *Update, Deletion, *Addition or *Call
	Failure *Failure
	Skipped string         // why the step is skipped; "" if it is not
	Branch  string         // the type of the connection that the run follows
	Output  map[string]any // shown to users; nil for nothing
}

// Failure is why a step failed: Reason is a name such as template_not_found, Message is a sentence that says what to
// do.
type Failure struct{ Reason, Message string }

// Email is the effect that sends an email by a template. From, Subject and ReplyTo override those of the template if
// they are not empty.
type Email struct {
	TemplateID             string // id or alias
	TopicID                string // "" for none
	Variables              map[string]scalar.Value
	From, Subject, ReplyTo string
}

// Update is the effect that changes the contact. Nil fields stay unchanged.
type Update struct {
	FirstName, LastName *string
	Unsubscribed        *bool
	Properties          map[string]scalar.Value // by name; the zero Value removes the value
}

// Deletion is the effect that deletes the contact.
type Deletion struct{}

// Addition is the effect that adds the contact to a segment.
type Addition struct{ SegmentID string }

// Call is the effect of a webhook step: a POST request with the JSON in Body.
type Call struct {
	URL     string
	Headers map[string]string
	Body    []byte
}

// Outcome is the result of an effect.
type Outcome struct {
	Output  map[string]any // added to the output of the action
	Failure *Failure       // nil if the effect succeeded
	Skipped string         // why the effect was skipped; "" if it was not
}

// Status is the status of a step.
type Status string

const (
	StepRunning   Status = "running"
	StepWaiting   Status = "waiting"
	StepCompleted Status = "completed"
	StepFailed    Status = "failed"
	StepSkipped   Status = "skipped"
)

// Record is what the caller stores about a step that was done or that waits.
type Record struct {
	Key         string
	Type        Type
	Status      Status
	Output      map[string]any
	Failure     *Failure
	StartedAt   time.Time // zero if the record of the wait already has it
	CompletedAt time.Time // zero while the step waits
}
