package automations

import (
	"context"

	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/flow"
)

// Simulation is a graph and a scenario to go through it by made-up time.
type Simulation struct {
	AutomationID string // whose graph it is, "" for that of Steps and Connections alone
	Steps        []byte // JSON; together with Connections. Nil for the automation's own
	Connections  []byte
	Scenario     []byte // JSON, as flow.ParseScenario reads it
}

// Simulate goes through a graph by made-up time. Nothing is sent, changed or called; what the steps name is taken to be
// there.
func (s *Service) Simulate(ctx context.Context, teamID string, of Simulation) (*flow.Report, error) {
	var g *flow.Graph
	if of.AutomationID != "" {
		a, err := s.Get(ctx, teamID, of.AutomationID)
		if err != nil {
			return nil, err
		}
		g = a.Graph
	}
	if g == nil || !absent(of.Steps) || !absent(of.Connections) {
		var err error
		if g, err = parse(of.Steps, of.Connections); err != nil {
			return nil, err
		}
	}
	if absent(of.Scenario) {
		return nil, fault.MissingField("scenario")
	}
	scenario, err := flow.ParseScenario(of.Scenario, s.p.DB.Now())
	if err != nil {
		return nil, err
	}
	return flow.Simulate(g, scenario)
}
