package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

// TestDocsInABrowser: a reader finds a page by the search of the documentation, and sends requests from a page of the
// API reference with the key of a node for development.
func TestDocsInABrowser(t *testing.T) {
	t.Parallel()
	n := start(t, nil, "--domain", "acme.example")
	r := &reader{t: t, tab: chromium(t), url: n.localhost()}
	r.open("/docs")
	r.sees("Your first email")
	r.hits("/")
	eventually(t, 20*time.Second, "the search is open", func() bool {
		return r.evaluates(`document.activeElement.getAttribute("role") === "combobox"`)
	})
	r.hits("dkim record not verifying")
	eventually(t, 20*time.Second, "the search finds the page about domains", func() bool {
		return r.evaluates(`document.querySelector("#found [aria-selected=true]")?.innerText.startsWith("Domains")`)
	})
	r.hits(kb.Enter)
	eventually(t, 20*time.Second, "the result is opened", func() bool {
		return r.evaluates(`location.pathname === "/docs/domains" && document.readyState === "complete"`)
	})

	r.open("/docs/api/domains")
	r.tries("GET", "/domains", key)
	if answer := r.answer("GET", "/domains"); !strings.HasPrefix(answer, "200 OK\n") ||
		!strings.Contains(answer, `"name": "acme.example"`) {
		t.Errorf("trying GET /domains shows\n%s", answer)
	}
	r.open("/docs/api/emails")
	r.tries("POST", "/emails", "") // the tab keeps the key
	if answer := r.answer("POST", "/emails"); !strings.HasPrefix(answer, "200 OK\n") {
		t.Errorf("trying POST /emails shows\n%s", answer)
	}
	if m := n.captured("ada@example.net"); !strings.Contains(m.HTML(), "Thank you for your order.") {
		t.Errorf("the email from the page is %s", m.HTML())
	}
	r.tries("POST", "/emails", "re_wrong")
	eventually(t, 20*time.Second, "an unknown key is refused", func() bool {
		return strings.HasPrefix(r.answer("POST", "/emails"), "401 ") || strings.HasPrefix(r.answer("POST", "/emails"), "403 ")
	})
}

// tryForm returns a script that finds the form with which a reader tries an operation.
func tryForm(method, path string) string {
	return `document.querySelector('form[data-try][data-method="` + method + `"][data-path="` + path + `"]')`
}

// tries opens the form of an operation, types the key unless it is "", and sends the request.
func (r *reader) tries(method, path, key string) {
	r.t.Helper()
	form := tryForm(method, path)
	eventually(r.t, 20*time.Second, "the page has a form for "+method+" "+path, func() bool {
		return r.evaluates(`(() => {
			const form = ` + form + `;
			if (!form || form.parentElement.hidden) return false;
			form.parentElement.open = true;
			const key = form.elements.key;
			if ("` + key + `") key.value = "";
			key.focus();
			return document.activeElement === key;
		})()`)
	})
	if key != "" {
		r.hits(key)
	}
	r.presses("Send " + method + " " + path)
}

// answer returns what the form of an operation shows as the response, when it has arrived.
func (r *reader) answer(method, path string) (text string) {
	r.t.Helper()
	eventually(r.t, 20*time.Second, "the page shows a response", func() bool {
		got, err := chromedp.Run(r.tab, chromedp.Evaluate[string](tryForm(method, path)+`.querySelector("output").textContent`))
		text = got
		return err == nil && text != "" && text != "…"
	})
	return text
}
