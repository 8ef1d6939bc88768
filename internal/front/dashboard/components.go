package dashboard

import (
	"net/http"
	"time"

	"github.com/postrider/postrider/internal/front/web"
)

var componentsPage = pageOf("components.html")

// ComponentsPath is the address of the page that shows every component in every state, on a node for development.
const ComponentsPath = "/dev/components"

// icons are the names of all icons, in the order of the page.
var icons = []string{"mail", "inbox", "megaphone", "file", "flow", "users", "chart", "globe", "key", "hook", "ban",
	"logs", "gear", "stack", "server", "pulse", "search", "plus", "x", "tick", "down", "right", "left", "up", "updown",
	"copy", "external", "more", "menu", "clock", "calendar", "retry", "undo", "share", "desktop", "phone", "text",
	"code", "lock", "shield", "sun", "moon", "pause", "play", "bin", "pencil", "image", "link", "bolt", "eye", "clip",
	"book", "send", "out", "app", "wait"}

// RegisterComponents adds the page with all components to a mux. Only a node for development shows the page.
func (p *Pages) RegisterComponents(mux *http.ServeMux) {
	p.Site.HandleSignedIn(mux, "GET "+ComponentsPath, func(w http.ResponseWriter, r *http.Request, v web.Visitor) error {
		if !p.Site.Development() {
			return errNoPage
		}
		now := p.Now()
		return p.Site.Show(w, r, http.StatusOK, componentsPage, map[string]any{
			"Icons": icons,
			"States": []string{"draft", "queued", "scheduled", "sending", "sent", "delivered", "opened", "clicked",
				"delivery_delayed", "paused", "bounced", "failed", "complained", "suppressed", "canceled", "unknown"},
			"Colours": []string{"bg", "canvas", "sunken", "active", "line", "line-2", "field", "ink-3", "ink-2", "ink", "accent",
				"accent-soft", "link", "ok-mark", "ok-soft", "warn-mark", "warn-soft", "bad-mark", "bad-soft", "note-mark"},
			"Fields": web.NewForm(
				&web.Field{Name: "name", Label: "Name", Value: "billing-production", Hint: "Rest, with hint"},
				&web.Field{Name: "address", Label: "Address", Value: "laura@acme",
					Error: "Enter a whole address, for example laura@acme.example."},
				&web.Field{Name: "choice", Label: "Select", Value: "b", Optional: true,
					Options: []web.Choice{{Value: "a", Label: "Full access"}, {Value: "b", Label: "Sending only"}}},
				&web.Field{Name: "note", Label: "Text", Type: "textarea", Value: "Several\nlines", Optional: true}),
			"Times": []time.Time{now.Add(-14 * time.Second), now.Add(-9 * time.Minute), now.Add(-3 * time.Hour),
				now.Add(-100 * time.Hour)},
			"Pager": pager{Older: "?after=1", Said: "1–15 of 4,812 · counted 20 s ago"},
			"Sample": snippetsFor("https://mail.acme.example", "mail.acme.example:587", "re_your_key", "hello@acme.example",
				"laura@example.org"),
		}, web.Crumbs("Development", "", "Components"))
	})
}
