package api

import (
	"context"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
)

type createSegmentIn struct {
	Name   string         `json:"name" maxLength:"255" example:"Customers"`
	Filter jsontext.Value `json:"filter,omitzero" doc:"A rule that selects the contacts of the segment, instead of adding them one by one."`
}

type updateSegmentIn struct {
	Name   *string        `json:"name,omitzero" nullable:"false" maxLength:"255"`
	Filter jsontext.Value `json:"filter,omitzero" doc:"The new filter of a segment that has a filter."`
}

// filterOf returns a filter as JSON, or "" if the filter is null or absent.
func filterOf(in jsontext.Value) string {
	if in.Kind() == 'n' {
		return ""
	}
	return string(in)
}

type segmentMade struct {
	Object string `json:"object"`
	ID     string `json:"id"`
	Name   string `json:"name"`
}

// SegmentItem represents a segment in a list. SegmentItem is exported because Huma skips the fields of unexported
// embedded types.
type SegmentItem struct {
	ID        string      `json:"id"`
	Name      string      `json:"name"`
	CreatedAt wire.DBTime `json:"created_at"`
}

func segmentToItem(g segments.Segment) SegmentItem {
	return SegmentItem{g.ID, g.Name, wire.DBTime(g.CreatedAt)}
}

type segmentWire struct {
	Object string `json:"object"`
	SegmentItem
	Filter    jsontext.Value `json:"filter" doc:"Null if contacts are added one by one."`
	Contacts  *int           `json:"contacts" doc:"The number of contacts at counted_at. Null before the first count of a large segment, and if the filter refers to something that was deleted."`
	CountedAt wire.DBTime    `json:"counted_at"`
}

func (a *API) createSegment(ctx context.Context, c *wire.Call, in createSegmentIn) (segmentMade, error) {
	g, err := a.Services.Contacts.Segments.Create(ctx, c.TeamID,
		segments.Definition{Name: in.Name, Filter: filterOf(in.Filter)})
	return segmentMade{"segment", g.ID, g.Name}, err
}

func (a *API) listSegments(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[SegmentItem], error) {
	p, err := c.Page(0)
	if err != nil {
		return wire.List[SegmentItem]{}, err
	}
	all, more, err := a.Services.Contacts.Segments.List(ctx, c.TeamID, p)
	return wire.ListOf(all, more, segmentToItem), err
}

func (a *API) getSegment(ctx context.Context, c *wire.Call, _ wire.None) (segmentWire, error) {
	id, err := c.ID("segment_id")
	if err != nil {
		return segmentWire{}, err
	}
	g, err := a.Services.Contacts.Segments.Get(ctx, c.TeamID, id)
	if err != nil {
		return segmentWire{}, err
	}
	n, err := a.Services.Contacts.CountSegment(ctx, g)
	if fault.KindOf(err) == fault.Invalid {
		err = nil
	}
	w := segmentWire{"segment", segmentToItem(g), jsontext.Value("null"), nil, wire.DBTime(n.At)}
	if !n.At.IsZero() {
		w.Contacts = &n.Contacts
	}
	if g.Filter != "" {
		w.Filter = jsontext.Value(g.Filter)
	}
	return w, err
}

func (a *API) updateSegment(ctx context.Context, c *wire.Call, in updateSegmentIn) (ref, error) {
	id, err := c.ID("segment_id")
	if err != nil {
		return ref{}, err
	}
	g, err := a.Services.Contacts.Segments.Update(ctx, c.TeamID, id,
		segments.Change{Name: in.Name, Filter: filterOf(in.Filter)})
	return ref{"segment", g.ID}, err
}

func (a *API) deleteSegment(ctx context.Context, c *wire.Call, _ wire.None) (gone, error) {
	return a.deleteSegmentAs(ctx, c, "segment")
}

// deleteSegmentAs deletes a segment. The response is the same if no segment has the ID, as clients expect (API
// reference section 13).
func (a *API) deleteSegmentAs(ctx context.Context, c *wire.Call, object string) (gone, error) {
	id, err := c.ID(object + "_id")
	if err != nil {
		return gone{}, err
	}
	err = a.Services.Contacts.Segments.Delete(ctx, c.TeamID, id)
	if fault.KindOf(err) == fault.NotFound {
		err = nil
	}
	return gone{object, id, true}, err
}

func (a *API) listSegmentContacts(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[ContactItem], error) {
	id, err := c.ID("segment_id")
	if err != nil {
		return wire.List[ContactItem]{}, err
	}
	return a.contactsIn(ctx, c, id)
}
