package signin

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/page"
)

// The first owner signs up with a setup link, which works only once.
func TestSetUp(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		link, err := x.users.SetupLink(t.Context())
		x.Must(err)
		path, ok := strings.CutPrefix(link, testnode.PublicURL)
		if !ok {
			t.Fatalf("the link is %s", link)
		}
		other := x.browser(t).get(path).want(200, "Set up Postrider")
		b := x.browser(t).get(path).want(200, "A new team")
		b.submit("/setup", "email", "ada@acme.example", "name", "Ada", "password", "short").want(422, "password")
		if form := b.form("/setup"); form.Get("email") != "ada@acme.example" || form.Get("password") != "" {
			t.Errorf("the form has %v", form)
		}
		b.submit("/setup", "password", password, "team", "", "new_team", "").want(422)
		b.submit("/setup", "password", password, "team", x.Acme.TeamID).want(200, "Your account",
			"ada@acme.example", "Acme")
		ada, err := x.users.ByEmail(t.Context(), "ada@acme.example")
		x.Must(err)
		if m, err := x.members.ListByUser(t.Context(), ada.ID); err != nil || len(m) != 1 || m[0].Role != teams.Owner ||
			m[0].TeamID != x.Acme.TeamID {
			t.Errorf("%+v, error %v", m, err)
		}
		if n := x.Count(`SELECT COUNT(*) FROM audit_log WHERE team_id = $1 AND action = 'member.joined'
			AND actor_id = $2 AND address = '192.0.2.1'`, db.ID(x.Acme.TeamID), db.ID(ada.ID)); n != 1 {
			t.Errorf("the audit log tells of the first owner %d times", n)
		}
		other.submit("/setup", "email", "eve@acme.example", "password", password).want(404, "no longer works")
		other.get(path).want(404)
		other.get("/setup").want(200, "Sign in")
		if all, err := x.users.List(t.Context(), "", 10); err != nil || len(all) != 1 {
			t.Errorf("%d users, error %v", len(all), err)
		}
	})
}

// The responses to a wrong password and to an unknown address are byte-for-byte identical.
func TestSignIn(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ada@acme.example", teams.Owner)
		b := x.browser(t)
		b.get("/app/account").want(200, "Sign in")
		if b.path != "/sign-in?next=%2Fapp%2Faccount" {
			t.Errorf("a visitor of /app/account is led to %s", b.path)
		}
		wrong := b.submit("/sign-in", "email", "ada@acme.example", "password", "wrong password").body
		b.want(401)
		unknown := b.get("/sign-in?next=%2Fapp%2Faccount").submit("/sign-in", "email", "eve@acme.example", "password",
			"wrong password").body
		if b.want(401); strings.ReplaceAll(unknown, "eve@", "ada@") != wrong {
			t.Errorf("the answers differ:\n%s\n%s", wrong, unknown)
		}
		if b.form("/sign-in").Get("email") != "eve@acme.example" {
			t.Error("the address is not kept")
		}

		// After a sign-in, the server does not use a session cookie that an attacker has planted in the browser.
		planted := &http.Cookie{Name: "__Host-postrider", Value: strings.Repeat("A", 43), Path: "/", Secure: true}
		base, _ := url.Parse(testnode.PublicURL)
		b.c.Jar.SetCookies(base, []*http.Cookie{planted})
		b.get("/app/account").want(200, "Sign in").submit("/sign-in", "email", "ADA@acme.example", "password", password)
		b.want(200, "Your account")
		first := b.c.Jar.Cookies(base)[0].Value
		if first == planted.Value {
			t.Error("the planted session is the visitor's now")
		}

		// Signing in again creates a new session and ends the old one.
		b.post("/sign-in", url.Values{"email": {"ada@acme.example"}, "password": {password}}).want(200, "Your account")
		second := b.c.Jar.Cookies(base)[0].Value
		if _, _, err := x.users.Session(t.Context(), first); err == nil || second == first {
			t.Error("the session before goes on")
		}

		b.submit("/sign-out").want(200, "You are signed out")
		if _, _, err := x.users.Session(t.Context(), second); err == nil {
			t.Error("the session goes on after signing out")
		}
		if len(b.c.Jar.Cookies(base)) != 0 {
			t.Errorf("the browser keeps %v", b.c.Jar.Cookies(base))
		}
		b.submit("/sign-in", "email", "ada@acme.example", "password", password).want(200)
	})
}

// The session cookie is restricted to this host and to TLS. Scripts cannot read the session cookie, and browsers do not
// send it with requests from other sites.
func TestCookie(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ada@acme.example", "")
		b := x.browser(t)
		b.c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		b.post("/sign-in", url.Values{"email": {"ada@acme.example"}, "password": {password}})
		cookie := b.header.Get("Set-Cookie")
		for _, attribute := range []string{"__Host-postrider=", "; Path=/;", "; HttpOnly", "; Secure", "; SameSite=Lax"} {
			if !strings.Contains(cookie, attribute) {
				t.Errorf("the cookie is %s", cookie)
			}
		}
		if strings.Contains(cookie, "Domain=") || b.status != http.StatusSeeOther {
			t.Errorf("%d with %s", b.status, cookie)
		}
	})
}

// A user who requests too many pages must wait. The refused requests change nothing. Other users are not affected.
func TestTooManyPages(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ada@acme.example", teams.Owner)
		x.person("bob@acme.example", teams.Owner)
		ada, other, bob := x.browser(t).signIn("ada@acme.example"), x.browser(t).signIn("ada@acme.example"),
			x.browser(t).signIn("bob@acme.example")
		x.stopped = true
		x.second++
		for range 10 {
			ada.get("/app/account").want(200)
			other.get("/app/people").want(200)
		}
		ada.get("/app/account").want(429, "Too many requests", "Wait a second")
		if wait := ada.header.Get("Retry-After"); wait != "1" {
			t.Errorf("told to wait for %q", wait)
		}
		other.post("/app/account/name", url.Values{"name": {"Other"}}).want(429, "nothing was done")
		bob.get("/app/account").want(200)
		x.second++
		if ada.get("/app/account").want(200); strings.Contains(ada.body, "Other") {
			t.Error("what was refused was done")
		}
	})
}

// No value of the query parameter "next" redirects to another site.
func TestOpenRedirects(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ada@acme.example", teams.Owner)
		b := x.browser(t)
		b.c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		for next, want := range map[string]string{"/app/people": "/app/people", "//evil.example": "/app/emails"} {
			b.post("/sign-in", url.Values{"email": {"ada@acme.example"}, "password": {password}, "next": {next}})
			if got := b.header.Get("Location"); got != want {
				t.Errorf("signing in with the next page %q leads to %q", next, got)
			}
			b.post("/app/account/prove", url.Values{"password": {password}, "next": {next}})
			if got := b.header.Get("Location"); got != strings.Replace(want, "/app/emails", "/app/account", 1) {
				t.Errorf("a proof with the next page %q leads to %q", next, got)
			}
		}
		for next, want := range map[string]string{"/app/people": "/app/people", "//evil.example": "/app/emails",
			"https://evil.example/": "/app/emails", `/\evil.example`: "/app/emails", "/\t/evil.example": "/app/emails",
			"javascript:alert(1)": "/app/emails", "": "/app/emails", "people": "/app/emails"} {
			b.get("/sign-in?" + url.Values{"next": {next}}.Encode())
			if got := b.header.Get("Location"); got != want {
				t.Errorf("the page of sign-in with the next page %q leads to %q", next, got)
			}
			b.post("/app/account/team", url.Values{"team": {x.Acme.TeamID}, "next": {next}})
			if got := b.header.Get("Location"); got != want {
				t.Errorf("choosing a team with the next page %q leads to %q", next, got)
			}
		}
	})
}

// After the password, a page asks for a code from the authenticator app or a recovery code. Each code works only once.
func TestCodes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ada@acme.example", "")
		clock := time.Now()
		x.users.Now = func() time.Time { return clock }
		b := x.browser(t).signIn("ada@acme.example")
		b.get("/app/account/totp").want(200).submit("/app/account/totp/begin").want(200, "Scan this")
		_, rest, _ := strings.Cut(b.body, `<code id="secret">`)
		secret, _, _ := strings.Cut(rest, "<")
		secret = strings.ReplaceAll(secret, " ", "")
		code := func() string {
			clock = clock.Add(time.Minute)
			c, err := totp.GenerateCode(secret, clock)
			x.Must(err)
			return c
		}
		b.submit("/app/account/totp/confirm", "code", "000000").want(422, "This code is wrong", "QR code").
			submit("/app/account/totp/confirm", "code", "12").want(422, "This code is wrong", "QR code").
			submit("/app/account/totp/confirm", "code", code()).want(200, "Recovery codes")
		var recovery []string
		for _, attribute := range strings.Split(b.body, "<li><code>")[1:] {
			text, _, _ := strings.Cut(attribute, "<")
			recovery = append(recovery, text)
		}
		if len(recovery) != 10 {
			t.Fatalf("recovery codes: %v", recovery)
		}

		c := x.browser(t).get("/sign-in?next=%2Fapp%2Faccount%2Fteam")
		c.submit("/sign-in", "email", "ada@acme.example", "password", password).want(200, "Enter your code")
		if strings.Contains(c.path, "token") || c.get("/app/account").path != "/sign-in?next=%2Fapp%2Faccount" {
			t.Errorf("the password alone leads to %s", c.path)
		}
		once := code()
		c.get("/sign-in/code?next=%2Fapp%2Faccount%2Fteam").submit("/sign-in/code", "code", "000000").want(422)
		c.submit("/sign-in/code", "code", once)
		if c.path != "/app/account/team" {
			t.Fatalf("the code leads to %s: %s", c.path, c.body)
		}
		c.submit("/sign-out").submit("/sign-in", "email", "ada@acme.example", "password", password)
		c.submit("/sign-in/code", "code", once).want(422)
		c.submit("/sign-in/code", "code", recovery[3]).want(200, "Your account", "9 recovery codes")
		c.submit("/sign-out").submit("/sign-in", "email", "ada@acme.example", "password", password)
		c.submit("/sign-in/code", "code", recovery[3]).want(422)

		// After too many wrong codes, the visitor must enter the password again.
		for range 10 {
			if c.form("/sign-in/code") == nil {
				break
			}
			c.submit("/sign-in/code", "code", "000000")
		}
		c.want(200, "Start again")
		if c.get("/sign-in/code").path != "/sign-in" {
			t.Errorf("the page of codes is still there: %s", c.path)
		}

		b.get("/app/account").submit("/app/account/recovery-codes").want(200, "Recovery codes")
		if strings.Contains(b.body, recovery[0]) {
			t.Error("the new recovery codes are the old ones")
		}
		b.get("/app/account").submit("/app/account/totp/remove").want(200, "authentication is off")
	})
}

// The response to the form that requests a password reset link is the same for every address. The password reset link
// works only once, and using it ends all of the user's sessions.
func TestForgottenPassword(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ada@acme.example", "")
		signedIn := x.browser(t).signIn("ada@acme.example")
		b := x.browser(t)
		unknown := b.get("/password/forgot").submit("/password/forgot", "email", "eve@acme.example").body
		b.want(200, "If this address has an account")
		known := b.get("/password/forgot").submit("/password/forgot", "email", "ada@acme.example").body
		if b.want(200); known != unknown {
			t.Errorf("the answers differ:\n%s\n%s", known, unknown)
		}
		x.work()
		for _, m := range x.mails {
			if m.to != "ada@acme.example" {
				t.Errorf("an email was sent to %s", m.to)
			}
		}
		link := x.lastLink("ada@acme.example")
		other := x.browser(t).get(link).want(200)
		b.get(link).submit("/password/reset", "password", "short").want(422)
		b.submit("/password/reset", "password", "another horse battery").want(200, "Your new password is saved")
		other.submit("/password/reset", "password", "what a thief wants").want(404, "no longer works")
		signedIn.get("/app/account").want(200, "Sign in")
		b.submit("/sign-in", "email", "ada@acme.example", "password", password).want(401)
		b.submit("/sign-in", "email", "ada@acme.example", "password", "another horse battery").want(200, "Your account")

		// If no email can be sent, the page for requesting a password reset link says so.
		x.users.Mail = nil
		for _, email := range []string{"ada@acme.example", "eve@acme.example"} {
			x.browser(t).get("/password/forgot").submit("/password/forgot", "email", email).
				want(403, "Ask the operator for a link")
		}
	})
}

// An invitation can be accepted only once, and only by a user with the invited address.
func TestInvitations(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ada := x.person("ada@acme.example", teams.Owner)
		x.person("bob@acme.example", "")
		x.person("eve@acme.example", "")
		owner := x.browser(t).signIn("ada@acme.example")
		invite := func(email string, role teams.Role) string {
			t.Helper()
			owner.get("/app/people").submit("/app/people/invite", "email", email, "role", string(role)).
				want(200, "The invitation is sent", email)
			return x.lastLink(email)
		}

		// The invited person has no account.
		link := invite("new@acme.example", teams.Viewer)
		b := x.browser(t).get(link).want(200, "Join Acme", "ada (ada@acme.example)", "new@acme.example", "viewer")
		b.submit(link, "name", "Nora", "password", "short").want(422)
		if b.form(link).Get("name") != "Nora" {
			t.Error("the name is not kept")
		}
		again := x.browser(t).get(link)
		b.submit(link, "password", password).want(200, "You have joined the team", "Nora")
		again.submit(link, "password", password).want(404, "no longer works")
		again.get(link).want(404)

		// An invited person who has an account must sign in first. If another user opens the invitation link, the server
		// refuses the request.
		link = invite("bob@acme.example", teams.Member)
		b = x.browser(t).get(link).want(200, "This address already has an account")
		if b.form(link) != nil {
			t.Error("the page makes another account")
		}
		b.post(link, url.Values{"password": {password}}).want(200, "Sign in")
		eve := x.browser(t).signIn("eve@acme.example")
		eve.get(link).want(200, "You are signed in as eve@acme.example")
		eve.post(link, nil).want(403, "You are signed in as eve@acme.example")
		b.submit("/sign-in", "email", "bob@acme.example", "password", password).want(200, "Join Acme").
			submit(link).want(200, "You have joined the team")

		// Revoked, replaced and expired invitations no longer work.
		link = invite("carol@acme.example", teams.Member)
		second := invite("carol@acme.example", teams.Member)
		x.browser(t).get(link).want(404, "no longer works")
		all, _, err := x.members.Invitations(t.Context(), x.Acme.TeamID, page.Page{})
		x.Must(err)
		owner.get("/app/people").submit("/app/people/invitations/"+all[0].ID+"/resend").want(200, "sent again")
		third := x.lastLink("carol@acme.example")
		x.browser(t).get(second).want(404)
		x.browser(t).get(third).want(200)
		owner.get("/app/people").submit("/app/people/invitations/"+all[0].ID+"/revoke").want(200, "revoked")
		x.browser(t).get(third).want(404)
		link = invite("carol@acme.example", teams.Member)
		x.members.Now = func() time.Time { return x.DB.Now().Add(8 * 24 * time.Hour) }
		x.browser(t).get(link).want(404)
		owner.get("/app/people").want(200, "member, no longer valid")
		x.members.Now = nil
		owner.get("/app/people").want(200, "member, valid until")
		all, _, err = x.members.Invitations(t.Context(), x.Acme.TeamID, page.Page{})
		x.Must(err)
		x.Update(func(tx *db.Tx) error { // simulates an invitation that was sent by a deleted API key
			_, err := tx.Exec(t.Context(), `UPDATE invitations SET actor_kind = 'key' WHERE id = $1`, db.ID(all[0].ID))
			return err
		})
		owner.get("/app/people").want(200, "member, no longer valid")

		m, _, err := x.members.List(t.Context(), x.Acme.TeamID, page.Page{})
		x.Must(err)
		roles := map[string]teams.Role{}
		for _, m := range m {
			roles[m.Email] = m.Role
		}
		if len(roles) != 3 || roles["new@acme.example"] != teams.Viewer || roles["bob@acme.example"] != teams.Member ||
			roles[ada.Email] != teams.Owner {
			t.Errorf("the team has %v", roles)
		}
	})
}

// Changes to the way an account is protected require that the user has recently entered a password or used a passkey.
func TestProof(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ada@acme.example", "")
		b := x.browser(t).signIn("ada@acme.example")
		other := x.browser(t).signIn("ada@acme.example")
		x.Update(func(tx *db.Tx) error {
			_, err := tx.Exec(t.Context(), `UPDATE user_sessions SET proved_at = proved_at - 3600000000`)
			return err
		})
		x.DB.Hint("users", "all")
		b.get("/app/account/totp").want(200, "Confirm that it is you")
		b.submit("/app/account/prove", "password", "wrong password").want(422)
		b.submit("/app/account/prove", "password", password).want(200, "Two-factor authentication")
		other.get("/app/account").submit("/app/account/sessions/end").want(200, "Confirm that it is you")
		b.get("/app/account").want(200, "Sign out everywhere else").submit("/app/account/sessions/end").
			want(200, "signed out")
		other.get("/app/account").want(200, "Sign in")
		b.get("/app/account/password").submit("/app/account/password", "current", "wrong password", "password",
			"another horse battery").want(422)
		b.submit("/app/account/password", "current", password, "password", "another horse battery").want(200,
			"Your password is saved")
		b.submit("/app/account/name", "name", "Ada Lovelace").want(200, "Your name is saved", "Ada Lovelace")
		b.submit("/app/account/name", "name", strings.Repeat("x", 101)).want(422, "at most 100")
	})
}

// Too many wrong passwords for an address block more attempts, whether or not the address has an account. Other users
// can still sign in.
func TestGuessing(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ada@acme.example", "")
		x.person("bob@acme.example", "")
		clock := x.DB.Now()
		x.users.Now = func() time.Time { return clock } // fixed, because the responses contain the waiting time
		var answers [2][]string
		for i, email := range []string{"ada@acme.example", "eve@acme.example"} {
			b := x.browser(t).get("/sign-in")
			for b.status != http.StatusTooManyRequests && len(answers[i]) < 100 {
				b.submit("/sign-in", "email", email, "password", "a wrong guess")
				answers[i] = append(answers[i], strings.ReplaceAll(b.body, email, "ADDRESS"))
			}
		}
		if !slices.Equal(answers[0], answers[1]) || len(answers[0]) > 50 {
			t.Errorf("%d and %d answers, or they differ", len(answers[0]), len(answers[1]))
		}
		x.browser(t).get("/sign-in").submit("/sign-in", "email", "ada@acme.example", "password", password).
			want(429, "too many attempts")
		x.browser(t).signIn("bob@acme.example")
	})
}

// A user can neither see nor change another team's data.
func TestTwoTeams(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		ada, eve := x.person("ada@acme.example", teams.Owner), x.person("eve@other.example", "")
		x.Update(func(tx *db.Tx) error {
			return x.members.AddIn(t.Context(), tx, x.Other.TeamID, eve.ID, teams.Owner)
		})
		mine, theirs := x.browser(t).signIn(eve.Email), x.browser(t).signIn(ada.Email)
		theirs.get("/app/people").submit("/app/people/invite", "email", "bob@acme.example", "role", "viewer").want(200)
		all, _, err := x.members.Invitations(t.Context(), x.Acme.TeamID, page.Page{})
		x.Must(err)
		mine.get("/app/people").want(200, "People of Other")
		for _, text := range []string{"Acme", ada.Email, "bob@acme.example"} {
			if strings.Contains(mine.body, text) {
				t.Errorf("the page of the other team says %s", text)
			}
		}
		for _, path := range []string{"/app/people/" + ada.ID + "/role", "/app/people/" + ada.ID + "/remove",
			"/app/people/invite", "/app/people/leave", "/app/people/invitations/" + all[0].ID + "/resend",
			"/app/people/invitations/" + all[0].ID + "/revoke",
			"/app/account/team"} {
			form := url.Values{"team": {x.Acme.TeamID}, "role": {"owner"}, "email": {"x@acme.example"}}
			mine.post(path, form).want(403, "not a member of this team")
			form.Del("team")
			mine.post(path, form).want(403)
			if strings.Count(path, "/") > 3 {
				form.Set("team", x.Other.TeamID)
				mine.post(path, form).want(404)
			}
		}
		theirs.get("/app/people").want(200, ada.Email, "bob@acme.example")

		// If the user's role does not allow a change, the page explains why without technical terms.
		adam := x.person("adam@acme.example", teams.Admin)
		admin := x.browser(t).signIn(adam.Email)
		for _, path := range []string{"/app/people/" + ada.ID + "/role", "/app/people/" + ada.ID + "/remove",
			"/app/people/" + adam.ID + "/role", "/app/people/invite"} {
			admin.post(path, url.Values{"team": {x.Acme.TeamID}, "role": {"owner"}, "email": {"x@acme.example"},
				"confirm": {ada.Email}}).want(403, "Your role in this team does not allow this")
		}

		// Each session has its own current team, and the page shows the team's name.
		x.Update(func(tx *db.Tx) error {
			return x.members.AddIn(t.Context(), tx, x.Acme.TeamID, eve.ID, teams.Viewer)
		})
		mine.get("/app/account/team").want(200, "Acme", "Other")
		first := mine.get("/app/people").body
		mine.get("/app/account/team").submit("/app/account/team")
		if strings.Contains(first, "People of Acme") == strings.Contains(mine.body, "People of Acme") {
			t.Errorf("the other team is not shown: %s", mine.body)
		}
	})
}

// The account page lists the user's sessions, and the user can end each session.
func TestSessions(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ada@acme.example", "")
		x.person("eve@acme.example", "")
		b := x.browser(t).signIn("ada@acme.example")
		other := x.browser(t)
		other.address = "198.51.100.7:99"
		other.headers.Set("User-Agent", "Mozilla/5.0 (iPhone; CPU iPhone OS 18_0 like Mac OS X) "+
			"Version/18.0 Safari/604.1")
		other.signIn("ada@acme.example")
		b.get("/app/account").want(200, "Firefox on Linux (this browser)", "Safari on iPhone", "198.51.100.7")
		var end string
		for n := range elements(t, b.body) {
			if action := attr(n, "action"); strings.HasSuffix(action, "/end") && strings.Count(action, "/") == 5 {
				end = action
			}
		}
		eve := x.browser(t).signIn("eve@acme.example")
		eve.post(end, nil).want(404)
		other.get("/app/account").want(200, "Your account")
		b.submit(end).want(200, "The other browser is signed out")
		other.get("/app/account").want(200, "Sign in")
	})
}

// Every page that makes changes refuses requests from other sites.
func TestForeignRequests(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ada@acme.example", teams.Owner)
		b := x.browser(t).signIn("ada@acme.example")
		n := 0
		for _, o := range (&Pages{}).routes() {
			path, ok := strings.CutPrefix(o.pattern, "POST ")
			if !ok {
				continue
			}
			n++
			path = strings.NewReplacer("{id}", "x", "{token}", "x").Replace(path)
			for _, header := range []http.Header{{"Sec-Fetch-Site": {"cross-site"}}, {"Sec-Fetch-Site": {"same-site"}},
				{"Origin": {"https://evil.example"}}, {"Origin": {"null"}}} {
				r := b.posting(path, nil)
				r.Header.Del("Sec-Fetch-Site")
				for name, values := range header {
					r.Header[name] = values
				}
				b.do(r).want(403, "came from another site")
			}
		}
		if n < 20 {
			t.Errorf("only %d pages were asked", n)
		}
		b.get("/app/account").want(200, "Your account") // the session must still exist
	})
}
