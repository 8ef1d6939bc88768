package dashboard

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/page"
)

var webhookMessagePage = pageOf("webhook_message.html")

// watchMost is the number of times that an open page of a message looks whether an attempt was made.
const watchMost = 40

// messageView is the content of the page of a message.
type messageView struct {
	base
	Webhook  webhookRow
	Message  messageRow
	Payload  string
	EmailID  string
	Attempts []attemptRow
	More     bool   // whether there are older attempts than those that are shown
	Watch    string // the address that the page reads again, or ""
	Problem  string
}

// attemptRow is an attempt as the page shows it.
type attemptRow struct {
	webhooks.Attempt
	State, Says, Body string
	Why               string // the error, unless Says contains it
}

func (c *call) webhookMessage() error { return c.messagePage(http.StatusOK, "") }

// messagePage shows a message with its attempts. The problem is that of a replay that was refused.
func (c *call) messagePage(status int, problem string) error {
	e, m, err := c.message()
	if err != nil {
		return err
	}
	data := messageView{base: c.base(), Webhook: c.webhookRow(e), Message: messageRowOf(e.ID, m), Problem: problem,
		Payload: pretty(m.Payload)}
	var payload struct {
		Data struct {
			EmailID string `json:"email_id"`
		} `json:"data"`
	}
	if json.Unmarshal([]byte(m.Payload), &payload) == nil && id.Valid(payload.Data.EmailID) {
		data.EmailID = payload.Data.EmailID
	}
	all, more, err := c.Webhooks.Attempts(c.ctx(), c.team.TeamID, e.ID, m.ID, page.Page{Limit: rowsShown})
	if err != nil {
		return err
	}
	data.More = more
	for _, a := range all {
		data.Attempts = append(data.Attempts, attemptRowOf(a))
	}
	// A replayed message may be in any state, so the page of a replay looks for the new attempt too.
	n, _ := strconv.Atoi(c.r.URL.Query().Get("watch"))
	if m.State == webhooks.Pending || n > 0 {
		if n < watchMost {
			data.Watch = web.With(c.r.URL, "watch", strconv.Itoa(max(n, 0)+1))
		}
	}
	return c.show(status, webhookMessagePage, data, web.Crumbs("Webhooks", "/app/webhooks", data.Webhook.Shown,
		webhookPath(e.ID), string(m.Type)), web.HTMX())
}

// message returns the endpoint and the message that the request's path names.
func (c *call) message() (e webhooks.Endpoint, m webhooks.Message, err error) {
	if e, err = c.Webhooks.Get(c.ctx(), c.team.TeamID, c.id()); err != nil {
		return e, m, err
	}
	messageID := c.r.PathValue("message")
	if webhooks.CheckID("message", webhooks.MessagePrefix, messageID) != nil {
		return e, m, errNoPage
	}
	m, err = c.Webhooks.Message(c.ctx(), c.team.TeamID, e.ID, messageID)
	return e, m, err
}

func attemptRowOf(a webhooks.Attempt) attemptRow {
	row := attemptRow{Attempt: a, State: "success", Body: pretty(a.Response)}
	if a.Code != 0 {
		row.Says = strconv.Itoa(a.Code) + " " + http.StatusText(a.Code)
	}
	if a.Error != "" {
		row.State = "failed"
		if a.Code == 0 {
			row.Says = a.Error
		} else if !strings.Contains(a.Error, row.Says) {
			row.Why = a.Error
		}
	}
	return row
}

// pretty returns JSON with line breaks, and other text unchanged.
func pretty(text string) string {
	v := jsontext.Value(text)
	if v.Indent(jsontext.WithIndent("  "), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)) != nil {
		return text
	}
	return string(v)
}

func (c *call) replayWebhookMessage() error {
	e, m, err := c.message()
	if err != nil {
		return err
	}
	if err := c.Webhooks.Replay(c.ctx(), c.team.TeamID, e.ID, m.ID); err != nil {
		if text, ok := refused(err); ok {
			return c.messagePage(http.StatusUnprocessableEntity, text)
		}
		return err
	}
	return c.redirect(messageRowOf(e.ID, m).Href+"?watch=1", "The event is being sent again. The attempt appears below.")
}
