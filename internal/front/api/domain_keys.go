package api

import (
	"context"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/sending/domains"
)

type rotateKeysIn struct {
	Emergency bool `json:"emergency,omitzero" doc:"Whether somebody else may have a private key of the domain. The keys are then replaced and revoked as soon as possible."`
}

// dkimKeyWire is a DKIM key of a domain with its DNS record.
type dkimKeyWire struct {
	Selector  string      `json:"selector" doc:"The DKIM selector."`
	Algorithm string      `json:"algorithm" doc:"The algorithm of signatures." enum:"rsa-sha256,ed25519-sha256"`
	State     string      `json:"state" doc:"next: the key does not sign yet; publish the record. signing: the key signs. retired: the key no longer signs; keep the record. revoked: delete the record, or replace its value." enum:"next,signing,retired,revoked"`
	Name      string      `json:"name" doc:"The full name of the TXT record."`
	Value     string      `json:"value" doc:"The value of the TXT record."`
	Emergency bool        `json:"emergency" doc:"Whether the key belongs to an emergency rotation."`
	Since     wire.DBTime `json:"since" nullable:"true" doc:"When the state began; null if that is unknown."`
	SeenAt    wire.DBTime `json:"seen_at" nullable:"true" doc:"Since when all name servers have shown the record of a key in the state next; null if they do not."`
	Until     wire.DBTime `json:"until" nullable:"true" doc:"The approximate end of the state; null if that is unknown."`
	Advice    string      `json:"advice" doc:"The next step if you publish the records yourself; empty if nothing is to be done."`
}

func dkimKeyToWire(k domains.Key) dkimKeyWire {
	return dkimKeyWire{k.Selector, k.Algorithm, string(k.State), k.Name, k.Value, k.Emergency, wire.DBTime(k.Since),
		wire.DBTime(k.SeenAt), wire.DBTime(k.Until), k.Advice}
}

func dkimKeysToWire(all []domains.Key) []dkimKeyWire {
	list := []dkimKeyWire{}
	for _, k := range all {
		list = append(list, dkimKeyToWire(k))
	}
	return list
}

type rotateKeysOut struct {
	Object string        `json:"object"`
	ID     string        `json:"id" doc:"The ID of the domain."`
	Keys   []dkimKeyWire `json:"keys" doc:"The DKIM keys of the domain, including those of rotations."`
}

func (a *API) rotateKeys(ctx context.Context, c *wire.Call, in rotateKeysIn) (rotateKeysOut, error) {
	id, err := c.ID("domain_id")
	if err != nil {
		return rotateKeysOut{}, err
	}
	keys, err := a.Services.Domains.RotateKeys(ctx, c.TeamID, id, in.Emergency)
	return rotateKeysOut{Object: "domain", ID: id, Keys: dkimKeysToWire(keys)}, err
}
