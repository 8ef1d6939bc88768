package cli

import (
	"strings"
	"testing"
)

// The command `emails list` prints the emails that its filters select, and where to continue.
func TestListEmails(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme", "--email", "owner@acme.example", "--trial-daily", "1000")
		n := p.start()
		var ids []string
		for _, to := range []string{"jane@one.example", "joe@two.example", "jane@one.example"} {
			status, text := n.ask(key, "POST", "/emails", `{"from":"a@resend.dev","to":"`+to+`","subject":"Order 4711","text":"x"}`)
			if status != 200 {
				t.Fatalf("%d %s", status, text)
			}
			ids = append(ids, strings.Split(text, `"`)[3])
		}
		n.end()
		list := func(args ...string) string {
			return p.must(append([]string{"emails", "list", "--team", "Acme"}, args...)...)
		}
		out := list("--to", "JANE@one.example", "--limit", "1")
		if !strings.HasPrefix(out, ids[2]) || !strings.Contains(out, "Order 4711") || strings.Contains(out, ids[0]) ||
			!strings.HasSuffix(out, "continue with --after "+ids[2]) {
			t.Errorf("the first page: %s", out)
		}
		if out = list("--to", "jane@one.example", "--after", ids[2]); !strings.HasPrefix(out, ids[0]) ||
			strings.Contains(out, "continue") {
			t.Errorf("the second page: %s", out)
		}
		if out = list("--subject", "ord 47", "--q", "joe", "--created-after", "2020-01-01"); !strings.HasPrefix(out, ids[1]) {
			t.Errorf("a search: %s", out)
		}
		if out = list("--status", "bounced", "--tag", "a:b"); out != "" {
			t.Errorf("nothing is found: %s", out)
		}
		p.must("emails", "index", "--team", "Acme")
		if out = list("--q", "4711"); strings.Count(out, "Order 4711") != 3 {
			t.Errorf("with the index: %s", out)
		}
		for say, args := range map[string][]string{"lost": {"--status", "lost"}, "--limit": {"--limit", "0"},
			"--created-after": {"--created-after", "yesterday"}, "--created-before": {"--created-before", "1"},
			"address": {"--to", "x y"}} {
			p.refused(say, append([]string{"emails", "list", "--team", "Acme"}, args...)...)
		}
		p.refused("--team", "emails", "list")
		p.refused("--team", "emails", "index")
	})
}
