package engine_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
)

// A run that is begun with an Opening equals a run that is begun with the whole Graph.
func TestOpening(t *testing.T) {
	t.Parallel()
	wait := func(more string) string {
		return `{"key":"wait","type":"wait_for_event","config":{"event_name":"resend:email.opened"` + more + `}}`
	}
	for name, c := range map[string]struct {
		next  string // the step after the trigger, or ""
		waits time.Duration
		kept  int // records
	}{
		"a trigger alone": {"", 0, 1},
		"a delay":         {`{"key":"wait","type":"delay","config":{"duration":"1 hour"}}`, 0, 1},
		"an event":        {wait(""), engine.MaxWait, 2},
		"a timeout":       {wait(`,"timeout":"2 hours"`), 2 * time.Hour, 2},
		"a rule": {wait(`,"filter_rule":{"type":"rule","field":"event.n","operator":"eq","value":1}`), engine.MaxWait,
			2},
	} {
		steps, connections := start, ""
		if c.next != "" {
			steps, connections = start+","+c.next, `{"from":"start","to":"wait"}`
		}
		g := parse(t, "["+steps+"]", "["+connections+"]")
		event, facts := engine.Event{Name: "user.created", At: noon}, engine.Facts{Now: noon.Add(time.Second)}
		o, ok := g.Opening(event.Name)
		if !ok {
			t.Fatalf("%s: there is no trigger", name)
		}
		got, kept, err := o.Begin("run", event, facts.Now)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		want, records := g.Begin("run", event), []engine.Record{}
		for range c.kept {
			records = append(records, g.Done(want, plan(t, g, want, facts), engine.Outcome{}, facts))
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s: the run (-graph +opening):\n%s", name, d)
		}
		if d := cmp.Diff(records, kept); d != "" {
			t.Errorf("%s: the records (-graph +opening):\n%s", name, d)
		}
		if waits := got.Waits != nil; waits != (c.waits > 0) || waits && (got.Waits.Event != "postrider:email.opened" ||
			got.Waits.Until.Sub(facts.Now) != c.waits) {
			t.Errorf("%s: it waits for %+v", name, got.Waits)
		}
		if _, ok := g.Opening("other"); ok {
			t.Errorf("%s: another event has an opening", name)
		}
	}
}
