// Package flow is the engine of automations: it reads and checks graphs of steps, decides what a run does next, and
// simulates runs with made-up time (API reference section 22). docs/automations.md describes graphs for users.
//
// # How a run goes on
//
// A [Graph] is made by [Parse] and never changes. A [Run] is at one step. [Graph.Plan] says what that step does, from
// the run and from [Facts] that the caller has looked up: it waits, has an effect, or fails. The caller carries out the
// effect and tells [Graph.Done] what came of it, which moves the run to the next step. [Graph.Receive] gives an
// event to a run that waits for one. Package automations does this with rows and jobs, and [Simulate] with what it is
// given; neither decides anything itself.
//
// # Invariants
//
// A graph has one to 150 steps, no cycle, and no step that a trigger does not lead to, so a run ends. Plan, Done and
// Receive depend on nothing but their arguments: the same run with the same facts does the same, so a step whose
// transaction was lost can be planned again.
//
// # When it fails
//
// Errors of Parse are Invalid and Missing faults whose field names the path, as in steps[2].config.template.id, and
// whose sentence names the step by its key. What cannot be done in a run, such as a reference to a value that is not
// there, is a [Failure] of the step and no error.
//
// # What it does not do
//
// It reads no rows, sends nothing and knows no clock.
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
	MaxWait     = 30 * 24 * time.Hour // of a delay, and of a wait for an event
	MaxBranches = 10                  // of a split
	MaxText     = 256 << 10           // octets of JSON of all steps and connections
	MaxReceived = 128 << 10           // octets of JSON of what a run keeps of the events that its waits received
)

// Type is the type of a step.
type Type string

// The types of steps. The last three are not those of other services.
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

// The types of connections, besides the names of the branches of a split.
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

// Run is what the engine knows of a run.
type Run struct {
	ID       string           // decides the branches of splits
	At       string           // the key of the step that it is at; "" once it has ended
	Waits    *Wait            // what it waits for at that step; nil before the step was planned
	Event    Event            // that began it
	Received map[string]Event // what the steps that waited received, by their keys: what some step refers to
}

// Wait is what a run waits for.
type Wait struct {
	Until time.Time
	Event string // the name of an event that ends the wait before; "" for none
}

// Contact is what steps read of the contact of a run.
type Contact struct {
	ID           string
	Address      string
	FirstName    string
	LastName     string
	Unsubscribed bool
	CreatedAt    time.Time
	Properties   map[string]scalar.Value // by name; those that it has a value of, or that have a fallback
}

// Facts are what is true at the moment of a step.
type Facts struct {
	Now     time.Time
	Contact *Contact // nil once it was deleted

	// Fields returns the schema of the fields of contacts that a rule names, and what they hold for the contact of the
	// run. It is called for conditions that read some, unless Contact is nil. Its faults fail the step; Plan returns
	// other errors.
	Fields func(rule *filter.Rule) (filter.Schema, func(name string) filter.Value, error)
}

// Action is what a step does. One of Wait, Effect and Failure is set, or none of them for a step that only leads on,
// such as a condition.
type Action struct {
	Step    *Step
	Wait    *Wait
	Effect  any // *Email, *Update, Deletion, *Addition or *Call
	Failure *Failure
	Skipped string         // why the step does nothing, "" if it does something
	Branch  string         // the type of the connection by which the run goes on
	Output  map[string]any // what is shown of the step; nil for nothing
}

// Failure is why a step failed: Reason is a name such as template_not_found, Message a sentence that says what to do.
type Failure struct{ Reason, Message string }

// Email is the effect of sending an email by a template. From, Subject and ReplyTo replace the template's if they are
// not empty.
type Email struct {
	TemplateID             string // id or alias
	TopicID                string // "" for none
	Variables              map[string]scalar.Value
	From, Subject, ReplyTo string
}

// Update is the effect of changing the contact. What is nil stays as it is.
type Update struct {
	FirstName, LastName *string
	Unsubscribed        *bool
	Properties          map[string]scalar.Value // by name; none removes the value
}

// Deletion is the effect of deleting the contact.
type Deletion struct{}

// Addition is the effect of adding the contact to a segment.
type Addition struct{ SegmentID string }

// Call is the effect of a webhook step: a POST of Body, as JSON.
type Call struct {
	URL     string
	Headers map[string]string
	Body    []byte
}

// Outcome is what came of an effect.
type Outcome struct {
	Output  map[string]any // added to that of the action
	Failure *Failure       // nil if it was done
	Skipped string         // why it was not done although nothing failed, "" if it was
}

// Status is what became of a step.
type Status string

// The statuses of a step.
const (
	StepRunning   Status = "running"
	StepWaiting   Status = "waiting"
	StepCompleted Status = "completed"
	StepFailed    Status = "failed"
	StepSkipped   Status = "skipped"
)

// Record is what is kept of a step that was done, or that waits.
type Record struct {
	Key         string
	Type        Type
	Status      Status
	Output      map[string]any
	Failure     *Failure
	StartedAt   time.Time // zero for a step that has waited: then it is that of the record of the wait
	CompletedAt time.Time // zero while it waits
}
