package api

import (
	"bytes"
	"context"
	"reflect"
	"strings"

	"github.com/danielgtaylor/huma/v2"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/campaigns/automations"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/automations/simulate"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
)

// stepList is the JSON form of a graph's steps, which package engine parses.
type stepList struct{ text jsontext.Value }

// UnmarshalJSONFrom reads any JSON value. A null value is treated as an absent field.
func (l *stepList) UnmarshalJSONFrom(d *jsontext.Decoder) (err error) {
	l.text, err = readPart(d, engine.MaxText)
	return err
}

// MarshalJSONTo writes the steps.
func (l stepList) MarshalJSONTo(e *jsontext.Encoder) error { return writeList(e, l.text) }

func (*stepList) ElementTypes() []reflect.Type { return nil }

// Schema describes a step without its config, which depends on the step's type (docs/automations.md).
func (stepList) Schema(huma.Registry) *huma.Schema {
	var types []any
	for _, t := range []engine.Type{engine.Trigger, engine.SendEmail, engine.Delay, engine.WaitForEvent, engine.Condition,
		engine.ContactUpdate, engine.ContactDelete, engine.AddToSegment, engine.Webhook, engine.Split, engine.WaitUntil} {
		types = append(types, string(t))
	}
	return &huma.Schema{Type: huma.TypeArray, MinItems: new(1), MaxItems: new(engine.MaxSteps),
		Items: &huma.Schema{Type: huma.TypeObject, Required: []string{"key", "type", "config"},
			Properties: map[string]*huma.Schema{
				"key": {Type: huma.TypeString,
					Description: "The key of the step, by which connections and rules name it."},
				"type": {Type: huma.TypeString, Enum: types, Description: "The kind of step."},
				"config": {Type: huma.TypeObject, Description: "The settings of the step, which depend on its type. The " +
					"guide to automations describes them."}}}}
}

// connectionList is the JSON form of a graph's connections.
type connectionList struct{ text jsontext.Value }

// UnmarshalJSONFrom reads any JSON value. A null value is treated as an absent field.
func (l *connectionList) UnmarshalJSONFrom(d *jsontext.Decoder) (err error) {
	l.text, err = readPart(d, engine.MaxText)
	return err
}

// MarshalJSONTo writes the connections.
func (l connectionList) MarshalJSONTo(e *jsontext.Encoder) error { return writeList(e, l.text) }

func (*connectionList) ElementTypes() []reflect.Type { return nil }

// Schema describes a connection. A connection's type may also be the name of a branch of a split step.
func (connectionList) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: huma.TypeArray, MaxItems: new(engine.MaxSteps * engine.MaxBranches),
		Items: &huma.Schema{Type: huma.TypeObject, Required: []string{"from", "to"},
			Properties: map[string]*huma.Schema{
				"from": {Type: huma.TypeString, Description: "The key of the step that the connection leaves."},
				"to":   {Type: huma.TypeString, Description: "The key of the step that follows."},
				"type": {Type: huma.TypeString, Default: engine.Default, Description: "default, condition_met, " +
					"condition_not_met, event_received, timeout, or the name of a branch of a split."}}}}
}

// scenarioPart is the JSON form of a scenario.
type scenarioPart struct{ text jsontext.Value }

// UnmarshalJSONFrom reads any JSON value. A null value is treated as an absent field.
func (p *scenarioPart) UnmarshalJSONFrom(d *jsontext.Decoder) (err error) {
	p.text, err = readPart(d, simulate.MaxScenario)
	return err
}

func (*scenarioPart) ElementTypes() []reflect.Type { return nil }

// Schema describes a scenario as an object without fields. docs/automations.md describes the fields.
func (scenarioPart) Schema(huma.Registry) *huma.Schema { return &huma.Schema{Type: huma.TypeObject} }

// readPart returns the next JSON value, or nil for null, and rejects values longer than limit bytes.
func readPart(d *jsontext.Decoder, limit int) (jsontext.Value, error) {
	value, err := d.ReadValue()
	if err != nil || value.Kind() == 'n' {
		return nil, err
	}
	if len(value) > limit {
		field := wire.FieldName(d)
		return nil, fault.Invalidf(field, "The `%s` field has %d octets of JSON; the limit is %d.", field, len(value),
			limit)
	}
	return bytes.Clone(value), nil
}

// formerEdges detects the field "edges", a former name for connections that is no longer accepted.
type formerEdges struct{ given bool }

// UnmarshalJSONFrom reads any JSON value. A null value is treated as an absent field.
func (e *formerEdges) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	value, err := d.ReadValue()
	e.given = err == nil && value.Kind() != 'n'
	return err
}

func (*formerEdges) ElementTypes() []reflect.Type { return nil }

func (e formerEdges) refuse() error {
	if !e.given {
		return nil
	}
	return fault.Invalidf("edges", "The `edges` field is called `connections` now.")
}

func writeList(e *jsontext.Encoder, text jsontext.Value) error {
	if text == nil {
		text = jsontext.Value("[]")
	}
	return e.WriteValue(text)
}

type createAutomationIn struct {
	Name        string         `json:"name" minLength:"1" maxLength:"255" example:"Welcome series"`
	Status      string         `json:"status,omitzero" enum:"enabled,disabled" default:"disabled"`
	Reentry     string         `json:"reentry,omitzero" doc:"Whether an event starts a run for a contact that already had one. always: every event does. once_at_a_time: only if no run is active. once: never again. In any case, a contact can have 20 active runs of an automation and start 100 per hour. The first event above these limits creates a failed run with the reason too_many_runs; further events in that hour are ignored." enum:"always,once_at_a_time,once" default:"always"`
	Steps       stepList       `json:"steps" doc:"The steps, with at least one trigger."`
	Connections connectionList `json:"connections" doc:"May be empty only if the trigger is the only step."`
	Edges       formerEdges    `json:"edges,omitzero" hidden:"true"`
}

type updateAutomationIn struct {
	Name        *string        `json:"name,omitzero" nullable:"false" minLength:"1" maxLength:"255"`
	Status      *string        `json:"status,omitzero" nullable:"false" enum:"enabled,disabled"`
	Reentry     *string        `json:"reentry,omitzero" nullable:"false" enum:"always,once_at_a_time,once"`
	Steps       stepList       `json:"steps,omitzero" doc:"Required if connections is given. Active runs keep the steps that they started with."`
	Connections connectionList `json:"connections,omitzero" doc:"Required if steps is given."`
	Edges       formerEdges    `json:"edges,omitzero" hidden:"true"`
}

// AutomationItem represents an automation in a list. AutomationItem is exported because Huma skips the fields of
// unexported embedded types.
type AutomationItem struct {
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	Status    string      `json:"status" enum:"enabled,disabled"`
	Reentry   string      `json:"reentry" enum:"always,once_at_a_time,once"`
	Version   int64       `json:"version" doc:"The version of the steps that new runs use, counted from 1."`
	CreatedAt wire.DBTime `json:"created_at"`
	UpdatedAt wire.DBTime `json:"updated_at"`
}

func automationToItem(a automations.Automation) AutomationItem {
	return AutomationItem{a.ID, a.Name, string(a.Status), string(a.Reentry), a.Version, wire.DBTime(a.CreatedAt),
		wire.DBTime(a.UpdatedAt)}
}

type automationWire struct {
	Object string `json:"object"`
	AutomationItem
	Steps       stepList       `json:"steps" doc:"Without automations:write, the values of headers and the queries of URLs in webhook steps are masked."`
	Connections connectionList `json:"connections"`
}

type automationStatus struct {
	Object string `json:"object"`
	ID     string `json:"id"`
	Status string `json:"status" enum:"enabled,disabled"`
}

func (a *API) createAutomation(ctx context.Context, c *wire.Call, in createAutomationIn) (ref, error) {
	if err := in.Edges.refuse(); err != nil {
		return ref{}, err
	}
	made, err := a.Services.Automations.Create(ctx, c.TeamID, automations.NewAutomation{Name: in.Name,
		Status: automations.Status(in.Status), Reentry: automations.Reentry(in.Reentry), Steps: in.Steps.text,
		Connections: in.Connections.text, By: c.Actor.Ref()})
	return ref{"automation", made.ID}, err
}

func (a *API) listAutomations(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[AutomationItem], error) {
	p, err := c.Page(20)
	if err != nil {
		return wire.List[AutomationItem]{}, err
	}
	all, more, err := a.Services.Automations.List(ctx, c.TeamID, automations.Status(c.Query().Get("status")), p)
	return wire.ListOf(all, more, automationToItem), err
}

func (a *API) getAutomation(ctx context.Context, c *wire.Call, _ wire.None) (automationWire, error) {
	id, err := c.ID("automation_id")
	if err != nil {
		return automationWire{}, err
	}
	one, err := a.Services.Automations.Get(ctx, c.TeamID, id)
	if err != nil {
		return automationWire{}, err
	}
	steps := jsontext.Value(one.Graph.StepsJSON())
	if !c.Scopes.Has(teams.AutomationsWrite) {
		if steps, err = hideStepCredentials(steps); err != nil {
			return automationWire{}, err
		}
	}
	return automationWire{"automation", automationToItem(one), stepList{steps},
		connectionList{one.Graph.ConnectionsJSON()}}, nil
}

type automationSecret struct {
	Object        string `json:"object"`
	SigningSecret string `json:"signing_secret" doc:"The secret of the team, which never changes."`
}

// automationSecret returns the secret that is used to sign requests from webhook steps. As with a webhook's secret,
// reading this secret requires a scope that ends in :write.
func (a *API) automationSecret(_ context.Context, c *wire.Call, _ wire.None) (automationSecret, error) {
	return automationSecret{"automation", a.Services.Webhooks.CallSecret(c.TeamID)}, nil
}

func (a *API) updateAutomation(ctx context.Context, c *wire.Call, in updateAutomationIn) (ref, error) {
	if err := in.Edges.refuse(); err != nil {
		return ref{}, err
	}
	id, err := c.ID("automation_id")
	if err != nil {
		return ref{}, err
	}
	_, err = a.Services.Automations.Update(ctx, c.TeamID, id, automations.Change{Name: in.Name,
		Status: (*automations.Status)(in.Status), Reentry: (*automations.Reentry)(in.Reentry), Steps: in.Steps.text,
		Connections: in.Connections.text, By: c.Actor.Ref()})
	return ref{"automation", id}, err
}

func (a *API) deleteAutomation(ctx context.Context, c *wire.Call, _ wire.None) (gone, error) {
	id, err := c.ID("automation_id")
	if err != nil {
		return gone{}, err
	}
	return gone{"automation", id, true}, a.Services.Automations.Delete(ctx, c.TeamID, id)
}

func (a *API) duplicateAutomation(ctx context.Context, c *wire.Call, _ wire.None) (ref, error) {
	id, err := c.ID("automation_id")
	if err != nil {
		return ref{}, err
	}
	made, err := a.Services.Automations.Duplicate(ctx, c.TeamID, id)
	return ref{"automation", made.ID}, err
}

func (a *API) stopAutomation(ctx context.Context, c *wire.Call, _ wire.None) (automationStatus, error) {
	id, err := c.ID("automation_id")
	if err != nil {
		return automationStatus{}, err
	}
	one, err := a.Services.Automations.Stop(ctx, c.TeamID, id)
	return automationStatus{"automation", id, string(one.Status)}, err
}

// runWait is the event or time that a run is waiting for.
type runWait struct {
	Step  string      `json:"step" doc:"The key of the step."`
	Event *string     `json:"event" doc:"The event that ends the wait early; null if there is none."`
	Until wire.DBTime `json:"until"`
}

// RunItem represents an automation run in a list. RunItem is exported because Huma skips the fields of unexported
// embedded types.
type RunItem struct {
	ID          string      `json:"id"`
	Status      string      `json:"status" enum:"running,completed,failed,cancelled"`
	StartedAt   wire.DBTime `json:"started_at"`
	CompletedAt wire.DBTime `json:"completed_at" nullable:"true"`
	CreatedAt   wire.DBTime `json:"created_at"`
	ContactID   string      `json:"contact_id" doc:"The ID of the contact, who may have been deleted."`
	Version     int64       `json:"version" doc:"The version of the steps that this run uses."`
	Event       string      `json:"event" doc:"The event that started the run."`
	Reason      *string     `json:"reason" doc:"Why the run failed or was cancelled."`
	Waiting     *runWait    `json:"waiting" doc:"The event or time that the run waits for; null if it does not wait."`
}

func runToItem(r automations.Run) RunItem {
	i := RunItem{r.ID, string(r.Status), wire.DBTime(r.CreatedAt), wire.DBTime(r.EndedAt), wire.DBTime(r.CreatedAt),
		r.ContactID, r.Version, r.Event, orNull(string(r.Reason)), nil}
	if !r.WaitsUntil.IsZero() {
		i.Waiting = &runWait{r.Step, orNull(r.WaitsFor), wire.DBTime(r.WaitsUntil)}
	}
	return i
}

// stepError says why a step failed, or why a step was skipped when its run ended. If a step was skipped for another
// reason, its output contains the reason.
type stepError struct {
	Reason  string `json:"reason"`
	Message string `json:"message"`
}

type runStepWire struct {
	Key         string          `json:"key"`
	Type        string          `json:"type"`
	Status      string          `json:"status" enum:"pending,running,waiting,completed,failed,skipped"`
	StartedAt   wire.DBTime     `json:"started_at" nullable:"true"`
	CompletedAt wire.DBTime     `json:"completed_at" nullable:"true"`
	Output      simulate.Output `json:"output" nullable:"true" doc:"The result of the step; for a skipped step, the reason."`
	Error       *stepError      `json:"error"`
	CreatedAt   wire.DBTime     `json:"created_at"`
}

func runStepToWire(s automations.RunStep) runStepWire {
	w := runStepWire{s.Key, string(s.Type), string(s.Status), wire.DBTime(s.StartedAt), wire.DBTime(s.CompletedAt),
		s.Output, nil, wire.DBTime(s.StartedAt)}
	if s.Failure != nil {
		w.Error = &stepError{s.Failure.Reason, s.Failure.Message}
	}
	return w
}

type runWire struct {
	Object string `json:"object"`
	RunItem
	Message *string       `json:"message" doc:"The reason as a sentence."`
	Steps   []runStepWire `json:"steps" doc:"The steps that were started, in the order of the graph."`
}

// runList is a page of runs. A page can have fewer runs than the limit even if more runs match, because each request
// reads a limited number of rows.
type runList struct {
	Object  string    `json:"object"`
	HasMore bool      `json:"has_more"`
	Data    []RunItem `json:"data"`
	Next    string    `json:"next,omitzero" doc:"Present if few of very many runs match and there may be more. Pass it as after (or before) to continue the search."`
}

func (a *API) listRuns(ctx context.Context, c *wire.Call, _ wire.None) (runList, error) {
	id, err := c.ID("automation_id")
	if err != nil {
		return runList{}, err
	}
	p, err := c.Page(20)
	if err != nil {
		return runList{}, err
	}
	var statuses []automations.RunStatus
	if text := c.Query().Get("status"); text != "" {
		for status := range strings.SplitSeq(text, ",") {
			statuses = append(statuses, automations.RunStatus(strings.TrimSpace(status)))
		}
	}
	all, more, next, err := a.Services.Automations.Runs(ctx, c.TeamID, id, statuses, p)
	l := wire.ListOf(all, more, runToItem)
	return runList{l.Object, l.HasMore, l.Data, next}, err
}

func (a *API) getRun(ctx context.Context, c *wire.Call, _ wire.None) (runWire, error) {
	id, err := c.ID("automation_id")
	if err != nil {
		return runWire{}, err
	}
	runID, err := c.ID("run_id")
	if err != nil {
		return runWire{}, err
	}
	r, err := a.Services.Automations.Run(ctx, c.TeamID, id, runID)
	if !c.Scopes.Has(teams.AutomationsWrite) {
		for i := range r.Steps {
			r.Steps[i].Output = hideOutputCredentials(r.Steps[i].Type, r.Steps[i].Output)
		}
	}
	return runWire{"automation_run", runToItem(r), orNull(r.Message), wire.Items(r.Steps, runStepToWire)}, err
}

type simulateIn struct {
	Steps       stepList       `json:"steps,omitzero" doc:"Simulates these steps instead of the automation's own."`
	Connections connectionList `json:"connections,omitzero" doc:"Required if steps is given."`
	Scenario    scenarioPart   `json:"scenario" doc:"An imaginary contact, the event that starts a run, and a schedule of later events."`
}

type simulationWire struct {
	Object string `json:"object"`
	simulate.Report
}

func (a *API) simulate(ctx context.Context, c *wire.Call, automationID string, in *simulateIn) (simulationWire, error) {
	r, err := a.Services.Automations.Simulate(ctx, c.TeamID, automations.Simulation{AutomationID: automationID,
		Steps: in.Steps.text, Connections: in.Connections.text, Scenario: in.Scenario.text})
	if err != nil {
		return simulationWire{}, err
	}
	if !c.Scopes.Has(teams.AutomationsWrite) {
		return simulationWire{"automation_simulation", hideReportCredentials(*r)}, nil
	}
	return simulationWire{"automation_simulation", *r}, nil
}

func (a *API) simulateGraph(ctx context.Context, c *wire.Call, in simulateIn) (simulationWire, error) {
	return a.simulate(ctx, c, "", &in)
}

func (a *API) simulateAutomation(ctx context.Context, c *wire.Call, in simulateIn) (simulationWire, error) {
	id, err := c.ID("automation_id")
	if err != nil {
		return simulationWire{}, err
	}
	return a.simulate(ctx, c, id, &in)
}

func (a *API) cancelRun(ctx context.Context, c *wire.Call, _ wire.None) (ref, error) {
	id, err := c.ID("automation_id")
	if err != nil {
		return ref{}, err
	}
	runID, err := c.ID("run_id")
	if err != nil {
		return ref{}, err
	}
	return ref{"automation_run", runID}, a.Services.Automations.CancelRun(ctx, c.TeamID, id, runID)
}
