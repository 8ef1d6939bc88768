package apply

import (
	"context"
	"path/filepath"
	"slices"

	"github.com/postrider/postrider/client"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/sending/templates"
)

// templateSpec is a template in a file. Its natural name is its alias.
type templateSpec struct {
	Name      *string         `toml:"name"` // the alias if absent
	From      *string         `toml:"from"`
	Subject   *string         `toml:"subject"`
	ReplyTo   *[]string       `toml:"reply_to"`
	HTML      *string         `toml:"html"`
	HTMLFile  string          `toml:"html_file"` // relative to the folder of the file
	Text      *string         `toml:"text"`
	TextFile  string          `toml:"text_file"`
	Variables *[]variableSpec `toml:"variables"`
	Publish   *bool           `toml:"publish"` // true if absent
}

type variableSpec struct {
	Key           string `toml:"key" json:"key"`
	Type          string `toml:"type" json:"type"`
	FallbackValue any    `toml:"fallback_value" json:"fallback_value"`
}

func (s *templateSpec) read(name, dir string) (string, []error) {
	var all []error
	for _, from := range []struct {
		field, file string
		text        **string
	}{{"html", s.HTMLFile, &s.HTML}, {"text", s.TextFile, &s.Text}} {
		switch {
		case from.file == "":
		case *from.text != nil:
			all = append(all, fault.Invalidf(from.field+"_file", "Give either `%s` or `%s_file`.", from.field, from.field))
		default:
			path := from.file
			if !filepath.IsAbs(path) {
				path = filepath.Join(dir, path)
			}
			text, err := readLimited(path)
			if err != nil {
				all = append(all, fault.Invalidf(from.field+"_file", "The file cannot be read: %v.", err))
				text = "-" // so that its absence is not a second problem
			}
			*from.text = &text
		}
	}
	if s.Name == nil {
		s.Name = &name
	}
	if name == "" {
		all = append(all, fault.MissingField("alias"))
	}
	n := templates.NewTemplate{Name: *s.Name, Alias: name, From: deref(s.From), Subject: deref(s.Subject),
		ReplyTo: deref(s.ReplyTo), HTML: s.HTML, Text: s.Text}
	for _, v := range deref(s.Variables) {
		n.Variables = append(n.Variables, templates.Declaration{Key: v.Key, Type: v.Type,
			Fallback: scalarOf(v.FallbackValue)})
	}
	err := n.Check()
	if err == nil && s.published() {
		err = n.CheckPublish()
	}
	return name, append(all, faults(err)...)
}

func (s *templateSpec) published() bool { return s.Publish == nil || *s.Publish }

func (s *templateSpec) references() []reference { return nil }

func (s *templateSpec) differences(ctx context.Context, t *team, id string) ([]Difference, error) {
	p, err := t.api.Templates.Get(ctx, id)
	if err != nil {
		return nil, err
	}
	list := compare(nil, "title", s.Name, p.Name)
	list = compare(list, "from", s.From, deref(p.From))
	list = compare(list, "subject", s.Subject, deref(p.Subject))
	list = compare(list, "html", s.HTML, p.HTML)
	list = compare(list, "text", s.Text, p.Text)
	if s.ReplyTo != nil && !slices.Equal(*s.ReplyTo, p.ReplyTo) {
		list = append(list, Difference{Field: "reply_to", From: p.ReplyTo, To: *s.ReplyTo})
	}
	if s.Variables != nil {
		have := []variableSpec{}
		for _, v := range p.Variables {
			have = append(have, variableSpec{v.Key, v.Type, v.FallbackValue})
		}
		same := slices.EqualFunc(*s.Variables, have, func(a, b variableSpec) bool {
			return a.Key == b.Key && a.Type == b.Type && sameScalar(a.FallbackValue, b.FallbackValue)
		})
		if !same {
			list = append(list, Difference{Field: "variables", From: have, To: *s.Variables})
		}
	}
	published := p.Status == "published" && !p.HasUnpublishedVersions
	if s.published() && (len(list) > 0 || !published) {
		list = append(list, Difference{Field: "published", From: published, To: true})
	}
	return list, nil
}

// variables returns the variables for a request.
func (s *templateSpec) variables() []client.VariableRequest {
	all := []client.VariableRequest{}
	for _, v := range deref(s.Variables) {
		all = append(all, client.VariableRequest{Key: v.Key, Type: v.Type, FallbackValue: v.FallbackValue})
	}
	return all
}

func (s *templateSpec) create(ctx context.Context, t *team, name string, options ...client.RequestOption) (made,
	error) {
	p, err := t.api.Templates.Create(ctx, client.CreateTemplate{Name: *s.Name, Alias: name, From: deref(s.From),
		Subject: deref(s.Subject), ReplyTo: deref(s.ReplyTo), HTML: deref(s.HTML), Text: s.Text, Variables: s.variables()},
		options...)
	if err == nil && s.published() {
		_, err = t.api.Templates.Publish(ctx, p.ID)
	}
	if err != nil {
		return made{}, err
	}
	return made{id: p.ID}, nil
}

func (s *templateSpec) update(ctx context.Context, t *team, id, name string, changes []Difference) error {
	in := client.UpdateTemplate{Alias: newName(changes, name), Name: set(changes, "title", s.Name),
		From: setOrRemove(changes, "from", s.From), Subject: setOrRemove(changes, "subject", s.Subject),
		HTML: set(changes, "html", s.HTML), Text: set(changes, "text", s.Text), ReplyTo: set(changes, "reply_to", s.ReplyTo)}
	if has(changes, "variables") {
		in.Variables = client.Set(s.variables())
	}
	if len(changes) > 1 || !has(changes, "published") {
		if _, err := t.api.Templates.Update(ctx, id, in); err != nil {
			return err
		}
	}
	if !s.published() {
		return nil
	}
	_, err := t.api.Templates.Publish(ctx, id)
	return err
}
