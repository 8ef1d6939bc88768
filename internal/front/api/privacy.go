package api

import (
	"context"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/outbound/privacy"
	"github.com/postrider/postrider/internal/platform/audit"
)

type eraseIn struct {
	Suppressions bool `json:"suppressions,omitzero" doc:"Whether to erase suppressions and unsubscriptions too. The address can then receive email again."`
	DryRun       bool `json:"dry_run,omitzero" doc:"Whether to only count what would be erased."`
}

type erasureWire struct {
	Object string `json:"object"`
	ErasureItem
}

// ErasureItem represents an erasure in a list.
type ErasureItem struct {
	ID           string        `json:"id"`
	ContactID    *string       `json:"contact_id" doc:"Null if no contact had the address."`
	Status       string        `json:"status" enum:"queued,in_progress,completed"`
	Suppressions bool          `json:"suppressions"`
	DryRun       bool          `json:"dry_run"`
	Found        []erasurePart `json:"found" doc:"The data that was found so far."`
	CreatedAt    wire.DBTime   `json:"created_at"`
	CompletedAt  wire.DBTime   `json:"completed_at" nullable:"true"`
}

type erasurePart struct {
	In    string  `json:"in" doc:"The kind of data that was searched."`
	What  string  `json:"what"`
	Count int     `json:"count"`
	Left  *string `json:"left" doc:"Null if the data was erased. soon: the data can be erased in a few minutes. later: the emails can be erased once they are delivered. kept: the data is erased only if suppressions is true. always: an erasure does not change the data, and what says why."`
}

func erasureToItem(e privacy.Erasure) ErasureItem {
	found := []erasurePart{}
	for _, p := range e.Report {
		for _, c := range p.Found {
			found = append(found, erasurePart{p.Name, c.Kind, c.N, orNull(string(c.Left))})
		}
	}
	return ErasureItem{e.ID, orNull(e.ContactID), string(e.State), e.Refusals, e.DryRun, found, wire.DBTime(e.CreatedAt),
		wire.DBTime(e.CompletedAt)}
}

func (a *API) eraseContact(ctx context.Context, c *wire.Call, in eraseIn) (erasureWire, error) {
	c.HideAddress(c.Param("contact"))
	for _, s := range []teams.Scope{teams.EmailsWrite, teams.SuppressionsWrite} {
		if err := c.Require(s); err != nil && (s == teams.EmailsWrite || in.Suppressions) {
			return erasureWire{}, err
		}
	}
	if in.DryRun {
		audit.Detail(ctx, "dry run: nothing was erased")
	}
	e, err := a.Services.Privacy.Erase(ctx, c.TeamID, c.Param("contact"), privacy.Options{Refusals: in.Suppressions,
		DryRun: in.DryRun})
	return erasureWire{"contact_erasure", erasureToItem(e)}, err
}

func (a *API) getErasure(ctx context.Context, c *wire.Call, _ wire.None) (erasureWire, error) {
	erasureID, err := c.ID("erasure_id")
	if err != nil {
		return erasureWire{}, err
	}
	e, err := a.Services.Privacy.Get(ctx, c.TeamID, erasureID)
	return erasureWire{"contact_erasure", erasureToItem(e)}, err
}

func (a *API) listErasures(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[ErasureItem], error) {
	p, err := c.Page(20)
	if err != nil {
		return wire.List[ErasureItem]{}, err
	}
	all, more, err := a.Services.Privacy.List(ctx, c.TeamID, p)
	return wire.ListOf(all, more, erasureToItem), err
}

// exportContact streams all data that is stored about an address. The actor needs the scopes for all exported kinds of
// data.
func (a *API) exportContact(ctx context.Context, c *wire.Call) (wire.Stream, error) {
	for _, s := range exportedKinds {
		if err := c.Require(s); err != nil {
			return wire.Stream{}, err
		}
	}
	return wire.Stream{MediaType: wire.MediaJSON + "; charset=utf-8", FileName: "contact.json",
		Parts: a.Services.Privacy.Document(ctx, c.TeamID, c.Param("contact"))}, nil
}
