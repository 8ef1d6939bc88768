package apply

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"

	"github.com/postrider/postrider/client"
)

// Options say how a set-up is applied.
type Options struct {
	API *client.Client
	// State is the path of the state file. It need not exist.
	State string
	// Prune deletes resources that the last run named and that the file no longer names.
	Prune bool
}

// Left is a resource that the last run named and that the file no longer names.
type Left struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	ID   string `json:"id"`
}

// Plan is what differs between a set-up and a team.
type Plan struct {
	TeamID  string
	Changes []Change
	Left    []Left // what Prune would delete

	setup *Setup
	team  *team
	state *state
	known map[*declaration]string // ids of the resources that exist
}

// New compares a set-up with the team of the API key. If the set-up asks for something impossible, such as another
// region for a domain, the error is of type Problems.
func New(ctx context.Context, s *Setup, o Options) (*Plan, error) {
	who, err := o.API.Team.Get(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the team: %w", err)
	}
	st, err := readState(o.State)
	if err != nil {
		return nil, err
	}
	p := &Plan{TeamID: who.ID, setup: s, state: st, known: map[*declaration]string{},
		team: &team{api: o.API, id: who.ID, entries: map[string][]entry{}, state: st.team(who.ID),
			setup: s}}
	for _, k := range kinds {
		if err := p.readKind(ctx, k); err != nil {
			return nil, err
		}
	}
	p.adopt()
	var problems Problems
	for _, d := range s.ordered() {
		change, found, err := p.compare(ctx, d)
		if err != nil {
			return nil, err
		}
		problems = append(problems, found...)
		if change != nil {
			p.Changes = append(p.Changes, *change)
		}
	}
	if len(problems) > 0 {
		return nil, problems
	}
	slices.SortStableFunc(p.Changes, func(a, b Change) int {
		return cmp.Or(cmp.Compare(slices.Index(kinds, a.kind), slices.Index(kinds, b.kind)), cmp.Compare(a.rank(), b.rank()))
	})
	p.findLeft(o.Prune)
	return p, nil
}

// rank orders the changes of a kind. A resource that gets its name back comes before others, because one of them may
// need the name that it gives up.
func (c *Change) rank() int {
	if c.Action == Update && has(c.Fields, "name") && len(c.wanted.spec.references()) == 0 {
		return 0
	}
	return 1
}

// readKind lists the resources of a kind, if the set-up or the last run has some.
func (p *Plan) readKind(ctx context.Context, k *kind) error {
	needed := len(p.team.state.of(k.table))+len(p.team.state.Begun[k.table]) > 0
	for _, d := range p.setup.declarations {
		needed = needed || d.kind == k
		for _, r := range d.spec.references() {
			needed = needed || r.kind == k.table
		}
	}
	if !needed {
		return nil
	}
	for e, err := range k.list(ctx, p.team.api) {
		if err != nil {
			return fmt.Errorf("list each %s: %w", k.title, err)
		}
		p.team.entries[k.table] = append(p.team.entries[k.table], e)
	}
	return nil
}

// adopt notes what an interrupted run has created and the set-up no longer names, so that Prune can delete it. Adopt
// forgets creations without an effect, so that Prune keeps what somebody creates under the same name later. Creations
// of secrets are remembered until their secret was shown.
func (p *Plan) adopt() {
	for kind, names := range maps.Clone(p.team.state.Begun) {
		for _, name := range slices.Clone(names) {
			if p.setup.has(kind, name) {
				continue
			}
			switch e, err := p.team.find(kind, name); {
			case err != nil:
			case !p.team.state.created(kind, name, e.id) || kind == "api_keys" && !e.unused:
				p.team.state.end(kind, name)
			default:
				p.note(kind, name, noted{ID: e.id})
				if k := kindOf(kind); k != nil && !k.secret {
					p.team.state.end(kind, name)
				}
			}
		}
	}
}

// ordered returns the declarations in the order in which they are created.
func (s *Setup) ordered() []*declaration {
	return slices.SortedStableFunc(slices.Values(s.declarations), func(a, b *declaration) int {
		return cmp.Or(cmp.Compare(slices.Index(kinds, a.kind), slices.Index(kinds, b.kind)),
			cmp.Compare(len(a.spec.references()), len(b.spec.references())), cmp.Compare(a.name, b.name))
	})
}

// has reports whether the set-up has a resource.
func (s *Setup) has(kind, name string) bool {
	return slices.ContainsFunc(s.declarations, func(d *declaration) bool { return d.kind.table == kind && d.name == name })
}

// compare returns the change that a declaration needs, or nil.
func (p *Plan) compare(ctx context.Context, d *declaration) (*Change, Problems, error) {
	var problems Problems
	for _, r := range d.spec.references() {
		if _, ok := p.team.idOf(r.kind, r.name); !ok && !p.setup.has(r.kind, r.name) {
			problems = append(problems, d.problem(r.field, "the %s %q is neither in the file nor in the team",
				kindOf(r.kind).title, r.name))
		}
	}
	e, err := p.team.find(d.kind.table, d.name)
	if err != nil {
		return nil, append(problems, d.problem("", "%v", err)), nil
	}
	c := &Change{Kind: d.kind.table, Name: d.name, ID: e.id, kind: d.kind, wanted: d}
	if e.id == "" {
		c.Action = Create
		return c, problems, nil
	}
	for other, id := range p.known {
		if other.kind == d.kind && id == e.id {
			return nil, append(problems, d.problem("", "the state file has the same %s for this table and for %s, which would "+
				"change it in turns. Remove one of the tables, or its entry in the state file", d.kind.title, other.key)), nil
		}
	}
	p.known[d] = e.id
	if d.kind.table == "api_keys" && p.team.state.created("api_keys", d.name, e.id) && e.unused {
		c.Action = Replace
		return c, problems, nil
	}
	if c.Fields, err = d.spec.differences(ctx, p.team, e.id); err != nil {
		return nil, nil, fmt.Errorf("compare the %s %s: %w", d.kind.title, d.name, err)
	}
	if e.name != d.name {
		c.Fields = append(c.Fields, Difference{Field: "name", From: e.name, To: d.name})
	}
	for _, f := range c.Fields {
		if f.fixed {
			problems = append(problems, d.problem(f.Field, "the team has %v, and the API cannot change it. Use this value, or "+
				"delete the %s before", show(f.From), d.kind.title))
		}
	}
	if len(c.Fields) == 0 {
		return nil, problems, nil
	}
	c.Action = Update
	return c, problems, nil
}

// show returns a value for a message.
func show(v any) string {
	if v == nil {
		return "none"
	}
	return fmt.Sprintf("%q", fmt.Sprint(v))
}

// findLeft finds the resources that the last run named and that the set-up does not name.
func (p *Plan) findLeft(prune bool) {
	for _, k := range slices.Backward(kinds) {
		for _, name := range slices.Sorted(maps.Keys(p.team.state.of(k.table))) {
			id := p.team.state.of(k.table)[name].ID
			used := slices.Contains(slices.Collect(maps.Values(p.known)), id)
			exists := slices.ContainsFunc(p.team.entries[k.table], func(e entry) bool { return e.id == id })
			switch {
			case used || !exists || p.setup.has(k.table, name):
			case prune:
				p.Changes = append(p.Changes, Change{Action: Delete, Kind: k.table, Name: name, ID: id, kind: k})
			default:
				p.Left = append(p.Left, Left{k.table, name, id})
			}
		}
	}
}

// ErrLocked means that another run uses the same file.
var ErrLocked = errors.New("another run of this command uses the same file; wait until it has ended")

// Lock excludes other runs with the same file or folder on this machine. The caller must call unlock.
func Lock(path string) (unlock func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("lock the set-up: %w", err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, ErrLocked
		}
		return nil, fmt.Errorf("lock the set-up: %w", err)
	}
	return func() {
		// A child process that is just being started may have a copy of the descriptor, which would keep the lock.
		syscall.Flock(int(f.Fd()), syscall.LOCK_UN)
		f.Close()
	}, nil
}
