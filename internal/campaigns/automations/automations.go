// Package automations sends contacts through graphs of steps: when an event happens to a contact, it begins a run of
// each enabled automation with a trigger for the event (API reference section 22). Package flow says what the graphs
// mean.
//
// # How a run goes on
//
// A run is a row and, until it has ended, one job. The job's handler plans the next step from what it reads, and one
// transaction has the effect of the step, what is kept of it, and the run at its next step. A step that waits leaves
// the job with the time at which the wait ends; if it waits for an event, it leaves a row by which the event finds it.
// Whatever changes a run makes its revision greater, and does so only if that is as it was read: of a due job, an event
// and a cancellation that come at the same time, the first to commit decides, and the others look at the run again.
//
// # Invariants
//
// A run keeps the version of its automation with which it began: versions never change. An email is entered by the
// transaction that moves its run on, so it is sent once. A run of an automation that was stopped or deleted does
// nothing from that commit on: the automation's epoch is greater than the run's, and each step compares the two.
//
// A contact that was deleted has no more runs. What it may begin is limited: by the automation's rule of entry, by
// maxActive runs of an automation at once and maxHourly begun in an hour. The first event in an hour that is beyond these
// leaves a run that has failed and says so. Runs whose steps cause events that begin further runs end at maxDepth.
//
// # When it fails
//
// An event is stored with the runs that it begins, or with jobs that begin them where it comes with very many others, or
// not at all. A step that cannot be done fails its run with a reason; an error of the database is tried again without end.
// A webhook step is called at least once.
//
// # What it does not do
//
// It keeps no events. Whoever records them calls [Service.Happened], or they come from the recorder.
package automations

import (
	"time"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
)

// Limits of automations.
const (
	MaxName  = 255  // characters
	MaxTeam  = 1000 // automations of a team
	MaxEvent = 50   // enabled automations of one event name of a team

	maxVersions = 1000 // of an automation with which runs can have begun

	maxActive = 20  // runs of one contact in one automation at once
	maxHourly = 100 // runs of one contact in one automation that begin within an hour
	maxDepth  = 5   // runs of which each caused the event that began the next
)

// Status says whether events begin runs of an automation.
type Status string

// The statuses.
const (
	Enabled  Status = "enabled"
	Disabled Status = "disabled"
)

// Reentry says when an event begins a run for a contact that has had one of the same automation.
type Reentry string

// The rules of entry.
const (
	Always      Reentry = "always"         // with each event, within the limits; the default
	OnceAtATime Reentry = "once_at_a_time" // unless a run of it has not ended
	Once        Reentry = "once"           // never again
)

// Automation is what happens to a contact after an event.
type Automation struct {
	ID        string
	TeamID    string
	Name      string
	Status    Status
	Reentry   Reentry
	Version   int64 // the number of the version with which runs begin
	CreatedAt time.Time
	UpdatedAt time.Time
	Graph     *engine.Graph // nil in lists

	versionID string
	epoch     int64
	revision  int64
}

// RunStatus is how far a run is.
type RunStatus string

// The statuses of runs, as the public API spells them.
const (
	Running   RunStatus = "running"
	Completed RunStatus = "completed"
	Failed    RunStatus = "failed"
	Cancelled RunStatus = "cancelled"
)

// Reason is why a run failed or was cancelled: one of these, or the reason of the step that failed.
type Reason string

// The reasons.
const (
	Stopped           Reason = "automation_stopped"
	AutomationDeleted Reason = "automation_deleted"
	ContactDeleted    Reason = "contact_deleted"
	RunCancelled      Reason = "run_cancelled"
	TooDeep           Reason = "too_many_automations"
	TooMany           Reason = "too_many_runs"
)

// Run is a contact on its way through an automation.
type Run struct {
	ID           string
	TeamID       string
	AutomationID string
	ContactID    string
	Version      int64 // the number of the version
	Status       RunStatus
	Reason       Reason
	Message      string    // the reason as a sentence; "" without one
	Event        string    // that began it
	Step         string    // the key of the step that it is at; "" once it has ended
	WaitsUntil   time.Time // zero when it does not wait
	WaitsFor     string    // the name of an event; "" for none
	CreatedAt    time.Time
	EndedAt      time.Time // zero before
	Steps        []RunStep // only for a single run, not in lists; those that were begun, in their order

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
	CompletedAt time.Time // zero before
}
