package e2e

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

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
			return r.evaluates(`document.querySelector("#pane h2.title")?.innerText === "` + subject + `"
				&& document.querySelector("tr.chosen")?.innerText.includes("` + subject + `")
				&& location.pathname === "/app/emails/" + document.querySelector("tr.chosen").dataset.id
				&& document.title.startsWith("` + subject + `")`)
		})
	}
	r.evaluates(`window.sameDocument = true`)
	r.hits("j", kb.Enter)
	shows("First")
	if !r.evaluates(`document.querySelectorAll("h1").length === 1`) {
		t.Error("the page has several headings of the first level")
	}
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
	eventually(t, 20*time.Second, "the tab is left", func() bool {
		return r.evaluates(`!location.search.includes("view")`)
	})
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
	r.ctrlK()
	eventually(t, 20*time.Second, "the palette is open", func() bool {
		return r.evaluates(`!!document.querySelector("#palette:focus-within #found [role=option]")`)
	})
	r.ctrlK()
	if !r.evaluates(`document.activeElement.closest("tr")?.innerText.includes("Second")`) {
		t.Error("the focus does not return from the palette to the row")
	}
	r.evaluates(`document.querySelector("main [type=search]").value = "third",
		document.querySelector("form.filters").requestSubmit(), true`)
	eventually(t, 20*time.Second, "the address has the set filters only", func() bool {
		return r.evaluates(`location.search === "?q=third&in=24h"`)
	})
}
