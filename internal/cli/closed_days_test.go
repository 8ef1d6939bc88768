package cli

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// withDays prepares an installation with partitions of days. It must be called before the first node starts.
func (p *installation) withDays() {
	p.t.Helper()
	p.vars["POSTRIDER_PARTITION_BY"] = "day"
	if url := p.vars["POSTRIDER_DATABASE_URL"]; url != "" {
		dbtest.DropPartitions(p.t, dbtest.Open(p.t, url)) // which are of months
	}
}

// close moves emails that [started.old] has made old into the partitions of their days.
func (n *started) close() {
	n.t.Helper()
	n.change(`UPDATE migrations SET applied_at = applied_at - $1`, 100*24*time.Hour.Microseconds())
	if err := n.Retention(n.DB.Now).Partition(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
	if !n.DB.Alone() {
		if left := n.count(`SELECT COUNT(*) FROM emails_default`); left > 0 {
			n.t.Fatalf("%d emails are in the default partition", left)
		}
	}
}

// The erasure of an address, the deletion of a team, and shorter retention periods reach emails in partitions of past
// days, and leave other emails there.
func TestClosedDays(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.withDays()
		keys := map[string]string{}
		for _, team := range []string{"Acme", "Gone", "Short"} {
			keys[team] = p.key(team)
		}
		p.must("teams", "retention", "Short", "--bodies", "24h", "--events", "96h")
		n := p.start()
		send := func(team, to, text string) string {
			return n.made(keys[team], "/emails", fmt.Sprintf(`{"from":"a@resend.dev","to":[%s],"subject":"s",
				"text":%q,"attachments":[{"filename":"a.txt","content":"aGVsbG8="}]}`, to, text))
		}
		ids := map[string]string{"alone": send("Acme", `"b@one.example"`, "Hello"),
			"named":  send("Acme", `"b@one.example","c@one.example"`, "Hello b@one.example"),
			"other":  send("Acme", `"c@one.example"`, "Hello"),
			"gone":   send("Gone", `"c@one.example","d@one.example"`, "Hello"),
			"short":  send("Short", `"c@one.example"`, "Hello"),
			"events": send("Short", `"c@one.example"`, "Hello")}
		eventually(t, "all are delivered", func() bool {
			return n.count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`) == 6
		})
		n.happened()
		for name, days := range map[string]int{"alone": 6, "named": 5, "other": 5, "gone": 6, "short": 3, "events": 5} {
			ids[name] = n.old(ids[name], days)
		}
		n.close()
		p.must("emails", "erase", "b@one.example")
		n.happened()
		if status, text := n.ask(keys["Acme"], http.MethodGet, "/emails/"+ids["alone"], ""); status != 404 {
			t.Errorf("the email to the erased address alone: %d %s", status, text)
		}
		for _, x := range []shownEmail{
			{ids["named"], []string{`"c@one.example"`, "erased@erased.invalid", `"text":null`}, []string{"b@one.example"}},
			{ids["other"], []string{`"c@one.example"`, `"text":"Hello"`}, []string{"b@one.example"}}} {
			x.check(n, keys["Acme"])
		}
		for table, rows := range n.naming("b@one.example") {
			if strings.HasPrefix(table, "email") {
				t.Errorf("%d rows of %s have the erased address", rows, table)
			}
		}
		p.must("teams", "delete", "Gone", "--yes")
		of := `SELECT (SELECT COUNT(*) FROM emails WHERE id = $1) + (SELECT COUNT(*) FROM email_events WHERE email_id = $1)
			+ (SELECT COUNT(*) FROM email_recipients WHERE email_id = $1)
			+ (SELECT COUNT(*) FROM email_attachments WHERE email_id = $1)`
		eventually(t, "the deleted team's rows are gone", func() bool { return n.count(of, db.ID(ids["gone"])) == 0 })
		if rows := n.count(of, db.ID(ids["other"])); rows != 4 {
			t.Errorf("another team's email has %d rows", rows)
		}
		(&driver{started: n}).cron("cron.metrics")
		(&driver{started: n}).cron("cron.retention")
		for name, want := range map[string]string{"short": `"text":null`, "events": `"text":null`} {
			shownEmail{ids[name], []string{want}, []string{"Hello"}}.check(n, keys["Short"])
		}
		if a, b := n.count(`SELECT COUNT(*) FROM email_events WHERE email_id = $1`, db.ID(ids["short"])),
			n.count(`SELECT COUNT(*) FROM email_events WHERE email_id = $1`, db.ID(ids["events"])); a != 2 || b != 0 {
			t.Errorf("an email of 3 days has %d events, and one of 5 days %d", a, b)
		}
	})
}

// clockOf lets a test move the clock of a PostgreSQL database: the schema of the tables has a function that stands
// before PostgreSQL's own.
type clockOf struct {
	n      *started
	beside *db.DB
}

func movableClock(t *testing.T, url string) *db.DB {
	t.Helper()
	d := dbtest.Open(t, url)
	if err := d.Update(t.Context(), func(tx *db.Tx) error {
		for _, text := range []string{`CREATE TABLE clock_ahead (seconds BIGINT)`, `INSERT INTO clock_ahead VALUES (0)`,
			`CREATE FUNCTION clock_timestamp() RETURNS TIMESTAMPTZ LANGUAGE sql VOLATILE AS
			'SELECT pg_catalog.clock_timestamp() + (SELECT seconds FROM clock_ahead) * INTERVAL ''1 second'''`} {
			if _, err := tx.Exec(t.Context(), text); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return d
}

// ahead sets how far the clock is ahead, and waits until the node has read it.
func (c clockOf) ahead(by time.Duration) {
	c.n.t.Helper()
	if err := c.beside.Update(c.n.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(c.n.t.Context(), `UPDATE clock_ahead SET seconds = $1`, int64(by/time.Second))
		return err
	}); err != nil {
		c.n.t.Fatal(err)
	}
	eventually(c.n.t, "the node reads the clock", func() bool {
		off := time.Until(c.n.DB.Now()) - by
		return off > -2*time.Second && off < 2*time.Second
	})
}

// The database's clock jumps to a moment before midnight and passes it, jumps a month ahead, where no partition exists,
// and back again, while emails are accepted. All of them are accepted, delivered, and readable, and each is in the
// partition of its id, or in the default partition if there is none.
func TestClockJumpsAcrossDays(t *testing.T) {
	t.Parallel()
	p := &installation{t: t, dir: t.TempDir()}
	url := dbtest.EmptyPostgresURL(t)
	p.vars = map[string]string{"GOGC": "100", "POSTRIDER_DATA_DIR": p.dir, "POSTRIDER_PARTITION_BY": "day",
		"POSTRIDER_RATE_LIMIT": "0", "POSTRIDER_DATABASE_URL": url + "&search_path=public,pg_catalog"}
	beside := movableClock(t, url)
	p.vars["POSTRIDER_SECRET_KEY"] = testSecretKey
	p.must("migrate")
	key := p.key("Acme")
	n := p.start()
	c := clockOf{n, beside}
	stop, ended := make(chan bool), make(chan []string)
	go func() {
		var accepted []string
		for tick := time.NewTicker(50 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				ended <- accepted
				return
			case <-tick.C:
				accepted = append(accepted, n.made(key, "/emails", hello))
			}
		}
	}()
	real := time.Now().UTC()
	midnight := real.Truncate(24*time.Hour).AddDate(0, 0, 1)
	c.ahead(midnight.Sub(real) - 3*time.Second)
	eventually(t, "midnight has passed", func() bool { return n.DB.Now().After(midnight.Add(time.Second)) })
	c.ahead(30 * 24 * time.Hour)
	c.ahead(0)
	stop <- true
	accepted := <-ended
	eventually(t, "all are delivered", func() bool {
		return n.count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`) == len(accepted)
	})
	partitions := map[string]int{}
	for _, emailID := range accepted {
		partitions[n.partitionOf(emailID)]++
	}
	for _, name := range []string{real.Format("emails_20060102"), midnight.Format("emails_20060102"), "emails_default"} {
		if partitions[name] == 0 {
			t.Errorf("no email is in %s, but %v", name, partitions)
		}
	}
	if err := n.Retention(n.DB.Now).Partition(t.Context()); err != nil {
		t.Error(err)
	}
	for _, emailID := range accepted {
		if status, text := n.ask(key, http.MethodGet, "/emails/"+emailID, ""); status != 200 {
			t.Fatalf("%s is answered with %d %s", emailID, status, text)
		}
	}
	if listed := readFilled(n, key, "/emails?"); len(listed) != len(accepted) {
		t.Errorf("%d emails are in the list, and %d were accepted", len(listed), len(accepted))
	}
}
