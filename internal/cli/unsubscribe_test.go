package cli

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/smtp"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
)

// A recipient can unsubscribe with one click through the List-Unsubscribe header field. After the recipient
// unsubscribes, the next email about the topic is not sent, and its event states the reason. Webhooks receive one event
// for the unsubscribe request and one for the unsent email.
func TestUnsubscribingByTheHeaderAlone(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
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
		if err := n.look.QueryRow(t.Context(),
			`SELECT id FROM teams WHERE name = 'Acme'`).Scan((*db.ID)(&team)); err != nil {
			t.Fatal(err)
		}
		topic, err := n.Contacts.CreateTopic(t.Context(), team, contacts.NewTopic{Name: "News", Default: contacts.OptIn,
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

		header := n.signedHeader()
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

// signedHeader returns the header fields of the only captured message, keyed by lower-case name, and checks that a DKIM
// signature covers the List-Unsubscribe fields.
func (n *started) signedHeader() map[string]string {
	t := n.t
	t.Helper()
	all, err := n.Outbox.All(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatalf("%d messages, %v", len(all), err)
	}
	opened, err := n.Outbox.Open(t.Context(), all[0].ID)
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
		header[name] += strings.Join(strings.Fields(f.Value), " ") // the fields of a message's two signatures are joined
	}
	if header["list-unsubscribe-post"] != "List-Unsubscribe=One-Click" {
		t.Fatalf("%s", raw)
	}
	// RFC 8058 section 4: a DKIM signature must cover both List-Unsubscribe fields.
	for _, name := range []string{"list-unsubscribe", "list-unsubscribe-post", "list-id"} {
		signed := strings.ToLower(strings.ReplaceAll(header["dkim-signature"], " ", ""))
		if !strings.Contains(signed, ":"+name+":") {
			t.Errorf("no signature covers %s: %s", name, signed)
		}
	}
	return header
}

// A message submitted over SMTP can specify a topic in a header field. The sent message contains that topic's
// unsubscribe link.
func TestSubmittedMessageHasATopic(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		n := p.start()
		d := &driver{started: n, key: key}
		if err := n.look.QueryRow(t.Context(),
			`SELECT id FROM teams WHERE name = 'Acme'`).Scan((*db.ID)(&d.team)); err != nil {
			t.Fatal(err)
		}
		topic, err := n.Contacts.CreateTopic(t.Context(), d.team, contacts.NewTopic{Name: "News", Default: contacts.OptIn})
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := n.Contacts.Upsert(t.Context(), d.team, "out@one.example", contacts.Change{
			Topics: []contacts.Choice{{TopicID: topic.ID, Subscription: contacts.OptOut}}}); err != nil {
			t.Fatal(err)
		}
		submit := func(topicID, to string) error {
			auth := smtp.PlainAuth("", "postrider", key, "127.0.0.1")
			return d.mail(d.Port(node.PortSubmit), auth, "a@resend.dev", to,
				"X-Postrider-Topic: "+topicID+"\r\nSubject: x\r\n\r\nx\r\n")
		}
		for _, to := range []string{"in@one.example", "out@one.example"} {
			if err := submit(topic.ID, to); err != nil {
				t.Fatal(err)
			}
		}
		if err := submit("none", "in@one.example"); err == nil || !strings.Contains(err.Error(), "554") {
			t.Errorf("an unknown topic: %v", err)
		}
		eventually(t, "one is delivered and one has failed", func() bool {
			return n.count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`) == 1 &&
				n.count(`SELECT COUNT(*) FROM emails WHERE last_event = 9 /* failed */`) == 1
		})
		all, err := n.Outbox.All(t.Context())
		if err != nil || len(all) != 1 || all[0].Recipients[0] != "in@one.example" {
			t.Fatalf("%+v, %v", all, err)
		}
		opened, err := n.Outbox.Open(t.Context(), all[0].ID)
		if err != nil {
			t.Fatal(err)
		}
		defer opened.Close()
		raw, err := io.ReadAll(opened)
		if err != nil {
			t.Fatal(err)
		}
		for _, field := range []string{"\r\nList-Unsubscribe: <" + n.url + "/unsubscribe/", "\r\nList-Id: <" + topic.ID +
			".resend.dev>", "\r\nList-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n"} {
			if !strings.Contains(string(raw), field) {
				t.Errorf("the message has no %q:\n%s", field, raw)
			}
		}
		if strings.Contains(string(raw), "X-Postrider-Topic") {
			t.Error("the field of the service is passed on")
		}
	})
}
