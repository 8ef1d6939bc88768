package api

import (
	"cmp"
	"context"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/page"
)

type createKeyIn struct {
	Name       string `json:"name" doc:"What people call the key; at most 50 characters." maxLength:"50"`
	Permission string `json:"permission,omitzero" doc:"What it may do." enum:"full_access,sending_access" default:"full_access"`
	DomainID   string `json:"domain_id,omitzero" doc:"With sending_access: the only domain that it may send from."`
}

type keyCreated struct {
	ID    string `json:"id"`
	Token string `json:"token" doc:"Shown this once."`
}

type keyWire struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	CreatedAt  dbTime `json:"created_at"`
	LastUsedAt dbTime `json:"last_used_at" nullable:"true" doc:"Null before the first use."`
}

type renameKeyIn struct {
	Name       string    `json:"name" maxLength:"50"`
	Permission elsewhere `json:"permission,omitzero" hidden:"true"`
	DomainID   elsewhere `json:"domain_id,omitzero" hidden:"true"`
}

func keyToWire(k teams.Key) keyWire {
	return keyWire{k.ID, k.Name, dbTime(k.CreatedAt), dbTime(k.LastUsedAt)}
}

func (a *API) createKey(ctx context.Context, c *Call, in createKeyIn) (keyCreated, error) {
	k, token, err := a.Services.Teams.CreateKey(ctx, c.Actor, teams.NewKey{Name: in.Name,
		Permission: teams.Permission(in.Permission), DomainID: in.DomainID})
	return keyCreated{k.ID, token}, err
}

func (a *API) listKeys(ctx context.Context, c *Call, _ none) (list[keyWire], error) {
	p, err := c.Page(0)
	if err != nil {
		return list[keyWire]{}, err
	}
	read := func(p page.Page) ([]teams.Key, bool, error) { return a.Services.Teams.ListKeys(ctx, c.TeamID, p) }
	return wholeList(p, read, func(k teams.Key) string { return k.ID }, keyToWire)
}

func (a *API) renameKey(ctx context.Context, c *Call, in renameKeyIn) (ref, error) {
	id, err := c.ID("api_key_id")
	if err != nil {
		return ref{}, err
	}
	const instead = "Create another key and delete this one."
	if err := cmp.Or(in.Permission.refuse("permission", instead), in.DomainID.refuse("domain_id", instead)); err != nil {
		return ref{}, err
	}
	return ref{"api_key", id}, a.Services.Teams.RenameKey(ctx, c.TeamID, id, in.Name)
}

func (a *API) deleteKey(ctx context.Context, c *Call, _ none) (gone, error) {
	id, err := c.ID("api_key_id")
	if err != nil {
		return gone{}, err
	}
	return gone{"api_key", id, true}, a.Services.Teams.DeleteKey(ctx, c.TeamID, id)
}
