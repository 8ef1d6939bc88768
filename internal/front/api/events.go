package api

import (
	"context"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/campaigns/customevents"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/sending/emails"
)

// eventSchema is a custom event's schema in a request.
type eventSchema = wire.Object[string, maxEventFields]

func schemaOf(in eventSchema) customevents.Schema {
	if in == nil {
		return nil
	}
	schema := customevents.Schema{}
	for name, t := range in {
		schema[name] = customevents.Type(t)
	}
	return schema
}

type createEventIn struct {
	Name   string      `json:"name" doc:"The name that senders and automations use. It must not be a UUID or begin with the prefix of a system event." maxLength:"255" example:"user.created"`
	Schema eventSchema `json:"schema,omitzero" doc:"The types of the payload's fields by name: string, number, boolean or date."`
}

type updateEventIn struct {
	Schema wire.Optional[eventSchema] `json:"schema" doc:"Replaces the schema; null removes it."`
}

type sendEventIn struct {
	Event     string         `json:"event" doc:"The name of the event, which need not be defined." maxLength:"255" example:"user.created"`
	ContactID string         `json:"contact_id,omitzero" doc:"The contact that the event concerns. Give either contact_id or email." format:"uuid"`
	Email     string         `json:"email,omitzero" doc:"The address of the person that the event concerns, who need not be a contact. Give either email or contact_id."`
	Payload   jsontext.Value `json:"payload,omitzero" doc:"An object of at most 32 KB. Fields that the schema defines must have the defined type or be null or absent."`
}

// CustomEventItem represents a custom event in a list. CustomEventItem is exported because Huma skips the fields
// of unexported embedded types.
type CustomEventItem struct {
	ID        string             `json:"id"`
	Name      string             `json:"name"`
	Schema    *map[string]string `json:"schema" doc:"Null if the event has no schema."`
	CreatedAt wire.DBTime        `json:"created_at"`
	UpdatedAt wire.DBTime        `json:"updated_at"`
}

type customEventWire struct {
	Object string `json:"object"`
	CustomEventItem
}

type eventSent struct {
	Object string `json:"object"`
	Event  string `json:"event"`
}

func definitionToItem(d customevents.Definition) CustomEventItem {
	w := CustomEventItem{ID: d.ID, Name: d.Name, CreatedAt: wire.DBTime(d.CreatedAt), UpdatedAt: wire.DBTime(d.UpdatedAt)}
	if d.Schema != nil {
		types := map[string]string{}
		for name, t := range d.Schema {
			types[name] = string(t)
		}
		w.Schema = &types
	}
	return w
}

func (a *API) createEvent(ctx context.Context, c *wire.Call, in createEventIn) (ref, error) {
	d, err := a.Services.Events.Create(ctx, c.TeamID, in.Name, schemaOf(in.Schema))
	return ref{"event", d.ID}, err
}

func (a *API) listCustomEvents(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[CustomEventItem], error) {
	p, err := c.Page(20)
	if err != nil {
		return wire.List[CustomEventItem]{}, err
	}
	all, more, err := a.Services.Events.List(ctx, c.TeamID, p)
	return wire.ListOf(all, more, definitionToItem), err
}

func (a *API) getEvent(ctx context.Context, c *wire.Call, _ wire.None) (customEventWire, error) {
	d, err := a.Services.Events.Get(ctx, c.TeamID, c.Param("event"))
	return customEventWire{"event", definitionToItem(d)}, err
}

func (a *API) updateEvent(ctx context.Context, c *wire.Call, in updateEventIn) (ref, error) {
	if !in.Schema.Given {
		return ref{}, fault.MissingField("schema")
	}
	d, err := a.Services.Events.SetSchema(ctx, c.TeamID, c.Param("event"), schemaOf(in.Schema.OrZero()))
	return ref{"event", d.ID}, err
}

func (a *API) deleteEvent(ctx context.Context, c *wire.Call, _ wire.None) (gone, error) {
	d, err := a.Services.Events.Delete(ctx, c.TeamID, c.Param("event"))
	return gone{"event", d.ID, true}, err
}

func (a *API) sendEvent(ctx context.Context, c *wire.Call, in sendEventIn) (eventSent, error) {
	key, err := idempotency(c, "POST /events/send", func() string {
		payload := slices.Clone(in.Payload)
		payload.Canonicalize() // fails only for a payload that Send refuses
		return emails.DigestTexts(in.Event, in.ContactID, in.Email, string(payload))
	})
	if err != nil {
		return eventSent{}, err
	}
	err = a.Services.Emails.Once(ctx, c.Actor, key, func(remember func(context.Context, *db.Tx) error) error {
		return a.Services.Events.Send(ctx, c.TeamID, customevents.NewEvent{Event: in.Event, ContactID: in.ContactID,
			Address: in.Email, Payload: in.Payload, Also: remember})
	})
	return eventSent{"event", events.TrimName(in.Event)}, err
}
