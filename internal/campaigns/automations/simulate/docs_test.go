package simulate_test

import (
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/automations/simulate"
)

// TestManual checks that the JSON examples in docs/automations.md are valid graphs, steps, or graphs with a scenario.
func TestManual(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../../docs/automations.md")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[engine.Type]bool{}
	examples := regexp.MustCompile("(?s)```json\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	for _, e := range examples {
		var whole struct {
			Automation, Scenario, Steps, Connections json.RawMessage
		}
		var step struct{ Key string }
		switch {
		case strings.HasPrefix(e[1], "["):
			var steps []json.RawMessage
			if err := json.Unmarshal([]byte(e[1]), &steps); err != nil {
				t.Fatalf("%v in %s", err, e[1])
			}
			for _, s := range steps {
				alone(t, s, seen)
			}
		case json.Unmarshal([]byte(e[1]), &step) == nil && step.Key != "":
			alone(t, []byte(e[1]), seen)
		default:
			if err := json.Unmarshal([]byte(e[1]), &whole); err != nil {
				t.Fatalf("%v in %s", err, e[1])
			}
			if scenario := whole.Scenario; whole.Automation != nil {
				if err := json.Unmarshal(whole.Automation, &whole); err != nil {
					t.Fatal(err)
				}
				if s, err := simulate.ParseScenario(scenario, noon); err != nil || s == nil {
					t.Errorf("a scenario is refused: %v", err)
				}
			}
			parse(t, string(whole.Steps), string(whole.Connections))
		}
	}
	for _, kind := range []engine.Type{engine.Trigger, engine.SendEmail, engine.Delay, engine.WaitForEvent,
		engine.Condition,
		engine.ContactUpdate, engine.ContactDelete, engine.AddToSegment, engine.Webhook, engine.Split, engine.WaitUntil} {
		if !seen[kind] {
			t.Errorf("there is no example of the type %s", kind)
		}
	}
}

// alone checks that an example of a single step is valid when the step follows a trigger in a graph.
func alone(t *testing.T, text []byte, seen map[engine.Type]bool) {
	t.Helper()
	var step struct {
		Key  string
		Type engine.Type
	}
	if err := json.Unmarshal(text, &step); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	seen[step.Type] = true
	if step.Type == engine.Trigger {
		parse(t, "["+string(text)+"]", "[]")
		return
	}
	parse(t, "["+start+","+string(text)+"]", `[{"from":"start","to":"`+step.Key+`"}]`)
}
