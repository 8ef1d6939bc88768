package api

import (
	"context"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/outbound/requestlog"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/page"
)

type createWebhookIn struct {
	Endpoint string                      `json:"endpoint" doc:"The https URL that events are posted to." maxLength:"2048"`
	Events   wire.Strings[maxEventTypes] `json:"events" doc:"Event types, such as email.delivered."`
}

type updateWebhookIn struct {
	Endpoint *string                     `json:"endpoint,omitzero" doc:"The https URL that events are posted to." maxLength:"2048"`
	Events   wire.Strings[maxEventTypes] `json:"events,omitzero" doc:"Event types, which replace the previous ones."`
	Status   *string                     `json:"status,omitzero" enum:"enabled,disabled"`
}

type recoverWebhookIn struct {
	Since string `json:"since" doc:"Failed events since this time are delivered again; ISO 8601."`
}

// WebhookItem represents a webhook endpoint in a list, without its signing secret.
type WebhookItem struct {
	ID             string      `json:"id"`
	Endpoint       string      `json:"endpoint" doc:"Without webhooks:write, the query is masked."`
	Events         []string    `json:"events" nullable:"true" doc:"Null means all event types."`
	Status         string      `json:"status" enum:"enabled,disabled"`
	CreatedAt      wire.DBTime `json:"created_at"`
	DisabledReason *string     `json:"disabled_reason" doc:"Why the endpoint was disabled automatically; null if it was not."`
	DisabledAt     wire.DBTime `json:"disabled_at" nullable:"true"`
	FailingSince   wire.DBTime `json:"failing_since" nullable:"true" doc:"The time since which every known attempt has failed; null if the last attempt succeeded."`
	FullSince      wire.DBTime `json:"full_since" nullable:"true" doc:"The time since which too many events wait for this endpoint. New events then fail at once. Null if the endpoint accepts events."`
}

type webhookWire struct {
	Object string `json:"object"`
	WebhookItem
	SigningSecret string `json:"signing_secret"`
}

type webhookSecret struct {
	Object        string `json:"object"`
	ID            string `json:"id"`
	SigningSecret string `json:"signing_secret" doc:"whsec_ followed by the key in base64, as libraries that verify signatures expect it."`
}

func webhookToItem(e webhooks.Endpoint) WebhookItem {
	w := WebhookItem{e.ID, e.URL, nil, string(e.Status), wire.DBTime(e.CreatedAt), orNull(e.DisabledReason),
		wire.DBTime(e.DisabledAt),
		wire.DBTime(e.FailingSince), wire.DBTime(e.FullSince)}
	for _, t := range e.Events {
		w.Events = append(w.Events, string(t))
	}
	return w
}

func (a *API) createWebhook(ctx context.Context, c *wire.Call, in createWebhookIn) (webhookSecret, error) {
	e, err := a.Services.Webhooks.Create(ctx, c.TeamID, in.Endpoint, in.Events)
	return webhookSecret{"webhook", e.ID, e.Secret}, err
}

func (a *API) listWebhooks(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[WebhookItem], error) {
	p, err := c.Page(20)
	if err != nil {
		return wire.List[WebhookItem]{}, err
	}
	all, more, err := a.Services.Webhooks.List(ctx, c.TeamID, p)
	if !c.Scopes.Has(teams.WebhooksWrite) {
		for i := range all {
			all[i].URL = requestlog.HideURL(all[i].URL)
		}
	}
	return wire.ListOf(all, more, webhookToItem), err
}

func (a *API) getWebhook(ctx context.Context, c *wire.Call, _ wire.None) (webhookWire, error) {
	id, err := c.ID("webhook_id")
	if err != nil {
		return webhookWire{}, err
	}
	e, err := a.Services.Webhooks.Get(ctx, c.TeamID, id)
	return webhookWire{"webhook", webhookToItem(e), e.Secret}, err
}

func (a *API) updateWebhook(ctx context.Context, c *wire.Call, in updateWebhookIn) (ref, error) {
	id, err := c.ID("webhook_id")
	if err != nil {
		return ref{}, err
	}
	return ref{"webhook", id}, a.Services.Webhooks.Update(ctx, c.TeamID, id, webhooks.Change{URL: in.Endpoint,
		Events: in.Events,
		Status: in.Status})
}

func (a *API) deleteWebhook(ctx context.Context, c *wire.Call, _ wire.None) (gone, error) {
	id, err := c.ID("webhook_id")
	if err != nil {
		return gone{}, err
	}
	return gone{"webhook", id, true}, a.Services.Webhooks.Delete(ctx, c.TeamID, id)
}

func (a *API) rotateWebhook(ctx context.Context, c *wire.Call, _ wire.None) (webhookSecret, error) {
	id, err := c.ID("webhook_id")
	if err != nil {
		return webhookSecret{}, err
	}
	secret, err := a.Services.Webhooks.Rotate(ctx, c.TeamID, id)
	return webhookSecret{"webhook", id, secret}, err
}

func (a *API) recoverWebhook(ctx context.Context, c *wire.Call, in recoverWebhookIn) (ref, error) {
	id, err := c.ID("webhook_id")
	if err != nil {
		return ref{}, err
	}
	var since time.Time
	if in.Since != "" {
		if since, err = time.Parse(time.RFC3339, in.Since); err != nil {
			return ref{}, fault.Invalidf("since",
				"The `since` field must be a time in ISO 8601, such as `2026-10-01T12:00:00Z`.")
		}
	}
	return ref{"webhook", id}, a.Services.Webhooks.Recover(ctx, c.TeamID, id, since)
}

type webhookEventItem struct {
	ID        string       `json:"id" doc:"msg_..., which is also the header svix-id of every attempt."`
	Type      string       `json:"type"`
	CreatedAt wire.ISOTime `json:"created_at"`
	Status    string       `json:"status" enum:"pending,attempting,success,failed"`
}

type webhookEventWire struct {
	Object        string         `json:"object"`
	ID            string         `json:"id"`
	Type          string         `json:"type"`
	CreatedAt     wire.ISOTime   `json:"created_at"`
	Status        string         `json:"status" enum:"pending,attempting,success,failed"`
	NextAttemptAt *wire.ISOTime  `json:"next_attempt_at"`
	Payload       jsontext.Value `json:"payload" doc:"The JSON that was posted."`
}

type webhookAttemptItem struct {
	ID         string       `json:"id"`
	Code       int          `json:"http_status_code" doc:"The status code of the response; 0 if there was none."`
	Response   string       `json:"response" doc:"The beginning of the response body: 1 KB, or 256 bytes if the attempt succeeded."`
	Status     string       `json:"status" enum:"success,failed"`
	Error      *string      `json:"error" doc:"Why the attempt failed; null if it succeeded."`
	SentAt     wire.ISOTime `json:"sent_at"`
	DurationMS float64      `json:"duration_ms"`
}

func webhookEventToItem(m webhooks.Message) webhookEventItem {
	return webhookEventItem{m.ID, string(m.Type), wire.ISOTime(m.CreatedAt), string(m.State)}
}

func webhookAttemptToItem(t webhooks.Attempt) webhookAttemptItem {
	w := webhookAttemptItem{t.ID, t.Code, t.Response, "success", orNull(t.Error), wire.ISOTime(t.StartedAt),
		float64(t.Duration.Microseconds()) / 1000}
	if t.Error != "" {
		w.Status = "failed"
	}
	return w
}

// historyIDs reads the webhook ID and the event ID from the path. If the path contains no event ID, eventID is "".
func historyIDs(c *wire.Call) (webhookID, eventID string, err error) {
	if webhookID, err = c.ID("webhook_id"); err != nil {
		return "", "", err
	}
	if eventID = c.Param("webhook_event_id"); eventID != "" {
		err = webhooks.CheckID("webhook_event_id", webhooks.MessagePrefix, eventID)
	}
	return webhookID, eventID, err
}

// forwardPage reads the pagination parameters for a list whose IDs have a prefix and that has no "before" parameter.
func forwardPage(c *wire.Call, prefix string) (page.Page, error) {
	q := c.Query()
	if q.Has("before") {
		return page.Page{}, fault.Invalidf("before", "This list has no `before` parameter; use `after`.")
	}
	after := q.Get("after")
	if q.Has("after") {
		if err := webhooks.CheckID("after", prefix, after); err != nil {
			return page.Page{}, fault.Invalidf("after",
				"The `after` parameter must be the id of an item: the pagination cursor is invalid.")
		}
		q.Del("after")
	}
	p, err := c.Page(20)
	p.After = after
	return p, err
}

func (a *API) listWebhookEvents(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[webhookEventItem], error) {
	id, _, err := historyIDs(c)
	if err != nil {
		return wire.List[webhookEventItem]{}, err
	}
	state := webhooks.State(c.Query().Get("status"))
	p, err := forwardPage(c, webhooks.MessagePrefix)
	if err != nil {
		return wire.List[webhookEventItem]{}, err
	}
	all, more, err := a.Services.Webhooks.Messages(ctx, c.TeamID, id, state, p)
	return wire.ListOf(all, more, webhookEventToItem), err
}

func (a *API) getWebhookEvent(ctx context.Context, c *wire.Call, _ wire.None) (webhookEventWire, error) {
	id, eventID, err := historyIDs(c)
	if err != nil {
		return webhookEventWire{}, err
	}
	m, err := a.Services.Webhooks.Message(ctx, c.TeamID, id, eventID)
	w := webhookEventWire{"webhook_event", m.ID, string(m.Type), wire.ISOTime(m.CreatedAt), string(m.State), nil,
		jsontext.Value(m.Payload)}
	if !m.NextAt.IsZero() {
		w.NextAttemptAt = new(wire.ISOTime(m.NextAt))
	}
	return w, err
}

func (a *API) listWebhookAttempts(ctx context.Context, c *wire.Call, _ wire.None) (
	wire.List[webhookAttemptItem], error) {
	id, eventID, err := historyIDs(c)
	if err != nil {
		return wire.List[webhookAttemptItem]{}, err
	}
	p, err := forwardPage(c, webhooks.AttemptPrefix)
	if err != nil {
		return wire.List[webhookAttemptItem]{}, err
	}
	all, more, err := a.Services.Webhooks.Attempts(ctx, c.TeamID, id, eventID, p)
	return wire.ListOf(all, more, webhookAttemptToItem), err
}

func (a *API) replayWebhookEvent(ctx context.Context, c *wire.Call, _ wire.None) (ref, error) {
	id, eventID, err := historyIDs(c)
	if err != nil {
		return ref{}, err
	}
	return ref{"webhook_event", eventID}, a.Services.Webhooks.Replay(ctx, c.TeamID, id, eventID)
}
