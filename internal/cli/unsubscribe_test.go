package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/contacts"
	"github.com/postrider/postrider/internal/mail/mailparse"
)

// Whoever has a message can leave by its header alone, as a mail program does, and the next email about the topic is
// not sent to them, which says why. Both are told to webhooks.
func TestUnsubscribingByTheHeaderAlone(t *testing.T) {
	t.Parallel()
	eachPlace(t, func(t *testing.T, p *place) {
		key := p.must("keys", "create", "--team", "Acme")
		n := p.start()
		var mu sync.Mutex
		told := map[string][]string{}
		hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, _ := io.ReadAll(r.Body)
			var e struct{ Type string }
			json.Unmarshal(body, &e)
			mu.Lock()
			defer mu.Unlock()
			told[e.Type] = append(told[e.Type], string(body))
		}))
		t.Cleanup(hook.Close)
		n.made(key, "/webhooks", `{"endpoint":"`+hook.URL+`","events":["contact.created","contact.updated","email.failed"]}`)
		var team string
		if err := n.look.QueryRow(t.Context(), `SELECT id FROM teams WHERE name = 'Acme'`).Scan(&team); err != nil {
			t.Fatal(err)
		}
		topic, err := n.contacts.CreateTopic(t.Context(), team, contacts.NewTopic{Name: "News", Default: contacts.OptIn,
			Visibility: contacts.Public})
		if err != nil {
			t.Fatal(err)
		}
		send := func() string {
			return n.made(key, "/emails", strings.Replace(hello, "{", `{"topic_id":"`+topic.ID+`",`, 1))
		}
		state := func(emailID, want string) {
			t.Helper()
			eventually(t, "the email is "+want, func() bool {
				_, text := n.ask(key, http.MethodGet, "/emails/"+emailID, "")
				return strings.Contains(text, `"last_event":"`+want+`"`) && strings.Contains(text, `"topic_id":"`+topic.ID+`"`)
			})
		}
		state(send(), "delivered")

		all, err := n.delivery.Outbox(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("%d messages, %v", len(all), err)
		}
		opened, err := n.delivery.CapturedMessage(t.Context(), all[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		defer opened.Close()
		raw, err := io.ReadAll(opened)
		if err != nil {
			t.Fatal(err)
		}
		header := map[string]string{}
		for _, f := range mailparse.Parse(raw).Header {
			name := strings.ToLower(f.Name)
			header[name] += strings.Join(strings.Fields(f.Value), " ") // two signatures, so one after the other
		}
		if header["list-unsubscribe-post"] != "List-Unsubscribe=One-Click" {
			t.Fatalf("%s", raw)
		}
		// RFC 8058 section 4: a signature covers both fields.
		for _, name := range []string{"list-unsubscribe", "list-unsubscribe-post", "list-id"} {
			signed := strings.ToLower(strings.ReplaceAll(header["dkim-signature"], " ", ""))
			if !strings.Contains(signed, ":"+name+":") {
				t.Errorf("no signature covers %s: %s", name, signed)
			}
		}
		link := strings.Trim(header["list-unsubscribe"], "<>")
		answer, err := http.Post(link, "application/x-www-form-urlencoded",
			strings.NewReader(header["list-unsubscribe-post"]))
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			t.Fatalf("one click is answered with %s", answer.Status)
		}

		failed := send()
		state(failed, "failed")
		_, timeline := n.ask(key, http.MethodGet, "/emails/"+failed+"/events", "")
		if !strings.Contains(timeline, "topic_opted_out") {
			t.Errorf("the timeline gives no reason: %s", timeline)
		}
		plain := n.made(key, "/emails", hello)
		eventually(t, "an email of no topic is delivered", func() bool {
			_, text := n.ask(key, http.MethodGet, "/emails/"+plain, "")
			return strings.Contains(text, `"last_event":"delivered"`)
		})
		eventually(t, "the endpoint is told", func() bool {
			mu.Lock()
			defer mu.Unlock()
			return len(told["contact.created"]) == 1 && len(told["email.failed"]) == 1
		})
		mu.Lock()
		defer mu.Unlock()
		for kind, want := range map[string]string{"contact.created": `"unsubscribed":false`,
			"email.failed": `"failed":{"reason":"topic_opted_out"}`} {
			body := strings.Join(told[kind], "")
			if !strings.Contains(body, want) || !strings.Contains(body, "b@one.example") {
				t.Errorf("%s: %s", kind, body)
			}
		}
	})
}
