package apply

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"

	"github.com/postrider/postrider/client"
	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/lib/fault"
)

// segmentSpec is a segment in a file.
type segmentSpec struct {
	Filter any `toml:"filter"` // a table, or a text with JSON; nil if contacts are added one by one

	text string // the filter as JSON with names of topics and segments; "" for none
}

// named matches the name of a topic or a segment in a filter, such as ${topics.News}. The name is part of a JSON string
// and may have escapes ([unescape]).
var named = regexp.MustCompile(`\$\{(topics|segments)\.([^}]+)\}`)

// someID replaces the ids of resources that do not exist yet, so that a filter can be checked.
const someID = "00000000-0000-7000-8000-000000000000"

func (s *segmentSpec) read(name, _ string) (string, []error) {
	d := segments.Definition{Name: name}
	all := faults(d.Check())
	switch f := s.Filter.(type) {
	case nil:
		return name, all
	case string:
		s.text = f
	case map[string]any:
		text, err := json.Marshal(f)
		if err != nil {
			return name, append(all, fault.Invalidf("filter", "The `filter` field cannot be written as JSON: %v.", err))
		}
		s.text = string(text) // names in it may have escapes
	default:
		return name, append(all, fault.Invalidf("filter", "The `filter` field must be a table or a text with JSON."))
	}
	_, err := filter.Parse([]byte(named.ReplaceAllString(s.text, someID)))
	return name, append(all, faults(err)...)
}

func (s *segmentSpec) references() (all []reference) {
	for _, m := range named.FindAllStringSubmatch(s.text, -1) {
		all = append(all, reference{"filter", m[1], unescape(m[2])})
	}
	return all
}

// unescape returns a part of a JSON string without its escapes. A text that is not part of one stays as it is, so that
// the error about it shows what the file says.
func unescape(part string) string {
	var s string
	if json.Unmarshal([]byte(`"`+part+`"`), &s) != nil {
		return part
	}
	return s
}

// resolve returns the filter with ids in the place of names. If a resource does not exist yet, complete is false.
func (s *segmentSpec) resolve(t *team) (text string, complete bool) {
	complete = true
	text = named.ReplaceAllStringFunc(s.text, func(name string) string {
		m := named.FindStringSubmatch(name)
		id, ok := t.idOf(m[1], unescape(m[2]))
		if !ok {
			complete = false
			return name
		}
		return id
	})
	return text, complete
}

// normal returns a filter in the form in which the API stores it.
func normal(text string) (string, error) {
	rule, err := filter.Parse([]byte(text))
	if err != nil {
		return "", err
	}
	stored, err := rule.MarshalJSON()
	return string(stored), err
}

func (s *segmentSpec) differences(ctx context.Context, t *team, id string) ([]Difference, error) {
	g, err := t.api.Segments.Get(ctx, id)
	if err != nil || s.text == "" {
		return nil, err
	}
	if g.Filter == nil {
		return []Difference{{Field: "filter", From: nil, To: json.RawMessage(s.text), fixed: true}}, nil
	}
	have, err := normalOf(g.Filter)
	if err != nil {
		return nil, fmt.Errorf("the filter of the segment: %w", err)
	}
	want, complete := s.resolve(t)
	if complete {
		if want, err = normal(want); err != nil {
			return nil, fmt.Errorf("the filter of the file: %w", err)
		}
		if want == have {
			return nil, nil
		}
	}
	return []Difference{{Field: "filter", From: json.RawMessage(have), To: json.RawMessage(want)}}, nil
}

// normalOf is normal for a filter of a response.
func normalOf(v map[string]any) (string, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return "", err
	}
	return normal(string(text))
}

// filter returns the filter for a request.
func (s *segmentSpec) filter(t *team) (v map[string]any, err error) {
	text, _ := s.resolve(t)
	err = json.Unmarshal([]byte(text), &v)
	return v, err
}

func (s *segmentSpec) create(ctx context.Context, t *team, name string, options ...client.RequestOption) (made, error) {
	in := client.CreateSegment{Name: name}
	if s.text != "" {
		var err error
		if in.Filter, err = s.filter(t); err != nil {
			return made{}, err
		}
	}
	g, err := t.api.Segments.Create(ctx, in, options...)
	if err != nil {
		return made{}, err
	}
	return made{id: g.ID}, nil
}

func (s *segmentSpec) update(ctx context.Context, t *team, id, name string, changes []Difference) error {
	in := client.UpdateSegment{Name: newName(changes, name)}
	if has(changes, "filter") {
		f, err := s.filter(t)
		if err != nil {
			return err
		}
		in.Filter = client.Set(f)
	}
	_, err := t.api.Segments.Update(ctx, id, in)
	return err
}
