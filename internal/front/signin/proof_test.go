package signin

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/pquerna/otp/totp"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/db"
)

// TestChangesNameTheirRequest checks that audit entries about an account name the address and the program of the
// request that made the change, not those of the sign-in. Wrong passwords count toward the network of the request.
func TestChangesNameTheirRequest(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ada@acme.example", teams.Owner)
		clock := time.Now()
		x.users.Now = func() time.Time { return clock }
		b := x.browser(t).signIn("ada@acme.example")
		b.address, b.headers = "198.51.100.7:4711", map[string][]string{"User-Agent": {"Chrome/1"}}

		b.get("/app/account/totp").submit("/app/account/totp/begin").want(200, "Scan this")
		_, rest, _ := strings.Cut(b.body, `<code id="secret">`)
		secret, _, _ := strings.Cut(rest, "<")
		code, err := totp.GenerateCode(strings.ReplaceAll(secret, " ", ""), clock)
		x.Must(err)
		b.submit("/app/account/totp/confirm", "code", code).want(200, "Recovery codes")
		b.get("/app/account").submit("/app/account/recovery-codes").want(200, "Recovery codes")
		b.get("/app/account").submit("/app/account/totp/remove").want(200, "authentication is off")
		b.post("/app/account/name", url.Values{"name": {"Ada L."}}).want(200, "Your name is saved")
		b.get("/app/account/prove").submit("/app/account/prove", "password", "wrong password").
			want(422, "The password is wrong")
		b.get("/app/account/password").submit("/app/account/password", "current", "wrong password", "password",
			"another horse battery").want(422, "The password is wrong")
		b.get("/app/account/password").submit("/app/account/password", "current", password, "password",
			"another horse battery").want(200, "Your password is saved")
		b.post("/app/account/sessions/end", nil).want(200, "All other browsers are signed out")
		x.work()
		for _, action := range []string{"user.factor_added", "user.recovery_codes_made", "user.factor_removed",
			"user.updated", "user.sign_in_failed", "user.password_changed", "user.sessions_ended"} {
			all := x.Count(`SELECT COUNT(*) FROM audit_log WHERE team_id = $1 AND action = $2`, db.ID(x.Acme.TeamID), action)
			right := x.Count(`SELECT COUNT(*) FROM audit_log WHERE team_id = $1 AND action = $2
				AND address = '198.51.100.7' AND user_agent = 'Chrome/1'`, db.ID(x.Acme.TeamID), action)
			if all == 0 || right != all {
				t.Errorf("%d of %d entries for %s name the request's client", right, all, action)
			}
		}
		for network, want := range map[string]int{"192.0.2.1": 0, "198.51.100.7": 2} {
			if n := x.Count(`SELECT COALESCE(SUM(n), 0) FROM user_attempts WHERE name = $1`, "network:"+network); n != want {
				t.Errorf("%d wrong passwords count toward %s, want %d", n, network, want)
			}
		}
	})
}

// TestStrangersCannotLockASession checks that wrong passwords at the sign-in page do not keep a signed-in user from
// confirming changes. A wrong password that is given to confirm a change counts for that session only.
func TestStrangersCannotLockASession(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ada@acme.example", teams.Owner)
		b := x.browser(t).signIn("ada@acme.example")
		thief := x.browser(t).signIn("ada@acme.example")
		stranger := x.browser(t)
		stranger.address = "203.0.113.9:4711"
		attempt := url.Values{"email": {"ada@acme.example"}, "password": {"wrong password"}}
		for range 10 {
			stranger.post("/sign-in", attempt).want(401)
		}
		stranger.post("/sign-in", attempt).want(429)
		b.get("/app/account/prove").submit("/app/account/prove", "password", password).want(200, "Your account")
		b.get("/app/account/password").submit("/app/account/password", "current", password, "password", password+"s").
			want(200, "Your password is saved")

		thief.signIn("ada@acme.example").address = "203.0.113.10:4711"
		for range 10 {
			thief.get("/app/account/prove").submit("/app/account/prove", "password", "wrong password").want(422)
		}
		thief.get("/app/account/prove").submit("/app/account/prove", "password", password+"s").want(429, "too many attempts")
		thief.get("/app/account/password").submit("/app/account/password", "current", password+"s", "password", password).
			want(429, "too many attempts")
		b.get("/app/account/prove").submit("/app/account/prove", "password", password+"s").want(200, "Your account")
	})
}

// TestWrongTOTPCodeKeepsTheQRCode checks that the page still shows the same QR code and secret after a wrong code.
func TestWrongTOTPCodeKeepsTheQRCode(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, x *fixture) {
		x.person("ada@acme.example", teams.Owner)
		clock := time.Now()
		x.users.Now = func() time.Time { return clock }
		b := x.browser(t).signIn("ada@acme.example")
		b.get("/app/account/totp").submit("/app/account/totp/begin").want(200, "Scan this")
		shown := func() (image, secret string) {
			for n := range elements(t, b.body) {
				switch {
				case n.Data == "img" && attr(n, "class") == "qr":
					image = attr(n, "src")
				case n.Data == "code" && attr(n, "id") == "secret":
					secret = n.FirstChild.Data
				}
			}
			return image, secret
		}
		image, secret := shown()
		for range 2 {
			b.submit("/app/account/totp/confirm", "code", "000000").want(422, "This code is wrong", "Scan this")
			if again, same := shown(); again != image || same != secret || !strings.HasPrefix(again, "data:image/png") {
				t.Errorf("after a wrong code the page shows the secret %q and %d bytes of a QR code", same, len(again))
			}
		}
		code, err := totp.GenerateCode(secret, clock)
		x.Must(err)
		b.submit("/app/account/totp/confirm", "code", code).want(200, "Recovery codes")
	})
}
