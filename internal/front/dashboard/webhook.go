package dashboard

import (
	"net/http"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/page"
)

var webhookPage = pageOf("webhook.html")

// messageStates are the states by which the messages of an endpoint can be filtered, in the order of the tabs.
var messageStates = []webhooks.State{"", webhooks.Pending, webhooks.Attempting, webhooks.Success, webhooks.Failed}

// messageLabels name the states of messages as the pages show them.
var messageLabels = map[webhooks.State]string{"": "", webhooks.Pending: "waiting", webhooks.Attempting: "retrying",
	webhooks.Success: "success", webhooks.Failed: "failed"}

// messageRow is a message as the pages show it.
type messageRow struct {
	webhooks.Message
	Href, Label string
}

func messageRowOf(endpointID string, m webhooks.Message) messageRow {
	return messageRow{m, webhookPath(endpointID) + "/messages/" + m.ID, messageLabels[m.State]}
}

// tab is a link to a part of a list.
type tab struct {
	Label, Href string
	Current     bool
}

// webhookView is the content of the page of an endpoint.
type webhookView struct {
	base
	Webhook webhookRow
	Tabs    []tab
	Rows    []messageRow
	State   webhooks.State
	Pager   pager
	Problem string
}

func (c *call) webhook() error { return c.webhookPage(http.StatusOK, "") }

// webhookPage shows an endpoint with a page of its messages. The problem is that of a form that was refused.
func (c *call) webhookPage(status int, problem string) error {
	e, err := c.Webhooks.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	if c.r.Method == http.MethodPost {
		c.standAt(webhookPath(e.ID), "")
	}
	data := webhookView{base: c.base(), Webhook: c.webhookRow(e), Problem: problem}
	q := c.r.URL.Query()
	for _, s := range messageStates {
		label := "All"
		if s != "" {
			label = web.Label(messageLabels[s])
		}
		current := q.Get("status") == string(s)
		if current {
			data.State = s
		}
		data.Tabs = append(data.Tabs, tab{label, web.With(c.r.URL, "status", string(s), "after", ""), current})
	}
	p, err := c.forwardPage(webhooks.MessagePrefix)
	if err != nil {
		return err
	}
	some, more, err := c.Webhooks.Messages(c.ctx(), c.team.TeamID, e.ID, data.State, p)
	if err != nil {
		return err
	}
	for _, m := range some {
		data.Rows = append(data.Rows, messageRowOf(e.ID, m))
	}
	if p.After != "" {
		data.Pager.Newer = web.With(c.r.URL, "after", "")
	}
	if more && len(some) > 0 {
		data.Pager.Older = web.With(c.r.URL, "after", some[len(some)-1].ID)
	}
	return c.show(status, webhookPage, data, web.Crumbs("Webhooks", "/app/webhooks", data.Webhook.Shown),
		web.Live("/app/live"))
}

// forwardPage reads the place in a list whose ids have a prefix. Such lists are read only in one direction, so the link
// to newer rows leads to the newest ones.
func (c *call) forwardPage(prefix string) (page.Page, error) {
	p := page.Page{Limit: rowsShown, After: c.r.URL.Query().Get("after")}
	if p.After != "" && webhooks.CheckID("after", prefix, p.After) != nil {
		return p, errNoPlace
	}
	return p, nil
}

// change calls a service for the form on an endpoint's page, and shows the page with the problem if it is refused.
func (c *call) change(done string, f func(endpointID string) error) error {
	if err := f(c.id()); err != nil {
		if text, ok := refused(err); ok {
			return c.webhookPage(http.StatusUnprocessableEntity, text)
		}
		return err
	}
	return c.redirect(webhookPath(c.id()), done)
}

func (c *call) setWebhookStatus() error {
	to := c.form.Get("status")
	done := "The webhook is enabled. Events that failed meanwhile can be sent again with “Recover”."
	if to == string(webhooks.Disabled) {
		done = "The webhook is disabled. Events that wait for it fail when they are due."
	}
	return c.change(done, func(id string) error {
		return c.Webhooks.Update(c.ctx(), c.team.TeamID, id, webhooks.Change{Status: &to})
	})
}

func (c *call) showWebhookSecret() error {
	e, err := c.Webhooks.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	if err := c.readAction("webhook.secret_shown", e.ID); err != nil {
		return err
	}
	return c.webhookSecretPage(e.ID, e.Secret, "Signing secret",
		"Check with this secret that requests come from Postrider.")
}

// askWebhook shows a question about the endpoint in the request's path.
func (c *call) askWebhook(status int, e webhooks.Endpoint, q question) error {
	q.Back = webhookPath(e.ID)
	return c.ask(status, q, "Webhooks", "/app/webhooks", c.webhookRow(e).Shown, q.Back)
}

func (c *call) askRotateWebhook() error {
	e, err := c.Webhooks.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	return c.askWebhook(http.StatusOK, e, question{Title: "Rotate the signing secret?", Button: "Rotate secret",
		Keep: "Keep secret", Text: []string{"The next page shows a new secret. For 24 hours, each request is signed " +
			"with the new and the old secret, so your server can change over without missing an event. An even older " +
			"secret becomes invalid at once."}})
}

func (c *call) rotateWebhook() error {
	secret, err := c.Webhooks.Rotate(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	return c.webhookSecretPage(c.id(), secret, "New signing secret",
		"Replace the old secret in your server within 24 hours. Until then, requests are signed with both.")
}

// recoverForm returns the form that asks since when failed messages are sent again.
func recoverForm() *web.Form {
	var choices []web.Choice
	for _, s := range spans {
		choices = append(choices, web.Choice{Value: s.Value, Label: s.Label})
	}
	return web.NewForm(
		&web.Field{Name: "in", Label: "Failed within", Value: "24h", Options: append(choices,
			web.Choice{Value: "since", Label: "The time below"})},
		&web.Field{Name: "since", Label: "Failed since", Optional: true, Max: 40,
			Hint: "In ISO 8601, such as 2026-10-01T12:00:00Z. It counts only with “The time below”."})
}

func (c *call) recoverPage(status int, e webhooks.Endpoint, f *web.Form) error {
	return c.askWebhook(status, e, question{Title: "Send failed events again", Button: "Recover events",
		Keep: "Back to webhook", Form: f, Text: []string{"Every event that failed at this webhook since then is sent " +
			"again, oldest first, with its own schedule of retries. Events that were accepted are not sent again."}})
}

func (c *call) askRecoverWebhook() error {
	e, err := c.Webhooks.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	return c.recoverPage(http.StatusOK, e, recoverForm())
}

func (c *call) recoverWebhook() error {
	e, err := c.Webhooks.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	f := recoverForm().Fill(c.form)
	status, err := saveForm(f, func() error {
		since, err := c.since()
		if err != nil {
			return err
		}
		return c.Webhooks.Recover(c.ctx(), c.team.TeamID, e.ID, since)
	})
	if err != nil {
		return err
	}
	if status != 0 {
		return c.recoverPage(status, e, f)
	}
	return c.redirect(webhookPath(e.ID)+"?status="+string(webhooks.Attempting), "The failed events are being sent again.")
}

// since returns the time that the form for recovering chooses.
func (c *call) since() (time.Time, error) {
	for _, s := range spans {
		if s.Value == c.form.Get("in") {
			return c.Now().Add(-s.length), nil
		}
	}
	t, err := time.Parse(time.RFC3339, strings.TrimSpace(c.form.Get("since")))
	if err != nil {
		return t, fault.Invalidf("since", "Enter a time in ISO 8601, such as 2026-10-01T12:00:00Z.")
	}
	return t, nil
}

func (c *call) deletePage(status int, e webhooks.Endpoint, f *web.Form) error {
	row := c.webhookRow(e)
	return c.askWebhook(status, e, question{Title: "Delete this webhook?", Button: "Delete webhook", Keep: "Keep webhook",
		Danger: true, Confirm: row.Host(), Form: f, Text: []string{
			row.URL + " gets no more events. Events that wait for it are not delivered, and its messages and attempts are " +
				"deleted. This cannot be undone."}})
}

func (c *call) askDeleteWebhook() error {
	e, err := c.Webhooks.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	return c.deletePage(http.StatusOK, e, web.NewForm(confirmField(c.webhookRow(e).Host())))
}

func (c *call) deleteWebhook() error {
	e, err := c.Webhooks.Get(c.ctx(), c.team.TeamID, c.id())
	if err != nil {
		return err
	}
	host := c.webhookRow(e).Host()
	if f := web.NewForm(confirmField(host)); !c.confirmed(f, host) {
		return c.deletePage(http.StatusUnprocessableEntity, e, f)
	}
	if err := c.Webhooks.Delete(c.ctx(), c.team.TeamID, e.ID); err != nil {
		return err
	}
	return c.redirect("/app/webhooks", "The webhook is deleted.")
}
