package engine

import "time"

// Opening is the beginning of the runs of an event: the trigger and, if the step behind the trigger waits for an event,
// that wait. A run can begin with the opening alone, without loading the whole graph.
type Opening struct {
	Trigger string        // the key
	Next    string        // the key of the step after the trigger; "" for none
	Event   string        // for which the next step waits, as the user wrote it; "" if it waits for none
	Timeout time.Duration // timeout of that wait; 0 for MaxWait
}

// Opening returns the opening of the runs that an event begins. It returns false if no trigger names the event.
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

// Begin returns a run that an event begins, and the records of its first steps. The run waits if the opening has a
// wait, and is at the next step otherwise. Begin, Plan and Done of the whole graph would give the same result.
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
