package cli

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
)

// naming returns, for each table, the number of rows that contain an address. If teamIDs is empty, naming counts the
// rows of all teams.
func (n *started) naming(address string, teamIDs ...string) map[string]int {
	n.t.Helper()
	found := map[string]int{}
	for _, x := range ownedTables(n.t, n.DB) {
		var columns []string
		for _, c := range x.columns {
			switch {
			case c[1] == "text":
				columns = append(columns, "LOWER("+c[0]+") LIKE $1")
			case c[1] == "bytea" && n.DB.Engine() == "sqlite":
				columns = append(columns, "LOWER(CAST("+c[0]+" AS TEXT)) LIKE $1")
			case c[1] == "bytea":
				columns = append(columns, "LOWER(ENCODE("+c[0]+", 'escape')) LIKE $1")
			}
		}
		if len(columns) == 0 {
			continue
		}
		text, args := `SELECT COUNT(*) FROM `+x.name+` WHERE (`+strings.Join(columns, " OR ")+`)`, []any{"%" + address + "%"}
		if len(teamIDs) > 0 {
			text, args = text+` AND team_id = $2`, append(args, db.ID(teamIDs[0]))
		}
		if rows := n.count(text, args...); rows > 0 {
			found[x.name] = rows
		}
	}
	return found
}

// An erasure removes an address from every table, and leaves the data of other addresses and other teams unchanged.
func TestEraseAddress(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key, other := p.key("Acme"), p.key("Other")
		p.vars["POSTRIDER_ROLES"], p.vars["POSTRIDER_SMTP_IN_LISTEN"] = "api,delivery,jobs,submission,receiving",
			"127.0.0.1:0"
		n := p.start()
		d := &driver{started: n, key: key}
		d.receivesAndNotifies()
		send := func(key, to, text string) string {
			return n.made(key, "/emails", fmt.Sprintf(`{"from":"a@resend.dev","to":[%s],"subject":"for B@one.example","text":%q,
				"attachments":[{"filename":"a.txt","content":"aGVsbG8="}]}`, to, text))
		}
		alone := send(key, `"Bo <B@one.example>"`, "Hello")
		named := send(key, `"b@one.example","c@one.example"`, "Hello b@one.example, and c@one.example")
		unnamed := send(key, `"Bo <b@one.example>","bb@one.example"`, "Hello")
		unconcerned := send(key, `"bb@one.example"`, "Hello")
		others := send(other, `"b@one.example"`, "Hello")
		waiting := n.made(key, "/emails", strings.Replace(hello, "{", `{"scheduled_at":"in 1 hour",`, 1))
		for _, from := range []string{"b@one.example", "c@one.example"} {
			if err := d.mail(d.Port(node.PortInbound), nil, from, "x@in.example", received); err != nil {
				t.Fatal(err)
			}
		}
		// An email that is still in the queue would not be sent to a suppressed address.
		eventually(t, "all is delivered", func() bool {
			return n.count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`) == 5
		})
		d.do("POST", "/suppressions", `{"email":"b@one.example"}`)
		eventually(t, "all is told and logged", func() bool {
			return n.count(`SELECT COUNT(*) FROM webhook_deliveries WHERE status = 'success'`) >= 9 &&
				n.count(`SELECT COUNT(*) FROM webhook_deliveries WHERE status <> 'success'`) == 0 &&
				n.count(`SELECT COUNT(*) FROM request_logs WHERE endpoint = '/suppressions'`) == 1
		})
		n.happened()
		before := n.naming("b@one.example")
		if len(before) < 9 {
			t.Fatalf("it is named in %v", before)
		}
		p.refused("must be one such as", "emails", "erase", "nobody")
		p.refused("no team with the name", "emails", "erase", "b@one.example", "--team", "Nobody")
		dry := p.must("emails", "erase", "b@one.example", "--team", "Acme", "--dry-run")
		if after := n.naming("b@one.example"); !maps.Equal(after, before) {
			t.Errorf("a dry run changed %v to %v", before, after)
		}
		report := p.must("emails", "erase", "B@ONE.example", "--team", "Acme")
		checkErasureReports(t, report, dry)
		if status, _ := n.ask(key, http.MethodGet, "/emails/"+alone, ""); status != 404 {
			t.Errorf("the email to it alone is answered with %d", status)
		}
		for _, x := range []shownEmail{
			{named, []string{`"c@one.example"`, "erased@erased.invalid", `"text":null`}, []string{"b@one.example", "Hello"}},
			{unnamed, []string{`"bb@one.example"`, `"erased@erased.invalid"`, `"text":"Hello"`}, []string{`"b@one.example`,
				"Bo "}},
			{unconcerned, []string{`"bb@one.example"`, `"text":"Hello"`}, nil},
			{waiting, []string{"b@one.example", `"text":"t"`}, nil},
		} {
			x.check(n, key)
		}
		if status, text := n.ask(other, http.MethodGet, "/emails/"+others, ""); status != 200 || !strings.Contains(text,
			"Hello") {
			t.Errorf("that of another team: %d %s", status, text)
		}
		if found := n.count(`SELECT COUNT(*) FROM received_emails`); found != 1 {
			t.Errorf("%d received emails are left", found)
		}
		p.must("emails", "erase", "b@one.example")
		if status, _ := n.ask(other, http.MethodGet, "/emails/"+others, ""); status != 404 {
			t.Errorf("that of another team, after all teams: %d", status)
		}
		d.do("POST", "/emails/"+waiting+"/cancel", "")
		eventually(t, "that is logged", func() bool {
			return n.count(`SELECT COUNT(*) FROM request_logs WHERE endpoint LIKE '%/cancel'`) == 1
		})
		n.happened()
		again := p.must("emails", "erase", "b@one.example")
		if !strings.Contains(again, "1 sent emails to nobody else, deleted") || strings.Contains(again, "to others too") {
			t.Errorf("again it did\n%s", again)
		}
		n.onlySuppressionLeft()
		got := d.pages("/emails/receiving")
		p.must("emails", "delete", got, "--team", "Acme")
		if status, _ := n.ask(key, http.MethodGet, "/emails/receiving/"+got, ""); status != 404 {
			t.Errorf("a received email that was deleted is answered with %d", status)
		}
		p.must("emails", "erase", "b@one.example", "--suppressions")
		if left := n.naming("b@one.example"); len(left) != 0 {
			t.Errorf("in the end it is named in %v", left)
		}
	})
}

// receivesAndNotifies adds a domain that receives mail, and a webhook endpoint whose responses contain B@one.example.
func (d *driver) receivesAndNotifies() {
	d.t.Helper()
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprint(w, "thanks, B@one.example")
	}))
	d.t.Cleanup(hook.Close)
	d.do("POST", "/domains", `{"name":"in.example","capabilities":{"receiving":"enabled"}}`)
	d.do("POST", "/domains/"+d.pages("/domains")+"/verify", "")
	eventually(d.t, "the domain is verified", func() bool {
		_, text := d.ask(d.key, http.MethodGet, "/domains/"+d.do("GET", "/domains", ""), "")
		return strings.Contains(text, `"status":"verified","created_at"`)
	})
	d.do("POST", "/webhooks",
		fmt.Sprintf(`{"endpoint":%q,"events":["email.sent","email.delivered","suppression.added"]}`, hook.URL))
}

// checkErasureReports checks that an erasure and its dry run report the same counts.
func checkErasureReports(t *testing.T, report, dry string) {
	t.Helper()
	for _, want := range []string{"1 sent emails to nobody else, deleted", "2 sent emails to others too",
		"1 of these, contents deleted",
		"1 sent emails LEFT, still to be delivered", "1 received emails from it, deleted", "webhook messages in which",
		"entries of the request log"} {
		if !strings.Contains(report, want) || !strings.Contains(dry, want) {
			t.Errorf("no report has %q:\n%s\na dry run said\n%s", want, report, dry)
		}
	}
}

// shownEmail lists strings that must appear, and strings that must not appear, in the API's response for an email.
type shownEmail struct {
	id    string
	has   []string
	hasnt []string
}

func (x shownEmail) check(n *started, key string) {
	n.t.Helper()
	status, text := n.ask(key, http.MethodGet, "/emails/"+x.id, "")
	for _, want := range x.has {
		if !strings.Contains(text, want) {
			n.t.Errorf("%d %s\nhas no %s", status, text, want)
		}
	}
	for _, not := range x.hasnt {
		if strings.Contains(text, not) {
			n.t.Errorf("%d %s\nhas %s", status, text, not)
		}
	}
}

// onlySuppressionLeft checks that b@one.example remains only in the suppression list after an erasure. Rows that
// contain the longer address bb@one.example are changed first, because the search would also find them.
func (n *started) onlySuppressionLeft() {
	n.t.Helper()
	n.change(`UPDATE emails SET recipients = REPLACE(recipients, 'bb@', 'x@'), subject = ''`)
	for _, x := range [][2]string{{"email_recipients", "address"}, {"emails", "recipient"}, {"email_events", "recipient"},
		{"email_events", "recipients"}, {"email_events", "conversation"}, {"email_events", "reply"},
		{"webhook_messages", "payload"}, {"request_logs", "request_body"}, {"request_logs", "response_body"}} {
		n.change(`UPDATE ` + x[0] + ` SET ` + x[1] + ` = REPLACE(` + x[1] + `, 'bb@', 'x@')`)
	}
	if left := n.naming("b@one.example"); len(left) != 1 || left["suppressions"] != 1 {
		n.t.Errorf("it is still named in %v", left)
	}
}

// An address with non-ASCII letters is exported and erased in every spelling, and similar addresses are kept.
func TestEraseUnicodeAddress(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		p.vars["POSTRIDER_ROLES"] = "api,delivery,jobs"
		n := p.start()
		send := func(subject, to string) {
			t.Helper()
			n.made(key, "/emails", `{"from":"a@resend.dev","to":[`+to+`],"subject":"`+subject+`","text":"t"}`)
		}
		send("for ÄÖLga@one.example", `"Olga <ÄÖlga@one.example>"`)
		send("Hello", `"\u00c4\u00d6LGA@one.example"`)
		send("for ÄÖLga@one.example", `"äölga@one.example","ÄÖlga@one.example","olga@one.example"`)
		send("Hello", `"ëölga@one.example","Olga@one.example"`)
		eventually(t, "all is delivered and logged", func() bool {
			return n.count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`) == 4 &&
				n.count(`SELECT COUNT(*) FROM request_logs WHERE endpoint = '/emails'`) == 4
		})
		n.happened()
		exported := func(address string) int {
			t.Helper()
			status, text := n.ask(key, http.MethodGet, "/contacts/"+url.PathEscape(address)+"/export", "")
			if status != http.StatusOK {
				t.Fatalf("%d %s", status, text)
			}
			return strings.Count(text, `"kind":`)
		}
		if got := exported("ÄÖlga@one.example"); got != 3 {
			t.Errorf("%d emails are exported, want 3", got)
		}
		if got := exported("OLGA@one.example"); got != 2 {
			t.Errorf("%d emails to one of ASCII are exported, want 2", got)
		}
		eventually(t, "the exports are logged", func() bool {
			return n.count(`SELECT COUNT(*) FROM request_logs WHERE endpoint LIKE '%/export'`) == 2
		})
		report := p.must("emails", "erase", "ÄÖlga@one.example", "--team", "Acme")
		for _, want := range []string{"2 sent emails to nobody else, deleted", "1 sent emails to others too",
			"4 entries of the request log"} { // one of the log entries records the export
			if !strings.Contains(report, want) {
				t.Errorf("no report has %q:\n%s", want, report)
			}
		}
		for _, spelling := range []string{"ÄÖlga@", "äölga@", "u00c4"} { // the search ignores case for ASCII letters only
			if left := n.naming(spelling); len(left) > 0 {
				t.Errorf("%s is named in %v", spelling, left)
			}
		}
		if left := n.naming("olga@one.example"); left["emails"] != 2 {
			t.Errorf("those like it are named in %v", left)
		}
		if report := p.must("emails", "erase", "ÄÖlga@one.example"); strings.Contains(report, "sent emails") {
			t.Errorf("again it did\n%s", report)
		}
	})
}

// `emails delete` deletes a received email or the content of a sent email, only in the given team.
func TestDeleteEmail(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		p.must("teams", "create", "Other")
		p.vars["POSTRIDER_ROLES"] = "api,delivery,jobs"
		n := p.start()
		sent := n.made(key, "/emails", hello)
		waiting := n.made(key, "/emails", strings.Replace(hello, "{", `{"scheduled_at":"in 1 hour",`, 1))
		eventually(t, "it is delivered", func() bool {
			return n.count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`) == 1
		})
		p.refused("--team is missing", "emails", "delete", sent)
		p.refused("Email not found", "emails", "delete", sent, "--team", "Other")
		p.refused("Email not found", "emails", "delete", "the-last-one", "--team", "Acme")
		p.refused("still to be delivered to 1", "emails", "delete", waiting, "--team", "Acme")
		p.must("emails", "delete", strings.ToUpper(sent), "--team", "Acme")
		for emailID, want := range map[string]string{sent: `"text":null`, waiting: `"text":"t"`} {
			if status, text := n.ask(key, http.MethodGet, "/emails/"+emailID, ""); status != 200 || !strings.Contains(text,
				want) {
				t.Errorf("%d %s", status, text)
			}
		}
	})
}

// A team can erase an address through the API. The erasure job reports the erased data. After the job finishes, the
// team's data and request log no longer contain the address, and other teams' data is unchanged.
func TestEraseByAPI(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key, other := p.key("Acme"), p.key("Other")
		p.vars["POSTRIDER_ROLES"] = "api,delivery,jobs"
		n := p.start()
		hook := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
		t.Cleanup(hook.Close)
		n.made(key, "/webhooks", fmt.Sprintf(`{"endpoint":%q,"events":["email.delivered","contact.created"]}`, hook.URL))
		n.made(key, "/contact-properties", `{"key":"note","type":"string"}`)
		segment := n.made(key, "/segments", `{"name":"News"}`)
		contact := n.made(key, "/contacts",
			`{"email":"b@one.example","first_name":"Bo","properties":{"note":"x"},"segments":["`+segment+`"]}`)
		n.made(other, "/contacts", `{"email":"b@one.example"}`)
		for _, k := range []string{key, key, other} {
			n.made(k, "/emails", `{"from":"a@resend.dev","to":"B@one.example","subject":"for b@one.example","text":"Hello"}`)
		}
		eventually(t, "all is delivered, told and logged", func() bool {
			return n.count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`) == 3 &&
				n.count(`SELECT COUNT(*) FROM webhook_deliveries WHERE status = 'success'`) == 3 &&
				n.count(`SELECT COUNT(*) FROM request_logs`) == 8
		})
		n.made(key, "/suppressions", `{"email":"b@one.example"}`)
		eventually(t, "that is logged too", func() bool {
			return n.count(`SELECT COUNT(*) FROM request_logs WHERE endpoint = '/suppressions'`) == 1
		})
		n.happened()
		status, text := n.ask(key, http.MethodGet, "/contacts/"+contact+"/export", "")
		if status != 200 || strings.Count(text, `"type":"delivered"`) != 2 || !strings.Contains(text, `"note":"x"`) {
			t.Errorf("the export is %d %s", status, text)
		}
		if status, text := n.ask(other, http.MethodPost, "/contacts/"+contact+"/erase", ""); status != 404 {
			t.Errorf("by another team: %d %s", status, text)
		}
		ended := func(path, body string) string {
			t.Helper()
			erasure := n.made(key, path, body)
			if !strings.Contains(body, "dry_run") { // dry runs start immediately
				n.due("privacy.erase")
			}
			text := ""
			eventually(t, "it is erased", func() bool {
				_, text = n.ask(key, http.MethodGet, "/contacts/erasures/"+erasure, "")
				return strings.Contains(text, `"status":"completed"`)
			})
			return text
		}
		before := n.naming("b@one.example")
		told := ended("/contacts/"+contact+"/erase", `{"dry_run":true}`)
		eventually(t, "that is logged", func() bool {
			return n.count(`SELECT COUNT(*) FROM request_logs WHERE endpoint LIKE '%/erase'`) == 2
		})
		if after := n.naming("b@one.example"); !maps.Equal(after, before) {
			t.Errorf("a dry run changed %v to %v", before, after)
		}
		told2 := ended("/contacts/b@one.example/erase", "{}")
		for _, want := range []string{
			`{"in":"sent emails","what":"sent emails to nobody else, deleted","count":2,"left":null}`,
			`{"in":"contacts","what":"contacts deleted","count":1,"left":null}`} {
			if !strings.Contains(told, want) || !strings.Contains(told2, want) {
				t.Errorf("no report has %s:\n%s\n%s", want, told, told2)
			}
		}
		team := p.teamOf("Acme")[0]
		eventually(t, "only the suppression names it", func() bool {
			return maps.Equal(n.naming("b@one.example", team), map[string]int{"suppressions": 1})
		})
		if told := ended("/contacts/b@one.example/erase", `{"suppressions":true}`); !strings.Contains(told,
			`"what":"suppressions deleted","count":1`) {
			t.Error(told)
		}
		if status, _ := n.ask(other, http.MethodGet, "/contacts/b@one.example", ""); status != 200 {
			t.Errorf("the contact of another team: %d", status)
		}
	})
}
