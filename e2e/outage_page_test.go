//go:build browser

package e2e

import (
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// TestBrowserOutage takes the database away from a node while a browser shows its pages. A page says so and shows
// itself again when the database is back, with and without JavaScript. A form keeps what was typed.
func TestBrowserOutage(t *testing.T) {
	proxy := dbtest.ProxyTo(t, dbtest.PostgresURL(t))
	n := start(t, []string{"POSTRIDER_DATABASE_URL=" + proxy.URL()})
	r := &reader{t: t, tab: chromium(t), url: n.localhost()}
	back := func() {
		t.Helper()
		if err := proxy.Pass(); err != nil {
			t.Fatal(err)
		}
	}
	r.signsIn(n)
	r.open("/app/settings")
	r.sees("Development")

	r.replaces("Name of the team", "Fjord Labs")
	proxy.Refuse()
	r.presses("Rename team")
	r.sees("The database cannot be reached at present, so nothing was changed.")
	r.sees("This page keeps what you typed.")
	back()
	r.sees("The database can be reached again. Submit the form again.")
	r.presses("Submit again")
	r.sees("Fjord Labs")

	for _, scriptless := range []bool{false, true} {
		if _, err := chromedp.Call(r.tab, emulation.SetScriptExecutionDisabled,
			emulation.SetScriptExecutionDisabledParams{Value: scriptless}); err != nil {
			t.Fatal(err)
		}
		proxy.Refuse()
		r.open("/app/settings")
		r.sees("The database cannot be reached at present. This page tries again by itself.")
		back()
		r.sees("Name of the team")
	}
}

// TestBrowserFrameOutage takes the database away while a page loads the frame with an email. The page loads the frame
// again when the database is back.
func TestBrowserFrameOutage(t *testing.T) {
	proxy := dbtest.ProxyTo(t, dbtest.PostgresURL(t))
	n := start(t, []string{"POSTRIDER_DATABASE_URL=" + proxy.URL()})
	r := &reader{t: t, tab: chromium(t), url: n.localhost()}
	r.signsIn(n)
	var sent struct{ ID string }
	n.must("POST", "/emails", `{"from":"onboarding@resend.dev","to":"delivered@resend.dev","subject":"Frame",
		"html":"<p>Hello</p><iframe></iframe><iframe></iframe>"}`, &sent)
	r.open("/app/emails/" + sent.ID)
	const frame = `document.querySelector("iframe").contentWindow`
	r.evaluates(`document.querySelector("iframe").scrollIntoView(); true`)
	eventually(t, 20*time.Second, "the frame shows the email", func() bool { return r.evaluates(frame + `.length === 2`) })
	proxy.Refuse()
	r.evaluates(`document.querySelector("iframe").src += ""; true`)
	eventually(t, 20*time.Second, "the frame shows an error", func() bool { return r.evaluates(frame + `.length === 1`) })
	if err := proxy.Pass(); err != nil {
		t.Fatal(err)
	}
	eventually(t, 30*time.Second, "the frame shows the email again",
		func() bool { return r.evaluates(frame + `.length === 2`) })
}
