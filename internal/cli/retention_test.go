package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

// change executes an SQL statement for the test.
func (n *started) change(text string, args ...any) {
	n.t.Helper()
	err := n.DB.Update(n.t.Context(), func(tx *db.Tx) error { tx.Queue(n.t.Context(), text, args...); return nil })
	if err != nil {
		n.t.Fatal(err)
	}
}

// made sends a request that creates an object, and returns the object's id.
func (n *started) made(key, path, body string) string {
	n.t.Helper()
	var answer struct{ ID string }
	status, text := n.ask(key, http.MethodPost, path, body)
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status/100 != 2 || answer.ID == "" {
		n.t.Fatalf("%s: %d %s", path, status, text)
	}
	return answer.ID
}

// happened backdates all events and received emails by one hour, and then runs the job that counts them for the metrics.
func (n *started) happened() {
	n.t.Helper()
	n.change(`UPDATE email_events SET created_at = created_at - $1`, time.Hour.Microseconds())
	n.change(`UPDATE received_emails SET created_at = created_at - $1`, time.Hour.Microseconds())
	d := &driver{started: n}
	d.cron("cron.metrics")
}

// totals returns the metrics for a team's emails.
func (n *started) totals(key string) string {
	n.t.Helper()
	status, text := n.ask(key, http.MethodGet, "/emails/metrics?dimensions=domain", "")
	var answer struct{ Totals, Data json.RawMessage }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || status != 200 {
		n.t.Fatalf("%d %s", status, text)
	}
	return string(answer.Totals) + string(answer.Data)
}

// Every endpoint treats a deleted email as if it had never existed. A deleted email still counts in the metrics.
func TestRetention(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		key, keeper := p.key("Acme"), p.key("Keeper")
		p.vars["POSTRIDER_BODY_RETENTION"] = "48h"
		p.must("teams", "retention", "Acme", "--emails", "24h")
		n := p.start()
		const with = `{"from":"a@resend.dev","to":"b@one.example","subject":"s","text":"t",
			"attachments":[{"filename":"a.txt","content":"aGVsbG8="}]}`
		email, kept := n.made(key, "/emails", with), n.made(keeper, "/emails", with)
		waiting := n.made(key, "/emails", strings.Replace(hello, "{", `{"scheduled_at":"in 1 hour",`, 1))
		eventually(t, "both are delivered", func() bool {
			return n.count(`SELECT COUNT(*) FROM emails WHERE last_event = 5 /* delivered */`) == 2
		})
		_, shared := n.ask(key, http.MethodPost, "/emails/"+email+"/share", "")
		link := regexp.MustCompile(`/shared\?token=[\w.-]+`).FindString(shared)
		_, page := n.ask("", http.MethodGet, link, "")
		file := regexp.MustCompile(`/download/[\w/-]+`).FindString(page)
		for _, path := range []string{link, file} {
			if status, text := n.ask("", http.MethodGet, path, ""); status != 200 {
				t.Fatalf("%s: %d %s", path, status, text)
			}
		}
		n.happened()
		before := n.totals(key)
		if !strings.Contains(before, `"delivered":1`) {
			t.Errorf("the metrics are %s", before)
		}
		in := func(d time.Duration) func() time.Time { return func() time.Time { return time.Now().Add(d) } }
		for _, d := range []time.Duration{0, 25 * time.Hour} {
			if err := n.Retention(in(d)).Run(t.Context()); err != nil {
				t.Fatal(err)
			}
			if d == 0 {
				if status, text := n.ask(key, http.MethodGet, "/emails/"+email, ""); status != 200 {
					t.Fatalf("young, it is %d %s", status, text)
				}
			}
		}
		for _, x := range [][2]string{{"GET", ""}, {"PATCH", ""}, {"POST", "/cancel"}, {"POST", "/share"}, {"GET",
			"/attachments"},
			{"GET", "/attachments/" + waiting}, {"GET", "/events"}, {"GET", "/attempts"}} {
			body := ""
			if x[0] == "PATCH" {
				body = `{"scheduled_at":"in 1 hour"}`
			}
			_, unknown := n.ask(key, x[0], "/emails/01990000-0000-7000-8000-000000000001"+x[1], body)
			if status, text := n.ask(key, x[0], "/emails/"+email+x[1], body); status != 404 || text != unknown {
				t.Errorf("%s %s of what is deleted: %d %s, and of what never was: %s", x[0], x[1], status, text, unknown)
			}
		}
		for _, path := range []string{link, file} {
			if status, text := n.ask("", http.MethodGet, path, ""); status != 404 {
				t.Errorf("%s leads to %d %s", path, status, text)
			}
		}
		if after := n.totals(key); after != before {
			t.Errorf("the metrics were %s and are %s", before, after)
		}
		if status, text := n.ask(key, http.MethodGet, "/emails/"+waiting, ""); status != 200 || !strings.Contains(text,
			`"text":"t"`) {
			t.Errorf("what waits is %d %s", status, text)
		}
		if status, text := n.ask(keeper, http.MethodGet, "/emails/"+kept, ""); status != 200 || !strings.Contains(text,
			`"text":"t"`) {
			t.Errorf("what another team keeps is %d %s", status, text)
		}
		if err := n.Retention(in(49 * time.Hour)).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		status, text := n.ask(keeper, http.MethodGet, "/emails/"+kept, "")
		if status != 200 || !strings.Contains(text, `"text":null`) || !strings.Contains(text, `"html":null`) {
			t.Errorf("without a body it is %d %s", status, text)
		}
		if status, text := n.ask(keeper, http.MethodGet, "/emails/"+kept+"/attachments", ""); status != 200 ||
			strings.Contains(text, "a.txt") {
			t.Errorf("without a body its attachments are %d %s", status, text)
		}
		if status, text := n.ask(keeper, http.MethodGet, "/emails/"+kept+"/events", ""); status != 200 ||
			!strings.Contains(text, "delivered") {
			t.Errorf("without a body its events are %d %s", status, text)
		}
	})
}

// `teams retention` prints the effective periods and refuses periods that are too short or too long.
func TestRetentionCommand(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		p.must("teams", "create", "Acme")
		p.vars["POSTRIDER_EMAIL_RETENTION"] = "720h"
		show := func() string { return strings.Join(strings.Fields(p.must("teams", "retention", "Acme")), " ") }
		if got := show(); got != "emails 720h0m0s configured bodies forever configured "+
			"received forever configured events forever configured" {
			t.Errorf("at first: %s", got)
		}
		p.must("teams", "retention", "Acme", "--emails", "240h", "--bodies", "24h")
		p.must("teams", "retention", "Acme", "--events", "48h", "--bodies", "0")
		if got := show(); got != "emails 240h0m0s the team's bodies forever configured "+
			"received forever configured events 48h0m0s the team's" {
			t.Errorf("then: %s", got)
		}
		p.refused("`email_retention` of a team must not be longer", "teams", "retention", "Acme", "--emails", "721h")
		p.refused("`received_retention` of a team must be at least 24h", "teams", "retention", "Acme", "--received", "1h",
			"--emails", "48h")
		p.refused("--events: \"soon\" is not a duration", "teams", "retention", "Acme", "--events", "soon")
		p.refused("no team with the name", "teams", "retention", "Nobody", "--events", "48h")
		if got := show(); !strings.HasPrefix(got, "emails 240h0m0s the team's") {
			t.Errorf("after what was refused: %s", got)
		}
		p.vars["POSTRIDER_EMAIL_RETENTION"] = "120h"
		if got := show(); !strings.HasPrefix(got, "emails 120h0m0s configured") {
			t.Errorf("where the installation keeps less: %s", got)
		}
		p.vars["POSTRIDER_EMAIL_RETENTION"] = "1h"
		if _, errOut, code := p.command("teams", "list"); code == 0 || !strings.Contains(errOut, "email_retention") {
			t.Errorf("an hour: exit code %d, %s", code, errOut)
		}
	})
}

// removals deletes all of a team's data, so that the delete statements are traced.
func (d *driver) removals(teamID string) {
	d.t.Helper()
	d.contentsOf(teamID)
	d.change(`UPDATE email_counts_until SET until = $1 WHERE team_id = $2`, time.Now().Add(48*time.Hour).UnixMicro(),
		db.ID(teamID))
	a, err := erasure.Parse("b@one.example")
	if err != nil {
		d.t.Fatal(err)
	}
	scope := erasure.Scope{Teams: []string{teamID}, All: true}
	_, err = d.Emails.EraseAddress(d.t.Context(), a, scope)
	_, err2 := d.Receiving.EraseAddress(d.t.Context(), a, scope)
	_, err3 := webhooks.EraseAddress(d.t.Context(), d.DB, a, scope)
	_, err4 := requestlog.EraseAddress(d.t.Context(), d.DB, a, scope)
	_, err5 := suppressions.EraseAddress(d.t.Context(), d.DB, a, scope)
	if err := errors.Join(err, err2, err3, err4, err5); err != nil {
		d.t.Error(err)
	}
	for _, do := range []func(ctx context.Context, teamID string, before time.Time, after string) (string, error){
		d.Emails.RemoveBodies, d.Emails.RemoveSkippedBodies, d.Emails.RemoveTimelines, d.Emails.RemoveBefore,
		d.Receiving.RemoveBefore} {
		if _, err := do(d.t.Context(), teamID, time.Now().Add(48*time.Hour), ""); err != nil {
			d.t.Error(err)
		}
	}
}

// contentsOf inserts emails that share one content, and contents that no email uses.
func (d *driver) contentsOf(teamID string) {
	d.t.Helper()
	ctx, text := d.t.Context(), "Dear {{{NAME|reader}}}"
	add := func(kept bool) (c content.Content) {
		c = content.Content{TeamID: teamID, From: "a@resend.dev", Subject: "News", Text: &text, Kept: kept}
		if err := d.DB.Update(ctx, func(tx *db.Tx) error { return d.Contents.Add(ctx, tx, &c) }); err != nil {
			d.t.Fatal(err)
		}
		return c
	}
	shared, unused, released := add(true), add(false), add(true)
	for _, c := range []content.Content{shared, unused, released} {
		d.change(`UPDATE contents SET used_at = 1 WHERE id = $1 AND team_id = $2`, db.ID(c.ID), db.ID(teamID))
	}
	if err := d.DB.Update(ctx, func(tx *db.Tx) error {
		d.Contents.Release(ctx, tx, teamID,
			released.ID)
		return nil
	}); err != nil {
		d.t.Fatal(err)
	}
	m, err := d.Emails.Mailing(ctx, teams.System(teamID), shared.ID, true)
	if err != nil {
		d.t.Fatal(err)
	}
	var entered []emails.EnqueueResult
	if err := d.DB.Update(ctx, func(tx *db.Tx) (err error) {
		entered, err = d.Emails.Enqueue(ctx, tx, m, []emails.MailingRecipient{{Address: "delivered@resend.dev"}})
		return err
	}); err != nil || entered[0].Err != nil {
		d.t.Fatal(err, entered)
	}
	if err := d.Emails.SweepContents(ctx); err != nil {
		d.t.Fatal(err)
	}
	for id, want := range map[string]int{shared.ID: 1, unused.ID: 0, released.ID: 0} {
		if n := d.count(`SELECT COUNT(*) FROM contents WHERE id = $1`, db.ID(id)); n != want {
			d.t.Errorf("content %s is there %d times, want %d", id, n, want)
		}
	}
}
