package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/smtp"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/node"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// longReads lists the statements that may take longer as tables grow.
var longReads = []dbtest.Allowed{
	{Text: "UPDATE jobs SET run_at = $1, set_at = $2, holder = NULL WHERE holder IS NOT NULL", Only: "sqlite",
		Reason: "a node that starts asks it once, and it reads only jobs that a node held"},
	{Text: "UPDATE jobs SET run_at = $2, set_at = $3, holder = NULL WHERE holder = $1",
		Reason: "a node holds only as many jobs as it has workers"},
	{Text: "DELETE FROM certificate_failures WHERE retry_at < $1", Reason: "once a day, and few hosts fail"},
	{Text: "DELETE FROM certificate_locks WHERE expires_at < $1", Reason: "once a day, and there are few locks"},
	{Text: "UPDATE jobs SET run_at = $2, set_at = $4, parked = $3 WHERE kind = $1",
		Reason: "recurring work has few jobs"},
	{Text: "DELETE FROM jobs WHERE kind = $1 AND dedupe <> '' AND dedupe <> ALL($2)",
		Reason: "recurring work has few jobs"},
	{Text: "WITH x AS (SELECT lane, run_at FROM jobs WHERE kind = $1", Only: "sqlite",
		Reason: "it reads at most a million entries of an index, in the background and seldom"},
	{Text: "SELECT COUNT(*) FROM domains WHERE team_id = $1", Reason: "a team has few domains"},
	{Text: "FROM topics t LEFT JOIN contact_topics", Reason: "a team has few topics, which is bounded"},
	{Text: "FROM contact_topics s JOIN topics t", Reason: "a team has few topics, which is bounded"},
	{Text: "SELECT COUNT(*) FROM topics WHERE team_id = $1", Reason: "a team has few topics, which is bounded"},
	{Text: "SELECT COUNT(*) FROM custom_events WHERE team_id = $1", Reason: "a team defines few events, which is bounded"},
	{Text: "contact_properties", Reason: "a team has few properties, which is bounded"},
	{Text: "SELECT COUNT(*) FROM segments WHERE team_id = $1", Reason: "a team has few segments, which is bounded"},
	{Text: "FROM webhooks WHERE team_id = $1", Reason: "a team has few endpoints, which is bounded"},
	{Text: "UPDATE webhooks SET status = 'deleted' WHERE team_id = $1",
		Reason: "a team has few endpoints, which is bounded"},
	{Text: "FROM broadcast_variants WHERE broadcast_id = $1", Reason: "a broadcast has at most five variants"},
	{Text: "FROM broadcast_counts WHERE broadcast_id = $1", Reason: "a broadcast has at most 16 counts of each variant"},
	{Text: "FROM team_volumes WHERE team_id = $1", Reason: "a team's quotas have at most 16 parts"},
	{Text: "UPDATE team_volumes SET day = $2", Reason: "a team's quotas have at most 16 parts"},
	{Text: "SELECT COUNT(*) FROM memberships WHERE team_id = $1", Reason: "a team has at most 200 members"},
	{Text: "SELECT EXISTS (SELECT 1 FROM memberships m JOIN users u ON u.id = m.user_id WHERE m.team_id = $1",
		Reason: "a team has at most 200 members"},
	{Text: "FROM broadcast_entered WHERE broadcast_id = $1",
		Reason: "a broadcast has a count for each variant and each of few reasons"},
	{Text: "FROM jobs j JOIN emails e ON e.id = CAST(j.dedupe AS UUID)",
		Reason: "a claim looks at what the team has scheduled"},
	{Text: "SELECT COUNT(*) FROM forwards WHERE team_id = $1", Reason: "a team has at most 500 rules"},
	{Text: "SELECT COUNT(*) FROM forwards WHERE domain_id = $1 AND team_id = $2", Reason: "a team has at most 500 rules"},
	{Text: "WHERE f.domain_id = $1 AND f.team_id = $2 ORDER BY f.id DESC", Reason: "a team has at most 500 rules"},
	{Text: "SELECT COUNT(*) FROM forward_targets WHERE team_id = $1", Reason: "a team asks at most 1000 addresses"},
	{Text: "FROM oauth_keys", Reason: "there are three keys at most"},
	{Text: "FROM email_counts_late l WHERE l.team_id = $1", Reason: "late events are counted each minute and then gone"},
	{Text: "EXISTS (SELECT 1 FROM email_terms o WHERE o.team_id = t.id AND o.state <> 1)",
		Reason: "it reads one open segment of each team of a page"},
	{Text: "EXISTS (SELECT 1 FROM email_counts_late l WHERE l.team_id = t.id)",
		Reason: "it reads one late event of each team of a page"},
}

// TestStatementsGoByIndexes checks that none of a node's SQL statements scans a large table, except for the statements
// in longReads. The test calls every operation and checks the query plans of all statements.
func TestStatementsGoByIndexes(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, p *installation) {
		trace := &dbtest.Trace{}
		p.options.Trace = trace.Record
		p.vars["POSTRIDER_ROLES"], p.vars["POSTRIDER_SMTP_IN_LISTEN"] = "api,delivery,jobs,submission,receiving",
			"127.0.0.1:0"
		p.vars["POSTRIDER_NOTICE_FROM"] = "notices@resend.dev"
		p.vars["POSTRIDER_METRICS_LISTEN"], p.vars["POSTRIDER_ALERT_TO"] = "127.0.0.1:0", "operator@example.net"
		authority := p.getCertificates(t)
		p.must("teams", "create", "Operator")
		key := p.key("Acme", "--email", "owner@acme.example",
			"--trial-daily", "1000000")
		other := p.key("Other")
		n := p.start(func(n *node.Node) { // before the node requests certificates
			authority.HTTP.To(strings.TrimPrefix(n.Config.PublicURL, "http://"))
		})
		beside := dbtest.Open(t, node.DatabaseURL(n.Config)) // the test's own queries are not traced
		n.look = beside.Reader
		d := &driver{started: n, key: key}
		d.certificates()
		d.everything(other)
		d.examination()
		d.policies()
		d.domainConnect()
		d.tlsReports()
		d.servedPolicies()
		d.domainReports()
		d.dmarcReports()
		p.must("teams", "delete", "Other", "--yes")
		eventually(t, "the other team is erased", func() bool {
			return n.count(`SELECT COUNT(*) FROM jobs WHERE kind = 'teams.erase' AND tries = 0`) == 0
		})
		for _, kind := range d.crons() {
			d.cron(kind)
		}
		d.removals(d.team)
		n.end()
		trace.SetDB(beside)
		trace.CheckTeams(t, ofAllTeams)
		trace.CheckPlans(t, longReads)
	})
}

// driver calls a node's operations with one team's API key.
type driver struct {
	*started
	key  string
	team string // id of the team
}

// do makes a request that must succeed, and returns the id in the response.
func (d *driver) do(method, path, body string) string {
	d.t.Helper()
	status, text := d.ask(d.key, method, path, body)
	if status/100 != 2 {
		d.t.Errorf("%s %s: %d %s", method, path, status, text)
	}
	var answer struct {
		ID   string
		Data json.RawMessage
	}
	json.Unmarshal([]byte(text), &answer)
	if answer.ID != "" {
		return answer.ID
	}
	var list []struct{ ID string }
	if json.Unmarshal(answer.Data, &list) == nil && len(list) > 0 {
		return list[0].ID
	}
	return ""
}

// pages reads the first page of a list, and the pages before and after an id.
func (d *driver) pages(path string) (first string) {
	d.t.Helper()
	first = d.do("GET", path, "")
	sign := "?"
	if strings.Contains(path, "?") {
		sign = "&"
	}
	if first == "" {
		d.t.Errorf("%s is empty", path)
		return ""
	}
	d.do("GET", path+sign+"limit=2&after="+first, "")
	if !strings.HasPrefix(path, "/webhooks/") {
		d.do("GET", path+sign+"limit=2&before="+first, "")
	}
	return first
}

// follow shares an email and opens the links on the shared page. The email must have at least one attachment.
func (d *driver) follow(emailID string) {
	d.t.Helper()
	_, shared := d.ask(d.key, http.MethodPost, "/emails/"+emailID+"/share", "")
	status, page := d.ask("", http.MethodGet, regexp.MustCompile(`/shared\?token=[\w.-]+`).FindString(shared), "")
	files := regexp.MustCompile(`/download/[\w/-]+`).FindAllString(page, -1)
	if status != 200 || len(files) == 0 {
		d.t.Errorf("the shared page of %s: %d %s", emailID, status, page)
	}
	for _, file := range files {
		if status, text := d.ask("", http.MethodGet, file, ""); status != 200 {
			d.t.Errorf("a file of the shared page of %s: %d %s", emailID, status, text)
		}
	}
}

func (d *driver) everything(otherKey string) {
	t := d.t
	t.Helper()
	var fail atomic.Bool
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if fail.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}))
	t.Cleanup(hook.Close)
	domain := d.do("POST", "/domains", `{"name":"acme.example","capabilities":{"receiving":"enabled"}}`)
	d.do("PATCH", "/domains/"+domain, `{"tls":"opportunistic","open_tracking":true}`)
	d.do("POST", "/domains/"+domain+"/verify", "")
	eventually(d.t, "the domain is verified", func() bool {
		_, text := d.ask(d.key, http.MethodGet, "/domains/"+domain, "")
		return strings.Contains(text, `"status":"verified","created_at"`)
	})
	d.do("GET", "/domains/"+domain, "")
	d.do("POST", "/domains/"+domain+"/keys/rotate", `{"emergency":true}`)
	d.do("GET", "/domains/"+domain+"/setup", "")
	d.do("PUT", "/domains/"+domain+"/setup", `{"setup":"records"}`)
	d.do("DELETE", "/domains/"+d.do("POST", "/domains", `{"name":"gone.example"}`), "")
	d.pages("/domains")
	other := &driver{started: d.started, key: otherKey}
	other.do("POST", "/domains/claim", `{"name":"acme.example"}`)
	other.do("GET", "/domains", "")

	keyID := d.do("POST", "/api-keys", `{"name":"another"}`)
	d.do("PATCH", "/api-keys/"+keyID, `{"name":"renamed"}`)
	d.pages("/api-keys")
	d.do("DELETE", "/api-keys/"+keyID, "")

	d.do("POST", "/suppressions", `{"email":"no@one.example"}`)
	d.do("POST", "/suppressions/batch/add", `{"emails":["x@one.example","y@one.example"]}`)
	d.do("POST", "/suppressions/batch/remove", `{"emails":["x@one.example"]}`)
	s := d.pages("/suppressions")
	d.do("GET", "/suppressions?origin=manual", "")
	d.do("GET", "/suppressions/"+s, "")
	d.do("GET", "/suppressions/no@one.example", "")
	d.do("DELETE", "/suppressions/"+s, "")

	d.templates()
	d.people() // called first, because the setup link only works while no user exists
	d.memberships()

	webhook := d.do("POST", "/webhooks", fmt.Sprintf(`{"endpoint":%q,"events":["email.sent"]}`, hook.URL))
	d.do("PATCH", "/webhooks/"+webhook, `{"events":["email.sent","email.delivered","email.bounced","email.received"]}`)
	d.do("GET", "/webhooks/"+webhook, "")
	d.pages("/webhooks")
	d.do("POST", "/webhooks/"+webhook+"/signing-secret/rotate", "")

	watching, stop := context.WithCancel(t.Context())
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		err := watch(watching, d.url, d.key)
		if err != nil && watching.Err() == nil {
			t.Errorf("watch: %v", err)
		}
	}()
	eventually(t, "the events are watched", func() bool { return d.count(`SELECT COUNT(*) FROM live_tails`) > 0 })
	email := d.do("POST", "/emails",
		`{"from":"a@acme.example","to":["b@one.example","no@one.example"],"subject":"s","html":"<p>t</p>",
		"tags":[{"name":"a","value":"b"}],"attachments":[{"filename":"a.txt","content":"aGVsbG8="}]}`)
	later := strings.Replace(hello, "{", `{"scheduled_at":"in 1 hour",`, 1)
	scheduled := d.do("POST", "/emails", strings.Replace(later, "a@resend.dev", "a@acme.example", 1))
	if err := d.look.QueryRow(t.Context(), `SELECT team_id FROM domains WHERE id = $1`, db.ID(domain)).
		Scan((*db.ID)(&d.team)); err != nil {
		t.Fatal(err)
	}
	waits := func(want bool) {
		t.Helper()
		if waiting, err := d.Emails.HasScheduledFrom(t.Context(), d.team, domain); waiting != want || err != nil {
			t.Errorf("emails of the domain wait: %v, %v", waiting, err)
		}
	}
	waits(true)
	d.do("PATCH", "/emails/"+scheduled, `{"scheduled_at":"`+time.Now().Add(2*time.Hour).Format(time.RFC3339)+`"}`)
	d.do("POST", "/emails/"+scheduled+"/cancel", "")
	d.do("POST", "/emails", later)
	waits(false) // the other waiting emails are from another domain
	d.due("emails.release")
	d.do("POST", "/emails/batch", "["+hello+","+hello+"]")
	auth := smtp.PlainAuth("", "postrider", d.key, "127.0.0.1")
	err := d.mail(d.Port(node.PortSubmit), auth, "a@acme.example", "c@one.example", "Subject: x\r\n\r\nx\r\n")
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "all is captured", func() bool {
		all, err := d.Outbox.All(t.Context())
		return err == nil && len(all) >= 12 // with a domain claim notice, four invitations, and perhaps an alarm
	})
	all, err := d.Outbox.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all { // sends a bounce for each email
		if err := d.mail(d.Port(node.PortInbound), nil, "", c.ReturnPath, fmt.Sprintf(bounce, c.Recipients[0])); err != nil {
			t.Error(err)
		}
	}
	reply := "In-Reply-To: <" + email + "@acme.example>\r\n" + received
	if err := d.mail(d.Port(node.PortInbound), nil, "x@sender.example", "in@acme.example", reply); err != nil {
		t.Error(err)
	}
	d.pages("/emails")
	d.searches(email, domain)
	for _, path := range []string{"/emails/export", "/emails/export?created_after=2020-01-01&created_before=2090-01-01",
		"/emails/export?status=bounced&to=one.example", "/contacts/export",
		"/contacts/topics@one.example/export", "/contacts/erasures", "/suppressions/export",
		"/suppressions/export?origin=manual", "/logs/export", "/logs/export?status=2xx&method=GET"} {
		d.do("GET", path, "")
	}
	for _, what := range []string{"", "/attachments", "/checks"} {
		d.do("GET", "/emails/"+email+what, "")
	}
	d.pages("/emails/" + email + "/events")
	d.pages("/emails/" + email + "/attempts")
	d.do("GET", "/emails/"+email+"/explain", "")
	d.do("POST", "/emails/checks", `{"from":"a@acme.example","subject":"s","html":"<p>t</p>"}`)
	d.do("GET", "/emails/"+email+"/attachments/"+d.do("GET", "/emails/"+email+"/attachments", ""), "")
	d.follow(email)
	d.track(email)
	got := d.pages("/emails/receiving")
	d.do("GET", "/emails/receiving?thread_id="+email, "")
	for _, query := range []string{"q=a", "q=" + got, "to=acme.example&from=a@b.example&subject=s",
		"created_after=2020-01-01&created_before=2090-01-01", "q=a&thread_id=" + email} {
		for _, cursor := range []string{"", "&after=" + got, "&before=" + got} {
			d.do("GET", "/emails/receiving?"+query+cursor, "")
		}
	}
	d.do("GET", "/emails/receiving/"+got, "")
	d.follow(got)
	d.do("GET", "/emails/receiving/"+got+"/attachments/"+d.do("GET", "/emails/receiving/"+got+"/attachments", ""), "")
	d.do("GET", "/usage", "")
	d.do("GET", "/emails/metrics", "")
	d.do("GET", "/emails/metrics?dimensions=broadcast,domain", "")
	d.do("GET", "/emails/metrics?dimensions=period&timezone=Europe/Berlin", "")
	d.do("GET", "/emails/metrics?domain_id="+domain, "")
	eventually(t, "requests are logged", func() bool {
		return d.count(`SELECT COUNT(*) FROM request_logs
		WHERE endpoint = '/emails/batch' AND email_ids <> ''`) > 0
	})
	d.pages("/logs")
	entry := d.do("GET", "/logs?method=POST&status=200&endpoint=/emails/batch", "")
	d.do("GET", "/logs/"+entry, "")

	eventually(t, "the endpoint was told", func() bool {
		return d.count(`SELECT COUNT(*) FROM webhook_deliveries WHERE status = 'success'`) > 5
	})
	fail.Store(true)
	d.do("POST", "/emails", strings.Replace(hello, "b@", "d@", 1))
	eventually(t, "the endpoint has failed", func() bool {
		return d.count(`SELECT COUNT(*) FROM webhook_attempts WHERE status_code = 500`) > 0
	})
	fail.Store(false)
	events := "/webhooks/" + webhook + "/events"
	event := d.pages(events)
	d.do("GET", events+"?status=failed", "")
	d.do("GET", events+"/"+event, "")
	d.do("GET", events+"/"+event+"/attempts", "")
	d.do("POST", events+"/"+event+"/replay", "")
	d.do("POST", "/webhooks/"+webhook+"/recover", `{"since":"`+time.Now().Add(-time.Hour).Format(time.RFC3339)+`"}`)
	d.do("PATCH", "/webhooks/"+webhook, `{"status":"disabled"}`)
	d.do("PATCH", "/webhooks/"+webhook, `{"status":"enabled"}`)
	d.do("DELETE", "/webhooks/"+webhook, "")
	d.topics()
	d.audience()
	d.imported()
	d.broadcast()
	d.automate(other, hook.URL)
	d.events()
	d.lookups()
	d.forwards()
	d.authorize()
	stop()
	<-watched
	if status, text := d.ask(otherKey, http.MethodPost, "/emails", hello); status != 200 {
		t.Errorf("%d %s", status, text)
	}
}

// templates calls all template operations.
func (d *driver) templates() {
	d.t.Helper()
	id := d.do("POST", "/templates", `{"name":"x","alias":"x","subject":"s","html":"<p>{{{A}}}</p>",
		"variables":[{"key":"A","type":"string"}]}`)
	d.do("PATCH", "/templates/x", `{"html":"<b>{{{A}}}</b>"}`)
	d.do("POST", "/templates/"+id+"/publish", "")
	for _, name := range []string{"x", id} {
		d.do("POST", "/emails", `{"from":"a@resend.dev","to":"t@two.example",
			"template":{"id":"`+name+`","variables":{"A":"b"}}}`)
	}
	d.do("GET", "/templates/x", "")
	d.do("POST", "/templates/x/render", `{"variables":{"A":"b"}}`)
	version := d.pages("/templates/x/versions")
	d.do("GET", "/templates/x/versions/"+version+"/compare/1", "")
	d.do("POST", "/templates/x/versions/1/restore", "")
	d.do("POST", "/templates/x/duplicate", "")
	d.pages("/templates")
	d.do("DELETE", "/templates/"+id, "")
	if err := d.Templates.Sweep(d.t.Context()); err != nil {
		d.t.Fatal(err)
	}
}

const received = "Message-ID: <1@sender.example>\r\nSubject: x\r\nContent-Type: multipart/mixed; " +
	"boundary=b\r\n\r\n--b\r\n\r\nx\r\n" +
	"--b\r\nContent-Type: text/plain; name=a.txt\r\nContent-Disposition: attachment\r\n\r\nx\r\n--b--\r\n"

const bounce = "Content-Type: multipart/report; report-type=delivery-status; boundary=b\r\n\r\n--b\r\n\r\nNo.\r\n" +
	"--b\r\nContent-Type: message/delivery-status\r\n\r\nReporting-MTA: dns; mx.one.example\r\n\r\n" +
	"Final-Recipient: rfc822; %s\r\nAction: failed\r\nStatus: 5.1.1\r\n\r\n--b--\r\n"

// mail sends a message over SMTP, with the fields From and To of the envelope above it.
func (d *driver) mail(addr string, auth smtp.Auth, from, to, message string) error {
	return d.send(addr, auth, from, to, "From: "+from+"\r\nTo: "+to+"\r\n"+message)
}

// send sends a message over SMTP as it is.
func (d *driver) send(addr string, auth smtp.Auth, from, to, message string) error {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	c, err := smtp.NewClient(conn, "127.0.0.1")
	if err != nil {
		return err
	}
	if auth != nil {
		if err := c.Auth(auth); err != nil {
			return err
		}
	}
	if err := c.Mail(from); err != nil {
		return err
	}
	if err := c.Rcpt(to); err != nil {
		return err
	}
	w, err := c.Data()
	if err != nil {
		return err
	}
	if _, err := w.Write([]byte(message)); err != nil {
		return err
	}
	return w.Close()
}

// watch reads a team's event stream until ctx ends.
func watch(ctx context.Context, url, key string) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/webhooks/listen", nil)
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+key)
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("it answered %s", answer.Status)
	}
	_, err = answer.Body.Read(make([]byte, 1))
	<-ctx.Done()
	return err
}

// crons lists the names of the recurring jobs.
func (d *driver) crons() []string {
	d.t.Helper()
	rows, err := d.look.Query(d.t.Context(),
		`SELECT DISTINCT kind FROM jobs WHERE kind >= 'cron.' AND kind < 'cron/' ORDER BY kind`)
	all, err := db.Collect(rows, err, func(r db.Row) (kind string, err error) { return kind, r.Scan(&kind) })
	if err != nil || len(all) < 8 {
		d.t.Fatalf("recurring work: %v, %v", all, err)
	}
	return all
}

// postpone keeps recurring jobs from running for a day, unless cron is called. Otherwise, they also run at fixed times
// of the clock, such as each quarter of an hour.
func (d *driver) postpone(kinds ...string) {
	d.t.Helper()
	for _, kind := range kinds {
		d.change(`UPDATE jobs SET run_at = run_at + $2 WHERE kind = $1 AND holder IS NULL`, kind,
			(24 * time.Hour).Microseconds())
	}
}

// cron runs all parts of a recurring job once.
func (d *driver) cron(kind string) {
	d.t.Helper()
	attempts := d.count(`SELECT SUM(attempt) FROM jobs WHERE kind = $1`, kind)
	rows, err := d.look.Query(d.t.Context(), `SELECT dedupe FROM jobs WHERE kind = $1`, kind)
	parts, err := db.Collect(rows, err, func(r db.Row) (dedupe string, err error) { return dedupe, r.Scan(&dedupe) })
	if err == nil {
		err = d.DB.Update(d.t.Context(), func(tx *db.Tx) error {
			for _, dedupe := range parts {
				if _, err := d.Queue.Move(d.t.Context(), tx, kind, "", kind, dedupe, tx.Now().Add(-time.Minute)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err != nil {
		d.t.Fatal(err)
	}
	eventually(d.t, kind+" is done", func() bool {
		return d.count(`SELECT SUM(attempt) - COUNT(*) FROM jobs WHERE kind = $1`, kind) >= attempts &&
			d.count(`SELECT COUNT(*) FROM jobs WHERE kind = $1 AND (holder IS NOT NULL OR last_error <> '')`, kind) == 0
	})
}
