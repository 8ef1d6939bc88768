package automations

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
)

// Only the emails that the next transaction may send are prepared. Emails after a wait or a webhook step belong to a
// later transaction.
func TestEmailsAhead(t *testing.T) {
	t.Parallel()
	steps := map[string]string{"start": `trigger {"event_name": "go"}`,
		"if":  `condition {"type": "rule", "field": "event.a", "operator": "eq", "value": "b"}`,
		"yes": `send_email {"template": {"id": "x"}}`, "set": `contact_update {"first_name": "A"}`,
		"no": `send_email {"template": {"id": "x"}}`, "day": `delay {"duration": "1 day"}`,
		"later": `send_email {"template": {"id": "x"}}`, "call": `webhook {"url": "https://acme.example"}`,
		"last": `send_email {"template": {"id": "x"}}`}
	var list, links []string
	for _, key := range slices.Sorted(maps.Keys(steps)) {
		kind, config, _ := strings.Cut(steps[key], " ")
		list = append(list, fmt.Sprintf(`{"key": %q, "type": %q, "config": %s}`, key, kind, config))
	}
	for _, text := range []string{"start if", "if yes condition_met", "if set condition_not_met", "set no", "yes day",
		"no day", "day later", "later call", "call last"} {
		f := append(strings.Fields(text), "default")
		links = append(links, fmt.Sprintf(`{"from": %q, "to": %q, "type": %q}`, f[0], f[1], f[2]))
	}
	g, err := engine.Parse([]byte("["+strings.Join(list, ",")+"]"), []byte("["+strings.Join(links, ",")+"]"))
	if err != nil {
		t.Fatal(err)
	}
	v := newVersion(g, 1)
	for key, want := range map[string]string{"start": "no yes", "if": "no yes", "set": "no", "yes": "yes", "day": "later",
		"later": "later", "call": "last", "last": "last"} {
		got := slices.Sorted(slices.Values(v.emails[key]))
		if strings.Join(got, " ") != want {
			t.Errorf("from %s: %v and not %s", key, got, want)
		}
	}
}

// A full cache evicts the least recently used versions, starting with those of a team that exceeds its limit.
func TestVersionsMakeRoom(t *testing.T) {
	t.Parallel()
	var all versions
	keep := func(team string, id, size int) {
		all.add(&version{id: fmt.Sprint(team, id), teamID: team, size: size})
	}
	known := func(team string, id int) bool { return all.cached(team, fmt.Sprint(team, id)) != nil }
	const part = maxTeamBytes / 4
	for i := range 4 {
		keep("a", i, part)
	}
	keep("b", 0, part)
	known("a", 0)
	for i := range 100 {
		keep("c", i, part)
	}
	keep("a", 4, part)
	for id, want := range map[int]bool{0: true, 1: false, 2: true, 4: true} {
		if known("a", id) != want {
			t.Errorf("that the version %d is known is %v", id, !want)
		}
	}
	if !known("b", 0) || known("c", 95) || !known("c", 96) || all.all.size != 9*part {
		t.Errorf("%d size are left", all.all.size)
	}
	if all.cached("b", "a0") != nil {
		t.Error("a team knows a version of another one")
	}
	known("a", 0)
	for team := range 8 {
		for i := range 4 {
			keep(fmt.Sprint("team ", team), i, part)
		}
	}
	if known("b", 0) || known("c", 99) || all.all.size != maxCacheBytes || len(all.teams) != 4 {
		t.Errorf("%d size of %d teams are left", all.all.size, len(all.teams))
	}
}
