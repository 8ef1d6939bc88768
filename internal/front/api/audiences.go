package api

import (
	"context"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
)

// "Audience" is the former name for a segment, and an audience has the same ID as its segment. Some audience operations
// act on contacts (API reference section 13).

type createAudienceIn struct {
	Name string `json:"name" maxLength:"255" example:"Customers"`
}

type audienceWire struct {
	Object string `json:"object"`
	SegmentItem
}

func (a *API) createAudience(ctx context.Context, c *wire.Call, in createAudienceIn) (segmentMade, error) {
	g, err := a.Services.Contacts.Segments.Create(ctx, c.TeamID, segments.Definition{Name: in.Name})
	return segmentMade{"audience", g.ID, g.Name}, err
}

func (a *API) getAudience(ctx context.Context, c *wire.Call, _ wire.None) (audienceWire, error) {
	audienceID, err := c.ID("audience_id")
	if err != nil {
		return audienceWire{}, err
	}
	g, err := a.Services.Contacts.Segments.Get(ctx, c.TeamID, audienceID)
	return audienceWire{"audience", segmentToItem(g)}, err
}

func (a *API) deleteAudience(ctx context.Context, c *wire.Call, _ wire.None) (gone, error) {
	return a.deleteSegmentAs(ctx, c, "audience")
}

func (a *API) createAudienceContact(ctx context.Context, c *wire.Call, in createContactIn) (ref, error) {
	audienceID, err := c.ID("audience_id")
	if err != nil {
		return ref{}, err
	}
	if _, err := a.Services.Contacts.Segments.Get(ctx, c.TeamID, audienceID); err != nil {
		return ref{}, err // not a validation error, because the ID is in the path
	}
	in.AudienceID = audienceID
	return a.createContact(ctx, c, in)
}

func (a *API) listAudienceContacts(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[ContactItem], error) {
	audienceID, err := c.ID("audience_id")
	if err != nil {
		return wire.List[ContactItem]{}, err
	}
	return a.contactsIn(ctx, c, audienceID)
}

// audienceContact returns the contact that the path identifies, which must be in the audience that the path identifies.
func (a *API) audienceContact(ctx context.Context, c *wire.Call) (contacts.Member, error) {
	audienceID, err := c.ID("audience_id")
	if err != nil {
		return contacts.Member{}, err
	}
	return a.Services.Contacts.Member(ctx, c.TeamID, audienceID, c.Param("contact"))
}

func (a *API) getAudienceContact(ctx context.Context, c *wire.Call, _ wire.None) (contactWire, error) {
	m, err := a.audienceContact(ctx, c)
	return memberToWire(m), err
}

func (a *API) updateAudienceContact(ctx context.Context, c *wire.Call, in updateContactIn) (ref, error) {
	m, err := a.audienceContact(ctx, c)
	if err != nil {
		return ref{}, err
	}
	change, err := in.change(c.Param("contact"))
	if err != nil {
		return ref{}, err
	}
	at, err := a.Services.Contacts.Update(ctx, c.TeamID, m.ID, change)
	return ref{"contact", at.ID}, err
}

// deleteAudienceContact deletes a contact and returns the ID or address from the path. The response is the same if the
// contact does not exist, as clients expect (API reference section 12).
func (a *API) deleteAudienceContact(ctx context.Context, c *wire.Call, _ wire.None) (contactGone, error) {
	out := contactGone{Object: "contact", Contact: c.Param("contact"), Deleted: true}
	if id.Valid(out.Contact) {
		out.ID = out.Contact
	}
	m, err := a.audienceContact(ctx, c)
	if err == nil {
		out.ID = m.ID
		_, err = a.Services.Contacts.Delete(ctx, c.TeamID, m.ID)
	}
	if fault.KindOf(err) == fault.NotFound {
		err = nil
	}
	return out, err
}
