package api

import (
	"cmp"
	"context"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
)

type createPropertyIn struct {
	Key           string      `json:"key" doc:"ASCII letters, digits and underscores. Placeholders have the form {{{KEY}}}." maxLength:"50" example:"company_name"`
	Type          string      `json:"type" enum:"string,number"`
	FallbackValue scalarValue `json:"fallback_value,omitzero" doc:"Used for contacts without a value."`
}

type updatePropertyIn struct {
	FallbackValue wire.Optional[scalarValue] `json:"fallback_value" doc:"Null removes it."`
	Key           wire.Immutable[string]     `json:"key,omitzero" hidden:"true"`
	Type          wire.Immutable[string]     `json:"type,omitzero" hidden:"true"`
}

type contactPropertyWire struct {
	Object string `json:"object"`
	ContactPropertyItem
}

// ContactPropertyItem represents a contact property in a list. ContactPropertyItem is exported because Huma skips the
// fields of unexported embedded types.
type ContactPropertyItem struct {
	ID            string      `json:"id"`
	Key           string      `json:"key"`
	Type          string      `json:"type" enum:"string,number"`
	FallbackValue scalarValue `json:"fallback_value"`
	CreatedAt     wire.DBTime `json:"created_at"`
}

func propertyToItem(p contacts.Property) ContactPropertyItem {
	return ContactPropertyItem{p.ID, p.Name, string(p.Type), scalarValue{p.Fallback}, wire.DBTime(p.CreatedAt)}
}

func (a *API) createProperty(ctx context.Context, c *wire.Call, in createPropertyIn) (ref, error) {
	p, err := a.Services.Contacts.CreateProperty(ctx, c.TeamID, contacts.NewProperty{Name: in.Key,
		Type: scalar.Type(in.Type), Fallback: in.FallbackValue.Value})
	return ref{"contact_property", p.ID}, err
}

func (a *API) listProperties(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[ContactPropertyItem], error) {
	p, err := c.Page(20)
	if err != nil {
		return wire.List[ContactPropertyItem]{}, err
	}
	all, more, err := a.Services.Contacts.Properties(ctx, c.TeamID, p)
	return wire.ListOf(all, more, propertyToItem), err
}

func (a *API) getProperty(ctx context.Context, c *wire.Call, _ wire.None) (contactPropertyWire, error) {
	id, err := c.ID("contact_property_id")
	if err != nil {
		return contactPropertyWire{}, err
	}
	p, err := a.Services.Contacts.Property(ctx, c.TeamID, id)
	return contactPropertyWire{"contact_property", propertyToItem(p)}, err
}

func (a *API) updateProperty(ctx context.Context, c *wire.Call, in updatePropertyIn) (ref, error) {
	id, err := c.ID("contact_property_id")
	if err != nil {
		return ref{}, err
	}
	if in.Key.Given() || in.Type.Given() {
		p, err := a.Services.Contacts.Property(ctx, c.TeamID, id)
		if err == nil {
			err = cmp.Or(in.Key.MustEqual("key", p.Name), in.Type.MustEqual("type", string(p.Type)))
		}
		if err != nil {
			return ref{}, err
		}
	}
	if !in.FallbackValue.Given {
		return ref{}, fault.MissingField("fallback_value")
	}
	var fallback scalar.Value
	if v := in.FallbackValue.Value; v != nil {
		fallback = v.Value
	}
	p, err := a.Services.Contacts.UpdateProperty(ctx, c.TeamID, id, fallback)
	return ref{"contact_property", p.ID}, err
}

func (a *API) deleteProperty(ctx context.Context, c *wire.Call, _ wire.None) (gone, error) {
	id, err := c.ID("contact_property_id")
	if err != nil {
		return gone{}, err
	}
	return gone{"contact_property", id, true}, a.Services.Contacts.DeleteProperty(ctx, c.TeamID, id)
}
