package api

import (
	"context"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/sending/suppressions"
)

type addSuppressionIn struct {
	Email string `json:"email" doc:"The address to suppress."`
}

type addSuppressionsIn struct {
	Emails wire.Array[string, maxSuppressions] `json:"emails" doc:"1 to 100 addresses." minItems:"1"`
}

type removeSuppressionsIn struct {
	Emails wire.Array[string, maxSuppressions] `json:"emails,omitzero" doc:"1 to 100 addresses. Give either emails or ids."`
	IDs    wire.Array[string, maxSuppressions] `json:"ids,omitzero" doc:"1 to 100 IDs. Give either ids or emails."`
}

type suppressionWire struct {
	Object string `json:"object"`
	SuppressionItem
}

// SuppressionItem represents a suppression in a list. SuppressionItem is exported because Huma skips the fields of
// unexported embedded types.
type SuppressionItem struct {
	ID        string      `json:"id"`
	Email     string      `json:"email"`
	Origin    string      `json:"origin" enum:"bounce,complaint,manual"`
	SourceID  *string     `json:"source_id" doc:"The ID of the email that caused the suppression."`
	CreatedAt wire.DBTime `json:"created_at"`
}

type suppressionsAdded struct {
	Data []ref `json:"data"`
}

type suppressionsRemoved struct {
	Data []gone `json:"data"`
}

func suppressionToItem(s suppressions.Suppression) SuppressionItem {
	return SuppressionItem{s.ID, s.Address, string(s.Origin), orNull(s.SourceID), wire.DBTime(s.CreatedAt)}
}

func (a *API) addSuppression(ctx context.Context, c *wire.Call, in addSuppressionIn) (ref, error) {
	all, err := a.Services.Suppressions.Add(ctx, c.TeamID, []string{in.Email})
	if err != nil {
		return ref{}, err
	}
	return ref{"suppression", all[0].ID}, nil
}

func (a *API) addSuppressions(ctx context.Context, c *wire.Call, in addSuppressionsIn) (suppressionsAdded, error) {
	if err := checkBatch("emails", len(in.Emails)); err != nil {
		return suppressionsAdded{}, err
	}
	all, err := a.Services.Suppressions.Add(ctx, c.TeamID, in.Emails)
	out := suppressionsAdded{Data: []ref{}}
	for _, s := range all {
		out.Data = append(out.Data, ref{"suppression", s.ID})
	}
	return out, err
}

func checkBatch(field string, n int) error {
	if n < 1 || n > suppressions.MaxBatch {
		return fault.Invalidf(field, "The `%s` field must have 1 to %d items.", field, suppressions.MaxBatch)
	}
	return nil
}

func (a *API) removeSuppressions(ctx context.Context, c *wire.Call, in removeSuppressionsIn) (
	suppressionsRemoved, error) {
	out := suppressionsRemoved{Data: []gone{}}
	if (len(in.Emails) > 0) == (len(in.IDs) > 0) {
		return out, fault.Invalidf("emails", "Give either the `emails` field or the `ids` field, with 1 to %d items.",
			suppressions.MaxBatch)
	}
	field, named := "emails", in.Emails
	if len(in.IDs) > 0 {
		field, named = "ids", in.IDs
	}
	if err := checkBatch(field, len(named)); err != nil {
		return out, err
	}
	all, err := a.Services.Suppressions.RemoveAll(ctx, c.TeamID, named)
	for _, s := range all {
		out.Data = append(out.Data, gone{"suppression", s.ID, true})
	}
	return out, err
}

func (a *API) listSuppressions(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[SuppressionItem], error) {
	p, err := c.Page(20)
	if err != nil {
		return wire.List[SuppressionItem]{}, err
	}
	origin := suppressions.Origin(c.Query().Get("origin"))
	all, more, err := a.Services.Suppressions.List(ctx, c.TeamID, origin, p)
	return wire.ListOf(all, more, suppressionToItem), err
}

func (a *API) getSuppression(ctx context.Context, c *wire.Call, _ wire.None) (suppressionWire, error) {
	s, err := a.Services.Suppressions.Get(ctx, c.TeamID, c.Param("suppression"))
	return suppressionWire{"suppression", suppressionToItem(s)}, err
}

func (a *API) removeSuppression(ctx context.Context, c *wire.Call, _ wire.None) (gone, error) {
	s, err := a.Services.Suppressions.Remove(ctx, c.TeamID, c.Param("suppression"))
	return gone{"suppression", s.ID, true}, err
}
