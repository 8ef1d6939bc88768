// Package engine parses and validates the graphs of automations, and decides the next action of a run (API reference
// section 22). The user documentation for graphs is docs/automations.md.
//
// # How a run advances
//
// [Parse] returns an immutable [Graph]. A [Run] is always at one step of the graph. [Graph.Plan] returns the [Action]
// of that step: a wait, an effect, or a failure. Plan uses only the run and the [Facts] that the caller has looked up.
// The caller carries out the effect and passes its [Outcome] to [Graph.Done], which advances the run to the next step.
// [Graph.Receive] delivers an event to a run that waits for an event. Package automations stores runs in the database
// and calls Plan, Done and Receive from jobs. Package simulate calls Plan, Done and Receive for simulated contacts.
//
// # Invariants
//
// A graph has one to 150 steps and no cycle, and every step can be reached from a trigger, so every run ends. The
// results of Plan, Done and Receive depend only on their arguments. If a transaction fails, the step can therefore be
// planned again with the same result.
//
// # Failures
//
// Parse returns Invalid and Missing faults. A fault from Parse names its field by path, such as
// steps[2].config.template.id, and its message contains the key of the step. If a run cannot carry out a step, for
// example because a value is missing, Plan returns an action with a [Failure], but no error.
//
// # Out of scope
//
// Package engine does not access the database, send anything or read a clock.
package engine

import (
	"time"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/scalar"
)

// Limits on graphs (API reference section 22.1).
const (
	MaxSteps    = 150
	MaxKey      = 100                 // maximum length of a step's key, in characters
	MaxWait     = 30 * 24 * time.Hour // maximum duration of a delay and of a wait for an event
	MaxBranches = 10                  // maximum number of branches of a split
	MaxText     = 256 << 10           // maximum size of the JSON for all steps and connections, in bytes
	MaxReceived = 128 << 10           // maximum size of the received events that a run stores as JSON, in bytes
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

// The types of connections. The type of a connection that leaves a split is the name of the branch.
const (
	Default         = "default"
	ConditionMet    = "condition_met"
	ConditionNotMet = "condition_not_met"
	EventReceived   = "event_received"
	TimedOut        = "timeout"
)

// Event is an event for a contact. An event can begin runs, or end the wait of a step.
type Event struct {
	Name    string
	Payload map[string]any // JSON object as decoded by encoding/json
	At      time.Time
}

// Run is the part of a run's state that the engine needs.
type Run struct {
	ID       string           // determines which branches the run takes at splits
	At       string           // the key of the current step; "" once the run has ended
	Waits    *Wait            // non-nil while the run waits at the current step
	Event    Event            // event that began the run
	Received map[string]Event // keyed by waiting step; only the payload members that steps refer to
}

// Wait says how long a run waits, and which event can end the wait earlier.
type Wait struct {
	Until time.Time
	Event string // the name of an event that ends the wait earlier; "" for none
}

// Contact contains the data about a contact that steps can read.
type Contact struct {
	ID           string
	Address      string
	FirstName    string
	LastName     string
	Unsubscribed bool
	CreatedAt    time.Time
	Properties   map[string]scalar.Value // keyed by property name; only properties with a value or a fallback
}

// Facts are the data from outside the run that a step may use.
type Facts struct {
	Now     time.Time
	Contact *Contact // nil after the contact has been deleted

	// Fields returns the schema of the contact fields that a rule names, and a function that returns the value of such a
	// field for the run's contact. Plan calls Fields for conditions that read contact fields, unless Contact is nil. If
	// Fields returns a fault, the step fails. If Fields returns any other error, Plan returns that error.
	Fields func(rule *filter.Rule) (filter.Schema, func(name string) filter.Value, error)
}

// Action describes what a step does. At most one of Wait, Effect and Failure is set. A step that only chooses a
// connection, such as a condition, sets none of these three fields.
type Action struct {
	Step    *Step
	Wait    *Wait
	Effect  any // *Email, *Update, Deletion, *Addition or *Call
	Failure *Failure
	Skipped string         // why the step is skipped; "" if it is not
	Branch  string         // type of the connection that the run follows
	Output  map[string]any // output of the step, visible to users; nil if there is none
}

// Failure says why a step failed. Reason is a name such as template_not_found, and Message is a sentence that tells the
// user what to do.
type Failure struct{ Reason, Message string }

// Email is the effect of sending an email from a template. From, Subject and ReplyTo override the template's fields if
// they are not empty.
type Email struct {
	TemplateID             string // id or alias
	TopicID                string // "" for none
	Variables              map[string]scalar.Value
	From, Subject, ReplyTo string
}

// Update is the effect of changing the contact. A nil field leaves the corresponding field of the contact unchanged.
type Update struct {
	FirstName, LastName *string
	Unsubscribed        *bool
	Properties          map[string]scalar.Value // keyed by property name; the zero Value clears the property
}

// Deletion is the effect of deleting the contact.
type Deletion struct{}

// Addition is the effect of adding the contact to a segment.
type Addition struct{ SegmentID string }

// Call is the effect of a webhook step, which sends a POST request with a JSON body.
type Call struct {
	URL     string
	Headers map[string]string
	Body    []byte
}

// Outcome is the result of an effect.
type Outcome struct {
	Output  map[string]any // added to Action.Output
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

// Record is the stored result of a completed step, or the stored state of a waiting step.
type Record struct {
	Key         string
	Type        Type
	Status      Status
	Output      map[string]any
	Failure     *Failure
	StartedAt   time.Time // zero if a record for the waiting step is already stored
	CompletedAt time.Time // zero while the step waits
}
