package engine

import "time"

// Opening contains the first steps of the runs that an event begins: the trigger and, if the step after it waits for an
// event, that wait. With an Opening, the caller can begin a run without loading the whole graph.
type Opening struct {
	Trigger string        // the key
	Next    string        // key of the step after the trigger; "" if there is none
	Event   string        // event for which the next step waits, as the user wrote it; "" if it does not wait
	Timeout time.Duration // timeout of the wait for Event; 0 for MaxWait
}

// Opening returns the opening of the runs that an event begins. If no trigger names the event, Opening returns false.
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

// Begin returns the run that an event begins, and the records of the run's first steps. If the opening contains a wait,
// the run is waiting. If the opening contains no wait, the run is at the step after the trigger. Begin returns the same
// result as the methods Begin, Plan and Done of the whole graph would.
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

// Proceed carries out a run's next steps as long as they need only the run and the time, and returns their records in
// order. Such steps are waits, splits, and conditions about events. Proceed stops at a wait, at a step that has an
// effect or reads the contact, and after limit steps. With Proceed, the transaction that ends a wait also begins the
// next one.
func (g *Graph) Proceed(r *Run, now time.Time, limit int) (all []Record, err error) {
	f := Facts{Now: now}
	for r.At != "" && r.Waits == nil && len(all) < limit && needsOnlyRun(g.config(r.At)) {
		a, err := g.Plan(r, f)
		if err != nil {
			return nil, err
		}
		all = append(all, g.Done(r, a, Outcome{}, f))
	}
	return all, nil
}

// needsOnlyRun reports whether a step can be planned without the contact, and has no effect.
func needsOnlyRun(c config) bool {
	switch c := c.(type) {
	case delay, waitForEvent, split:
		return true
	case waitUntil:
		return c.property == "" && c.zoneOf == ""
	case condition:
		return !c.readsContact()
	}
	return false
}
