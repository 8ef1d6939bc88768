package api

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
)

const actionsFile = "testdata/actions.txt"

// The audit action for each operation matches the table in testdata. Run the test with -update to write the table, and
// review the diff. Each new operation adds a line to the table.
func TestActions(t *testing.T) {
	t.Parallel()
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "operation\tin the audit log\tof")
	known := map[string]bool{}
	for _, o := range (&API{}).operations() {
		known[o.Method+" "+o.Path] = true
		if o.Audit.Name == "" {
			if o.Method != http.MethodGet {
				fmt.Fprintf(w, "%s %s\tnot\t-\n", o.Method, o.Path)
			}
			continue
		}
		of := o.Audit.Target
		if of == "" {
			of = "-"
		}
		fmt.Fprintf(w, "%s %s\t%s\t%s\n", o.Method, o.Path, o.Audit.Name, of)
	}
	for _, named := range []map[string]string{readActions, irregularActions} {
		for op := range named {
			if !known[op] {
				t.Errorf("%s is no operation", op)
			}
		}
	}
	w.Flush()
	if *update {
		if err := os.WriteFile(actionsFile, table.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(actionsFile)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(string(want), table.String()); diff != "" {
		t.Errorf("the file, - and what is recorded, +; run with -update to accept it:\n%s", diff)
	}
}

// An operation that changes data writes one audit entry in the same transaction. Failed operations, read operations and
// operations that send emails write no audit entry.
func TestRecordedOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.verified("example.org")
		recorded := func(request string) (all []audit.Entry) {
			t.Helper()
			before, _, _, err := f.Audit.List(t.Context(), f.Acme.TeamID, audit.Filter{}, page.Page{Limit: 1})
			f.Must(err)
			if w := f.do(t, request); w.Code >= 500 {
				t.Fatalf("%s: %d %s", request, w.Code, w.Body)
			}
			p := page.Page{Limit: 100}
			if len(before) > 0 {
				p.Before = before[0].ID
			}
			all, _, _, err = f.Audit.List(t.Context(), f.Acme.TeamID, audit.Filter{}, p)
			f.Must(err)
			return all
		}
		for _, request := range []string{
			"POST /emails\n\n" + `{"from":"a@example.org","to":"b@example.net","subject":"s","text":"t"}`,
			"POST /emails/batch\n\n" + `[{"from":"a@example.org","to":"b@example.net","subject":"s","text":"t"}]`,
			"POST /events/send\n\n" + `{"event":"e","email":"c@example.org"}`,
			"POST /topics\n\n" + `{"name":"x"}`, // refused
			"POST /topics\nAuthorization: sending\n\n" + `{"name":"x","default_subscription":"opt_in"}`,
			"POST /topics\nAuthorization: -\n\n" + `{"name":"x","default_subscription":"opt_in"}`,
			"DELETE /segments/0190b5a0-0000-7000-8000-00000000000a", // there is no such segment
			"GET /contacts", "GET /contacts/export?format=xml",
		} {
			if all := recorded(request); len(all) > 0 {
				t.Errorf("%s: %+v", request, all)
			}
		}
		for request, action := range map[string]string{
			"POST /segments\n\n" + `{"name":"x"}`:              "segment.created",
			"POST /events\n\n" + `{"name":"x"}`:                "event.created",
			"DELETE /events/x":                                 "event.deleted",
			"POST /audiences\n\n" + `{"name":"y"}`:             "segment.created",
			"GET /contacts/export":                             "contacts.exported",
			"GET /automations/signing-secret":                  "automation.secret_shown",
			"POST /contacts\n\n" + `{"email":"a@example.net"}`: "contact.created",
		} {
			if action == "event.deleted" {
				f.do(t, "POST /events\n\n"+`{"name":"x"}`)
			}
			all := recorded(request)
			if len(all) != 1 || all[0].Action != action || all[0].ActorKind != string(teams.KeyActor) ||
				all[0].ActorName != "full" || all[0].RequestID == "" || time.Since(all[0].At).Abs() > time.Minute {
				t.Errorf("%s: %+v", request, all)
			}
			if strings.HasSuffix(action, ".created") && len(all) == 1 && all[0].Target == "" {
				t.Errorf("%s: what was created is not named", request)
			}
		}
	})
}

// Entries about changes of a domain say what was changed. Requests that change nothing have no entry.
func TestDetailsOfDomains(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		on := true
		dom := f.Verified(f.Acme.TeamID, domains.NewDomain{Name: "mail.acme.example",
			Capabilities: domains.Capabilities{Receiving: &on}})
		at := "/domains/" + dom.ID
		detail := func(request string) string {
			t.Helper()
			before, _, _, err := f.Audit.List(t.Context(), f.Acme.TeamID, audit.Filter{}, page.Page{Limit: 1})
			f.Must(err)
			if w := f.do(t, request); w.Code != 200 {
				t.Fatalf("%s: %d %s", request, w.Code, w.Body)
			}
			all, _, _, err := f.Audit.List(t.Context(), f.Acme.TeamID, audit.Filter{}, page.Page{Limit: 1})
			f.Must(err)
			if len(all) == 0 || len(before) > 0 && all[0].ID == before[0].ID {
				return "no entry"
			}
			return all[0].Detail
		}
		for _, c := range []struct{ request, want string }{
			{"PUT " + at + "/setup\n\n" + `{"dmarc":"v=DMARC1; p=none"}`, `dmarc before: default, now: "v=DMARC1; p=none"`},
			{"PUT " + at + "/setup\n\n" + `{"dmarc":"v=DMARC1; p=none"}`, "no entry"},
			{"PUT " + at + "/setup\n\n" + `{"setup":"cname","dmarc":"v=DMARC1; p=reject","bimi":"v=BIMI1; l=https://a.example/a.svg"}`,
				`setup before: records, now: cname; dmarc before: "v=DMARC1; p=none", now: "v=DMARC1; p=reject"; ` +
					`bimi before: none, now: "v=BIMI1; l=https://a.example/a.svg"`},
			{"PUT " + at + "/setup\n\n" + `{"setup":"records","dmarc":null}`,
				`setup before: cname, now: records; dmarc before: "v=DMARC1; p=reject", now: default`},
			{"PUT " + at + "/mta-sts\n\n" + `{"mode":"testing","hosts":["mx2.example"]}`,
				"mode before: off, now: testing; max_age before: none, now: 86400; hosts before: none, now: mx2.example"},
			{"PUT " + at + "/mta-sts\n\n" + `{"mode":"enforce","max_age":1209600}`,
				"mode before: testing, now: enforce; max_age before: 86400, now: 1209600"},
			{"PUT " + at + "/mta-sts\n\n" + `{"mode":"off"}`,
				"mode before: enforce, now: off; max_age before: 1209600, now: none"},
		} {
			if got := detail(c.request); got != c.want {
				t.Errorf("%s:\n%s, want\n%s", c.request, got, c.want)
			}
		}
		for _, c := range []struct{ body, kind string }{{`{}`, "ordinary"}, {`{"emergency":true}`, "emergency"}} {
			got := detail("POST " + at + "/keys/rotate\n\n" + c.body)
			kept, err := f.Domains.DKIMKeys(t.Context(), &dom)
			f.Must(err)
			signing, next := []string{}, []string{}
			for _, k := range kept {
				switch k.State {
				case domains.KeySigning:
					signing = append(signing, k.Selector)
				case domains.KeyNext:
					next = append(next, k.Selector)
				}
			}
			want := c.kind + "; signing: " + strings.Join(signing, ", ") + "; next: " + strings.Join(next, ", ")
			if got != want || len(next) == 0 {
				t.Errorf("%s: %s, want %s", c.body, got, want)
			}
		}
	})
}

// If the audit entry cannot be written, the operation changes no data and returns no secret.
func TestNotRecorded(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.Update(func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `DROP TABLE audit_log`)
			return err
		})
		for _, request := range []string{"POST /segments\n\n" + `{"name":"x"}`, "GET /contacts/export",
			"GET /automations/signing-secret"} {
			if w := f.do(t, request); w.Code != 500 || strings.Contains(w.Body.String(), "whsec") {
				t.Errorf("%s: %d %s", request, w.Code, w.Body)
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM segments`); n != 0 {
			t.Errorf("%d segments", n)
		}
	})
}
