package importfrom

import (
	"cmp"
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/net/idna"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/outbound/webhooks"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/templates"
)

// domain adds a domain with new DNS records.
func (m *importer) domain(ctx context.Context, d *Domain) error {
	name := strings.ToLower(strings.TrimSuffix(d.Name, "."))
	if ascii, err := idna.Lookup.ToASCII(name); err == nil {
		name = ascii
	}
	n := domains.NewDomain{Name: d.Name, Region: d.Region, ReturnPath: d.ReturnPath, TLS: d.TLS,
		TrackingSubdomain: d.TrackingSubdomain, OpenTracking: d.OpenTracking, ClickTracking: d.ClickTracking,
		Capabilities: domains.Capabilities{Sending: &d.Sending, Receiving: &d.Receiving}}
	at, err := m.Domains.GetByName(ctx, m.o.TeamID, name)
	item := Item{Kind: Domains, Name: d.Name}
	switch {
	case err == nil:
		same := at.Sending == d.Sending && at.Receiving == d.Receiving && at.OpenTracking == d.OpenTracking &&
			at.ClickTracking == d.ClickTracking && strings.EqualFold(at.TrackingSubdomain, d.TrackingSubdomain)
		item.Outcome = m.found(at.CreatedAt, same)
	case fault.KindOf(err) != fault.NotFound:
		return err
	case m.o.DryRun:
		if err := m.Domains.Check(ctx, m.o.TeamID, n); err != nil {
			return m.refuse(Domains, d.Name, err)
		}
		item.Outcome, item.Note = Created, "its DNS records are known when it is created"
		m.st.Report.add(item)
		return nil
	default:
		if at, err = m.Domains.Create(ctx, m.o.TeamID, n); err != nil {
			return m.refuse(Domains, d.Name, err)
		}
		item.Outcome = Created
	}
	if at.Status != domains.Verified {
		item.Note = "not verified: install its DNS records, and verify it"
		for _, r := range m.Domains.Records(&at) {
			item.Records = append(item.Records, Record{r.Type, r.FQDN, r.Value, r.Priority})
		}
	}
	if item.Outcome == Differing {
		item.Note = strings.TrimSuffix("it has other settings here, and keeps them; "+item.Note, "; ")
	}
	m.st.Report.add(item)
	return nil
}

// segment creates a segment, unless the team has one with its name.
func (m *importer) segment(ctx context.Context, g *Segment) error {
	if err := m.readSegments(ctx); err != nil {
		return err
	}
	if m.st.Segments[g.ID] != "" {
		m.add(Segments, g.Name, Kept, g.Note)
		return nil
	}
	o, name, found := m.segments.matchName(oneLine(g.Name), 255)
	outcome, n := Created, segments.Definition{Name: name}
	switch {
	case found:
		outcome = m.found(o.created, true)
	case m.o.DryRun:
		if err := cmp.Or(n.Check(), segments.CheckCount(m.segments.total())); err != nil {
			return m.refuse(Segments, g.Name, err)
		}
		o.id = id.New()
	default:
		made, err := m.Contacts.Segments.Create(ctx, m.o.TeamID, n)
		if err != nil {
			return m.refuse(Segments, g.Name, err)
		}
		o = object{made.ID, made.CreatedAt, false}
	}
	if !found {
		m.segments.created(name, o)
	}
	m.st.Segments[g.ID] = o.id
	m.add(Segments, name, outcome, g.Note)
	return nil
}

// readSegments reads the team's segments once.
func (m *importer) readSegments(ctx context.Context) (err error) {
	if m.segments == nil {
		m.segments, err = newIndex(m.st.Matched, func(p page.Page) ([]segments.Segment, bool, error) {
			return m.Contacts.Segments.List(ctx, m.o.TeamID, p)
		}, func(s *segments.Segment) ([]string, object) {
			return []string{s.Name}, object{s.ID, s.CreatedAt, s.Filter != ""}
		})
	}
	return err
}

const maxTopicName, maxDescription = 50, 200 // characters

// topic creates a topic, unless the team has one with its name.
func (m *importer) topic(ctx context.Context, t *Topic) error {
	if err := m.readTopics(ctx); err != nil {
		return err
	}
	if m.st.Topics[t.ID] != "" {
		m.add(Topics, t.Name, Kept, "")
		return nil
	}
	n := contacts.NewTopic{Description: shorten(oneLine(t.Description), maxDescription), Default: t.Default,
		Visibility: contacts.Private}
	if t.Public {
		n.Visibility = contacts.Public
	}
	o, name, found := m.topics.matchName(oneLine(t.Name), maxTopicName)
	n.Name = name
	outcome, note := Created, ""
	switch {
	case found:
		same := m.defaults[o.id] == t.Default
		if outcome = m.found(o.created, same); outcome == Differing {
			note = fmt.Sprintf("its default is %s here, and %s there", m.defaults[o.id], t.Default)
		}
	case m.o.DryRun:
		if err := cmp.Or(n.Check(), contacts.CheckTopicCount(m.topics.total())); err != nil {
			return m.refuse(Topics, t.Name, err)
		}
		o.id = id.New()
	default:
		made, err := m.Contacts.CreateTopic(ctx, m.o.TeamID, n)
		if err != nil {
			return m.refuse(Topics, t.Name, err)
		}
		o = object{made.ID, made.CreatedAt, false}
	}
	if !found {
		m.topics.created(name, o)
		m.defaults[o.id] = t.Default
		if name != t.Name {
			note = fmt.Sprintf("its name was %q", t.Name)
		}
	}
	m.st.Topics[t.ID] = o.id
	m.add(Topics, name, outcome, note)
	return nil
}

// readTopics reads the team's topics once.
func (m *importer) readTopics(ctx context.Context) (err error) {
	if m.topics != nil {
		return nil
	}
	m.defaults = map[string]contacts.Subscription{}
	m.topics, err = newIndex(m.st.Matched, func(p page.Page) ([]contacts.Topic, bool, error) {
		return m.Contacts.Topics(ctx, m.o.TeamID, p)
	}, func(t *contacts.Topic) ([]string, object) {
		m.defaults[t.ID] = t.Default
		return []string{t.Name}, object{t.ID, t.CreatedAt, false}
	})
	return err
}

// template creates a template, unless the team has one with its alias or name. It is published if it was published in
// the source and its placeholders were not changed.
func (m *importer) template(ctx context.Context, t *Template) (err error) {
	if m.templates == nil {
		m.templates, err = newIndex(m.st.Matched, func(p page.Page) ([]templates.Template, bool, error) {
			return m.Templates.List(ctx, m.o.TeamID, p)
		}, func(t *templates.Template) ([]string, object) {
			return []string{"alias " + t.Alias, "name " + t.Name}, object{t.ID, t.CreatedAt, false}
		})
		if err != nil {
			return err
		}
	}
	if t.ID != "" && m.st.Templates[t.ID] {
		m.add(Templates, t.Name, Kept, t.Note)
		return nil
	}
	if t.ID != "" {
		m.st.Templates[t.ID] = true
	}
	var o object
	found := false
	if t.Alias != "" {
		o, found = m.templates.match("alias " + t.Alias)
	}
	if !found {
		o, found = m.templates.match("name " + t.Name)
	}
	if found {
		return m.compareTemplate(ctx, t, o)
	}
	n := templates.NewTemplate{Name: t.Name, Alias: t.Alias, From: t.From, Subject: t.Subject, ReplyTo: t.ReplyTo,
		HTML: &t.HTML, Text: t.Text}
	for _, v := range t.Variables {
		n.Variables = append(n.Variables, templates.Declaration{Key: v.Key, Type: string(v.Type), Fallback: v.Fallback})
	}
	note := t.Note
	if m.o.DryRun {
		if err := m.Templates.Check(n); err != nil {
			return m.refuse(Templates, t.Name, err)
		}
		m.add(Templates, t.Name, Created, note)
		return nil
	}
	made, err := m.Templates.Create(ctx, m.o.TeamID, n)
	if err != nil {
		return m.refuse(Templates, t.Name, err)
	}
	m.templates.created("name "+made.Name, object{made.ID, made.CreatedAt, false})
	if t.Published {
		if _, err := m.Templates.Publish(ctx, m.o.TeamID, made.ID); fault.Ours(err) {
			return err
		} else if err != nil {
			note = strings.TrimPrefix(note+"; it is a draft: "+err.Error(), "; ")
		}
	}
	m.add(Templates, t.Name, Created, note)
	return nil
}

// compareTemplate counts a template that exists.
func (m *importer) compareTemplate(ctx context.Context, t *Template, o object) error {
	_, v, err := m.Templates.Get(ctx, m.o.TeamID, o.id)
	if fault.KindOf(err) == fault.NotFound {
		m.add(Templates, t.Name, Differing, "it was deleted while it was compared")
		return nil
	}
	if err != nil {
		return err
	}
	defer v.Close()
	same := v.From == t.From && v.Subject == t.Subject && slices.Equal(v.ReplyTo, t.ReplyTo) && v.HTML == t.HTML &&
		(t.Text == nil || v.PlainOrConverted() == *t.Text) && slices.EqualFunc(v.Variables, t.Variables,
		func(a templates.Variable, b Variable) bool {
			return a.Key == b.Key && a.Type == b.Type && a.Fallback == b.Fallback
		})
	outcome, note := m.found(o.created, same), t.Note
	if outcome == Differing {
		note = "it has other content here, and keeps it"
	}
	m.add(Templates, t.Name, outcome, note)
	return nil
}

// webhook creates a disabled webhook, unless the team has one with its URL.
func (m *importer) webhook(ctx context.Context, w *Webhook) (err error) {
	if m.webhooks == nil {
		m.webhooks, err = newIndex(m.st.Matched, func(p page.Page) ([]webhooks.Endpoint, bool, error) {
			return m.Webhooks.List(ctx, m.o.TeamID, p)
		}, func(e *webhooks.Endpoint) ([]string, object) {
			return []string{e.URL}, object{e.ID, e.CreatedAt, false}
		})
		if err != nil {
			return err
		}
	}
	shown := withoutPassword(w.URL)
	address, err := m.Webhooks.Check(w.URL, w.Events)
	if err != nil {
		return m.refuse(Webhooks, shown, err)
	}
	if o, found := m.webhooks.match(address); found {
		m.add(Webhooks, shown, m.found(o.created, true), w.Note)
		return nil
	}
	if !m.o.DryRun {
		made, err := m.Webhooks.CreateDisabled(ctx, m.o.TeamID, w.URL, w.Events)
		if err != nil {
			return m.refuse(Webhooks, shown, err)
		}
		m.webhooks.created(address, object{made.ID, made.CreatedAt, false})
	}
	const disabled = "it is disabled, and has a new signing secret: enable it when its receiver knows the secret"
	m.add(Webhooks, shown, Created, strings.TrimPrefix(w.Note+"; "+disabled, "; "))
	return nil
}

// withoutPassword returns a URL for the report, which must not show a password.
func withoutPassword(text string) string {
	u, err := url.Parse(text)
	if err != nil {
		return "a URL that cannot be parsed"
	}
	return u.Redacted()
}

// oneLine replaces line breaks, and removes surrounding white space and control characters, which names must not have.
func oneLine(text string) string {
	return strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\r' || r == '\n':
			return ' '
		case unicode.IsControl(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(text, "\uFFFD")))
}
