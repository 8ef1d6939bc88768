// Package automations sends contacts through graphs of steps. An event of a contact begins a run of each enabled
// automation that has a trigger for it (API reference section 22). Package engine defines what graphs mean.
//
// # How a run advances
//
// A run is a row and, until it has ended, one job. The job's handler plans the next step. One transaction then writes
// the effect of the step, its record, and the run at its next step. If a step waits, the job waits for the same time.
// If the step waits for an event, a row lets the event find the run. Every change of a run increments its revision and
// fails if the revision is not the one that was read. If a due job, an event and a cancellation coincide, the first
// commit wins, and the others read the run again.
//
// # Invariants
//
// A run keeps the version of the automation with which it began, because versions never change. The transaction that
// enqueues an email also moves its run on, so the email is sent once. After an automation is stopped or deleted, its
// runs do nothing more. The automation's epoch is then greater than that of its runs, and each step compares the two.
//
// A deleted contact has no more runs. The automation's reentry rule limits the runs of a contact. The limits maxActive,
// for active runs, and maxHourly, for new runs in an hour, apply too. The first event in an hour that exceeds a limit
// creates a failed run that shows the reason. Runs that cause events that begin further runs end at maxDepth.
//
// # When it fails
//
// An event is stored together with the runs that it begins, or not at all. If very many events are recorded at once,
// jobs begin some of the runs later. If a step cannot be done, its run fails with a reason. After an error of the
// database the job is retried without limit. A webhook step is called at least once.
//
// # What it does not do
//
// The package stores no events. The packages that record events call [Service.OnEvent], or the recorder calls the
// service.
package automations

import (
	"time"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
)

// Limits of automations.
const (
	MaxName  = 255  // characters
	MaxTeam  = 1000 // automations of a team
	MaxEvent = 50   // enabled automations of a team with the same event name

	maxVersions = 1000 // versions of an automation with which runs may have begun

	maxActive = 20  // runs of one contact in one automation at once
	maxHourly = 100 // runs of one contact in one automation that may begin within an hour
	maxDepth  = 5   // runs in a chain in which each run caused the event that began the next
)

// Status says whether events begin runs of an automation.
type Status string

const (
	Enabled  Status = "enabled"
	Disabled Status = "disabled"
)

// Reentry says when an event may begin a run for a contact that has already had one of the same automation.
type Reentry string

const (
	Always      Reentry = "always"         // each event begins a run, within the limits; the default
	OnceAtATime Reentry = "once_at_a_time" // only if the contact has no active run of the automation
	Once        Reentry = "once"           // only the first time
)

// Automation is a graph of steps that contacts go through after an event.
type Automation struct {
	ID        string
	TeamID    string
	Name      string
	Status    Status
	Reentry   Reentry
	Version   int64 // the version with which new runs begin
	CreatedAt time.Time
	UpdatedAt time.Time
	Graph     *engine.Graph // nil in lists

	versionID string
	epoch     int64
	revision  int64
}

// RunStatus is the status of a run, as the public API spells it.
type RunStatus string

const (
	Running   RunStatus = "running"
	Completed RunStatus = "completed"
	Failed    RunStatus = "failed"
	Cancelled RunStatus = "cancelled"
)

// Reason is why a run failed or was cancelled: one of these constants, or the reason of the step that failed.
type Reason string

const (
	Stopped           Reason = "automation_stopped"
	AutomationDeleted Reason = "automation_deleted"
	ContactDeleted    Reason = "contact_deleted"
	RunCancelled      Reason = "run_cancelled"
	TooDeep           Reason = "too_many_automations"
	TooMany           Reason = "too_many_runs"
)

// Run is one pass of a contact through an automation.
type Run struct {
	ID           string
	TeamID       string
	AutomationID string
	ContactID    string
	Version      int64 // of the automation
	Status       RunStatus
	Reason       Reason
	Message      string    // the reason as a sentence; "" without one
	Event        string    // the event that began the run
	Step         string    // the key of the current step; "" once the run has ended
	WaitsUntil   time.Time // zero if the run does not wait
	WaitsFor     string    // the name of an event; "" for none
	CreatedAt    time.Time
	EndedAt      time.Time // zero if the run has not ended
	Steps        []RunStep // the steps that began, in order; nil in lists

	epoch int64
}

// RunStep is what a step of a run did.
type RunStep struct {
	Key         string
	Type        engine.Type
	Status      engine.Status
	Output      map[string]any
	Failure     *engine.Failure
	StartedAt   time.Time
	CompletedAt time.Time // zero if the step is not done
}
