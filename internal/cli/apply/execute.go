package apply

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/client"
)

// Events are the functions that [Plan.Apply] calls.
type Events struct {
	// Done is called after each change. The note says what to do next, and is "" if there is nothing to do.
	Done func(c *Change, note string)
	// Secret gets a new secret before the next request. If it returns an error, Apply ends.
	Secret func(s Secret) error
}

// Apply makes the changes of the plan. It ends at the first error; the changes before remain, and the next run makes
// the others.
func (p *Plan) Apply(ctx context.Context, on Events) error {
	for _, d := range p.setup.ordered() {
		id, found := p.known[d]
		if c := p.changeOf(d); !found || c != nil && c.Action != Update {
			continue
		}
		n := p.team.state.of(d.kind.table)[d.name]
		if n.ID != id {
			n = noted{ID: id}
		}
		p.note(d.kind.table, d.name, n)
		if err := p.reveal(ctx, d, id, on); err != nil {
			return err
		}
	}
	p.forget()
	if err := p.state.save(); err != nil {
		return err
	}
	for i := range p.Changes {
		c := &p.Changes[i]
		note, err := p.make(ctx, c, on)
		if err != nil {
			return fmt.Errorf("%s the %s %s: %w", c.Action, c.kind.title, c.Name, err)
		}
		if err := p.state.save(); err != nil {
			return err
		}
		on.Done(c, note)
	}
	return nil
}

// reveal shows the secret of a resource if an interrupted run created the resource without showing the secret. The
// token of an API key cannot be shown: such a key is replaced, unless somebody has used it and so has seen the token.
func (p *Plan) reveal(ctx context.Context, d *declaration, id string, on Events) error {
	if !p.team.state.hasBegun(d.kind.table, d.name) {
		return nil
	}
	if d.kind.reveal != nil && p.team.state.created(d.kind.table, d.name, id) {
		value, err := d.kind.reveal(ctx, p.team.api, id, d.name)
		if err != nil {
			return fmt.Errorf("read the secret of the %s %s: %w", d.kind.title, d.name, err)
		}
		if value != "" {
			if err := on.Secret(Secret{d.kind.table, d.name, value}); err != nil {
				return err
			}
		}
	}
	p.team.state.end(d.kind.table, d.name)
	return nil
}

// changeOf returns the change of a declaration, or nil.
func (p *Plan) changeOf(d *declaration) *Change {
	for i := range p.Changes {
		if p.Changes[i].wanted == d {
			return &p.Changes[i]
		}
	}
	return nil
}

// note stores a resource in the state, under its name only.
func (p *Plan) note(kind, name string, n noted) {
	maps.DeleteFunc(p.team.state.of(kind), func(_ string, other noted) bool { return other.ID == n.ID })
	p.team.state.set(kind, name, n)
}

// forget removes resources that no longer exist from the state.
func (p *Plan) forget() {
	for kind, all := range p.team.state.Resources {
		maps.DeleteFunc(all, func(_ string, n noted) bool {
			return !slices.ContainsFunc(p.team.entries[kind], func(e entry) bool { return e.id == n.ID })
		})
	}
}

// make makes one change.
func (p *Plan) make(ctx context.Context, c *Change, on Events) (note string, err error) {
	switch c.Action {
	case Delete:
		if err := c.kind.remove(ctx, p.team.api, c.ID, c.Name); err != nil {
			return "", err
		}
		delete(p.team.state.of(c.Kind), c.Name)
		p.team.state.end(c.Kind, c.Name)
		return "", nil
	case Update:
		return "", c.wanted.spec.update(ctx, p.team, c.ID, c.Name, c.Fields)
	case Replace:
		if err := c.kind.remove(ctx, p.team.api, c.ID, c.Name); err != nil {
			return "", err
		}
		p.team.entries[c.Kind] = slices.DeleteFunc(p.team.entries[c.Kind], func(e entry) bool { return e.id == c.ID })
	}
	p.team.state.begin(c.Kind, c.Name, time.Now())
	if err := p.state.save(); err != nil {
		return "", err
	}
	m, err := p.create(ctx, c)
	if refused(c.kind, err) {
		p.team.state.end(c.Kind, c.Name)
		return "", errors.Join(err, p.state.save())
	}
	if err != nil {
		return "", err
	}
	if m.secret != "" {
		if err := on.Secret(Secret{c.Kind, c.Name, m.secret}); err != nil {
			return "", err
		}
	}
	c.ID = m.id
	p.team.entries[c.Kind] = append(p.team.entries[c.Kind], entry{id: m.id, name: c.Name})
	n := noted{ID: m.id}
	if k, ok := c.wanted.spec.(*keySpec); ok && m.secret != "" {
		n.Permission, n.Domain = k.Permission, k.Domain
	}
	p.note(c.Kind, c.Name, n)
	p.team.state.end(c.Kind, c.Name)
	return m.note, nil
}

// refused reports whether an error says that the API created no resource of a kind. Other errors leave this in doubt: a
// response without a name may be that of a proxy, and a conflict or an exceeded limit may follow a request that had its
// effect. A request to another path, such as that of a published template, comes after the creation.
func refused(k *kind, err error) bool {
	e, ok := errors.AsType[*client.Error](err)
	if !ok || e.Name == "" || e.Method != http.MethodPost ||
		!strings.HasSuffix(e.Path, "/"+strings.ReplaceAll(k.table, "_", "-")) {
		return false
	}
	switch e.Status {
	case http.StatusRequestTimeout, http.StatusConflict, http.StatusTooManyRequests:
		return false
	}
	return e.Status >= 400 && e.Status < 500
}

// create creates a resource.
func (p *Plan) create(ctx context.Context, c *Change) (made, error) {
	s := c.wanted.spec
	if c.kind.secret {
		m, err := s.create(ctx, p.team, c.Name)
		if err != nil {
			return m, err
		}
		return p.settle(ctx, c, m)
	}
	key, err := p.idempotencyKey(c)
	if err != nil {
		return made{}, err
	}
	m, err := s.create(ctx, p.team, c.Name, client.WithIdempotencyKey(key))
	if err != nil {
		return m, err
	}
	// The response may be that of an earlier request, whose resource was deleted since.
	if _, err := s.differences(ctx, p.team, m.id); client.IsNotFound(err) {
		return s.create(ctx, p.team, c.Name)
	} else if err != nil {
		return m, err
	}
	return m, nil
}

// settle deletes a new resource again if another run created one with the same name at the same time. The older one
// stays, so that all runs agree.
func (p *Plan) settle(ctx context.Context, c *Change, m made) (made, error) {
	oldest := m.id
	for e, err := range c.kind.list(ctx, p.team.api) {
		if err != nil {
			return m, err
		}
		if e.name == c.Name && e.id < oldest {
			oldest = e.id
		}
	}
	if oldest == m.id {
		return m, nil
	}
	return made{id: oldest, note: "Another run created this " + c.kind.title + " at the same time."},
		c.kind.remove(ctx, p.team.api, m.id, c.Name)
}

// idempotencyKey returns a key that two runs with the same set-up and the same team share, so that both create one
// resource.
func (p *Plan) idempotencyKey(c *Change) (string, error) {
	h := sha256.New()
	var ids []string
	for _, e := range p.team.entries[c.Kind] {
		ids = append(ids, e.id)
	}
	slices.Sort(ids)
	if err := json.NewEncoder(h).Encode([]any{p.TeamID, c.Kind, c.Name, c.wanted.spec, ids}); err != nil {
		return "", fmt.Errorf("a value of the file cannot be written as JSON: %w", err)
	}
	return "apply-" + hex.EncodeToString(h.Sum(nil)), nil
}
