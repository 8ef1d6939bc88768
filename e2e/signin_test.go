//go:build browser

package e2e

import (
	"net"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/webauthn"
	"github.com/chromedp/chromedp"
	"github.com/pquerna/otp/totp"
)

// types enters a string into the input field with the given label.
func (r *reader) types(label, text string) {
	r.t.Helper()
	id, err := chromedp.Run(r.tab, chromedp.Evaluate[string](
		`[...document.querySelectorAll("label")].find((l) => l.textContent.trim() === "`+label+`")?.htmlFor || ""`))
	if err != nil || id == "" {
		r.t.Fatalf("no input is labelled %s: %v", label, err)
	}
	if err := chromedp.Do(r.tab, chromedp.SendKeys(chromedp.ID(id), text)); err != nil {
		r.t.Fatalf("type into %s: %v", label, err)
	}
}

// hasPasskeys adds to the browser a virtual authenticator that stores passkeys and confirms every request.
func (r *reader) hasPasskeys() {
	r.t.Helper()
	if _, err := chromedp.Call(r.tab, webauthn.Enable, webauthn.EnableParams{}); err != nil {
		r.t.Fatal(err)
	}
	if _, err := chromedp.Call(r.tab, webauthn.AddVirtualAuthenticator, webauthn.AddVirtualAuthenticatorParams{
		Options: &webauthn.VirtualAuthenticatorOptions{Protocol: webauthn.AuthenticatorProtocolCtap2,
			Transport: webauthn.AuthenticatorTransportInternal, HasResidentKey: true, HasUserVerification: true,
			IsUserVerified: true, AutomaticPresenceSimulation: true}}); err != nil {
		r.t.Fatal(err)
	}
}

var setupLink = regexp.MustCompile(`http://localhost:\d+(/setup\?token=[\w-]+)`)

// TestPeopleSignIn: a user creates the first account with the link from the log, and signs in with a password, a code,
// and a passkey.
func TestPeopleSignIn(t *testing.T) {
	t.Parallel()
	n := prepare(t, binary, nil)
	_, port, err := net.SplitHostPort(n.addr)
	if err != nil {
		t.Fatal(err)
	}
	r := &reader{t: t, url: "http://localhost:" + port}
	n.args = []string{"serve", "--data-dir", t.TempDir(), "--http-listen", n.addr, "--public-url", r.url,
		"--roles", "api,jobs"}
	n.launch()
	var link string
	eventually(t, 20*time.Second, "the log has the link", func() bool {
		if found := setupLink.FindStringSubmatch(n.out.String()); found != nil {
			link = found[1]
		}
		return link != ""
	})
	r.tab = chromium(t)
	r.hasPasskeys()

	r.open(link)
	r.sees("Set up Postrider")
	r.types("Email address", "ada@acme.example")
	r.types("Password", "correct horse battery")
	r.types("Name of the team", "Acme")
	r.presses("Create account")
	r.sees("Send your first email")
	r.sees("Acme")
	r.open(link)
	r.sees("This link no longer works")

	code := r.turnsOnTOTP()
	r.addsPasskey()
	r.signsInTwice(code)
	r.cookiesAreHidden()

	// The API and the web pages use different paths.
	answer, err := http.Get(r.url + "/emails")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusUnauthorized {
		t.Errorf("the API answers with %d", answer.StatusCode)
	}
}

// turnsOnTOTP sets up two-factor authentication, and returns a function that computes the TOTP code that will be valid
// after a given duration.
func (r *reader) turnsOnTOTP() (code func(after time.Duration) string) {
	t := r.t
	t.Helper()
	r.open("/app/account/totp")
	r.presses("Set up an authenticator app")
	r.sees("Scan this")
	shown, err := chromedp.Run(r.tab, chromedp.Evaluate[bool](
		`document.images.length == 1 && document.images[0].naturalWidth > 0`))
	if err != nil || !shown {
		t.Errorf("the QR code is not shown (%v)", err)
	}
	secret, err := chromedp.Run(r.tab, chromedp.Text(chromedp.ID("secret")))
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	code = func(after time.Duration) string {
		text, err := totp.GenerateCode(strings.ReplaceAll(secret, " ", ""), now.Add(after))
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	r.types("Code", code(0))
	r.presses("Turn on")
	r.sees("Recovery codes")
	r.presses("I have saved them")
	r.sees("After your password, you enter a code")
	return code
}

func (r *reader) addsPasskey() {
	r.t.Helper()
	r.types("Name of a new passkey", "Laptop")
	r.presses("Add a passkey")
	r.sees("The passkey is added")
	r.sees("Laptop")
}

// signsInTwice signs in first with a password and a code, then with the passkey.
func (r *reader) signsInTwice(code func(after time.Duration) string) {
	r.t.Helper()
	r.signsOut()
	r.types("Email address", "ada@acme.example")
	r.types("Password", "correct horse battery")
	r.presses("Sign in")
	r.sees("Enter your code")
	r.types("Code", code(30*time.Second)) // use the next code, because the previous code was already used
	r.presses("Sign in")
	r.sees("Send your first email")

	r.signsOut()
	r.presses("Use a passkey")
	r.sees("Send your first email")
	r.open("/app/account")
	r.sees("last used")
}

// signsOut signs out by the menu beside the user's name.
func (r *reader) signsOut() {
	r.t.Helper()
	if err := chromedp.Do(r.tab, chromedp.Click(chromedp.Search(`//summary[contains(., "Your account")]`))); err != nil {
		r.t.Fatalf("open the menu: %v", err)
	}
	r.presses("Sign out")
	r.sees("You are signed out")
}

// cookiesAreHidden checks that scripts can read only the cookie with the time zone, which a script sets, and that
// signing out ends the session.
func (r *reader) cookiesAreHidden() {
	t := r.t
	t.Helper()
	cookies, err := chromedp.Run(r.tab, chromedp.Evaluate[string](`document.cookie`))
	if err != nil || !strings.HasPrefix(cookies, "postrider-zone=") || strings.Contains(cookies, ";") {
		t.Errorf("a script reads the cookies %q (%v)", cookies, err)
	}
	r.open("/app/people")
	r.sees("ada@acme.example (you)")
	r.signsOut()
	r.open("/app/people")
	r.sees("Forgot password")
}

// TestPasskeyInDevelopment: passkeys work at the URL that the program prints in development, and 127.0.0.1 redirects to
// that URL.
func TestPasskeyInDevelopment(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	pages := n.localhost() + "/app/account"
	r := &reader{t: t, url: "http://" + n.addr, tab: chromium(t)}
	r.hasPasskeys()
	r.open("/")
	r.sees("open the newest sign-in link in the output of the command “postrider dev”")
	r.signsIn(n)
	r.open("/app/account?x=1")
	r.sees("developer@postrider.localhost")
	if at, err := chromedp.Run(r.tab, chromedp.Location()); err != nil || at != pages+"?x=1" {
		t.Errorf("the page is at %s (%v)", at, err)
	}
	r.types("Name of a new passkey", "Laptop")
	r.presses("Add a passkey")
	r.sees("The passkey is added")
	r.signsOut()
	r.presses("Use a passkey")
	r.sees("Send your first email")
	r.open("/app/account")
	r.sees("last used")
}
