package api

import (
	"cmp"
	"context"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/platform/page"
)

type createKeyIn struct {
	Name       string `json:"name" doc:"The display name of the key; at most 50 characters." maxLength:"50"`
	Permission string `json:"permission,omitzero" doc:"The rights of the key." enum:"full_access,sending_access" default:"full_access"`
	DomainID   string `json:"domain_id,omitzero" doc:"With sending_access: the only domain that the key may send from."`
}

type keyCreated struct {
	ID    string `json:"id"`
	Token string `json:"token" doc:"The token is shown only in this response."`
}

type keyWire struct {
	ID         string      `json:"id"`
	Name       string      `json:"name"`
	CreatedAt  wire.DBTime `json:"created_at"`
	LastUsedAt wire.DBTime `json:"last_used_at" nullable:"true" doc:"Null if the key was never used."`
}

type renameKeyIn struct {
	Name       string        `json:"name" maxLength:"50"`
	Permission wire.ReadOnly `json:"permission,omitzero" hidden:"true"`
	DomainID   wire.ReadOnly `json:"domain_id,omitzero" hidden:"true"`
}

func keyToWire(k teams.Key) keyWire {
	return keyWire{k.ID, k.Name, wire.DBTime(k.CreatedAt), wire.DBTime(k.LastUsedAt)}
}

func (a *API) createKey(ctx context.Context, c *wire.Call, in createKeyIn) (keyCreated, error) {
	k, token, err := a.Services.Teams.CreateKey(ctx, c.Actor, teams.NewKey{Name: in.Name,
		Permission: teams.Permission(in.Permission), DomainID: in.DomainID})
	return keyCreated{k.ID, token}, err
}

func (a *API) listKeys(ctx context.Context, c *wire.Call, _ wire.None) (wire.List[keyWire], error) {
	p, err := c.Page(0)
	if err != nil {
		return wire.List[keyWire]{}, err
	}
	read := func(p page.Page) ([]teams.Key, bool, error) { return a.Services.Teams.ListKeys(ctx, c.TeamID, p) }
	return wire.FullList(p, read, func(k teams.Key) string { return k.ID }, keyToWire)
}

func (a *API) renameKey(ctx context.Context, c *wire.Call, in renameKeyIn) (ref, error) {
	id, err := c.ID("api_key_id")
	if err != nil {
		return ref{}, err
	}
	const instead = "Create another key and delete this one."
	if err := cmp.Or(in.Permission.Refuse("permission", instead), in.DomainID.Refuse("domain_id", instead)); err != nil {
		return ref{}, err
	}
	return ref{"api_key", id}, a.Services.Teams.RenameKey(ctx, c.TeamID, id, in.Name)
}

func (a *API) deleteKey(ctx context.Context, c *wire.Call, _ wire.None) (gone, error) {
	id, err := c.ID("api_key_id")
	if err != nil {
		return gone{}, err
	}
	return gone{"api_key", id, true}, a.Services.Teams.DeleteKey(ctx, c.TeamID, id)
}
