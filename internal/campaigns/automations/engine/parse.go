package engine

import (
	"fmt"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/lib/fault"
)

// readers contains, for each step type, the function that parses the step's config.
var readers = map[Type]func(jsonread.Object) (config, error){
	Trigger:       readTrigger,
	SendEmail:     readEmail,
	Delay:         readDelay,
	WaitForEvent:  readWaitForEvent,
	WaitUntil:     readWaitUntil,
	Condition:     readCondition,
	Split:         readSplit,
	ContactUpdate: readContactUpdate,
	ContactDelete: func(jsonread.Object) (config, error) { return contactDelete{}, nil },
	AddToSegment:  readAddToSegment,
	Webhook:       readWebhook,
}

// types contains the step types in the order in which error messages list them.
var types = []Type{Trigger, SendEmail, Delay, WaitForEvent, WaitUntil, Condition, Split, ContactUpdate, ContactDelete,
	AddToSegment, Webhook}

// Parse parses the JSON lists of steps and connections from a request or a stored version. Parse performs every check
// that does not depend on the team's data, and ignores unknown members. Parse returns only Invalid and Missing faults.
func Parse(steps, connections []byte) (*Graph, error) {
	if err := checkSize(steps, connections); err != nil {
		return nil, err
	}
	g := &Graph{index: map[string]int{}, next: map[exit]string{}, waitNames: map[string]struct{}{}}
	if err := g.readSteps(steps); err != nil {
		return nil, err
	}
	if err := g.readConnections(connections); err != nil {
		return nil, err
	}
	if err := g.check(); err != nil {
		return nil, err
	}
	// The size of the encoded graph is also checked, because the encoded graph is stored and parsed again later, and may
	// be longer than the input.
	if err := checkSize(g.StepsJSON(), g.ConnectionsJSON()); err != nil {
		return nil, err
	}
	return g, nil
}

func checkSize(steps, connections []byte) error {
	if n := len(steps) + len(connections); n > MaxText {
		return jsonread.Invalidf("steps", "and `connections` have %d bytes of JSON together; the limit is %d.", n, MaxText)
	}
	return nil
}

func (g *Graph) readSteps(text []byte) error {
	if len(text) == 0 || jsontext.Value(text).Kind() == jsontext.KindNull {
		return fault.MissingField("steps")
	}
	items, err := jsonread.List("steps", text)
	if err != nil {
		return err
	}
	if len(items) == 0 || len(items) > MaxSteps {
		return jsonread.Invalidf("steps", "has %d steps; an automation has 1 to %d.", len(items), MaxSteps)
	}
	for i, item := range items {
		s, err := readStep(fmt.Sprintf("steps[%d]", i), item)
		if err != nil {
			return err
		}
		if before, ok := g.index[s.Key]; ok {
			path := fmt.Sprintf("steps[%d].key", i)
			return withStep(s.Key, jsonread.Invalidf(path, "is that of `steps[%d]` too. Give each step a key of its own.",
				before))
		}
		g.index[s.Key] = i
		g.Steps = append(g.Steps, s)
	}
	return nil
}

func configPath(i int) string { return fmt.Sprintf("steps[%d].config", i) }

func readStep(path string, text jsontext.Value) (s Step, err error) {
	o, err := jsonread.ParseObject(path, text)
	if err != nil {
		return s, err
	}
	if err := o.Renamed("ref", "key"); err != nil {
		return s, err
	}
	if s.Key, err = o.Required("key", MaxKey); err != nil {
		return s, err
	}
	if strings.TrimSpace(s.Key) != s.Key || strings.Contains(s.Key, "`") {
		return s, jsonread.Invalidf(o.At("key"), "must not begin or end with spaces, or contain backticks.")
	}
	kind, err := o.Required("type", MaxKey)
	if err != nil {
		return s, withStep(s.Key, err)
	}
	s.Type = Type(kind)
	read, ok := readers[s.Type]
	if !ok {
		return s, withStep(s.Key, jsonread.Invalidf(o.At("type"), "is %s, which is no type of step. Use one of `%s`.",
			jsonread.Quote(kind), strings.Join(texts(types), "`, `")))
	}
	c := jsonread.Object{Path: o.At("config"), Members: map[string]jsontext.Value{}}
	if s.Type != ContactDelete || o.Has("config") {
		if c, err = o.Object("config"); err != nil {
			return s, withStep(s.Key, err)
		}
	}
	s.config, err = read(c)
	return s, withStep(s.Key, err)
}

func texts(all []Type) []string {
	out := make([]string, len(all))
	for i, t := range all {
		out[i] = string(t)
	}
	return out
}

func (g *Graph) readConnections(text []byte) error {
	if len(text) == 0 || jsontext.Value(text).Kind() == jsontext.KindNull {
		return fault.MissingField("connections")
	}
	items, err := jsonread.List("connections", text)
	if err != nil {
		return err
	}
	for i, item := range items {
		c, err := g.readConnection(fmt.Sprintf("connections[%d]", i), item)
		if err != nil {
			return err
		}
		g.Connections = append(g.Connections, c)
	}
	return nil
}

// readConnection parses a connection and checks that its type and its end are allowed.
func (g *Graph) readConnection(path string, text jsontext.Value) (c Connection, err error) {
	o, err := jsonread.ParseObject(path, text)
	if err != nil {
		return c, err
	}
	if c.From, c.To, err = g.readEnds(o); err != nil {
		return c, err
	}
	if c.Type, err = o.Optional("type", MaxKey); err != nil {
		return c, withStep(c.From, err)
	}
	from := g.step(c.From)
	exits := from.config.exits()
	if c.Type == "" {
		c.Type = Default
	}
	if !slices.Contains(exits, c.Type) {
		return c, withStep(c.From, jsonread.Invalidf(o.At("type"), "is %s, but from a step of the type `%s` lead "+
			"connections of the types `%s`.", jsonread.Quote(c.Type), from.Type, strings.Join(exits, "`, `")))
	}
	if g.step(c.To).Type == Trigger {
		return c, withStep(c.To,
			jsonread.Invalidf(o.At("to"), "names a trigger, where runs begin. Lead to the step after it."))
	}
	at := exit{c.From, c.Type}
	if to, ok := g.next[at]; ok {
		return c, withStep(c.From, jsonread.Invalidf(path, "is a second connection of the type `%s`, to `%s` as well as to "+
			"`%s`. Keep one.", c.Type, c.To, to))
	}
	g.next[at] = c.To
	return c, nil
}

// readEnds parses the keys of the two steps at the ends of a connection. If one key is wrong, the error names the step
// at the other end.
func (g *Graph) readEnds(o jsonread.Object) (from, to string, err error) {
	from, err = g.readEnd(o, "from")
	if err != nil {
		if to, toErr := g.readEnd(o, "to"); toErr == nil {
			err = withStep(to, err)
		}
		return from, to, err
	}
	if to, err = g.readEnd(o, "to"); err != nil {
		err = withStep(from, err)
	}
	return from, to, err
}

func (g *Graph) readEnd(o jsonread.Object, name string) (string, error) {
	key, err := o.Required(name, MaxKey)
	if err == nil && g.step(key) == nil {
		err = jsonread.Invalidf(o.At(name), "is %s, but no step has this key.", jsonread.Quote(key))
	}
	return key, err
}

// StepsJSON returns the steps as JSON that Parse would parse into the same steps. Durations are written in words, such
// as "1 day".
func (g *Graph) StepsJSON() []byte {
	type step struct {
		Key    string `json:"key"`
		Type   Type   `json:"type"`
		Config any    `json:"config"`
	}
	all := []step{}
	for _, s := range g.Steps {
		all = append(all, step{s.Key, s.Type, s.config.jsonValue()})
	}
	return encode(all)
}

// ConnectionsJSON returns the connections as JSON, each with its type.
func (g *Graph) ConnectionsJSON() []byte {
	return encode(append([]Connection{}, g.Connections...))
}

// encode returns a value as JSON, with a deterministic order of members. A value that cannot be encoded would cause a
// panic, but all values come from Parse or were decoded from JSON.
func encode(v any) []byte {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		panic("engine: encode a decoded value: " + err.Error())
	}
	return text
}
