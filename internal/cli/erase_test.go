package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/jobs"
)

// table is a database table with a column team_id.
type table struct {
	name    string
	columns [][2]string // pairs of a column name and its lower-case type
}

// ownedTables returns the tables in the schema that have a column team_id, except the table of sessions. Sessions
// belong to users, and their team_id is only the team that the user opened last.
func ownedTables(t *testing.T, d *db.DB) (all []table) {
	t.Helper()
	query := `SELECT m.name, c.name, LOWER(c.type) FROM sqlite_master m, pragma_table_info(m.name) c
		WHERE m.type = 'table' ORDER BY 1, c.cid`
	if d.Engine() == "postgres" {
		query = `SELECT table_name, column_name, data_type FROM information_schema.columns
			WHERE table_schema = current_schema() AND is_generated = 'NEVER'
			AND table_name NOT IN (SELECT viewname FROM pg_views WHERE schemaname = current_schema())
			AND table_name NOT IN (SELECT relname FROM pg_class WHERE relispartition)
			ORDER BY 1, ordinal_position`
	}
	rows, err := d.Query(t.Context(), query)
	_, err = db.Collect(rows, err, func(r db.Row) (none struct{}, err error) {
		var name, column, kind string
		err = r.Scan(&name, &column, &kind)
		if len(all) == 0 || all[len(all)-1].name != name {
			all = append(all, table{name: name})
		}
		last := &all[len(all)-1]
		last.columns = append(last.columns, [2]string{column, kind})
		return none, err
	})
	if err != nil {
		t.Fatal(err)
	}
	var owned []table
	for _, x := range all {
		for _, c := range x.columns {
			if c[0] == "team_id" && x.name != "user_sessions" {
				owned = append(owned, x)
			}
		}
	}
	if len(owned) < 20 {
		t.Fatalf("%d tables have a team", len(owned))
	}
	// Referenced tables come first, so that foreign keys are satisfied.
	slices.SortStableFunc(owned, func(a, b table) int { return order(a) - order(b) })
	return owned
}

// order returns 0 for tables that foreign keys refer to, and 1 for other tables.
func order(x table) int {
	if x.name == "domains" {
		return 0
	}
	return 1
}

// fill inserts n rows that belong to a team into the table x. Foreign keys are satisfied because row i has the same id
// in every table.
func fill(ctx context.Context, tx *db.Tx, x table, teamID string, n int) {
	for i := range n {
		var names, marks []string
		var args []any
		for j, c := range x.columns {
			name, kind := c[0], c[1]
			var value any = int64(i)
			switch {
			case name == "team_id":
				value = db.ID(teamID)
			case kind == "boolean":
				value = false
			case kind == "uuid" || kind == "blob" && (name == "id" || strings.HasSuffix(name, "_id")):
				value = db.ID(dbtest.ID(fmt.Sprintf("%s-%03d", teamID, i)))
			case kind == "bytea" || kind == "blob":
				value = []byte{}
			case name == "id" || name == "email_id" || name == "domain_id" || name == "webhook_id" || name == "message_id" ||
				name == "contact_id" || name == "broadcast_id" || name == "import_id" || name == "automation_id" ||
				name == "run_id":
				value = dbtest.ID(fmt.Sprintf("%s-%03d", teamID, i))
			case kind == "text":
				value = fmt.Sprintf("%s-%s-%d", teamID, name, i)
			}
			if x.name == "automations" && name == "deleted_at" {
				value = int64(0) // a deleted automation has no triggers
			}
			if name == "checks" {
				value = "{}"
			}
			if name == "blob_key" {
				value = ""
			}
			names, marks, args = append(names, name), append(marks, fmt.Sprintf("$%d", j+1)), append(args, value)
		}
		tx.Queue(ctx, `INSERT INTO `+x.name+` (`+strings.Join(names, ", ")+`) VALUES (`+strings.Join(marks, ", ")+`)`,
			args...)
	}
}

// single lists the tables that have one row per team.
var single = []string{"live_tails", "email_counts_until", "email_bodies_until"}

// After a team is deleted, no table contains rows that belong to the team, and another team's rows are unchanged.
func TestDeletedTeamLeavesNoRows(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.must("teams", "create", "Operator")
		ids := map[string]string{"gone": p.must("teams", "create", "Gone"), "kept": p.must("teams", "create", "Kept")}
		c := p.config()
		d, err := openDB(t.Context(), c, newLogger(c, t.Output()))
		if err != nil {
			t.Fatal(err)
		}
		tables := ownedTables(t, d)
		const rows = 150 // more than one batch of emails
		err = d.Update(t.Context(), func(tx *db.Tx) error {
			for _, x := range tables {
				for _, teamID := range ids {
					n := rows
					if slices.Contains(single, x.name) {
						n = 1
					}
					fill(t.Context(), tx, x, teamID, n)
				}
			}
			return nil
		})
		d.Close()
		if err != nil {
			t.Fatal(err)
		}
		p.must("teams", "delete", "Gone", "--yes")
		// The node is not started, because its recurring jobs would delete the test's rows.
		n, err := node.Open(t.Context(), c, newLogger(c, t.Output()), node.Options{})
		if err != nil {
			t.Fatal(err)
		}
		defer n.Close()
		var j jobs.Job
		err = n.DB.QueryRow(t.Context(), `SELECT id, attempt, payload FROM jobs WHERE kind = $1`, teams.EraseKind).
			Scan((*db.ID)(&j.ID), &j.Attempt, &j.Payload)
		if err == nil {
			err = n.Teams.EraseJobs(n.Queue, n.TeamErasers()...).Handle(t.Context(), j)
		}
		if err != nil {
			t.Fatal(err)
		}
		left := func(team string) (total int, where string) {
			for _, x := range tables {
				var found int
				err := n.DB.QueryRow(t.Context(), `SELECT COUNT(*) FROM `+x.name+` WHERE team_id = $1`,
					db.ID(ids[team])).Scan(&found)
				if err != nil {
					t.Fatal(err)
				}
				if found > 0 {
					total, where = total+found, where+" "+x.name
				}
			}
			return total, where
		}
		if total, where := left("gone"); total > 0 {
			t.Errorf("%d rows of the deleted team are left in%s: give their owner an EraseTeam, and name it in node.build",
				total, where)
		}
		const made = 1 // the audit entry for the team's creation
		if total, where := left("kept"); total != rows*(len(tables)-len(single))+len(single)+made {
			t.Errorf("the other team has %d rows in%s", total, where)
		}
	})
}

// A deleted team stops working immediately. Its API key is rejected, its emails are not sent, another team can add its
// domain, and its files are deleted.
func TestDeletedTeam(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.must("teams", "create", "Operator")
		key, other := p.key("Acme"), p.key("Other")
		n := p.start()
		for _, body := range []string{`{"name":"acme.example"}`, `{"name":"mail.acme.example"}`} {
			if status, text := n.ask(key, http.MethodPost, "/domains", body); status != 201 {
				t.Fatalf("%d %s", status, text)
			}
		}
		file := `,"attachments":[{"filename":"a.txt","content":"aGVsbG8="}]}`
		if status, text := n.ask(key, http.MethodPost, "/emails", strings.TrimSuffix(hello, "}")+file); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		var sent struct{ ID string }
		_, text := n.ask(key, http.MethodPost, "/emails", strings.Replace(hello, "{", `{"scheduled_at":"in 1 hour",`, 1))
		if err := json.Unmarshal([]byte(text), &sent); err != nil || sent.ID == "" {
			t.Fatalf("%s: %v", text, err)
		}
		eventually(t, "the first is captured", func() bool {
			all, err := n.Outbox.All(t.Context())
			return err == nil &&
				len(all) == 1
		})
		files := func() (found int) {
			for _, pattern := range []string{"attachments=*", "submitted=*"} {
				all, _ := filepath.Glob(filepath.Join(p.dir, "blobs", "*", pattern))
				found += len(all)
			}
			return found
		}
		if files() != 1 {
			t.Fatalf("%d files are stored", files())
		}
		p.must("teams", "delete", "Acme", "--yes")
		eventually(t, "the key is refused", func() bool {
			status, _ := n.ask(key, http.MethodGet, "/domains",
				"")
			return status == 401
		})
		eventually(t, "its domain is free", func() bool {
			status, _ := n.ask(other, http.MethodPost, "/domains", `{"name":"acme.example"}`)
			return status == 201
		})
		eventually(t, "its rows and files are gone", func() bool {
			return files() == 0 && n.count(`SELECT COUNT(*) FROM emails`) == 0 &&
				n.count(`SELECT COUNT(*) FROM jobs WHERE team_id IS NOT NULL`) == 0
		})
		if status, text := n.ask(other, http.MethodPost, "/emails", hello); status != 200 {
			t.Errorf("another team: %d %s", status, text)
		}
	})
}

// Emails that a team submitted before it was deleted are not sent, even if their jobs still exist and are due.
func TestMailOfADeletedTeamIsNotSent(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.must("teams", "create", "Operator")
		key := p.key("Acme")
		p.vars["POSTRIDER_ROLES"] = "api"
		accepting := p.start()
		if status, text := accepting.ask(key, http.MethodPost, "/emails", hello); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		later := strings.Replace(hello, "{", `{"scheduled_at":"in 1 hour",`, 1)
		if status, text := accepting.ask(key, http.MethodPost, "/emails", later); status != 200 {
			t.Fatalf("%d %s", status, text)
		}
		accepting.due("emails.release")
		p.must("teams", "delete", "Acme", "--yes")
		accepting.end()
		// The job that erases the team does not run in this test, so only the team's deletion mark prevents sending.
		p.vars["POSTRIDER_ROLES"] = "delivery,jobs"
		n := p.start(func(n *node.Node) {
			err := n.DB.Update(t.Context(), func(tx *db.Tx) error {
				tx.Queue(t.Context(), `DELETE FROM jobs WHERE kind = 'teams.erase'`)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
		eventually(t, "the jobs end",
			func() bool { return n.count(`SELECT COUNT(*) FROM jobs WHERE team_id IS NOT NULL`) == 0 })
		if all, err := n.Outbox.All(t.Context()); err != nil || len(all) > 0 {
			t.Errorf("%d messages were sent, %v", len(all), err)
		}
		if found := n.count(`SELECT COUNT(*) FROM email_events WHERE type NOT IN (2, 1)`); found > 0 {
			t.Errorf("%d events of a team that is no more", found)
		}
	})
}
