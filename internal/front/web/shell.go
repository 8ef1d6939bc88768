package web

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/postrider/postrider/internal/accounts/members"
	"github.com/postrider/postrider/internal/accounts/teams"
)

// NavItem is a link in the navigation beside all pages of the dashboard.
type NavItem struct {
	Href, Label, Icon string
	Key               string // the letter that opens the page after g, or ""
	Scope             teams.Scope
	CountOf           string // what waits, for screen readers
	Count             int64  // at most countMost is shown
	Current           bool
}

// NavSection is a group of links in the navigation.
type NavSection struct {
	Label string
	Items []NavItem
}

// navigation lists all links. A visitor sees the links to pages that the visitor's role may open.
var navigation = []NavSection{
	{"", []NavItem{
		{Href: "/app/emails", Label: "Emails", Icon: "mail", Key: "e", Scope: teams.EmailsRead},
		{Href: "/app/receiving", Label: "Receiving", Icon: "inbox", Key: "i", Scope: teams.ReceivingRead},
		{Href: "/app/metrics", Label: "Metrics", Icon: "chart", Key: "m", Scope: teams.EmailsRead},
		{Href: "/app/approvals", Label: "Approvals", Icon: "shield", Key: "a", Scope: teams.ApprovalsRead,
			CountOf: "waiting"},
	}},
	{"Set up", []NavItem{
		{Href: "/app/domains", Label: "Domains", Icon: "globe", Key: "d", Scope: teams.DomainsRead},
		{Href: "/app/keys", Label: "API keys", Icon: "key", Key: "k", Scope: teams.KeysRead},
		{Href: "/app/webhooks", Label: "Webhooks", Icon: "hook", Key: "w", Scope: teams.WebhooksRead, CountOf: "failing"},
		{Href: "/app/suppressions", Label: "Suppressions", Icon: "ban", Key: "s", Scope: teams.SuppressionsRead},
		{Href: "/app/logs", Label: "Logs", Icon: "logs", Key: "l", Scope: teams.LogsRead},
	}},
	{"Team", []NavItem{
		{Href: "/app/people", Label: "People", Icon: "users", Key: "p"},
		{Href: "/app/apps", Label: "Connected apps", Icon: "app"},
		{Href: "/app/settings", Label: "Settings", Icon: "gear"},
	}},
}

// countMost is the largest number that the navigation shows; more are shown as "99+".
const countMost = 99

// Waiting returns the number that the navigation shows, or "" if nothing waits.
func (i NavItem) Waiting() string {
	switch {
	case i.Count > countMost:
		return num(countMost) + "+"
	case i.Count > 0:
		return num(i.Count)
	}
	return ""
}

// Counts returns how many things wait for a visitor in a team, by the Href of the link in the navigation that shows the
// number. Counts must be cheap: it runs for every page.
type Counts func(ctx context.Context, v *Visitor, teamID string) (map[string]int64, error)

// Crumb is a step of the path that leads to a page. The last step is the page itself and has no Href.
type Crumb struct{ Label, Href string }

// DocsPath is the address of the documentation.
const DocsPath = "/docs"

// AppPath reports whether a path belongs to the dashboard.
func AppPath(path string) bool { return path == "/app" || strings.HasPrefix(path, "/app/") }

// shell adds to the layout what the frame of the dashboard shows. It leaves out numbers that could not be counted,
// because a page is more useful without them than an error.
func (s *Site) shell(r *http.Request, of *layoutData, o *options) {
	var team members.Membership
	ok := false
	if of.Visitor != nil {
		team, ok = of.Visitor.Team()
	}
	if !ok && !o.guests || o.bare {
		return
	}
	of.Shell, of.TeamID, of.Crumbs, of.Class, of.Live = true, team.TeamID, o.crumbs, o.class, o.live
	of.HTMX = o.htmx
	of.Path, of.Tool = Local(r.URL.RequestURI()), o.tool
	if of.Tool {
		of.Class = strings.TrimSpace(o.class + " tool")
	}
	if !ok {
		links := []NavItem{{Href: DocsPath, Label: "Documentation", Icon: "book", Current: r.URL.Path == DocsPath}}
		if s.Development() {
			links = append(links, outboxLink(r))
		}
		of.Guest, of.Nav = true, []NavSection{{"", links}}
		return
	}
	var counts map[string]int64
	if s.c.Counts != nil {
		var err error
		if counts, err = s.c.Counts(r.Context(), of.Visitor, team.TeamID); err != nil {
			s.log.Debug("the numbers of the navigation could not be counted", "error", err)
		}
	}
	scopes := team.Role.Scopes()
	for _, section := range navigation {
		var items []NavItem
		for _, item := range section.Items {
			if item.Scope != 0 && !scopes.Has(item.Scope) {
				continue
			}
			item.Current = r.URL.Path == item.Href || strings.HasPrefix(r.URL.Path, item.Href+"/")
			item.Count = counts[item.Href]
			items = append(items, item)
		}
		if len(items) > 0 {
			of.Nav = append(of.Nav, NavSection{section.Label, items})
		}
	}
	if s.Development() && len(of.Nav) > 0 {
		of.Nav[0].Items = append(of.Nav[0].Items, outboxLink(r))
	}
}

// outboxLink returns the link to the emails that a node for development has captured.
func outboxLink(r *http.Request) NavItem {
	return NavItem{Href: "/dev/outbox", Label: "Outbox", Icon: "send", Key: "o",
		Current: strings.HasPrefix(r.URL.Path, "/dev/outbox")}
}

// Names of the cookies that hold how a visitor wants to see pages. They are no secrets.
const (
	themeCookie = "theme"
	keysCookie  = "keys"
)

// Appearance handles the form that sets how a visitor wants to see pages: light or dark, and whether single keys work.
func (s *Site) Appearance(w http.ResponseWriter, r *http.Request) error {
	form, err := s.Form(w, r)
	if err != nil {
		return err
	}
	switch form.Get("theme") {
	case "light", "dark":
		s.setCookie(w, themeCookie, form.Get("theme"), cookieLifetime)
	case "system":
		s.setCookie(w, themeCookie, "", 0)
	}
	switch form.Get("keys") {
	case "off":
		s.setCookie(w, keysCookie, "off", cookieLifetime)
	case "on":
		s.setCookie(w, keysCookie, "", 0)
	}
	next := Local(form.Get("next"))
	if next == "" {
		next = "/app/emails"
	}
	return Redirect(w, r, next)
}

// Theme returns the theme that the visitor has chosen, light or dark, or "" for that of the system.
func (s *Site) Theme(r *http.Request) string { return s.theme(r) }

// SingleKeys reports whether single keys are shortcuts for the visitor.
func (s *Site) SingleKeys(r *http.Request) bool { return s.Cookie(r, keysCookie) != "off" }

// theme returns the visitor's choice, or "" for that of the system.
func (s *Site) theme(r *http.Request) string {
	if t := s.Cookie(r, themeCookie); t == "light" || t == "dark" {
		return t
	}
	return ""
}

// With returns the request's path with some query parameters replaced. A parameter with an empty value is removed.
func With(u *url.URL, pairs ...string) string {
	q := u.Query()
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] == "" {
			q.Del(pairs[i])
		} else {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	if len(q) == 0 {
		return u.Path
	}
	return u.Path + "?" + q.Encode()
}
