package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/platform/events"
)

// check validates the graph as a whole, for example that it has no cycles, and fills the graph's indexes.
func (g *Graph) check() error {
	triggers := map[string]string{}
	for i, s := range g.Steps {
		switch c := s.config.(type) {
		case trigger:
			path, name := configPath(i)+".event_name", events.CanonicalName(c.event)
			if other, ok := triggers[name]; ok {
				return withStep(s.Key, jsonread.Invalidf(path, "names the event of the trigger `%s` too. Keep one.", other))
			}
			triggers[name] = s.Key
		case waitForEvent:
			g.waitNames[s.Key] = struct{}{}
			g.waitNames[c.event] = struct{}{}
			g.waitNames[events.CanonicalName(c.event)] = struct{}{}
		}
	}
	g.ruleNames = []string{"event."}
	for _, head := range slices.Sorted(maps.Keys(g.waitNames)) {
		g.ruleNames = append(g.ruleNames, waitEvents+head+".")
	}
	if len(triggers) == 0 {
		return jsonread.Invalidf("steps", "has no step of the type `trigger`. Add one, which names the event that begins a "+
			"run.")
	}
	if len(g.Connections) == 0 && len(g.Steps) > 1 {
		return jsonread.Invalidf("connections", "must lead from the trigger to the other steps. It may be empty only if the "+
			"trigger is the only step.")
	}
	if err := g.checkCycles(); err != nil {
		return err
	}
	if err := g.checkReached(); err != nil {
		return err
	}
	for i, s := range g.Steps {
		if err := s.config.check(g, configPath(i)); err != nil {
			return withStep(s.Key, err)
		}
	}
	g.waitPaths = g.referencedWaits()
	return nil
}

// referencedWaits returns the sorted names by which steps refer to received events, without the prefix waitEvents.
func (g *Graph) referencedWaits() (paths []string) {
	for _, s := range g.Steps {
		c, ok := s.config.(referrer)
		if !ok {
			continue
		}
		for _, name := range c.referencedNames() {
			if path, ok := strings.CutPrefix(name, waitEvents); ok {
				paths = append(paths, path)
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// after returns the keys of the steps to which the connections from a step lead.
func (g *Graph) after(s *Step) (keys []string) {
	for _, by := range s.config.exits() {
		if to, ok := g.next[exit{s.Key, by}]; ok {
			keys = append(keys, to)
		}
	}
	return keys
}

// checkCycles returns an error if the graph has a cycle. To find one, checkCycles repeatedly removes the steps that
// have no incoming connections. Steps that cannot be removed in this way are on a cycle or follow one.
func (g *Graph) checkCycles() error {
	incoming := make([]int, len(g.Steps)) // number of connections that lead to each step
	for _, c := range g.Connections {
		incoming[g.index[c.To]]++
	}
	var ready []int
	for i, n := range incoming {
		if n == 0 {
			ready = append(ready, i)
		}
	}
	removed := 0
	for ; len(ready) > 0; removed++ {
		s := &g.Steps[ready[0]]
		ready = ready[1:]
		for _, to := range g.after(s) {
			if i := g.index[to]; incoming[i] > 1 {
				incoming[i]--
			} else {
				incoming[i] = 0
				ready = append(ready, i)
			}
		}
	}
	if removed == len(g.Steps) {
		return nil
	}
	key := g.onCycle(incoming)
	for i, c := range g.Connections {
		if c.To == key && incoming[g.index[c.From]] > 0 {
			path := fmt.Sprintf("connections[%d]", i)
			return withStep(key, jsonread.Invalidf(path, "is part of a circle, which leads back to the step. Remove one of "+
				"its connections: every run must end."))
		}
	}
	return withStep(key, jsonread.Invalidf("connections", "has a circle, which leads back to the step."))
}

// onCycle returns the key of a step on a cycle. For the steps on cycles and the steps after them, the counts in
// incoming are greater than 0. Each step with a count above 0 has a predecessor with a count above 0, so following the
// predecessors leads to a cycle.
func (g *Graph) onCycle(incoming []int) string {
	before := map[string]string{}
	for _, c := range g.Connections {
		if incoming[g.index[c.From]] > 0 && incoming[g.index[c.To]] > 0 {
			before[c.To] = c.From
		}
	}
	key := ""
	for i, n := range incoming {
		if n > 0 {
			key = g.Steps[i].Key
			break
		}
	}
	for range g.Steps {
		key = before[key]
	}
	return key
}

// checkReached returns an error if a step cannot be reached from a trigger.
func (g *Graph) checkReached() error {
	reached := map[string]bool{}
	var open []*Step
	for i := range g.Steps {
		if g.Steps[i].Type == Trigger {
			reached[g.Steps[i].Key] = true
			open = append(open, &g.Steps[i])
		}
	}
	for ; len(open) > 0; open = open[1:] {
		for _, key := range g.after(open[0]) {
			if !reached[key] {
				reached[key] = true
				open = append(open, g.step(key))
			}
		}
	}
	for i, s := range g.Steps {
		if !reached[s.Key] {
			path := fmt.Sprintf("steps[%d]", i)
			return withStep(s.Key, jsonread.Invalidf(path, "cannot be reached from a trigger. Connect the step or remove it."))
		}
	}
	return nil
}
