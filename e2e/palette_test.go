package e2e

import (
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestPalette: by keys alone, a visitor reads the list of shortcuts, goes to a page that it names, and opens a contact
// and a page of the documentation by the palette, which loads the index of the documentation only when it opens.
func TestPalette(t *testing.T) {
	t.Parallel()
	n := start(t, nil)
	n.must("POST", "/contacts", `{"email":"laura@brightwater.example","first_name":"Laura","last_name":"Meyer"}`, nil)
	r := &reader{t: t, tab: chromium(t), url: n.localhost()}
	r.signsIn(n)
	r.open("/app/emails")
	r.sees("Send your first email")
	r.hits("?")
	r.sees("Keyboard shortcuts")
	if !r.evaluates(`document.querySelector("#keys").innerText.includes("Outbox")`) {
		t.Error("the list of shortcuts lacks the outbox")
	}
	r.hits(kb.Escape, "g", "o")
	eventually(t, 20*time.Second, "g o leads to the outbox", func() bool {
		return r.evaluates(`location.pathname === "/dev/outbox" && document.readyState === "complete"`)
	})

	r.asks("laura", "laura@brightwater.example · Laura Meyer")
	eventually(t, 20*time.Second, "the match is marked", func() bool { // the first result may be that of fewer letters
		return r.evaluates(`document.querySelector("#found mark").innerText === "laura"`)
	})
	r.hits(kb.Enter)
	r.sees("Emails from broadcasts and automations")
	const loaded = `performance.getEntriesByType("resource").some((r) => /docs-search|search\.json/.test(r.name))`
	r.open("/app/domains")
	r.sees("Domains")
	if r.evaluates(loaded) {
		t.Error("the first view loads the index of the documentation")
	}
	r.ctrlK()
	eventually(t, 20*time.Second, "the palette loads the index of the documentation", func() bool {
		return r.evaluates(loaded)
	})
	r.ctrlK()
	r.jumps("idempotency keys", "Idempotency keys")
	eventually(t, 20*time.Second, "the palette leads to a page of the documentation", func() bool {
		return r.evaluates(`location.pathname === "/docs/idempotency" && document.readyState === "complete"`)
	})
	r.open("/docs#retrieveAContactByItsIdOrAddress")
	eventually(t, 20*time.Second, "an old address of the documentation leads to the page of the operation", func() bool {
		return r.evaluates(`location.pathname === "/docs/api/contacts" && document.querySelector(":target") !== null`)
	})
	r.sees("Retrieve a contact by its id or address")
}

// asks opens the palette, types a text and waits for a result.
func (r *reader) asks(text, want string) {
	r.t.Helper()
	r.ctrlK()
	r.hits(text)
	r.sees(want)
}

// ctrlK presses the keys that open and close the palette.
func (r *reader) ctrlK() {
	r.t.Helper()
	if err := chromedp.Do(r.tab, chromedp.KeyEvent("k", chromedp.KeyModifiers(kb.ModifierCtrl))); err != nil {
		r.t.Fatal(err)
	}
}
