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
