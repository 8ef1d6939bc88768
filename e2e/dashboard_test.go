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

// TestDashboardPane: in a wide window, an email opens beside the list. The address is that of the email; back leads to
// the email before and to the list, and keys move through the list.
func TestDashboardPane(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	n.addDomainOf(`{"name":"acme.example"}`)
	r := &reader{t: t, tab: chromium(t), url: n.localhost()}
	if err := chromedp.Do(r.tab, chromedp.EmulateViewport(1920, 1080)); err != nil {
		t.Fatal(err)
	}
	r.signsIn(n)
	for _, subject := range []string{"Third", "Second", "First"} { // the list is newest first
		n.must("POST", "/emails", `{"from":"a@acme.example","to":"laura@example.net","subject":"`+subject+
			`","html":"<p>x</p>","text":"Text of `+subject+`"}`, nil)
	}
	r.open("/app/emails?in=24h")
	r.sees("Third")
	shows := func(subject string) {
		t.Helper()
		eventually(t, 20*time.Second, "the pane shows "+subject, func() bool {
			return r.evaluates(`document.querySelector("#pane h1")?.innerText === "` + subject + `"
				&& document.querySelector("tr.chosen")?.innerText.includes("` + subject + `")
				&& location.pathname === "/app/emails/" + document.querySelector("tr.chosen").dataset.id
				&& document.title.startsWith("` + subject + `")`)
		})
	}
	r.evaluates(`window.sameDocument = true`)
	r.hits("j", kb.Enter)
	shows("First")
	r.hits("j")
	shows("Second")
	if !r.evaluates(`document.activeElement === document.querySelector("tr.chosen a.whole")`) {
		t.Error("the focus has left the list")
	}
	r.evaluates(`document.querySelectorAll("#list a.whole")[2].click(), true`)
	shows("Third")
	r.presses("Text")
	r.sees("Text of Third")
	r.evaluates(`history.back(), true`)
	eventually(t, 20*time.Second, "the tab is left", func() bool { return r.evaluates(`location.search === ""`) })
	r.evaluates(`history.back(), true`)
	shows("Second")
	r.hits(kb.Escape)
	eventually(t, 20*time.Second, "the pane is closed", func() bool {
		return r.evaluates(`document.querySelector("#pane").hidden && location.search === "?in=24h"
			&& document.activeElement.closest("tr").innerText.includes("Second")`)
	})
	if !r.evaluates(`window.sameDocument === true`) {
		t.Error("the page was loaded again")
	}
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
