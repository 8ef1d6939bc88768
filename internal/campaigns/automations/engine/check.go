package engine

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/platform/events"
)

// check applies the rules of whole graphs.
func (g *Graph) check() error {
	triggers := map[string]string{}
	for i, s := range g.Steps {
		switch c := s.config.(type) {
		case trigger:
			path, name := configPlace(i)+".event_name", events.CanonicalName(c.event)
			if other, ok := triggers[name]; ok {
				return inStep(s.Key, jsonread.Invalidf(path, "names the event of the trigger `%s` too. Keep one.", other))
			}
			triggers[name] = s.Key
		case waitForEvent:
			g.heads[s.Key] = struct{}{}
			g.heads[c.event] = struct{}{}
			g.heads[events.CanonicalName(c.event)] = struct{}{}
		}
	}
	g.open = []string{"event."}
	for _, head := range slices.Sorted(maps.Keys(g.heads)) {
		g.open = append(g.open, waitEvents+head+".")
	}
	if len(triggers) == 0 {
		return jsonread.Invalidf("steps", "has no step of the type `trigger`. Add one, which names the event that begins a run.")
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
		if err := s.config.check(g, configPlace(i)); err != nil {
			return inStep(s.Key, err)
		}
	}
	g.reads = g.readsOfWaits()
	return nil
}

func (g *Graph) readsOfWaits() (paths []string) {
	for _, s := range g.Steps {
		c, ok := s.config.(referrer)
		if !ok {
			continue
		}
		for _, name := range c.refers() {
			if path, ok := strings.CutPrefix(name, waitEvents); ok {
				paths = append(paths, path)
			}
		}
	}
	slices.Sort(paths)
	return slices.Compact(paths)
}

// after returns the keys of the steps that may follow a step.
func (g *Graph) after(s *Step) (keys []string) {
	for _, by := range s.config.exits() {
		if to, ok := g.next[exit{s.Key, by}]; ok {
			keys = append(keys, to)
		}
	}
	return keys
}

// checkCycles takes away steps to which none leads until there are none. What is left are cycles, and what follows
// them.
func (g *Graph) checkCycles() error {
	leading := make([]int, len(g.Steps)) // how many connections lead to each step
	for _, c := range g.Connections {
		leading[g.index[c.To]]++
	}
	var free []int
	for i, n := range leading {
		if n == 0 {
			free = append(free, i)
		}
	}
	taken := 0
	for ; len(free) > 0; taken++ {
		s := &g.Steps[free[0]]
		free = free[1:]
		for _, to := range g.after(s) {
			if i := g.index[to]; leading[i] > 1 {
				leading[i]--
			} else {
				leading[i] = 0
				free = append(free, i)
			}
		}
	}
	if taken == len(g.Steps) {
		return nil
	}
	key := g.onCycle(leading)
	for i, c := range g.Connections {
		if c.To == key && leading[g.index[c.From]] > 0 {
			path := fmt.Sprintf("connections[%d]", i)
			return inStep(key, jsonread.Invalidf(path, "is part of a circle, which leads back to the step. Remove one of "+
				"its connections: every run must end."))
		}
	}
	return inStep(key, jsonread.Invalidf("connections", "has a circle, which leads back to the step."))
}

// onCycle returns the key of a step on a cycle. leading is more than 0 for those and for the ones that follow. Each of
// them has one of them before it, so going backwards ends in a cycle.
func (g *Graph) onCycle(leading []int) string {
	before := map[string]string{}
	for _, c := range g.Connections {
		if leading[g.index[c.From]] > 0 && leading[g.index[c.To]] > 0 {
			before[c.To] = c.From
		}
	}
	key := ""
	for i, n := range leading {
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
			return inStep(s.Key, jsonread.Invalidf(path, "cannot be reached from a trigger. Connect the step or remove it."))
		}
	}
	return nil
}
