package cli

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/sending/explain"
)

// The command explains an email of any team, as text and as JSON. An email that was captured is never said to be
// accepted by a server. An unknown id and another team's email are not found.
func TestExplainCommand(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		p.key("Other")
		n := p.start()
		x := n.made(key, "/emails", hello)
		eventually(t, "the email is captured", func() bool {
			return n.count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`) == 1
		})
		for _, args := range [][]string{{"explain", x}, {"explain", strings.ToUpper(x), "--team", "Acme"}} {
			text := p.must(args...)
			for _, want := range []string{"captured by this installation's outbox", "It was not sent",
				"no mail server has seen it",
				"Who must act: nobody", "stored the message in its outbox"} {
				if !strings.Contains(text, want) {
					t.Errorf("%q is not in %s", want, text)
				}
			}
			if strings.Contains(text, "accepted the email") {
				t.Errorf("a server accepted a captured email: %s", text)
			}
		}
		var answer explain.Answer
		if err := json.Unmarshal([]byte(p.must("explain", "--json", x)),
			&answer); err != nil || answer.EmailID != x ||
			len(answer.Attempts) != 1 || answer.Attempts[0].TLS.State != "no_connection" {
			t.Errorf("%v: %+v", err, answer)
		}
		p.refused("Email not found", "explain", x, "--team", "Other")
		p.refused("Email not found", "explain", "00000000-0000-7000-8000-000000000000")
		p.refused("Email not found", "explain", "none")
		p.refused("ID is missing", "explain")
		path := "/emails/" + x + "/explain"
		if code, body := n.ask(key, "GET", path, ""); code != 200 || !strings.Contains(body,
			"captured by this installation's outbox") {
			t.Errorf("%d %s", code, body)
		}
	})
}
