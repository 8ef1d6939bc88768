package dashboard

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/events"
)

var (
	webhooksPage    = pageOf("webhooks.html")
	webhookFormPage = pageOf("webhook_form.html")
	secretPage      = pageOf("secret.html")
)

// webhookRow is an endpoint as the pages show it.
type webhookRow struct {
	webhooks.Endpoint
	Shown   string // the URL without its scheme; without webhooks:write, its query is masked
	Listens string // the selected events in words
	State   string // enabled, disabled, failing or full
	Since   time.Time
}

func (c *call) webhookRow(e webhooks.Endpoint) webhookRow {
	if !c.actor.Scopes.Has(teams.WebhooksWrite) {
		e.URL, e.Secret = requestlog.HideURL(e.URL), ""
	}
	row := webhookRow{Endpoint: e, Shown: strings.TrimPrefix(e.URL, "https://"), State: string(e.Status)}
	row.Listens = listens(e.Events)
	switch {
	case e.Status == webhooks.Disabled:
		row.Since = e.DisabledAt
	case !e.FullSince.IsZero():
		row.State, row.Since = "full", e.FullSince
	case !e.FailingSince.IsZero():
		row.State, row.Since = "failing", e.FailingSince
	}
	return row
}

// Host returns the host of the URL, which must be typed to delete the endpoint.
func (r webhookRow) Host() string {
	if u, err := url.Parse(r.URL); err == nil && u.Host != "" {
		return u.Host
	}
	return r.ID
}

// listens says which events an endpoint receives.
func listens(all []events.Type) string {
	if all == nil || !slices.ContainsFunc(webhooks.Types(), func(t events.Type) bool { return !slices.Contains(all, t) }) {
		return "All events"
	}
	const most = 2
	names := make([]string, 0, most)
	for _, t := range all[:min(len(all), most)] {
		names = append(names, string(t))
	}
	text := strings.Join(names, ", ")
	if len(all) > most {
		text += " and " + web.Number(len(all)-most) + " more"
	}
	return text
}

func (c *call) webhooks() error {
	p, err := c.page(rowsShown)
	if err != nil {
		return err
	}
	all, more, err := c.Webhooks.List(c.ctx(), c.team.TeamID, p)
	if err != nil {
		return err
	}
	data := struct {
		base
		Rows  []webhookRow
		Pager pager
	}{base: c.base()}
	var ids []string
	for _, e := range all {
		data.Rows = append(data.Rows, c.webhookRow(e))
		ids = append(ids, e.ID)
	}
	data.Pager = c.pager(p, ids, more)
	return c.show(http.StatusOK, webhooksPage, data, web.Crumbs(c.team.TeamName, "/app/emails", "Webhooks"))
}

// webhookForm is the form that adds or changes an endpoint.
type webhookForm struct {
	base
	Title, Text, Button, Back, Action string
	Form                              *web.Form
	All                               bool // whether all events are selected
	Groups                            []eventGroup
	EventsError                       string
}

// eventGroup is a group of event types in the form.
type eventGroup struct {
	Label string
	Types []eventChoice
}

// eventChoice is an event type in the form.
type eventChoice struct {
	Type events.Type
	On   bool
}

// groupLabels names the groups of event types by the first part of a type.
var groupLabels = map[string]string{"email": "Emails", "contact": "Contacts", "domain": "Domains",
	"suppression": "Suppressions", "broadcast": "Broadcasts", "approval": "Approvals"}

// eventGroups returns all event types in groups. The given ones are selected.
func eventGroups(chosen []string) (groups []eventGroup) {
	for _, t := range append(webhooks.Types(), webhooks.OptInTypes()...) {
		kind, _, _ := strings.Cut(string(t), ".")
		label := groupLabels[kind]
		i := slices.IndexFunc(groups, func(g eventGroup) bool { return g.Label == label })
		if i < 0 {
			i, groups = len(groups), append(groups, eventGroup{Label: label})
		}
		groups[i].Types = append(groups[i].Types, eventChoice{t, slices.Contains(chosen, string(t))})
	}
	return groups
}

func typeNames(all []events.Type) (names []string) {
	for _, t := range all {
		names = append(names, string(t))
	}
	return names
}

func (c *call) webhookFormPage(status int, f webhookForm, crumbs ...string) error {
	f.base, f.Action = c.base(), c.r.URL.Path
	return c.show(status, webhookFormPage, f, web.Crumbs(append(crumbs, f.Title)...), web.Class("form"))
}

func endpointForm(value string) *web.Form {
	return web.NewForm(&web.Field{Name: "endpoint", Label: "URL", Type: "url", Value: value, Max: 2048,
		Autocomplete: "off", Hint: "Postrider posts events to it as JSON. Your server must answer with a 2xx status. " +
			"In production, the URL must use https."})
}

func newWebhookForm(form *web.Form, all bool, chosen []string) webhookForm {
	return webhookForm{Title: "Add webhook", Button: "Add webhook", Back: "/app/webhooks", All: all, Form: form,
		Text:   "Your server gets a signed request for each event, and again after a failure until it accepts it.",
		Groups: eventGroups(chosen)}
}

func (c *call) showNewWebhook() error {
	return c.webhookFormPage(http.StatusOK, newWebhookForm(endpointForm(""), true,
		[]string{string(events.EmailDelivered), string(events.EmailBounced), string(events.EmailComplained)}),
		"Webhooks", "/app/webhooks")
}

// chosenEvents returns the event types that the form selects, and whether it selects all.
func (c *call) chosenEvents() (names []string, all bool) {
	if c.form.Get("which") == "all" {
		return typeNames(webhooks.Types()), true
	}
	return c.form["events"], false
}

// save calls a service with what the form holds, and returns the status of the form if the service refused it. The
// names are those of the chosen events.
func (f *webhookForm) save(names []string, call func() error) (status int, err error) {
	err = call()
	if text, ok := refused(err); ok && fieldOf(err) == "events" {
		if f.EventsError = text; len(names) == 0 {
			f.EventsError = "Choose at least one event."
		}
		return http.StatusUnprocessableEntity, nil
	}
	return saveForm(f.Form, func() error { return err })
}

func (c *call) addWebhook() error {
	names, all := c.chosenEvents()
	f := newWebhookForm(endpointForm("").Fill(c.form), all, names)
	var e webhooks.Endpoint
	status, err := f.save(names, func() (err error) {
		e, err = c.Webhooks.Create(c.ctx(), c.team.TeamID, strings.TrimSpace(c.form.Get("endpoint")), orNone(names))
		return err
	})
	if err != nil {
		return err
	}
	if status != 0 {
		return c.webhookFormPage(status, f, "Webhooks", "/app/webhooks")
	}
	return c.webhookSecretPage(e.ID, e.Secret, "Webhook added",
		"Check with this secret that requests come from Postrider.")
}

// orNone returns an empty list for nil, so that the service does not report a missing field.
func orNone(names []string) []string {
	if names == nil {
		return []string{}
	}
	return names
}

func (c *call) showEditWebhook() error {
	e, err := c.Webhooks.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	chosen := e.Events
	if chosen == nil {
		chosen = webhooks.Types()
	}
	return c.editWebhookPage(http.StatusOK, e, editWebhookForm(e, endpointForm(e.URL), listens(e.Events) == "All events" &&
		len(chosen) == len(webhooks.Types()), typeNames(chosen)))
}

func editWebhookForm(e webhooks.Endpoint, form *web.Form, all bool, chosen []string) webhookForm {
	return webhookForm{Title: "Edit webhook", Button: "Save webhook", Back: webhookPath(e.ID), All: all,
		Groups: eventGroups(chosen), Form: form, Text: "A change takes effect at once, also for events that wait."}
}

func (c *call) editWebhookPage(status int, e webhooks.Endpoint, f webhookForm) error {
	return c.webhookFormPage(status, f, "Webhooks", "/app/webhooks", c.webhookRow(e).Shown, webhookPath(e.ID))
}

func (c *call) editWebhook() error {
	e, err := c.Webhooks.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	names, all := c.chosenEvents()
	f := editWebhookForm(e, endpointForm("").Fill(c.form), all, names)
	to := strings.TrimSpace(c.form.Get("endpoint"))
	status, err := f.save(names, func() error {
		return c.Webhooks.Update(c.ctx(), c.team.TeamID, e.ID, webhooks.Change{URL: &to, Events: orNone(names)})
	})
	if err != nil {
		return err
	}
	if status != 0 {
		return c.editWebhookPage(status, e, f)
	}
	return c.redirect(webhookPath(e.ID), "The webhook is saved.")
}

// secretView is the content of the page that shows a signing secret once.
type secretView struct {
	base
	Title, Text, Secret string
	Again               string // the page that can show the secret again, such as the webhook's page
	Href, Open          string // link to that page, and its label
	Snippets            []snippet
}

func (c *call) webhookSecretPage(endpointID, secret, title, text string) error {
	return c.show(http.StatusOK, secretPage, secretView{c.base(), title, text, secret, "the webhook’s page",
		webhookPath(endpointID), "Open webhook", verifySnippets}, web.Crumbs("Webhooks", "/app/webhooks", "Webhook",
		webhookPath(endpointID), title), web.Class("form"))
}

// verifySnippets are examples that verify a request. They contain no secret, because examples are copied into code.
var verifySnippets = []snippet{
	{"node", "Node.js", "verify.mjs (npm install standardwebhooks)", `import {Webhook} from 'standardwebhooks';

// body is the request's body as it came, before any parsing.
const event = new Webhook(process.env.WEBHOOK_SECRET).verify(body, request.headers);
console.log(event.type);`},
	{"python", "Python", "verify.py (pip install svix)", `import os
from svix.webhooks import Webhook

# body is the request's body as it came, before any parsing.
event = Webhook(os.environ["WEBHOOK_SECRET"]).verify(body, headers)
print(event["type"])`},
	{"go", "Go", "verify.go (go get github.com/svix/svix-webhooks)",
		`wh, err := svix.NewWebhook(os.Getenv("WEBHOOK_SECRET"))
if err == nil {
	err = wh.Verify(body, r.Header) // body as it came, before any parsing
}`},
}

func webhookPath(endpointID string) string { return "/app/webhooks/" + url.PathEscape(endpointID) }

// fieldOf returns the field that a fault names, or "".
func fieldOf(err error) string {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e.Field
	}
	return ""
}
