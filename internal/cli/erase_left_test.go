package cli

import (
	"bytes"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// importFile uploads a file with the given name as an import of contacts.
func (n *started) importFile(key, name, content string) {
	n.t.Helper()
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	w, err := form.CreateFormFile("file", name)
	if err == nil {
		_, err = w.Write([]byte(content))
	}
	if err != nil {
		n.t.Fatal(err)
	}
	form.Close()
	r, err := http.NewRequestWithContext(n.t.Context(), http.MethodPost,
		n.url+"/contacts/imports", &body)
	if err != nil {
		n.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+key)
	r.Header.Set("User-Agent", "test")
	r.Header.Set("Content-Type", form.FormDataContentType())
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		n.t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode/100 != 2 {
		n.t.Fatalf("the import is answered with %d", answer.StatusCode)
	}
}

// An erasure removes an address from texts that people wrote: names, subjects, reasons, file names and the details of
// the audit log. The report counts the rows that an erasure leaves, and says why.
func TestEraseFromTexts(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key := p.key("Acme")
		p.vars["POSTRIDER_ROLES"] = "api,delivery,jobs"
		n := p.start()
		approval := n.made(key, "/approvals", `{"from":"Ann <a@resend.dev>","to":["c@one.example"],
			"subject":"About B@one.example","text":"t"}`)
		if status, text := n.ask(key, "POST", "/approvals/"+approval+"/reject",
			`{"reason":"b@one.example does not want it"}`); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		n.made(key, "/approvals", `{"from":"a@resend.dev","to":["b@one.example"],"subject":"s","text":"t"}`)
		segment := n.made(key, "/segments", `{"name":"Friends of b@one.example"}`)
		n.made(key, "/broadcasts", `{"name":"For b@one.example","from":"a@resend.dev","subject":"s","text":"t",
			"segment_id":"`+segment+`"}`)
		n.made(key, "/templates", `{"name":"Template for b@one.example","html":"<p>t</p>"}`)
		n.made(key, "/automations", `{"name":"Watches b@one.example",
			"steps":[{"key":"start","type":"trigger","config":{"event_name":"signed.up"}}],"connections":[]}`)
		n.importFile(key, "contacts-B@one.example.csv", "email\nc@one.example\n")
		p.must("users", "create", "b@one.example")
		n.change(`INSERT INTO audit_log (id, team_id, actor_kind, actor_id, actor_name, action, target, detail, address,
			user_agent, request_id, at) VALUES ($1, (SELECT id FROM teams WHERE name = 'Acme'), 'user', NULL, 'b@one.example',
			'domain.created', '', '', '', '', '', 0)`, db.ID(id.New()))
		for i, x := range [][2]string{{"One", "q=B%40one.example"}, {"Two", "q=invoice+b%40one.example"},
			{"b@one.example", "status=bounced"}, {"Longer", "q=ab%40one.example"}, {"Other", "q=one.example&to=c%40one.example"}} {
			n.change(`INSERT INTO saved_filters (id, team_id, user_id, list, name, query, created_at) VALUES ($1,
				(SELECT id FROM teams WHERE name = 'Acme'), $2, 'emails', $3, $4, $5)`, db.ID(id.New()), db.ID(id.New()), x[0],
				x[1], i)
		}
		eventually(t, "all is logged and imported", func() bool {
			return n.count(`SELECT COUNT(*) FROM request_logs WHERE endpoint = '/contacts/imports'`) == 1 &&
				n.count(`SELECT COUNT(*) FROM contact_imports WHERE status = 'completed'`) == 1
		})
		before := n.naming("b@one.example")
		for _, table := range []string{"approvals", "broadcasts", "segments", "automations", "templates", "contact_imports",
			"request_logs", "audit_log", "saved_filters"} {
			if before[table] == 0 {
				t.Errorf("the table %s does not name it: %v", table, before)
			}
		}
		dry := p.must("emails", "erase", "b@one.example", "--team", "Acme", "--dry-run")
		report := p.must("emails", "erase", "b@one.example", "--team", "Acme")
		if left := n.naming("b@one.example"); len(left) != 1 || left["audit_log"] != 1 {
			t.Errorf("it is still named in %v", left)
		}
		for _, want := range []string{"1 approvals\n", "1 decided approvals in which it was replaced",
			"1 entries of the audit log in which it was replaced", "names of broadcasts in which it was replaced",
			"names of automations in which it was replaced", "names of segments in which it was replaced",
			"names of templates in which it was replaced", "names of imported files in which it was replaced",
			"3 saved filters", "1 entries of the audit log LEFT: they name the person who acted, as evidence\n"} {
			if !strings.Contains(report, want) || !strings.Contains(dry, want) {
				t.Errorf("no report has %q:\n%s\na dry run said\n%s", want, report, dry)
			}
		}
		if n := n.count(`SELECT COUNT(*) FROM contact_imports WHERE filename = 'contacts-erased@erased.invalid.csv'
			OR filename = 'erased@erased.invalid.csv'`); n != 1 {
			t.Errorf("%d imports have a name without it", n)
		}
		if n := n.count(`SELECT COUNT(*) FROM saved_filters`); n != 2 {
			t.Errorf("%d saved filters without it are left, want 2", n)
		}
	})
}
