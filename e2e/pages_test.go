//go:build browser

package e2e

import (
	"net/url"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"
)

// shownPage is a page that the tests open in a browser.
type shownPage struct {
	name    string // of its picture
	path    string
	of      *site
	guest   bool   // opened without a session
	pane    string // the part of the row that is opened in the pane beside the list, or ""
	windows []window
}

// site is a node with a tab that is signed in to it, and one that is not.
type site struct {
	member, guest *reader
}

// gallery are nodes that show every page with believable content.
type gallery struct {
	full  *sample // a team with a week of work
	fresh *node   // a new team, with an outbox
	pages []shownPage
}

// dashboardPages names the addresses of the pages in the dashboard's table of routes, with the names of ids in braces.
// An empty address stands for a response that is no page, such as a stream or a download.
var dashboardPages = map[string]string{
	"/app": "", "/app/{$}": "", "/app/palette": "", "/app/live": "", "/app/search": "/app/search?q=laura",
	"/app/emails": "/app/emails", "/app/emails/new": "/app/emails/new",
	"/app/emails/{id}": "/app/emails/{delivered}", "/app/emails/{id}/html": "", "/app/emails/{id}/raw": "",
	"/app/emails/{id}/files/{file}": "", "/app/emails/{id}/newer": "", "/app/emails/{id}/older": "",
	"/app/emails/export": "", "/app/suppressions/export": "", "/app/logs/export": "", "/app/metrics/export": "",
	"/app/domains": "/app/domains", "/app/domains/new": "/app/domains/new",
	"/app/domains/{id}": "/app/domains/{unverified}", "/app/domains/{id}/settings": "/app/domains/{domain}/settings",
	"/app/domains/{id}/reports": "/app/domains/{domain}/reports", "/app/domains/{id}/reports/{report}/file": "",
	"/app/keys": "/app/keys", "/app/keys/new": "/app/keys/new", "/app/keys/{id}": "/app/keys/{key}",
	"/app/domains/{id}/forwarding": "/app/domains/{domain}/forwarding",

	"/app/domains/{id}/forwarding/{rule}/rotate": "/app/domains/{domain}/forwarding/{rule}/rotate",

	"/app/settings/smtp": "/app/settings/smtp",
	"/app/webhooks":      "/app/webhooks", "/app/webhooks/new": "/app/webhooks/new",
	"/app/webhooks/{id}": "/app/webhooks/{webhook}", "/app/webhooks/{id}/edit": "/app/webhooks/{webhook}/edit",
	"/app/webhooks/{id}/rotate":  "/app/webhooks/{webhook}/rotate",
	"/app/webhooks/{id}/recover": "/app/webhooks/{webhook}/recover",
	"/app/webhooks/{id}/delete":  "/app/webhooks/{webhook}/delete",

	"/app/webhooks/{id}/messages/{message}": "/app/webhooks/{webhook}/messages/{message}",
	"/app/suppressions":                     "/app/suppressions",
	"/app/suppressions/add":                 "/app/suppressions/add",
	"/app/suppressions/{id}":                "/app/suppressions/{suppression}",
	"/app/logs":                             "/app/logs", "/app/logs/{id}": "/app/logs/{log}",
	"/app/metrics":              "/app/metrics?span=7d",
	"/app/receiving":            "/app/receiving",
	"/app/receiving/{id}":       "/app/receiving/{received}",
	"/app/receiving/{id}/html":  "",
	"/app/receiving/{id}/newer": "", "/app/receiving/{id}/older": "",
	"/app/receiving/{id}/raw":          "",
	"/app/receiving/{id}/files/{file}": "",
	"/app/receiving/{id}/reply":        "/app/receiving/{received}/reply",
	"/app/receiving/{id}/forward":      "/app/receiving/{received}/forward",
	"/app/contacts/{id}":               "/app/contacts/{contact}",
	"/app/broadcasts/{id}":             "/app/broadcasts/{broadcast}",
	"/app/exports":                     "/app/exports",
	"/app/start":                       "/app/start",
	"/app/settings":                    "/app/settings",
	"/app/settings/audit":              "/app/settings/audit",
}

// otherPages are the pages besides those of the dashboard, and further states of the dashboard's pages.
var otherPages = []string{"/app/emails/{bounced}", "/app/emails/{deferred}", "/app/emails/{scheduled}",
	"/app/domains/{domain}", "/app/emails?status=bounced&in=7d", "/app/emails?q=nobody@nowhere.example",
	"/app/emails/{delivered}?view=text", "/app/emails/{delivered}?view=source", "/app/emails/{delivered}?view=headers",
	"/app/emails/{delivered}?view=raw", "/app/emails/{delivered}?view=attachments",
	"/app/domains/{unverified}?delete", "/app/account", "/app/account/team", "/app/account/password", "/app/account/totp",
	"/app/people", "/app/apps", "/app/approvals", "/app/approvals/{approval}", "{consent}", "/docs", "/dev/components",
	"/nowhere", "/app/emails/00000000-0000-7000-8000-000000000000"}

// guestPages are the pages that need no session.
var guestPages = []string{"/docs", "/docs/operating", "/docs/operating/troubleshooting", "/docs/api/emails", "/docs/cli/serve",
	"/docs/guides/webhooks", "/sign-in", "/password/forgot", "/password/reset?token=x", "/invitations/x",
	"/unsubscribe/{unsubscribe}", "/forwarding/confirm/{forwarding}", "/forwarding/refuse/x", "{shared}", "/nowhere"}

// freshPages are pages of a team that has not done anything yet.
var freshPages = []string{"/app/emails", "/app/domains", "/app/webhooks", "/app/suppressions", "/app/logs",
	"/app/metrics", "/app/receiving", "/app/start", "/app/people", "/app/apps", "/app/approvals"}

var pagePattern = regexp.MustCompile(`pattern: +"GET (/app[^"]*)"`)

// newGallery starts the nodes and signs a browser in. It fails the test if a page of the dashboard's table of routes
// has no entry here.
func newGallery(t *testing.T) *gallery {
	t.Helper()
	source, err := os.ReadFile("../internal/front/dashboard/routes.go")
	if err != nil {
		t.Fatal(err)
	}
	routes := pagePattern.FindAllStringSubmatch(string(source), -1)
	if len(routes) < 40 {
		t.Fatalf("only %d pages are in the table of routes; is it written in another way?", len(routes))
	}
	g := &gallery{full: newSample(t)}
	full := newSite(t, g.full.node)
	full.named("Acme")
	full.savesFilter("status=bounced&in=7d", "Bounced this week")
	var paths []string
	for _, r := range routes {
		path, known := dashboardPages[r[1]]
		if !known {
			t.Errorf("dashboardPages lacks the page %s", r[1])
		}
		if path != "" {
			paths = append(paths, path)
		}
	}
	g.add("", full, false, append(paths, otherPages...))
	g.pages = append(g.pages, shownPage{name: "emails-pane", path: "/app/emails", of: full, pane: "#list a.whole",
		windows: wideWindows})
	g.add("guest-", full, true, guestPages)

	g.fresh = start(t, nil)
	fresh := newSite(t, g.fresh)
	g.add("fresh-", fresh, false, freshPages)
	g.add("empty-", fresh, false, []string{"/dev/outbox"})
	return g
}

// add adds pages whose addresses may contain names of the sample's ids in braces.
func (g *gallery) add(prefix string, of *site, guest bool, paths []string) {
	for _, path := range paths {
		name := prefix + pictureName(path)
		for id, value := range g.full.id {
			path = strings.ReplaceAll(path, "{"+id+"}", value)
		}
		g.pages = append(g.pages, shownPage{name: name, path: path, of: of, guest: guest, windows: windows})
	}
}

var (
	anyID   = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f-]{27}|[\w-]{40,}`)
	unnamed = regexp.MustCompile(`[^a-z0-9]+`)
)

// pictureName returns the name of the picture of a page at an address that may have names of ids in braces.
func pictureName(path string) string {
	at, err := url.Parse(path)
	if err != nil {
		return "page"
	}
	name := anyID.ReplaceAllString(strings.TrimPrefix(at.Path, "/app/"), "one")
	if at.RawQuery != "" && len(at.RawQuery) < 40 {
		name += "-" + at.RawQuery
	}
	return strings.Trim(unnamed.ReplaceAllString(name, "-"), "-")
}

// addOutbox sends emails to the outbox of the fresh node, and adds its pages.
func (g *gallery) addOutbox(t *testing.T) {
	t.Helper()
	of := g.pages[len(g.pages)-1].of
	n := g.fresh
	n.addDomain("acme.example")
	for i, a := range readers[:8] {
		kind := subjects[i%len(subjects)]
		s := sample{node: n, send: key}
		s.sends(a, kind.from, strings.ReplaceAll(kind.subject, "%d", "1041"), kind.tag)
		n.captured(a)
	}
	var list struct{ Data []struct{ ID string } }
	n.must("GET", "/dev/outbox", "", &list)
	one := "/dev/outbox/" + list.Data[2].ID
	for _, path := range []string{"/dev/outbox", one, one + "?view=raw", one + "?view=html", one + "?do=release",
		"/dev/outbox?q=nobody"} {
		g.pages = append(g.pages, shownPage{name: pictureName(path), path: path, of: of, windows: windows})
	}
}

// newSite opens two tabs for a node and signs one of them in.
func newSite(t *testing.T, n *node) *site {
	t.Helper()
	const limit = 25 * time.Minute
	s := &site{member: &reader{t: t, tab: chromiumFor(t, limit), url: n.localhost()},
		guest: &reader{t: t, tab: chromiumFor(t, limit), url: n.localhost()}}
	s.member.signsIn(n)
	return s
}

// each calls f for every page in a test of its own. The pages of the outbox come last, because they need emails, which
// the first pages of a new team must not show.
func (g *gallery) each(t *testing.T, f func(t *testing.T, p shownPage)) {
	t.Helper()
	show := func(pages []shownPage) {
		for _, p := range pages {
			t.Run(p.name, func(t *testing.T) { f(t, p) })
		}
	}
	before := len(g.pages)
	show(g.pages)
	g.addOutbox(t)
	show(g.pages[before:])
}

// named gives the team and the user of a node for development names as in production.
func (s *site) named(team string) {
	r := s.member
	r.t.Helper()
	r.open("/app/settings")
	r.sees("Development")
	r.replaces("Name of the team", team)
	r.presses("Rename team")
	r.sees(team)
	r.open("/app/account")
	r.sees("Developer")
	r.replaces("Name optional", "Ada Meyer")
	r.presses("Save name")
	r.sees("Ada Meyer")
}

// savesFilter saves a filter of the list of emails.
func (s *site) savesFilter(query, name string) {
	r := s.member
	r.t.Helper()
	r.open("/app/emails?" + query)
	r.sees("Save filter")
	r.evaluates(`document.querySelector(".saved details").open = true`)
	r.types("Name of the filter", name)
	r.presses("Save filter")
	r.sees(name)
}

// replaces replaces the text in the input field with the given label.
func (r *reader) replaces(label, text string) {
	r.t.Helper()
	r.evaluates(`[...document.querySelectorAll("label")].find((l) => l.textContent.trim() === "` + label +
		`")?.control.setAttribute("value", "")`)
	r.types(label, text)
}

// view opens a page, and the pane beside its list if the page is shown with it.
func (p *shownPage) view(t *testing.T) *reader {
	t.Helper()
	r := p.of.member
	if p.guest {
		r = p.of.guest
	}
	r.t = t
	if p.pane == "" {
		r.open(p.path)
		return r
	}
	r.as(p.windows[0]) // only a wide window has the pane
	r.open(p.path)
	r.evaluates(`document.querySelector("` + p.pane + `").click(), true`)
	eventually(t, 30*time.Second, "the pane is open", func() bool {
		return r.evaluates(`!!document.querySelector("#pane:not([hidden]) h2.title")`)
	})
	return r
}

// window is how a page is looked at.
type window struct {
	theme         string // light or dark
	width, height int64
}

// windows are the themes and sizes in which every page is looked at.
var windows = []window{{"light", 1280, 900}, {"dark", 1280, 900}, {"dark", 390, 844}, {"light", 390, 844}}

// wideWindows are those for a list with a pane beside it.
var wideWindows = []window{{"light", 1920, 1080}, {"dark", 1920, 1080}}

// as changes the theme and the size of the tab, and waits until the page is drawn. Transitions are off, because colours
// in a transition have no contrast.
func (r *reader) as(w window) {
	r.t.Helper()
	features := []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: w.theme},
		{Name: "prefers-reduced-motion", Value: "reduce"}}
	_, err := chromedp.Call(r.tab, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: features})
	if err == nil {
		err = chromedp.Do(r.tab, chromedp.EmulateViewport(w.width, w.height))
	}
	if err == nil {
		_, err = chromedp.Run(r.tab, chromedp.Evaluate[bool](`new Promise((done) => {
			requestAnimationFrame(() => requestAnimationFrame(() => {
				for (const a of document.getAnimations()) if (a.effect.getComputedTiming().iterations !== Infinity) a.finish();
				done(true);
			}));
		})`, chromedp.EvalAwaitPromise))
	}
	if err != nil {
		r.t.Fatalf("look at the page in %s at %d px: %v", w.theme, w.width, err)
	}
}

// tooWide returns what is wider than the page, or "".
func (r *reader) tooWide() string {
	r.t.Helper()
	text, err := chromedp.Run(r.tab, chromedp.Evaluate[string](`(() => {
		const root = document.documentElement;
		if (root.scrollWidth <= root.clientWidth) return "";
		const wide = [...document.querySelectorAll("body *")].filter((e) => {
			for (let p = e.parentElement; p && p !== root; p = p.parentElement)
				if (getComputedStyle(p).overflowX !== "visible") return false;
			return e.getBoundingClientRect().right > root.clientWidth + 0.5;
		}).map((e) => e.outerHTML.slice(0, 160));
		return root.scrollWidth + " px of " + root.clientWidth + ": " + wide.slice(-2).join(" and ");
	})()`))
	if err != nil {
		r.t.Fatal(err)
	}
	return text
}
