package engine

import "time"

// Opening is the beginning of the runs of an event, without the rest of their graph: the trigger and, if the step behind
// it waits for an event, that wait. A run can be begun with it where the graph is not at hand.
type Opening struct {
	Trigger string        // the key
	Next    string        // the key of the step behind it; "" for none
	Event   string        // as written, that the next step waits for; "" if it is of another type
	Timeout time.Duration // of that wait; 0 for MaxWait
}

// Opening returns the opening of the runs that an event begins. It reports false if there is no trigger for it.
func (g *Graph) Opening(event string) (o Opening, ok bool) {
	run := g.Begin("", Event{Name: event})
	if run == nil {
		return o, false
	}
	o = Opening{Trigger: run.At, Next: g.next[exit{run.At, Default}]}
	if wait, ok := g.config(o.Next).(waitForEvent); ok {
		o.Event, o.Timeout = wait.event, wait.timeout
	}
	return o, true
}

// Begin returns the run that an event begins at a time, and what is to be kept of the steps that it has begun: it waits
// if the opening has a wait, and is at the next step otherwise. It is as Begin, Plan and Done of the graph make it.
func (o Opening) Begin(id string, e Event, now time.Time) (*Run, []Record, error) {
	g := &Graph{Steps: []Step{{Key: o.Trigger, Type: Trigger, config: trigger{event: e.Name}}},
		index: map[string]int{o.Trigger: 0}, next: map[exit]string{{o.Trigger, Default}: o.Next}}
	if o.Event != "" {
		g.index[o.Next] = len(g.Steps)
		g.Steps = append(g.Steps, Step{Key: o.Next, Type: WaitForEvent,
			config: waitForEvent{event: o.Event, timeout: o.Timeout}})
	}
	run, facts := g.Begin(id, e), Facts{Now: now}
	var all []Record
	for range g.Steps {
		a, err := g.Plan(run, facts)
		if err != nil {
			return nil, nil, err
		}
		all = append(all, g.Done(run, a, Outcome{}, facts))
	}
	return run, all, nil
}
