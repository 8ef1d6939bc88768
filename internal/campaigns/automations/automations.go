// Package automations sends contacts through graphs of steps. An event for a contact begins a run of every enabled
// automation that has a trigger for that event (API reference section 22). Package engine parses graphs and plans the
// steps of a run.
//
// # How a run advances
//
// A run is a database row and has one job until it ends. The job's handler plans the run's next step. One transaction
// writes the step's effect, the step's record, and the run's new position. If a step waits, the job is scheduled for
// the end of the wait. If a step waits for an event, the transaction also inserts a row that is used to find the run
// when the event arrives. The transaction in which an event ends a wait also begins a wait that directly follows.
// Every change to a run increments its revision, and fails if the revision has changed since the run was read. If a due
// job, an event and a cancellation try to change a run concurrently, the first to commit wins, and the other two read
// the run again.
//
// # Invariants
//
// A run always uses the automation version with which it began, and versions never change. The transaction that
// enqueues an email also advances the run, so each email is sent only once. Once an automation has been stopped or
// deleted, its runs carry out no more steps. Stopping or deleting increments the automation's epoch, and each step
// compares the run's epoch with the automation's.
//
// Deleting a contact cancels the contact's runs. The number of runs per contact is limited by the automation's reentry
// rule, by maxActive for active runs, and by maxHourly for new runs in an hour. The first event in an hour that exceeds
// a limit creates a failed run that states the reason. If each run causes the event that begins the next run, the chain
// ends after maxDepth runs.
//
// # Failures
//
// An event is stored together with the runs that it begins, or not at all. If a transaction records very many events,
// background jobs begin some of the runs afterwards. If a step cannot be carried out, the run fails with a reason.
// After a database error, the job is retried without limit. A webhook step's URL is called at least once.
//
// # Out of scope
//
// Package automations does not store events. The packages that record events call [Service.OnEvent] directly or through
// a recorder.
package automations

import (
	"time"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
)

// Limits of automations.
const (
	MaxName  = 255  // characters
	MaxTeam  = 1000 // maximum number of automations of a team
	MaxEvent = 50   // maximum number of enabled automations of a team that use the same event name

	maxVersions = 1000 // maximum number of stored versions of an automation

	maxActive = 20  // maximum number of active runs per contact and automation
	maxHourly = 100 // maximum number of runs per contact and automation that begin within an hour
	maxDepth  = 5   // maximum length of a chain of runs, each of which caused the event for the next
)

// Status says whether events can begin runs of an automation.
type Status string

const (
	Enabled  Status = "enabled"
	Disabled Status = "disabled"
)

// Reentry says whether an event may begin a run for a contact that has already had a run of the same automation.
type Reentry string

const (
	Always      Reentry = "always"         // each event begins a run, up to the limits; the default
	OnceAtATime Reentry = "once_at_a_time" // only if the contact has no active run of the automation
	Once        Reentry = "once"           // only if the contact has never had a run of the automation
)

// Automation is a graph of steps that contacts go through after an event.
type Automation struct {
	ID        string
	TeamID    string
	Name      string
	Status    Status
	Reentry   Reentry
	Version   int64 // the version that new runs use
	CreatedAt time.Time
	UpdatedAt time.Time
	Graph     *engine.Graph // nil in lists

	versionID string
	epoch     int64
	revision  int64
}

// RunStatus is the status of a run. The values of RunStatus are those that the public API uses.
type RunStatus string

const (
	Running   RunStatus = "running"
	Completed RunStatus = "completed"
	Failed    RunStatus = "failed"
	Cancelled RunStatus = "cancelled"
)

// Reason is the reason why a run failed or was cancelled: one of these constants, or the reason of the step that
// failed.
type Reason string

const (
	Stopped           Reason = "automation_stopped"
	AutomationDeleted Reason = "automation_deleted"
	ContactDeleted    Reason = "contact_deleted"
	RunCancelled      Reason = "run_cancelled"
	TooDeep           Reason = "too_many_automations"
	TooMany           Reason = "too_many_runs"
)

// Run is one execution of an automation for a contact.
type Run struct {
	ID           string
	TeamID       string
	AutomationID string
	ContactID    string
	Version      int64 // of the automation
	Status       RunStatus
	Reason       Reason
	Message      string    // the reason as a sentence; "" without one
	Event        string    // name of the event that began the run
	Step         string    // the key of the current step; "" once the run has ended
	WaitsUntil   time.Time // zero if the run does not wait
	WaitsFor     string    // the name of an event; "" for none
	CreatedAt    time.Time
	EndedAt      time.Time // zero if the run has not ended
	Steps        []RunStep // the steps that were begun, in order; always nil in list results

	epoch int64
}

// RunStep describes the result of one step of a run.
type RunStep struct {
	Key         string
	Type        engine.Type
	Status      engine.Status
	Output      map[string]any
	Failure     *engine.Failure
	StartedAt   time.Time
	CompletedAt time.Time // zero if the step has not completed
}
