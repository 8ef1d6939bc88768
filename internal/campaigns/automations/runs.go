package automations

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/page"
)

// maxCount is the number of runs at which CountRuns stops.
const maxCount = 100_000

// CountRuns returns how many of a team's runs began at or after a given time; it counts up to 100,000. Runs that were
// deleted because of the team's retention, and runs of deleted automations, are not counted.
func (s *Service) CountRuns(ctx context.Context, teamID string, since time.Time) (int, error) {
	return countRuns(ctx, s.p.DB.Reader, teamID, since, maxCount)
}

// Runs returns a page of an automation's runs, newest first and without their steps. An empty list of statuses selects
// all runs. If only a few of very many rows match, a page may have fewer runs than its limit, even though more runs
// exist. If a page ends early, the result next is the cursor for continuing in the same direction.
func (s *Service) Runs(ctx context.Context, teamID, automationID string, statuses []RunStatus, p page.Page) (all []Run,
	more bool, next string, err error) {
	known := []RunStatus{Running, Completed, Failed, Cancelled}
	for _, status := range statuses {
		if !slices.Contains(known, status) {
			return nil, false, "", fault.Invalidf("status", "The `status` parameter must be a list of `running`, "+
				"`completed`, `failed` and `cancelled`, with commas.")
		}
	}
	of, err := getAutomation(ctx, s.p.DB.Reader, teamID, automationID)
	if err != nil {
		return nil, false, "", err
	}
	if p.Limit == 0 {
		p.Limit = page.Most
	}
	lists := runLists(&of, statuses)
	for i := range lists {
		some, beyond, from, err := lists[i].search(ctx, s.p.DB.Reader, p)
		if err != nil {
			return nil, false, "", err
		}
		all, more = append(all, some...), more || beyond
		if from != "" && (next == "" || closer(p, from, next)) {
			next = from
		}
	}
	all, more, next = mergeRuns(all, more, next, p)
	for i := range all {
		all[i].applyEpoch(of.epoch)
	}
	return all, more, next, nil
}

// closer reports whether run id a is nearer to the page's cursor than run id b.
func closer(p page.Page, a, b string) bool {
	if p.Before != "" {
		return a < b
	}
	return a > b
}

// mergeRuns merges runs from several lists into one page. If a run is in several lists, mergeRuns uses the run from the
// first of these lists. If next is not empty, one of the lists was read only up to the run id in next.
func mergeRuns(all []Run, more bool, next string, p page.Page) ([]Run, bool, string) {
	slices.SortStableFunc(all, func(a, b Run) int {
		if p.Before != "" {
			return cmp.Compare(a.ID, b.ID)
		}
		return cmp.Compare(b.ID, a.ID)
	})
	all = slices.CompactFunc(all, func(a, b Run) bool { return a.ID == b.ID })
	if next != "" {
		all = slices.DeleteFunc(all, func(r Run) bool { return closer(p, next, r.ID) })
		more = true
	}
	if len(all) > p.Limit {
		all, more = all[:p.Limit], true
	}
	if len(all) == p.Limit {
		next = "" // not needed, because the caller uses the last run as cursor
	}
	if p.Before != "" {
		slices.Reverse(all)
	}
	return all, more, next
}

// applyEpoch changes the status of a running run to cancelled if the run's epoch is older than the automation's. A job
// will end runs from older epochs later, but users must see them as cancelled immediately. The message that explains
// the run's reason is also set.
func (r *Run) applyEpoch(epoch int64) {
	if r.Status == Running && r.epoch < epoch {
		r.Status, r.Reason = Cancelled, Stopped
		r.Step, r.WaitsFor, r.WaitsUntil = "", "", time.Time{}
	}
	r.Message = reasonMessages[r.Reason]
}

// reasonMessages are the messages for reasons that do not come from a step.
var reasonMessages = map[Reason]string{
	Stopped:           "The automation was stopped.",
	AutomationDeleted: "The automation was deleted.",
	ContactDeleted:    "The contact was deleted.",
	RunCancelled:      "The run was cancelled.",
	TooDeep: "Too many automations each caused the event that began the next. Change one of them, so that they do " +
		"not trigger each other.",
	TooMany: fmt.Sprintf("A contact has at most %d runs of an automation at once, and begins at most %d within an hour. "+
		"Further events begin no runs; a run like this one shows it once an hour.", maxActive, maxHourly),
}

// Run returns a run with all steps that were begun, in the order in which they began.
func (s *Service) Run(ctx context.Context, teamID, automationID, runID string) (Run, error) {
	of, err := getAutomation(ctx, s.p.DB.Reader, teamID, automationID)
	if err != nil {
		return Run{}, err
	}
	r, g, err := getRun(ctx, s.p.DB.Reader, teamID, automationID, runID)
	if err != nil {
		return r, err
	}
	if r.Steps, err = stepsOf(ctx, s.p.DB.Reader, teamID, runID); err != nil {
		return r, err
	}
	r.applyEpoch(of.epoch)
	types := make(map[string]engine.Type, len(g.Steps))
	for i := range g.Steps {
		types[g.Steps[i].Key] = g.Steps[i].Type
	}
	for i := range r.Steps {
		step := &r.Steps[i]
		step.Type = types[step.Key]
		if r.Status == Cancelled && step.CompletedAt.IsZero() {
			step.Status, step.Failure = engine.StepSkipped, &engine.Failure{Reason: string(r.Reason), Message: r.Message}
		}
		if r.Status == Failed && r.Message == "" && step.Failure != nil {
			r.Message = step.Failure.Message
		}
	}
	return r, nil
}
