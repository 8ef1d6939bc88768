package flow

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/filter"
	"github.com/postrider/postrider/internal/scalar"
)

// optedOut is why an email with a topic is not sent to a contact that opted out of it.
const optedOut = "topic_opted_out"

// Simulate runs a graph against a scenario, with made-up time. Templates, segments and so on are taken to be there, and
// every effect to succeed unless the scenario says otherwise. Its errors are Invalid faults about the scenario.
func Simulate(g *Graph, s *Scenario) (*Report, error) {
	for _, key := range slices.Sorted(maps.Keys(s.outcomes)) {
		if g.step(key) == nil {
			return nil, invalid("scenario.outcomes."+key, "names no step.")
		}
	}
	triggers := g.Triggers()
	event := s.event
	if event.Name == "" {
		if len(triggers) > 1 {
			return nil, invalid("scenario.event.name", "must be one of `%s`.", strings.Join(triggers, "`, `"))
		}
		event.Name = triggers[0]
	}
	run := g.Begin(s.run, event)
	if run == nil {
		return nil, invalid("scenario.event.name", "is %s, for which there is no trigger. Use `%s`.", quote(event.Name),
			strings.Join(triggers, "` or `"))
	}
	sim := &simulation{g: g, s: s, run: run, now: s.start, contact: s.contact.copy()}
	sim.report = &Report{Status: "completed", StartedAt: s.start, Entries: []Entry{}, Emails: []Mail{}, Calls: []Post{}}
	return sim.report, sim.all()
}

// simulation is a simulation that has come to a time.
type simulation struct {
	g       *Graph
	s       *Scenario
	run     *Run
	now     time.Time
	contact *person // nil once it was deleted
	report  *Report
}

// all runs the simulation to the end of the run.
func (s *simulation) all() error {
	if err := s.advance(); err != nil {
		return err
	}
	for i, h := range s.s.timetable {
		// What happens when a wait ends comes after its end.
		for s.run.At != "" && !s.run.Waits.Until.After(h.at) {
			if err := s.wake(); err != nil {
				return err
			}
		}
		if s.run.At == "" {
			s.report.Ignored = len(s.s.timetable) - i
			break
		}
		s.now = h.at
		if err := s.happen(h); err != nil {
			return err
		}
	}
	for s.run.At != "" {
		if err := s.wake(); err != nil {
			return err
		}
	}
	s.report.EndedAt = s.now
	s.report.Took = since(s.s.start, s.now)
	s.report.Contact = s.contact.shown()
	return nil
}

// wake goes to the time at which the run's wait ends.
func (s *simulation) wake() error {
	s.now = s.run.Waits.Until
	return s.advance()
}

// advance carries out steps until the run waits or has ended.
func (s *simulation) advance() error {
	for s.run.At != "" {
		f := s.facts()
		a, err := s.g.Plan(s.run, f)
		if err != nil {
			return err
		}
		to := ""
		if s.contact != nil {
			to = s.contact.Address
		}
		rec := s.g.Done(s.run, a, s.do(a), f)
		s.record(rec, happened(rec, a, to))
		if rec.Status == StepWaiting {
			return nil
		}
	}
	return nil
}

// record adds an entry of a step, after which the run is where it goes on.
func (s *simulation) record(r Record, happened string) {
	e := Entry{At: s.now, After: s.after(), Happened: happened, Step: r.Key, Type: r.Type, Status: r.Status,
		Output: r.Output}
	if r.Failure != nil {
		e.Reason = r.Failure.Reason
		s.report.Status, s.report.Reason, s.report.Message = "failed", r.Failure.Reason, r.Failure.Message
	}
	if r.Status != StepWaiting {
		e.Next = s.run.At
	}
	s.report.Entries = append(s.report.Entries, e)
}

// note adds an entry of the timetable.
func (s *simulation) note(event, happened string) {
	s.report.Entries = append(s.report.Entries, Entry{At: s.now, After: s.after(), Happened: happened, Event: event})
}

// after returns the time since the start in words.
func (s *simulation) after() string { return since(s.s.start, s.now) }

// happen carries out an entry of the timetable.
func (s *simulation) happen(h happening) error {
	switch {
	case h.event != nil:
		if s.contact == nil {
			s.note(h.event.Name, "An event, which happens to nobody: the contact was deleted.")
			return nil
		}
		rec, ok := s.g.Receive(s.run, *h.event)
		if !ok {
			s.note(h.event.Name, "An event for which the run does not wait.")
			return nil
		}
		what := "The event `" + h.event.Name + "` came."
		if rec.Failure != nil {
			what = happened(rec, Action{}, "")
		}
		s.record(rec, what)
		return s.advance()
	case h.deleted:
		s.note("", "The contact is deleted.")
		if s.contact != nil { // a run that deleted its contact itself goes on
			s.run.At, s.run.Waits = "", nil
			s.report.Status, s.report.Reason, s.report.Message = "cancelled", NoContact, "The contact was deleted."
		}
		s.contact = nil
	case s.contact == nil:
		s.note("", "A change of nobody: the contact was deleted.")
	default:
		s.note("", "The contact changes.")
		return s.contact.change(*h.change)
	}
	return nil
}

// do carries out the effect of an action on the made-up contact.
func (s *simulation) do(a Action) Outcome {
	if o, ok := s.s.outcomes[a.Step.Key]; ok && a.Effect != nil {
		return o
	}
	switch effect := a.Effect.(type) {
	case *Email:
		if effect.TopicID != "" && s.contact.topics[effect.TopicID] == "opt_out" {
			return Outcome{Skipped: optedOut}
		}
		s.report.Emails = append(s.report.Emails, Mail{At: s.now, After: s.after(), Step: a.Step.Key,
			To: s.contact.Address, Template: effect.TemplateID, Variables: plainValues(effect.Variables),
			From: effect.From, Subject: effect.Subject, ReplyTo: effect.ReplyTo, TopicID: effect.TopicID})
	case *Call:
		s.report.Calls = append(s.report.Calls, Post{At: s.now, After: s.after(), Step: a.Step.Key, URL: effect.URL,
			Headers: effect.Headers, Body: effect.Body})
		return Outcome{Output: map[string]any{"status": 200}}
	case *Update:
		s.contact.update(effect)
	case *Addition:
		s.contact.add(effect.SegmentID)
	case Deletion:
		s.contact = nil
	}
	return Outcome{}
}

func (s *simulation) facts() Facts {
	f := Facts{Now: s.now}
	if s.contact != nil {
		f.Contact = &s.contact.Contact
		f.Fields = func(rule *filter.Rule) (filter.Schema, func(string) filter.Value, error) {
			schema, get := s.contact.fields(rule)
			return schema, get, nil
		}
	}
	return f
}

func (p *person) copy() *person {
	c := *p
	c.Properties, c.segments, c.topics = maps.Clone(p.Properties), slices.Clone(p.segments), maps.Clone(p.topics)
	return &c
}

func (p *person) update(u *Update) {
	if u.FirstName != nil {
		p.FirstName = *u.FirstName
	}
	if u.LastName != nil {
		p.LastName = *u.LastName
	}
	if u.Unsubscribed != nil {
		p.Unsubscribed = *u.Unsubscribed
	}
	for name, v := range u.Properties {
		if v == (scalar.Value{}) {
			delete(p.Properties, name)
		} else {
			p.Properties[name] = v
		}
	}
}

// shown returns the contact as reports have it.
func (p *person) shown() *Person {
	if p == nil {
		return nil
	}
	return &Person{p.ID, p.Address, p.FirstName, p.LastName, p.Unsubscribed, plainValues(p.Properties),
		append([]string{}, p.segments...), p.topics}
}

func plainValues(values map[string]scalar.Value) map[string]any {
	all := map[string]any{}
	for name, v := range values {
		if all[name] = v.Text; v.Type == scalar.Number {
			all[name] = v.Number()
		}
	}
	return all
}

// Fields of contacts, as package contacts has them.
var (
	personFields = map[string]filter.Field{
		"contact.email":        {Type: filter.TextField, Lower: true},
		"contact.first_name":   {Type: filter.TextField},
		"contact.last_name":    {Type: filter.TextField},
		"contact.unsubscribed": {Type: filter.BoolField, Default: filter.BoolValue(false)},
		"contact.created_at":   {Type: filter.TimeField},
		"contact.segments":     {Type: filter.SetField, Lower: true},
	}
	count = filter.Field{Type: filter.NumberField, Default: filter.NumberValue(0)}
	topic = filter.Field{Type: filter.ChoiceField}
)

// fields returns the fields that a rule names, and what they hold. A property has the type of its value; one without a
// value may be compared with anything.
func (p *person) fields(rule *filter.Rule) (filter.Schema, func(name string) filter.Value) {
	schema := filter.Schema{Fields: maps.Clone(personFields)}
	values := map[string]filter.Value{
		"contact.email":        filter.TextValue(strings.ToLower(p.Address)),
		"contact.first_name":   filter.TextValue(p.FirstName),
		"contact.last_name":    filter.TextValue(p.LastName),
		"contact.unsubscribed": filter.BoolValue(p.Unsubscribed),
		"contact.created_at":   filter.TimeValue(p.CreatedAt),
		"contact.segments":     filter.ListValue(p.segments),
	}
	for _, name := range rule.Fields() {
		if key, ok := strings.CutPrefix(name, contactProperty); ok {
			schema.Fields[name], values[name] = propertyField(p.Properties[key])
		} else if key, ok := strings.CutPrefix(name, "contact.topics."); ok {
			schema.Fields[name], values[name] = topic, filter.TextValue(p.topics[strings.ToLower(key)])
		} else if key, ok := strings.CutPrefix(name, "contact.engagement."); ok {
			schema.Fields[name] = count
			switch v := p.engagement[key].(type) {
			case float64:
				values[name] = filter.NumberValue(v)
			case time.Time:
				values[name] = filter.TimeValue(v)
			}
			if strings.HasSuffix(key, "_at") {
				schema.Fields[name] = filter.Field{Type: filter.TimeField}
			}
		}
	}
	return schema, func(name string) filter.Value { return values[name] }
}

func propertyField(v scalar.Value) (filter.Field, filter.Value) {
	switch v.Type {
	case scalar.Number:
		return filter.Field{Type: filter.NumberField}, filter.NumberValue(v.Number())
	case scalar.String:
		return filter.Field{Type: filter.TextField}, filter.TextValue(v.Text)
	}
	return filter.Field{Type: filter.AnyField}, filter.Value{}
}
