package automations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/sending/content"
	"github.com/postrider/postrider/internal/sending/render"
	"github.com/postrider/postrider/internal/sending/templates"
)

// checkReferences returns an error if a graph refers to an object that the team does not have or that the step cannot
// use. If the automation is to be enabled, checkReferences also checks that the team may send from the senders of the
// emails. If a referenced object is deleted later, the steps that refer to it fail. Do not call checkReferences in a
// transaction, because it reads rows for each reference.
func (s *Service) checkReferences(ctx context.Context, teamID string, g *engine.Graph, enabled bool) error {
	if err := s.checkObjects(ctx, teamID, g); err != nil || !enabled {
		return err
	}
	for _, r := range g.References() {
		if r.Kind == engine.RefTemplate {
			if err := s.checkSender(ctx, teamID, &r); err != nil {
				return g.ReferenceError(r, err)
			}
		}
	}
	return nil
}

func (s *Service) checkObjects(ctx context.Context, teamID string, g *engine.Graph) error {
	all := g.References()
	have, err := s.propertiesAmong(ctx, teamID, all)
	if err != nil {
		return err
	}
	checked := map[string]bool{} // several steps may refer to the same object
	for _, r := range all {
		switch r.Kind {
		case engine.RefTemplate:
			err = s.checkTemplate(ctx, teamID, &r)
		case engine.RefProperty:
			err = checkProperty(have, &r)
		case engine.RefRule:
			if err := s.checkRule(ctx, teamID, g, r); err != nil {
				return err
			}
		default:
			if key := r.Kind + " " + r.ID; !checked[key] {
				checked[key] = true
				err = s.checkNamed(ctx, teamID, &r)
			}
		}
		if err != nil {
			return g.ReferenceError(r, err)
		}
	}
	return nil
}

// propertiesAmong returns the existing contact properties among those that the references name, keyed by name.
func (s *Service) propertiesAmong(ctx context.Context, teamID string, all []engine.Reference) (
	map[string]contacts.Property, error) {
	var names []string
	for _, r := range all {
		if r.Kind == engine.RefProperty && !slices.Contains(names, r.ID) {
			names = append(names, r.ID)
		}
	}
	if names == nil {
		return nil, nil
	}
	some, err := s.p.Contacts.PropertiesNamed(ctx, s.p.DB.Reader, teamID, names)
	if err != nil {
		return nil, fmt.Errorf("look for the properties that an automation names: %w", err)
	}
	have := map[string]contacts.Property{}
	for _, p := range some {
		have[p.Name] = p
	}
	return have, nil
}

func checkProperty(have map[string]contacts.Property, r *engine.Reference) error {
	p, ok := have[r.ID]
	if !ok {
		return fault.Invalidf(r.Field, "The `%s` field names the contact property %.50s, which the team does not "+
			"have. Create it first.", r.Field, r.ID)
	}
	if r.Literal == (scalar.Value{}) {
		return nil
	}
	v, ok := r.Literal.As(p.Type)
	if !ok {
		return fault.Invalidf(r.Field, "The `%s` field must be a %s, like all values of the contact property %s.",
			r.Field, p.Type, p.Name)
	}
	return v.Check(r.Field, p.Type)
}

// checkSender returns an error if the team may not send from the sender of an email step. The sender is that of the
// step or, if the step has none, that of the template. A sender whose address has placeholders is checked only in runs.
func (s *Service) checkSender(ctx context.Context, teamID string, r *engine.Reference) error {
	from := r.From
	if r.Field = strings.TrimSuffix(r.Field, "template.id") + "from"; from == "" {
		t, err := s.p.Templates.Published(ctx, teamID, r.ID)
		if err != nil {
			return fmt.Errorf("read the sender of a template: %w", err)
		}
		if from = t.Content.From(nil); from == "" {
			return fault.New(fault.Missing, r.Field, "Missing `%s` field: neither the step nor its template has a sender.",
				r.Field)
		}
	}
	return s.p.Emails.CheckSender(ctx, teamID, content.Compile(&content.Content{From: from}).From(nil))
}

// checkTemplate returns an error if a referenced template is not published, or if one of its variables would have no
// value.
func (s *Service) checkTemplate(ctx context.Context, teamID string, r *engine.Reference) error {
	t, err := s.p.Templates.Published(ctx, teamID, r.ID)
	switch {
	case fault.KindOf(err) == fault.NotFound:
		return fault.Invalidf(r.Field, "The `%s` field names no template of this team. Give the id or the alias of "+
			"one.", r.Field)
	case err != nil && !fault.Ours(err):
		return fault.Invalidf(r.Field, "The `%s` field names a template that has not been published. Publish it "+
			"first: POST /templates/{id}/publish.", r.Field).Because(err)
	case err != nil:
		return fmt.Errorf("look for the template of a step: %w", err)
	}
	prefix := strings.TrimSuffix(r.Field, "id") + "variables."
	for _, name := range r.Names {
		if templates.IsReserved(name) && !render.IsContactField(name) {
			r.Field = prefix + name
			return fault.Invalidf(r.Field, "The variable %s is reserved and cannot be given (`%s`).", name, r.Field)
		}
	}
	o := templates.Overrides{From: r.From, Subject: r.Subject}
	if r.ReplyTo != "" {
		o.ReplyTo = []string{r.ReplyTo}
	}
	if err := t.CheckOverrides(strings.TrimSuffix(r.Field, "template.id"), o, nil); err != nil {
		if f, ok := errors.AsType[*fault.Error](err); ok {
			r.Field = f.Field
		}
		return err
	}
	if key, err := t.CheckGiven(prefix, t.Convert(r.Literals)); err != nil {
		r.Field = prefix + key
		return err
	}
	key := t.MissingVariable(r.Names)
	if key == "" {
		return nil
	}
	r.Field = prefix + key
	return fault.Invalidf(r.Field, "The variable %s of the template has no fallback: give it in `%s`.", key, r.Field)
}

func (s *Service) checkRule(ctx context.Context, teamID string, g *engine.Graph, r engine.Reference) error {
	schema, err := s.p.Contacts.FilterSchema(ctx, s.p.DB.Reader, teamID, r.Rule)
	if err != nil {
		return fmt.Errorf("look up the fields of a condition: %w", err)
	}
	return g.CheckRule(r, schema)
}

// checkNamed checks a reference that is an id, a URL or an address.
func (s *Service) checkNamed(ctx context.Context, teamID string, r *engine.Reference) (err error) {
	switch r.Kind {
	case engine.RefSegment:
		var of segments.Segment
		of, err = s.p.Contacts.Segments.Get(ctx, teamID, strings.ToLower(r.ID))
		if err == nil && of.Filter != "" {
			return fault.Invalidf(r.Field, "The `%s` field names a segment with a filter, which says who is in it. "+
				"Name one without a filter.", r.Field)
		}
	case engine.RefTopic:
		_, err = s.p.Contacts.Topic(ctx, teamID, strings.ToLower(r.ID))
	case engine.RefURL:
		_, err = s.p.CheckURL(r.Field, r.ID)
	case engine.RefSender:
		return checkMailbox(r, message.ParseFrom)
	case engine.RefReplyTo:
		return checkMailbox(r, message.ParseAddress)
	}
	if fault.KindOf(err) == fault.NotFound {
		return fault.Invalidf(r.Field, "The `%s` field names no %s of this team. Create it first.", r.Field, r.Kind)
	}
	return err
}

// checkMailbox checks the address that a step gives. An address with placeholders is parsed only in runs.
func checkMailbox[T any](r *engine.Reference, parse func(string) (T, error)) error {
	if t := render.Compile(r.ID); !t.Fixed() {
		return nil
	}
	if _, err := parse(r.ID); err != nil {
		return fault.Invalidf(r.Field, "The `%s` field must be an address such as Acme <hello@acme.example>: %s",
			r.Field, err).Because(err)
	}
	return nil
}
