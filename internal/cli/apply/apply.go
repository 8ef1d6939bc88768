// Package apply makes the set-up of a team the one that a file describes: domains, forwarding rules, contact
// properties, topics, segments, templates, webhooks and API keys. It uses the API of an installation.
//
// # Steps
//
// [Load] reads a file or a folder and reports all of its problems at once. [New] reads the team and computes a plan,
// and [Plan.Apply] carries it out. The rules of the file are those of the API, because the same functions check them.
//
// # Invariants
//
// Only resources that the file names, and those that its last run named, are changed. A resource is found by the id
// that the last run noted in the state file, or else by its natural name: the name of a domain, topic, segment or API
// key, the alias of a template, the key of a property, the URL of a webhook, and the match, domain and target
// of a forwarding rule. A resource that was noted for one
// table is never found by the name of another one. Fields that the file leaves out are neither compared nor changed.
// Nothing is deleted without [Options.Prune].
//
// The state file has no secrets. It is replaced atomically after each change. Every secret of a new resource is shown,
// if necessary by a later run.
//
// # Failures
//
// An interrupted run is continued by the next one, which finds the resources that exist already. If the run was
// interrupted after an API key was created and before its token was shown, the next run replaces this key, because
// nobody can have used it. The next run shows the signing secret of a webhook or a forwarding rule in this case. A
// resource whose id is more than ten minutes older or younger than the interrupted creation belongs to somebody else. A
// creation that the API refused is forgotten. The next run also removes the temporary files of interrupted runs. Two
// runs with the same file on one machine exclude each other. Two runs on different machines make each resource once:
// creations carry idempotency keys, and of two equal webhooks or API keys the newer one is deleted again. The API
// refuses a second equal forwarding rule.
//
// # Out of scope
//
// Package apply neither sends emails nor changes contacts, broadcasts and automations.
package apply

import (
	"context"
	"fmt"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/postrider/postrider/client"
)

// Problem is something in a file that is wrong.
type Problem struct {
	File    string `json:"file"`
	Line    int    `json:"line"`  // 0 if it is not known
	Field   string `json:"field"` // such as topics.News.visibility; "" for the whole file
	Message string `json:"message"`
}

// Error returns the place and the message in one line.
func (p Problem) Error() string {
	place := p.File
	if p.Line > 0 {
		place += fmt.Sprintf(":%d", p.Line)
	}
	if p.Field != "" {
		place += ": " + p.Field
	}
	return place + ": " + p.Message
}

// Problems are all problems of a file.
type Problems []Problem

// Error returns one line for each problem.
func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i := range p {
		lines[i] = p[i].Error()
	}
	return strings.Join(lines, "\n")
}

// Action says what happens to a resource.
type Action string

// These are the actions.
const (
	Create  Action = "create"
	Update  Action = "update"
	Delete  Action = "delete"
	Replace Action = "replace" // an API key whose token nobody saw is deleted and created again
)

// Difference is a field whose value in the team differs from that in the file.
type Difference struct {
	Field string `json:"field"`
	From  any    `json:"from"`
	To    any    `json:"to"`

	fixed bool // the field cannot be changed
}

// Change is a planned change of a resource.
type Change struct {
	Action Action       `json:"action"`
	Kind   string       `json:"kind"`
	Name   string       `json:"name"`
	ID     string       `json:"id,omitempty"` // "" until the resource is created
	Fields []Difference `json:"fields,omitempty"`

	kind   *kind
	wanted *declaration // nil for Delete
}

// Secret is a token or a signing secret that the API created.
type Secret struct {
	Kind  string `json:"kind"` // api_keys or webhooks
	Name  string `json:"name"`
	Value string `json:"value"`
}

// Setup is the content of a file or a folder.
type Setup struct {
	declarations []*declaration
}

// declaration is a resource in a file.
type declaration struct {
	kind *kind
	name string
	file *file
	key  toml.Key // of its table, such as topics.News
	spec spec
}

// problem returns a problem with a field of the declaration; "" means the whole table.
func (d *declaration) problem(field, format string, args ...any) Problem {
	key := d.key
	if field != "" {
		key = append(key[:len(key):len(key)], strings.Split(field, ".")...)
	}
	return Problem{File: d.file.name, Line: d.file.line(key), Field: key.String(), Message: fmt.Sprintf(format, args...)}
}

// entry is a resource of the team.
type entry struct {
	id, name string
	unused   bool // an API key that was never used
}

// made is a created resource.
type made struct {
	id     string
	secret string // token or signing secret; "" for none
	note   string // what to do next; "" for nothing
}

// spec describes a resource in a file.
type spec interface {
	// read completes the spec after decoding, for example with the contents of files, and checks it. The faults that it
	// returns name fields of the API.
	read(name string, dir string) (normal string, faults []error)
	// references returns the resources that the spec names.
	references() []reference
	// differences compares the spec with a resource of the team.
	differences(ctx context.Context, t *team, id string) ([]Difference, error)
	create(ctx context.Context, t *team, name string, options ...client.RequestOption) (made, error)
	update(ctx context.Context, t *team, id, name string, changes []Difference) error
}

// reference is the name of a resource in a field of another one.
type reference struct{ field, kind, name string }

// team is the team whose set-up is applied.
type team struct {
	api     *client.Client
	id      string
	entries map[string][]entry // by kind
	state   *teamState
	setup   *Setup
}

// idOf returns the id of a resource by its name. If there is none, or if it is not unique, ok is false.
func (t *team) idOf(kind, name string) (id string, ok bool) {
	e, err := t.find(kind, name)
	return e.id, err == nil && e.id != ""
}

// find returns the resource with a name: the one that the last run noted, or the only one with this name. If there is
// none, the result is the zero entry.
func (t *team) find(kind, name string) (entry, error) {
	noted := t.state.of(kind)[name].ID
	var found []entry
	for _, e := range t.entries[kind] {
		if e.id == noted {
			return e, nil
		}
		if e.name == name && !t.isAnothers(kind, name, e.id) {
			found = append(found, e)
		}
	}
	switch len(found) {
	case 0:
		return entry{}, nil
	case 1:
		return found[0], nil
	}
	return entry{}, fmt.Errorf("the team has %d of this name. Rename or delete all but one", len(found))
}

// isAnothers reports whether the last run noted a resource under another name, which the set-up still has. Somebody has
// renamed such a resource since, and it will get its noted name back.
func (t *team) isAnothers(kind, name, id string) bool {
	for other, n := range t.state.of(kind) {
		if n.ID == id && other != name && t.setup.has(kind, other) {
			return true
		}
	}
	return false
}
