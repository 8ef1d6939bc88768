package engine_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
)

// The JSON of a graph has no unnecessary escapes, so that addresses in it can be found by an SQL search.
func TestStoredWithoutEscapes(t *testing.T) {
	t.Parallel()
	const a = `"ann\u002Bshop\u0040x.example"`
	g, err := engine.Parse([]byte(`[{"key":"start","type":"trigger","config":{"event_name":`+a+`}},
		{"key":"wait","type":"wait_for_event","config":{"event_name":`+a+`,
			"filter_rule":{"type":"rule","field":"event.by","operator":"eq","value":`+a+`}}},
		{"key":"call","type":"webhook","config":{"url":"https://x.example/hook","headers":{"X-By":`+a+`},
			"payload":{"b\u0079":[`+a+`]}}},
		{"key":"is","type":"condition","config":{"type":"rule","field":"event.by","operator":"in","value":[`+a+`]}},
		{"key":"mail","type":"send_email","config":{"template":{"id":"t","variables":{"BY":`+a+`}},"reply_to":`+a+`}},
		{"key":"set","type":"contact_update","config":{"first_name":`+a+`,"properties":{"by":`+a+`}}}]`),
		[]byte(`[{"from":"start","to":"wait"},{"from":"wait","to":"call","type":"event_received"},{"from":"call","to":"is"},
		{"from":"is","to":"mail","type":"condition_met"},{"from":"mail","to":"set"}]`))
	if err != nil {
		t.Fatal(err)
	}
	text := string(g.StepsJSON())
	if strings.Contains(text, `\u`) || strings.Count(text, "ann+shop@x.example") != 10 ||
		!strings.Contains(text, `"by":[`) {
		t.Error(text)
	}
}

// Parse accepts a random graph if and only if the graph has no cycle and all its steps can be reached. Every run of an
// accepted graph ends.
func TestGraphsByChance(t *testing.T) {
	t.Parallel()
	accepted := 0
	for seed := range uint64(3000) {
		chance := rand.New(rand.NewPCG(seed, 1))
		n := 1 + chance.IntN(6)
		var steps, links []string
		steps = append(steps, start)
		leads := make([][]int, n+1) // step 0 is the trigger
		for i := 1; i <= n; i++ {
			steps = append(steps, fmt.Sprintf(`{"key":"s%d","type":"split","config":{"branches":[{"name":"l","percent":50},
				{"name":"r","percent":50}]}}`, i))
		}
		for from := range leads {
			for _, by := range []string{"l", "r"} {
				to, key := 1+chance.IntN(n), fmt.Sprintf("s%d", from)
				if chance.IntN(3) > 0 && to <= from && from > 0 || from == 0 && by == "r" {
					continue
				}
				if from == 0 {
					key, by = "start", engine.Default
				}
				links = append(links, fmt.Sprintf(`{"from":"%s","to":"s%d","type":"%s"}`, key, to, by))
				leads[from] = append(leads[from], to)
			}
		}
		g, err := engine.Parse([]byte("["+strings.Join(steps, ",")+"]"), []byte("["+strings.Join(links, ",")+"]"))
		if want := sound(leads); (err == nil) != want {
			t.Fatalf("%v: sound is %v, and Parse says %v", leads, want, err)
		}
		if err == nil {
			accepted++
			walk(t, g, g, "user.created", chance)
		}
	}
	if accepted < 100 || accepted > 2900 {
		t.Errorf("%d of 3000 graphs are sound: the test tests little", accepted)
	}
}

// sound follows every path through a graph, and reports whether the graph has no cycle and all steps can be reached
// from step 0.
func sound(leads [][]int) bool {
	reached := map[int]bool{}
	var visit func(at, depth int) bool
	visit = func(at, depth int) bool {
		reached[at] = true
		for _, to := range leads[at] {
			if depth > len(leads) || !visit(to, depth+1) {
				return false
			}
		}
		return true
	}
	return visit(0, 1) && len(reached) == len(leads)
}
