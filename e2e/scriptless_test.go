//go:build browser

package e2e

import (
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// deadParts returns what a visitor sees on the page, but cannot use without JavaScript: buttons outside of a form,
// links that lead nowhere, views that stay hidden, and dialogs that only a script opens. Parts that need scripts by
// their nature are left out: live updates, the palette, copying, passkeys and editors.
const deadParts = `(() => {
	const dead = [];
	const says = (what, e) => dead.push(what + ": " + e.outerHTML.replace(/\s+/g, " ").slice(0, 200));
	const seen = e => e.checkVisibility({visibilityProperty: true}) && e.getBoundingClientRect().width > 1;
	for (const d of document.querySelectorAll("details")) d.open = true; // the browser opens them without scripts
	for (const b of document.querySelectorAll("button, [role=button]")) {
		if (!seen(b) || b.disabled || b.ariaDisabled === "true" || b.matches("[data-copy], [data-passkey]")) continue;
		if (b.tagName !== "BUTTON" || b.type !== "submit" || !b.form) says("no form", b);
		else if (b.form.method === "dialog") says("closes a dialog", b);
	}
	for (const a of document.querySelectorAll("a")) {
		if (!seen(a)) continue;
		const to = a.getAttribute("href") ?? "";
		if (to === "" || to.startsWith("javascript:")) says("no address", a);
		if (to.startsWith("#") && !document.getElementById(to.slice(1))) says("no target", a);
	}
	for (const v of document.querySelectorAll("[data-view]")) if (!seen(v) && v.textContent.trim()) says("hidden view", v);
	for (const s of document.querySelectorAll("select, input, textarea"))
		if (seen(s) && !s.form && !s.closest("dialog")) says("no form", s);
	for (const f of document.querySelectorAll("form[method=get]"))
		if (seen(f) && ![...f.elements].some(e => e.type === "submit" && seen(e)) &&
			!(f.elements.length === 1 || [...f.elements].filter(e => e.matches("input:not([type=hidden])")).length === 1))
			says("no button", f);
	return dead.join("\n");
})()`

// dialogLinks returns the addresses of the links that open a dialog by a script.
const dialogLinks = `[...document.querySelectorAll("[data-dialog]")]
	.map(a => (a.getAttribute("href") || "-") + " " + a.dataset.dialog).join("\n")`

// Every page works without JavaScript: no button, link, menu or dialog on it needs a script.
func TestBrowserWithoutScripts(t *testing.T) {
	g := newGallery(t)
	off := func(r *reader) {
		if _, err := chromedp.Call(r.tab, emulation.SetScriptExecutionDisabled,
			emulation.SetScriptExecutionDisabledParams{Value: true}); err != nil {
			t.Fatal(err)
		}
	}
	for _, p := range g.pages {
		off(p.of.member)
		off(p.of.guest)
	}
	text := func(r *reader, script string) string {
		t.Helper()
		said, err := chromedp.Run(r.tab, chromedp.Evaluate[string](script))
		if err != nil {
			t.Fatalf("%s: %v", script, err)
		}
		return said
	}
	first := g.pages[0].view(t)
	first.evaluates(`document.querySelector("main").insertAdjacentHTML("beforeend", "<button type=button>Dead</button>" +
		"<p><a href='#nowhere'>Dead</a></p><dialog><div data-view=x>Dead</div></dialog>"), true`)
	if dead := text(first, deadParts); strings.Count(dead, "Dead") != 3 {
		t.Fatalf("the test finds only: %s", dead)
	}
	g.each(t, func(t *testing.T, p shownPage) {
		if p.pane != "" || p.path == "/dev/components" { // the pane is a page without scripts; components are examples
			return
		}
		r := p.view(t)
		if r.evaluates(`matchMedia("(scripting: none)").matches`) == false {
			t.Fatal("scripts run")
		}
		if dead := text(r, deadParts); dead != "" {
			t.Errorf("%s needs JavaScript:\n%s", p.path, dead)
		}
		for _, link := range strings.Split(text(r, dialogLinks), "\n") {
			to, dialog, ok := strings.Cut(link, " ")
			if !ok {
				continue
			}
			at, err := url.Parse(to)
			if err != nil || to == "-" {
				t.Errorf("%s opens the dialog %s only by a script", p.path, dialog)
				continue
			}
			r.open(at.String())
			if !r.evaluates(`[...document.querySelectorAll("main form")].some(f => f.checkVisibility() && !f.closest("dialog") &&
				f.querySelector("button.danger, button.primary"))`) {
				t.Errorf("%s has no form for the dialog %s of %s", to, dialog, p.path)
			}
			r.open(p.path)
		}
	})
}
