package cli

import (
	"encoding/json"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/smtptest"
	"github.com/postrider/postrider/internal/node/testnode"
)

// released is the response to a release.
type released struct {
	captured
	Relay, Message, Name, Transcript string
	Answers                          []struct {
		Recipient, Reply string
		Accepted         bool
	}
}

// releases releases an email and returns the status and the response.
func (n *started) releases(captureID, body string) (status int, r released) {
	n.t.Helper()
	answer, text := n.outbox("POST", "/"+captureID+"/release", body, nil)
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		n.t.Fatalf("%v: %s", err, text)
	}
	return answer.StatusCode, r
}

// A captured email is released through the configured relay, with its password, or through another server, without it.
func TestOutboxReleases(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		relay := smtptest.NewServer(t, smtptest.Config{Users: map[string]string{"acme": "secret"},
			Rcpt: func(_, to string) string {
				if to == "gone@one.example" {
					return "550 5.1.1 no such user"
				}
				return ""
			}})
		p.vars["POSTRIDER_RELAY_ADDR"] = relay.Addr
		p.vars["POSTRIDER_RELAY_USERNAME"], p.vars["POSTRIDER_RELAY_PASSWORD"] = "acme", "secret"
		key := p.key("Acme")
		n := p.start()
		m := n.sends(key, `{"from":"Acme <hello@resend.dev>","to":["ann@one.example","gone@one.example"],"subject":"First",
			"text":"Hi\n.\n..dots"}`)
		_, raw := n.outbox("GET", "/"+m.ID+"/raw", "", nil)
		status, r := n.releases(m.ID, "")
		if status != 200 || r.Relay != relay.Addr || r.ReleasedAt == "" || r.ID != m.ID || len(r.Answers) != 2 ||
			!r.Answers[0].Accepted || r.Answers[1].Accepted || !strings.Contains(r.Answers[1].Reply, "5.1.1 no such user") {
			t.Errorf("%d %+v", status, r)
		}
		got := relay.Wait(1)
		if string(got[0].Data) != raw || got[0].From != m.ReturnPath || fmt.Sprint(got[0].To) != "[ann@one.example]" ||
			got[0].User != "acme" {
			t.Errorf("%+v", got[0])
		}
		status, r = n.releases(m.ID, `{"to":["Me <me@two.example>","you@two.example"]}`)
		if status != 200 || len(r.Answers) != 2 || r.Answers[0].Recipient != "me@two.example" {
			t.Errorf("%d %+v", status, r)
		}
		if got := relay.Wait(2); fmt.Sprint(got[1].To) != "[me@two.example you@two.example]" {
			t.Errorf("%+v", got[1])
		}
		other := smtptest.NewServer(t, smtptest.Config{TLS: smtptest.NewCA(t).ServerTLS("127.0.0.1")})
		if status, r = n.releases(m.ID, `{"relay":"`+other.Addr+`"}`); status != 200 || r.Relay != other.Addr {
			t.Errorf("%d %+v", status, r)
		}
		if got := other.Wait(1); got[0].User != "" || !got[0].TLS || len(got[0].To) != 2 {
			t.Errorf("%+v", got[0])
		}
		var list capturedList
		if n.mustOutbox("GET", "", "", &list); list.Data[0].ReleasedAt != r.ReleasedAt || list.Data[0].Read {
			t.Errorf("%+v", list)
		}
		testnode.Until(t, "the email is delivered", func() bool {
			var sent struct {
				LastEvent string `json:"last_event"`
			}
			_, text := n.ask(key, "GET", "/emails/"+m.EmailID, "")
			if err := json.Unmarshal([]byte(text), &sent); err != nil {
				t.Errorf("%v: %s", err, text)
			}
			return sent.LastEvent == "delivered"
		})
	})
}

// A release that is not possible sends nothing and says why.
func TestOutboxReleasesFail(t *testing.T) {
	t.Parallel()
	p := newInstallation(t)
	key := p.key("Acme")
	n := p.start()
	m := n.sends(key, emailTo("ann@one.example", "First"))
	refusing := smtptest.NewServer(t, smtptest.Config{Data: func(smtptest.Message) string { return "554 5.7.1 spam" }})
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	silent.Close() // nothing listens there
	many := strings.Repeat(`"a@one.example",`, 51)
	for _, c := range []struct {
		body   string
		status int
		say    string
	}{
		{"", 422, "No relay is configured"},
		{"{}", 422, "relay_addr"},
		{`{"relay":"smtp.example.com"}`, 422, "`relay`"},
		{`{"relay":"smtp.example.com:0"}`, 422, "`relay`"},
		{`{"relay":"smtp.example.com:smtp"}`, 422, "`relay`"},
		{`{"relay":":25"}`, 422, "`relay`"},
		{`{"relay":"10.0.0.1:25"}`, 422, "not public"},
		{`{"relay":"169.254.169.254:80"}`, 422, "not public"},
		{`{"relay":"` + refusing.Addr + `","to":["ann"]}`, 422, "`to`"},
		{`{"relay":"` + refusing.Addr + `","to":["ann@one.example\r\nRCPT TO:<x@two.example>"]}`, 422, "`to`"},
		{`{"relay":"` + refusing.Addr + `","to":[` + many[:len(many)-1] + `]}`, 422, "`to`"},
		{`{"relay":"` + refusing.Addr + `"}`, 502, "554 5.7.1 spam"},
		{`{"relay":"` + silent.Addr().String() + `"}`, 502, "refused"},
		{`{"Relay":"` + refusing.Addr + `"}`, 400, "fields"},
		{`[]`, 400, "fields"},
	} {
		status, r := n.releases(m.ID, c.body)
		if status != c.status || !strings.Contains(r.Message, c.say) || r.Name == "" ||
			strings.Contains(c.say, "spam") != strings.Contains(r.Transcript, "554 5.7.1") {
			t.Errorf("%s: %d %+v", c.body, status, r)
		}
	}
	if status, r := n.releases("x", `{"relay":"`+refusing.Addr+`"}`); status != 404 {
		t.Errorf("%d %+v", status, r)
	}
	var list capturedList
	if n.mustOutbox("GET", "", "", &list); list.Data[0].ReleasedAt != "" {
		t.Errorf("%+v", list)
	}
	if n := len(refusing.Messages()); n != 0 {
		t.Errorf("%d messages were accepted", n)
	}
}
