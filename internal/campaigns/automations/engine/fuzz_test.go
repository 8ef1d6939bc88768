package engine_test

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/lib/fault"
)

// FuzzParse checks four properties. For every input, Parse returns either a graph or a fault with a path. The JSON of a
// graph can be parsed into the same graph. Every run of a graph ends, whatever the outcomes of its steps are. Planning
// a step twice returns the same action.
func FuzzParse(f *testing.F) {
	f.Add(everything, everythingConnected, uint64(1))
	f.Add("["+start+"]", "[]", uint64(2))
	steps, connections := line("delay", `{"duration":"1 day"}`, "contact_delete", `{}`)
	f.Add(steps, connections, uint64(3))
	f.Add(`[{"key":"a","type":"trigger","config":{"event_name":"e"}},{"key":"b","type":"split","config":{"branches":
		[{"name":"x","percent":50},{"name":"y","percent":50}]}}]`, `[{"from":"a","to":"b"},{"from":"b","to":"b","type":"x"}]`,
		uint64(4))
	f.Add(`[{"key":"a","type":"trigger","config":{"event_name":"e"}},{"key":"b","type":"wait_for_event","config":
		{"event_name":"e"}}]`, `[{"from":"a","to":"b"}]`, uint64(5))
	f.Fuzz(func(t *testing.T, steps, connections string, seed uint64) {
		g, err := engine.Parse([]byte(steps), []byte(connections))
		if err != nil {
			if e, ok := err.(*fault.Error); !ok || g != nil || e.Field == "" || e.Kind != fault.Invalid &&
				e.Kind != fault.Missing {
				t.Fatalf("Parse: %v, %#v", g, err)
			}
			return
		}
		again, err := engine.Parse(g.StepsJSON(), g.ConnectionsJSON())
		if err != nil {
			t.Fatalf("%s and %s are not read again: %v", g.StepsJSON(), g.ConnectionsJSON(), err)
		}
		if string(again.StepsJSON()) != string(g.StepsJSON()) ||
			string(again.ConnectionsJSON()) != string(g.ConnectionsJSON()) {
			t.Fatalf("%s is read again as %s", g.StepsJSON(), again.StepsJSON())
		}
		if len(again.References()) != len(g.References()) {
			t.Fatalf("%d references, read again %d", len(g.References()), len(again.References()))
		}
		for _, trigger := range g.Triggers() {
			walk(t, g, again, trigger, rand.New(rand.NewPCG(seed, 0)))
		}
	})
}

// walk executes a run to its end with random outcomes, and checks that a graph and its reparsed copy plan the same
// actions. The parameter again is the reparsed copy.
func walk(t *testing.T, g, again *engine.Graph, event string, chance *rand.Rand) {
	now := noon
	r := g.Begin("run", engine.Event{Name: event, Payload: map[string]any{"a": "x", "plan": 3.0}, At: now})
	who := ann()
	for steps := 0; r.At != ""; steps++ {
		if steps > 2*engine.MaxSteps {
			t.Fatalf("the run does not end: it is at %q", r.At)
		}
		f := engine.Facts{Now: now, Contact: who, Fields: func(*filter.Rule) (filter.Schema, func(string) filter.Value,
			error) {
			return filter.Schema{Open: []string{"contact."}}, func(string) filter.Value { return filter.Value{} }, nil
		}}
		a, err := g.Plan(r, f)
		if err != nil {
			t.Fatal(err)
		}
		b, err := again.Plan(r, f)
		if err != nil {
			t.Fatal(err)
		}
		a.Step, b.Step = nil, nil
		if diff := cmp.Diff(a, b); diff != "" {
			t.Fatalf("planned again it is another action:\n%s", diff)
		}
		a, _ = g.Plan(r, f)
		if _, ok := a.Effect.(engine.Deletion); ok {
			who = nil
		}
		o := engine.Outcome{}
		if a.Effect != nil && chance.IntN(10) == 0 {
			o.Skipped = "chance"
		}
		rec := g.Done(r, a, o, f)
		if rec.Failure != nil && r.At != "" {
			t.Fatalf("the run goes on after a failure: %+v", rec)
		}
		if r.Waits == nil {
			continue
		}
		if now = r.Waits.Until; chance.IntN(2) == 0 && r.Waits.Event != "" {
			g.Receive(r, engine.Event{Name: r.Waits.Event, Payload: map[string]any{"total": 5.0},
				At: now.Add(-time.Second)})
		}
	}
}
