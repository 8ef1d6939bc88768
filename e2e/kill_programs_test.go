package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/smtpsink"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/db/dbtest/pgproxy"
)

// TestKillPrograms kills the program at random moments while users and connected apps use it. The clients send emails
// under a team quota and a grant limit. Two users approve the same email at the same time, an app refreshes its tokens,
// and invited users accept their invitations and sign in. Another client creates objects with idempotency keys. At the
// end, counters equal the number of accepted emails, each approval has sent one email, and each object exists once.
// Retries that followed the documentation succeeded, and each change has an audit entry.
func TestKillPrograms(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		killPrograms(t, nil, (*killedNode).restart)
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		killPrograms(t, []string{"POSTRIDER_DATABASE_URL=" + dbtest.PostgresURL(t)},
			(*killedNode).restart)
	})
}

// TestKillConnections is like TestKillPrograms, but the node keeps running and its PostgreSQL connections break during
// COMMITs. Each break loses either the COMMIT or its response.
func TestKillConnections(t *testing.T) {
	t.Parallel()
	source := dbtest.PostgresURL(t)
	p, err := pgproxy.Start(source)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	killPrograms(t, []string{"POSTRIDER_DATABASE_URL=" + p.URL()}, func(*killedNode) {
		for range 3 {
			lost := p.Lost()
			p.LoseAnswers(2)
			p.DropCommits(1)
			eventually(t, time.Minute, "commits are cut", func() bool { return p.Lost() >= lost+2 })
		}
	})
	t.Logf("%d commits were cut", p.Lost())
}

// restart kills the node and starts it again.
func (n *killedNode) restart() {
	n.kill()
	n.up.Lock()
	n.launch()
	n.up.Unlock()
}

const (
	teamQuota  = 40 // daily email quota of the team Tight
	grantLimit = 20 // daily email limit of one connected app
	password   = "correct horse battery"
)

// inbox holds the messages that have arrived at the sink.
type inbox struct {
	mu    sync.Mutex
	ids   map[string]string   // message ids by subject
	links map[string][]string // invitation links by recipient address
}

var invitationLink = regexp.MustCompile(`/invitations/[\w-]+`)

// take records a message that has arrived and returns a description of an error in the message, or "" if there is none.
func (x *inbox) take(to string, data []byte) string {
	m := mailparse.Parse(data)
	x.mu.Lock()
	defer x.mu.Unlock()
	if strings.HasPrefix(m.Subject, "You are invited") {
		text := m.Text()
		x.links[to] = append(x.links[to], invitationLink.FindString(text))
		return ""
	}
	if before, ok := x.ids[m.Subject]; ok && before != m.MessageID {
		return fmt.Sprintf("%q came twice, as %s and %s", m.Subject, before, m.MessageID)
	}
	x.ids[m.Subject] = m.MessageID
	return ""
}

func (x *inbox) has(subject string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.ids[subject] != ""
}

func (x *inbox) linksTo(address string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return append([]string(nil), x.links[address]...)
}

// killed is a node that the test kills repeatedly, together with its clients' state.
type killedNode struct {
	*node
	ctx  context.Context
	up   sync.RWMutex // clients hold a read lock during a request, so that no request starts during a restart
	done atomic.Int64 // number of responses
}

// until repeats a request, even after connection errors, until a response is final.
func (n *killedNode) until(final func(ctx context.Context) (bool, error)) {
	for over := false; !over && n.ctx.Err() == nil; {
		n.up.RLock()
		ctx, cancel := context.WithTimeout(n.ctx, 20*time.Second)
		ok, err := final(ctx)
		cancel()
		n.up.RUnlock()
		if over = ok && err == nil; over {
			n.done.Add(1)
		}
	}
}

// repeated sends a request until its response has one of the given statuses, and returns that response.
func (n *killedNode) repeated(c caller, method, path string, body any, header ...string) (a reply) {
	n.until(func(ctx context.Context) (ok bool, err error) {
		a, err = c.ask(ctx, method, path, body, header...)
		return a.status != 0 && a.status < 500, err
	})
	return a
}

// sends sends emails with idempotency keys and returns the number of accepted emails.
func (n *killedNode) sends(c caller, from, subject string, count int) (accepted []string) {
	for i := range count {
		name := fmt.Sprintf("%s %d", subject, i)
		a := n.repeated(c, http.MethodPost, "/emails", map[string]any{"from": from, "to": "reader@example.net",
			"subject": name, "text": "Hello"}, "Idempotency-Key", name)
		switch {
		case a.status == http.StatusOK:
			accepted = append(accepted, name)
		case a.status == http.StatusTooManyRequests && strings.Contains(a.text, "daily_quota_exceeded"):
		case n.ctx.Err() == nil:
			n.t.Errorf("%s is answered with %d %s", name, a.status, a.text)
		}
	}
	return accepted
}

// creates creates objects with idempotency keys. Although requests are repeated, each object is created once, and each
// repeated request gets the same id.
func (n *killedNode) creates(c caller, count int) {
	for i := range count {
		name := fmt.Sprintf("Killed %d", i)
		for path, body := range map[string]map[string]any{"/segments": {"name": name}, "/events": {"name": name},
			"/templates": {"name": name, "html": "<p>"}} {
			ids := [2]string{}
			for k := range ids {
				var made struct{ ID string }
				a := n.repeated(c, http.MethodPost, path, body, "Idempotency-Key", name)
				if err := json.Unmarshal([]byte(a.text), &made); a.status != http.StatusCreated && n.ctx.Err() == nil {
					n.t.Errorf("POST %s: %d %s %v", path, a.status, a.text, err)
				}
				ids[k] = made.ID
			}
			if ids[0] != ids[1] {
				n.t.Errorf("POST %s: %v", path, ids)
			}
		}
	}
}

// asksFor sends emails as a connected app that needs approval for each, and returns the emails' subjects. Two users
// approve each email at the same time.
func (n *killedNode) asksFor(program caller, count int) (subjects []string) {
	person := caller{addr: n.addr, bearer: key}
	for i := range count {
		subject := fmt.Sprintf("Approved %d", i)
		a := n.repeated(program, http.MethodPost, "/approvals", map[string]any{"from": "hello@acme.example",
			"to": "reader@example.net", "subject": subject, "text": "Hello"})
		var made, sent struct {
			ID, Status string
			EmailID    string `json:"email_id"`
		}
		if err := json.Unmarshal([]byte(a.text), &made); err != nil || a.status != http.StatusCreated {
			n.t.Errorf("asked for an approval: %d %s", a.status, a.text)
			continue
		}
		var both sync.WaitGroup
		answers := make([]reply, 2)
		for k := range answers {
			both.Go(func() { answers[k] = n.repeated(person, http.MethodPost, "/approvals/"+made.ID+"/approve", nil) })
		}
		both.Wait()
		if answers[0].status != http.StatusOK || answers[0].text != answers[1].text {
			n.t.Errorf("approved at once: %+v", answers)
		}
		if err := json.Unmarshal([]byte(answers[0].text), &sent); err != nil || sent.Status != "approved" ||
			sent.EmailID == "" {
			n.t.Errorf("approved: %s %v", answers[0].text, err)
		}
		subjects = append(subjects, subject)
	}
	return subjects
}

// renews refreshes and uses the tokens of a connected app until stop is closed. If a refresh response was lost, the app
// may reuse the old refresh token for ten seconds. renews returns the number of successful refreshes, and the number of
// refusals that came after those ten seconds.
func (n *killedNode) renews(stop <-chan struct{}) (times, late int) {
	var p pair
	get := func() {
		n.until(func(ctx context.Context) (_ bool, err error) {
			p, err = granted(ctx, n.addr, key, "full_access")
			return true, err
		})
	}
	get()
	for n.ctx.Err() == nil {
		select {
		case <-stop:
			return times, late
		default:
		}
		var first time.Time
		var next pair
		var a reply
		n.until(func(ctx context.Context) (_ bool, err error) {
			if first.IsZero() {
				first = time.Now()
			}
			next, a, err = p.refresh(ctx, n.addr)
			return a.status < 500, err
		})
		switch {
		case a.status == http.StatusOK:
			times, p = times+1, next
		case n.ctx.Err() != nil:
			return times, late
		case time.Since(first) < 9*time.Second:
			n.t.Errorf("tokens are renewed again after %v: %d %s", time.Since(first), a.status, a.text)
			fallthrough
		default:
			late++
			get()
		}
		used := n.repeated(caller{addr: n.addr, bearer: p.Access}, http.MethodGet, "/domains", nil)
		if used.status != http.StatusOK && n.ctx.Err() == nil {
			n.t.Errorf("a token that was just given is answered with %d %s", used.status, used.text)
		}
	}
	return times, late
}

// joins invites a user, who accepts as soon as the link arrives and then signs in.
func (n *killedNode) joins(x *inbox, address string) {
	a := n.repeated(caller{addr: n.addr, bearer: key}, http.MethodPost, "/team/invitations",
		map[string]any{"email": address, "role": "member"})
	if a.status != http.StatusCreated {
		n.t.Errorf("invited %s: %d %s", address, a.status, a.text)
		return
	}
	signIn := func(ctx context.Context) (bool, error) {
		jar, err := cookiejar.New(nil)
		if err != nil {
			return false, err
		}
		person := caller{addr: n.named(), jar: jar}
		a, err := person.ask(ctx, http.MethodPost, "/sign-in", url.Values{"email": {address}, "password": {password}})
		if err != nil || a.status != http.StatusSeeOther {
			return false, err
		}
		a, err = person.ask(ctx, http.MethodGet, "/app/people", nil)
		if err == nil && (a.status != http.StatusOK || !strings.Contains(a.text, address)) {
			n.t.Errorf("%s signed in and sees %d", address, a.status)
		}
		return a.status < 500, err
	}
	n.until(func(ctx context.Context) (bool, error) {
		for _, link := range x.linksTo(address) {
			// If the invitation link is already used, an earlier request accepted the invitation, but its response was
			// lost.
			a, err := caller{addr: n.addr}.ask(ctx, http.MethodPost, link, url.Values{"password": {password}})
			switch {
			case err != nil:
				return false, err
			case a.status == http.StatusSeeOther:
				return true, nil
			case a.status == http.StatusNotFound:
				if ok, err := signIn(ctx); ok || err != nil {
					return ok, err
				}
			case a.status < 500:
				n.t.Errorf("%s accepts: %d %s", address, a.status, a.text)
			}
		}
		time.Sleep(20 * time.Millisecond) // wait for the invitation email
		return false, nil
	})
	n.until(signIn)
}

// killPrograms runs several clients against a node, and calls the function disturb after a random number of responses
// in each round.
func killPrograms(t *testing.T, env []string, disturb func(*killedNode)) {
	rounds, each := setting(t, "POSTRIDER_KILL_ROUNDS", 1), setting(t, "POSTRIDER_KILL_EACH", 10)
	x := &inbox{ids: map[string]string{}, links: map[string][]string{}}
	sink, err := smtpsink.Config{OnMessage: func(_ string, to []string, data []byte) {
		if wrong := x.take(to[0], data); wrong != "" {
			t.Error(wrong)
		}
	}}.Start("127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer sink.Close()
	n := &killedNode{node: start(t, env, "--relay", sink.Addr(), "--relay-tls", "none")}
	began := time.Now().UTC()
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rounds)*time.Minute+3*time.Minute)
	defer cancel()
	n.ctx = ctx
	n.addDomain("acme.example")
	tight := n.otherTeam("Tight", "tight.example", teamQuota)
	n.command("teams", "limit", "Development", "--daily", "100000")
	limited := n.program(map[string]any{"emails_per_day": grantLimit})
	asking := n.program(map[string]any{"approval": true})
	// A kill between the consent and the exchange also leaves a consent without a grant, because the app asks again.
	if _, err := consented(n.ctx, n.addr, key, "full_access"); err != nil {
		t.Fatal(err)
	}

	var users, renewing sync.WaitGroup
	var ofTeam, ofGrant, approved []string
	count := rounds * each
	stop := make(chan struct{})
	times, late := 0, 0
	users.Go(func() { ofTeam = n.sends(tight, "hello@tight.example", "Of the team", count+teamQuota) })
	users.Go(func() { ofGrant = n.sends(limited, "hello@acme.example", "Of the grant", count+grantLimit) })
	users.Go(func() { approved = n.asksFor(asking, count) })
	users.Go(func() { n.creates(caller{addr: n.addr, bearer: key}, count) })
	users.Go(func() {
		for i := range rounds {
			n.joins(x, fmt.Sprintf("person%d@example.net", i))
		}
	})
	renewing.Go(func() { times, late = n.renews(stop) })
	finished := make(chan struct{})
	go func() { users.Wait(); close(finished) }()
	for range rounds {
		after := n.done.Load() + 10 + rand.Int64N(int64(3*each))
		eventually(t, 2*time.Minute, "some requests of the round are answered", func() bool {
			select {
			case <-finished:
				return true
			default:
				return n.done.Load() >= after
			}
		})
		disturb(n)
	}
	users.Wait()
	close(stop)
	renewing.Wait()
	for _, subject := range append(append(append([]string(nil), ofTeam...), ofGrant...), approved...) {
		eventually(t, 2*time.Minute, subject+" arrives", func() bool { return x.has(subject) })
	}
	var waiting int
	eventually(t, 2*time.Minute, "every outcome is recorded", func() bool {
		status, err := n.call(ctx, http.MethodGet, "/dev/waiting", "", &waiting)
		return err == nil && status == http.StatusOK && waiting == 0
	})
	sameDay := time.Now().UTC().YearDay() == began.YearDay() // a test run across midnight uses the quotas of two days
	if sameDay && (len(ofTeam) != teamQuota || len(ofGrant) != grantLimit) {
		t.Errorf("%d emails of a team were accepted that may send %d, and %d of a program that may send %d",
			len(ofTeam), teamQuota, len(ofGrant), grantLimit)
	}
	n.stop()
	n.checkCounts(env, rounds, count)
	t.Logf("%d kills; %d approvals, %d renewals of tokens, %d of them refused after ten seconds", rounds, len(approved),
		times, late)
}

// command runs one of the program's commands while the node is running.
func (n *killedNode) command(args ...string) string {
	n.t.Helper()
	out, errOut, err := command(n.t, append(n.env, "POSTRIDER_DATA_DIR="+n.dir()), args...)
	if err != nil {
		n.t.Fatalf("postrider %s: %v %s", strings.Join(args, " "), err, errOut)
	}
	return strings.TrimSpace(out)
}

// otherTeam creates a team with a domain and a quota, and returns a caller that uses the team's API key.
func (n *killedNode) otherTeam(name, domain string, daily int) caller {
	n.t.Helper()
	c := caller{addr: n.addr, bearer: n.command("keys", "create", "--create-team", "--team", name,
		"--email", "owner@"+domain)}
	n.command("teams", "limit", name, "--daily", fmt.Sprint(daily))
	a, err := c.ask(n.ctx, http.MethodPost, "/domains", map[string]any{"name": domain})
	var d struct{ ID, Status string }
	if err == nil {
		err = json.Unmarshal([]byte(a.text), &d)
	}
	if err != nil {
		n.t.Fatal(err)
	}
	if _, err := c.ask(n.ctx, http.MethodPost, "/domains/"+d.ID+"/verify", nil); err != nil {
		n.t.Fatal(err)
	}
	eventually(n.t, 20*time.Second, "the domain is verified", func() bool {
		a, err := c.ask(n.ctx, http.MethodGet, "/domains/"+d.ID, nil)
		return err == nil && json.Unmarshal([]byte(a.text), &d) == nil && d.Status == "verified"
	})
	return c
}

// program grants access to a connected app under the given limits, and returns the app.
func (n *killedNode) program(limits map[string]any) caller {
	n.t.Helper()
	p, err := granted(n.ctx, n.addr, key, "full_access")
	if err != nil {
		n.t.Fatal(err)
	}
	a, err := caller{addr: n.addr, bearer: key}.ask(n.ctx, http.MethodPatch, "/oauth/grants/"+p.grantID(n.t),
		map[string]any{"limits": limits})
	if err != nil || a.status != http.StatusOK {
		n.t.Fatalf("limit a program: %d %s %v", a.status, a.text, err)
	}
	return caller{addr: n.addr, bearer: p.Access}
}

// checkCounts compares the stopped node's counters with the rows in its database.
func (n *killedNode) checkCounts(env []string, people, created int) {
	n.t.Helper()
	source := filepath.Join(n.dir(), "postrider.db")
	for _, v := range env {
		if after, ok := strings.CutPrefix(v, "POSTRIDER_DATABASE_URL="); ok {
			source = after
		}
	}
	d, err := db.Open(context.Background(), db.Options{URL: source, MaxConns: 2})
	if err != nil {
		n.t.Fatal(err)
	}
	defer d.Close()
	number := func(query string) (count int64) {
		n.t.Helper()
		if err := d.QueryRow(context.Background(), query).Scan(&count); err != nil {
			n.t.Fatalf("%s: %v", query, err)
		}
		return count
	}
	const recipients = `SELECT COALESCE(SUM(CASE WHEN e.recipient <> '' THEN 1 ELSE
		(SELECT COUNT(*) FROM email_recipients r WHERE r.email_id = e.id) END), 0) FROM emails e `
	const audited = `SELECT COUNT(DISTINCT target) FROM audit_log WHERE action = `
	for _, c := range []struct{ what, counted, there string }{
		// The test may run across midnight, so one day's counter may not include all emails.
		{"emails in the quotas of the month", `SELECT SUM(month_used) FROM team_volumes WHERE month =
			(SELECT MAX(month) FROM team_volumes)`, recipients + `WHERE TRUE`},
		{"approvals and entries", `SELECT COUNT(*) FROM approvals WHERE state <> 'expired'`,
			audited + `'approval.requested'`},
		{"approved and entries", `SELECT COUNT(*) FROM approvals WHERE state = 'approved'`,
			audited + `'approval.approved'`},
		{"entries of what is approved", `SELECT COUNT(*) FROM audit_log WHERE action = 'approval.approved'`,
			audited + `'approval.approved'`},
		{"approved and emails", `SELECT COUNT(DISTINCT a.email_id) FROM approvals a JOIN emails e ON e.id = a.email_id
			WHERE a.state = 'approved'`, `SELECT COUNT(*) FROM emails WHERE subject LIKE 'Approved %'`},
		{"grants and entries of consents", `SELECT COUNT(*) FROM oauth_grants`,
			audited + `'grant.created' AND CAST(target AS UUID) IN (SELECT id FROM oauth_grants)`},
		{"grants that were used twice, and entries", `SELECT COUNT(*) FROM oauth_grants
			WHERE revoked_reason = 'refresh_token_reuse'`, audited + `'grant.reuse_detected'`},
		{"emails of programs with a limit", `SELECT SUM(used) FROM grant_volumes`,
			recipients + `WHERE e.subject LIKE 'Of the grant %'`},
		{"invitations and entries", `SELECT COUNT(*) FROM invitations`, audited + `'member.invited'`},
		{"invitations that were accepted, and members", `SELECT COUNT(*) FROM invitations WHERE state = 'accepted'`,
			`SELECT COUNT(*) FROM memberships m JOIN users u ON u.id = m.user_id WHERE u.email LIKE 'person%'`},
		{"members and entries",
			`SELECT COUNT(*) FROM audit_log WHERE action = 'member.joined' AND detail LIKE 'person%'`,
			`SELECT COUNT(*) FROM memberships m JOIN users u ON u.id = m.user_id WHERE u.email LIKE 'person%'`},
		{"people", `SELECT COUNT(*) FROM users WHERE email LIKE 'person%'`, fmt.Sprintf(`SELECT %d`, people)},
		{"sessions and entries", `SELECT COUNT(*) FROM user_sessions s JOIN users u ON u.id = s.user_id
			WHERE u.email LIKE 'person%'`,
			`SELECT COUNT(*) FROM audit_log WHERE action = 'user.signed_in' AND actor_name LIKE 'person%'`},
		{"segments", `SELECT COUNT(*) FROM segments WHERE name LIKE 'Killed %'`, fmt.Sprintf(`SELECT %d`, created)},
		{"segments and entries", `SELECT COUNT(*) FROM segments WHERE name LIKE 'Killed %'`, audited + `'segment.created'`},
		{"events", `SELECT COUNT(*) FROM custom_events WHERE name LIKE 'Killed %'`, fmt.Sprintf(`SELECT %d`, created)},
		{"templates", `SELECT COUNT(*) FROM templates WHERE name LIKE 'Killed %'`, fmt.Sprintf(`SELECT %d`, created)},
		{"domains and entries", `SELECT COUNT(*) FROM domains WHERE name LIKE '%.example'`,
			audited + `'domain.created'`},
	} {
		if counted, there := number(c.counted), number(c.there); counted != there {
			n.t.Errorf("%s: %d and %d", c.what, counted, there)
		}
	}
}
