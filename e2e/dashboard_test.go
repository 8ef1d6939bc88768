package e2e

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestDashboardEmails: a developer sends an email and watches it arrive in the list without a reload, reads its
// explanation, and finds a bounced email by its recipient. Then the palette leads to another page, by keys alone.
func TestDashboardEmails(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	n.addDomainOf(`{"name":"acme.example"}`)
	r := &reader{t: t, tab: chromium(t), url: n.localhost()}
	r.signsIn(n)
	r.open("/app/emails")
	r.sees("Send your first email")
	n.must("POST", "/emails", `{"from":"a@acme.example","to":"first@example.net","subject":"First","text":"x"}`, nil)
	r.open("/app/emails")
	r.sees("first@example.net")

	r.evaluates(`window.sameDocument = true`)
	n.must("POST", "/emails",
		`{"from":"a@acme.example","to":"live@example.net","subject":"Watch me","html":"<h1>Invoice</h1>"}`, nil)
	r.sees("Watch me")
	eventually(t, 20*time.Second, "the row says that the email is delivered", func() bool {
		return r.evaluates(`[...document.querySelectorAll("tr")].some(
			(x) => x.innerText.includes("Watch me") && x.innerText.includes("Delivered"))`)
	})
	if !r.evaluates(`window.sameDocument === true`) {
		t.Error("the page was loaded again")
	}
	r.hits("j", kb.Enter)
	r.sees("Explain this delivery")
	r.sees("The email was captured by this installation's outbox.")

	n.must("POST", "/emails",
		`{"from":"a@acme.example","to":"bounced@resend.dev","subject":"Into the void","text":"x"}`, nil)
	r.open("/app/emails?q=bounced@resend.dev")
	eventually(t, 20*time.Second, "the bounced email is found", func() bool {
		r.open("/app/emails?q=bounced@resend.dev")
		return r.evaluates(`document.querySelectorAll("tbody tr").length === 1
			&& document.querySelector("tbody").innerText.includes("Bounced")`)
	})
	r.hits("j", kb.Enter)
	r.sees("Who must act")
	if !r.evaluates(`!!document.querySelector("iframe, pre")`) {
		t.Error("the page shows no content")
	}

	if err := chromedp.Do(r.tab, chromedp.KeyEvent("k", chromedp.KeyModifiers(kb.ModifierCtrl))); err != nil {
		t.Fatal(err)
	}
	r.hits("bounced")
	r.sees("bounced@resend.dev · Into the void")
}

// evaluates runs a script in the page and returns its result; false while the page loads.
func (r *reader) evaluates(script string) bool {
	r.t.Helper()
	ok, err := chromedp.Run(r.tab, chromedp.Evaluate[any](script))
	yes, _ := ok.(bool)
	return err == nil && yes
}

// hits presses keys, one after the other.
func (r *reader) hits(keys ...string) {
	r.t.Helper()
	for _, k := range keys {
		if err := chromedp.Do(r.tab, chromedp.KeyEvent(k)); err != nil {
			r.t.Fatalf("press %q: %v", k, err)
		}
	}
}
