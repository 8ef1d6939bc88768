package api

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/explain"
)

type eventItem struct {
	ID        string         `json:"id"`
	Type      string         `json:"type" doc:"The type without \"email.\"; unknown_event_N if a newer release recorded it."`
	Recipient *string        `json:"recipient" doc:"The recipient of the event; null if the event concerns the whole email."`
	Data      jsontext.Value `json:"data" doc:"The details of the event, as in webhooks; null if there are none."`
	CreatedAt wire.DBTime    `json:"created_at"`
}

func eventToItem(e events.Entry) eventItem {
	w := eventItem{e.ID, e.Type, orNull(e.Recipient), jsontext.Value("null"), wire.DBTime(e.At)}
	if e.Data != "" {
		w.Data = jsontext.Value(e.Data)
	}
	return w
}

// listEvents lists the events in an email's timeline, oldest first. If the request does not set a limit, listEvents
// returns all events, unless there are too many opens and clicks for one response.
func (a *API) listEvents(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[eventItem], error) {
	id, err := c.ID("email_id")
	if err != nil {
		return wire.List[eventItem]{}, err
	}
	p, err := c.Page(0)
	if err != nil {
		return wire.List[eventItem]{}, err
	}
	if err := a.Services.Emails.Exists(ctx, c.TeamID, id); err != nil {
		return wire.List[eventItem]{}, err
	}
	all, more, err := a.Services.Emails.Timeline(ctx, c.TeamID, id, p)
	return wire.ListOf(all, more, eventToItem), err
}

type attemptItem struct {
	ID           string      `json:"id"`
	Destination  string      `json:"destination"`
	Recipients   []string    `json:"recipients"`
	Host         *string     `json:"host"`
	TLS          *string     `json:"tls" doc:"The TLS version, the cipher and whether the certificate was verified; null if the connection was not encrypted."`
	Outcome      string      `json:"outcome" enum:"delivered,delayed,bounced,mixed,unknown"`
	Reply        string      `json:"reply" doc:"The SMTP reply that decided the outcome."`
	Conversation string      `json:"conversation"`
	StartedAt    wire.DBTime `json:"started_at"`
	DurationMS   float64     `json:"duration_ms"`
	NextAt       wire.DBTime `json:"next_at" nullable:"true" doc:"The time of the next attempt; null if there is none."`
}

func attemptToItem(t events.StoredAttempt) attemptItem {
	return attemptItem{t.ID, t.Destination, orEmpty(t.Recipients), orNull(t.Host), orNull(t.TLS), t.Outcome, t.Reply,
		t.Conversation,
		wire.DBTime(t.StartedAt), float64(t.Duration.Microseconds()) / 1000, wire.DBTime(t.NextAt)}
}

// listAttempts lists an email's delivery attempts, oldest first. If the request does not set a limit, the response
// contains all attempts, unless there are too many for one response.
func (a *API) listAttempts(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[attemptItem], error) {
	id, err := c.ID("email_id")
	if err != nil {
		return wire.List[attemptItem]{}, err
	}
	p, err := c.Page(0)
	if err != nil {
		return wire.List[attemptItem]{}, err
	}
	if err := a.Services.Emails.Exists(ctx, c.TeamID, id); err != nil {
		return wire.List[attemptItem]{}, err
	}
	all, more, err := a.Services.Emails.Attempts(ctx, c.TeamID, id, p)
	return wire.ListOf(all, more, attemptToItem), err
}

// emailExplanationWire is the answer of package explain, whose fields are those of the response.
type emailExplanationWire explain.Answer

// explainEmail explains an email's delivery from what was recorded.
func (a *API) explainEmail(ctx context.Context, c *wire.Call, _ wire.None) (emailExplanationWire, error) {
	id, err := c.ID("email_id")
	if err != nil {
		return emailExplanationWire{}, err
	}
	answer, err := a.Services.Explanations.Explain(ctx, c.Actor, id)
	return emailExplanationWire(answer), err
}
