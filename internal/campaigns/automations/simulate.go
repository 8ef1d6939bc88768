package automations

import (
	"context"
	"fmt"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/automations/simulate"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/page"
)

// Simulation contains a graph and the scenario for its simulation.
type Simulation struct {
	AutomationID string // id of the automation with the graph; "" if Steps and Connections contain the graph
	Steps        []byte // JSON; requires Connections; nil means the automation's graph
	Connections  []byte
	Scenario     []byte // JSON in the format of simulate.ParseScenario
}

// Simulate runs a graph in simulated time, according to a scenario. Simulate sends no emails, calls no webhooks and
// changes no data. The simulation uses the team's contact properties, topics and segments, and assumes that templates
// and senders exist.
func (s *Service) Simulate(ctx context.Context, teamID string, of Simulation) (*simulate.Report, error) {
	var g *engine.Graph
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
	scenario, err := simulate.ParseScenario(of.Scenario, s.p.DB.Now())
	if err != nil {
		return nil, err
	}
	w, err := s.world(ctx, teamID)
	if err != nil {
		return nil, fmt.Errorf("look up what a simulation needs of a team: %w", err)
	}
	return simulate.Run(g, scenario, w)
}

// world returns the data about a team that a simulation needs.
func (s *Service) world(ctx context.Context, teamID string) (*simulate.World, error) {
	w := &simulate.World{Complete: true, Properties: map[string]simulate.Property{}, Topics: map[string]string{},
		Segment: func(segmentID string) (*engine.Failure, error) {
			of, err := s.p.Contacts.Segments.Get(ctx, teamID, segmentID)
			switch {
			case fault.KindOf(err) == fault.NotFound:
				return segmentGone(segmentID), nil
			case err == nil && of.Filter != "":
				return &engine.Failure{Reason: segmentFiltered, Message: "The segment " + segmentID + " has a filter, " +
					"which says who is in it."}, nil
			}
			return nil, err
		},
		Fields: func(rule *filter.Rule) (filter.Schema, error) {
			return s.p.Contacts.FilterSchema(ctx, s.p.DB.Reader, teamID, rule)
		}}
	properties, err := s.p.Contacts.PropertiesNamed(ctx, s.p.DB.Reader, teamID, nil)
	if err != nil {
		return nil, err
	}
	for _, p := range properties {
		w.Properties[p.Name] = simulate.Property{Type: p.Type, Fallback: p.Fallback}
	}
	topics, _, err := s.p.Contacts.Topics(ctx, teamID, page.Page{})
	for _, t := range topics {
		w.Topics[t.ID] = string(t.Default)
	}
	return w, err
}
