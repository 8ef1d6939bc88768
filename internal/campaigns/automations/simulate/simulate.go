package simulate

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/platform/events"
)

// Run runs a graph against a scenario, with made-up time, in a world: nil is that of which the scenario speaks.
// Templates and senders are taken to be there, and effects to succeed that the world does not refuse, unless the
// scenario says otherwise. Its errors are Invalid faults about the scenario, and those of the world's functions.
func Run(g *engine.Graph, s *Scenario, w *World) (*Report, error) {
	if w == nil {
		w = s.world
	}
	if err := s.check(g, w); err != nil {
		return nil, err
	}
	triggers := g.Triggers()
	event := s.event
	if event.Name == "" {
		if len(triggers) > 1 {
			return nil, jsonread.Invalidf("scenario.event.name", "must be one of `%s`.", strings.Join(triggers, "`, `"))
		}
		event.Name = triggers[0]
	}
	sim := &simulation{g: g, s: s, w: w, now: s.start, contact: s.contact.copy(), room: MaxReport}
	sim.run = g.Begin(s.run, sim.real(event))
	if sim.run == nil {
		return nil, jsonread.Invalidf("scenario.event.name", "is %s, for which there is no trigger. Use `%s`.", jsonread.Quote(event.Name),
			strings.Join(triggers, "` or `"))
	}
	sim.report = &Report{Status: "completed", StartedAt: s.start, Entries: []Entry{}, Emails: []Mail{}, Calls: []Post{}}
	return sim.report, sim.all()
}

// check refuses what the graph and the world do not have, before anything happens.
func (s *Scenario) check(g *engine.Graph, w *World) error {
	for _, key := range slices.Sorted(maps.Keys(s.outcomes)) {
		if !g.HasStep(key) {
			return jsonread.Invalidf(jsonread.Join("scenario.outcomes", key), "names no step.")
		}
	}
	changes := []*change{{path: "scenario.contact", properties: s.contact.Properties, topics: s.contact.topics}}
	for _, h := range s.timetable {
		if h.change != nil {
			changes = append(changes, h.change)
		}
	}
	for _, c := range changes {
		if f := w.refusesValues(c.properties); f != nil {
			return jsonread.Invalidf(c.path, "is not possible. %s", f.Message)
		}
		for _, topic := range slices.Sorted(maps.Keys(c.topics)) {
			if _, ok := w.Topics[topic]; !ok && w.Complete {
				return jsonread.Invalidf(c.path+".topics", "names %s, which is no topic of this team.", topic)
			}
		}
	}
	return nil
}

// simulation is a simulation that has come to a time.
type simulation struct {
	g       *engine.Graph
	s       *Scenario
	w       *World
	run     *engine.Run
	now     time.Time
	contact *person // nil once it was deleted
	report  *Report
	room    int // octets that the outputs of the report may still have
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
		o, err := s.do(a)
		if err != nil {
			return err
		}
		rec := s.g.Done(s.run, a, o, f)
		s.record(rec, happened(rec, a, to))
		if rec.Status == engine.StepWaiting {
			return nil
		}
	}
	return nil
}

func (s *simulation) end(status, reason, message string) {
	s.report.Status, s.report.Reason, s.report.Message = status, Text(reason), Text(message)
}

// record adds an entry of a step, after which the run is where it goes on.
func (s *simulation) record(r engine.Record, happened string) {
	e := Entry{At: s.now, After: s.after(), Happened: happened, Step: Text(r.Key), Type: Text(r.Type),
		Status: Text(r.Status)}
	if s.fits(engine.TextSize(r.Output, s.room)) {
		e.Output = r.Output
	}
	if r.Failure != nil {
		e.Reason = Text(r.Failure.Reason)
		s.end("failed", r.Failure.Reason, r.Failure.Message)
	}
	if r.Status != engine.StepWaiting {
		e.Next = Text(s.run.At)
	}
	s.report.Entries = append(s.report.Entries, e)
}

// fits takes room for so many octets of the report. If there is none, it notes that something is left out.
func (s *simulation) fits(octets int) bool {
	if octets > s.room {
		s.report.Omitted++
		return false
	}
	s.room -= octets
	return true
}

// note adds an entry of the timetable.
func (s *simulation) note(event, happened string) {
	s.report.Entries = append(s.report.Entries, Entry{At: s.now, After: s.after(), Happened: happened,
		Event: Text(event)})
}

// after returns the time since the start in words.
func (s *simulation) after() string { return since(s.s.start, s.now) }

// real returns a system event with what it really has; what the scenario says comes first. Others stay as they are.
func (s *simulation) real(e engine.Event) engine.Event {
	e.Name = events.CanonicalName(e.Name)
	switch {
	case strings.HasPrefix(e.Name, events.SystemPrefix+"email."):
		e.Payload = engine.EmailPayload(madeUpEmail, "", e.Payload)
	case events.ReservedPrefix(e.Name) != "":
		e.Payload = s.contact.EventPayload(e.Payload)
	}
	return e
}

// happen carries out an entry of the timetable.
func (s *simulation) happen(h happening) error {
	switch {
	case h.event != nil && s.contact == nil:
		s.note(h.event.Name, "An event, which happens to nobody: the contact was deleted.")
	case h.event != nil:
		switch events.CanonicalName(h.event.Name) {
		case engine.EmailOpened:
			s.contact.counted("opened", s.now)
		case engine.EmailClicked:
			s.contact.counted("clicked", s.now)
		}
		if !s.receive(s.real(*h.event), h.event.Name) {
			s.note(h.event.Name, "An event for which the run does not wait.")
			return nil
		}
		return s.advance()
	case h.deleted:
		s.note("", "The contact is deleted.")
		if s.contact != nil { // a run that deleted its contact itself goes on
			s.run.At, s.run.Waits = "", nil
			s.end("cancelled", engine.NoContact, "The contact was deleted.")
		}
		s.contact = nil
	case s.contact == nil:
		s.note("", "A change of nobody: the contact was deleted.")
	default:
		s.note("", "The contact changes.")
		changed := s.contact.apply(h.change)
		if changed == nil {
			return nil
		}
		// Only then does the run go on: all of them happen in one transaction.
		received := false
		for _, e := range s.contact.Events(*changed, s.now) {
			received = s.receive(e, e.Name) || received
		}
		if received {
			return s.advance()
		}
	}
	return nil
}

// receive gives an event to the run, and reports whether it has waited for it.
func (s *simulation) receive(e engine.Event, name string) bool {
	rec, ok := s.g.Receive(s.run, e)
	if !ok {
		return false
	}
	what := "The event `" + name + "` came."
	if rec.Failure != nil {
		what = happened(rec, engine.Action{}, "")
	}
	s.record(rec, what)
	return true
}

// do carries out the effect of an action on the made-up contact. What a step changes in the contact happens while the
// run does not wait, so that the run itself receives no event of it.
func (s *simulation) do(a engine.Action) (o engine.Outcome, err error) {
	if o, ok := s.s.outcomes[a.Step.Key]; ok && a.Effect != nil {
		return o, nil
	}
	switch effect := a.Effect.(type) {
	case *engine.Email:
		return s.mail(a.Step.Key, effect), nil
	case *engine.Call:
		body := jsontext.Value(effect.Body)
		if !s.fits(len(body)) {
			body = jsontext.Value("null")
		}
		s.report.Calls = append(s.report.Calls, Post{At: s.now, After: s.after(), Step: a.Step.Key, URL: effect.URL,
			Headers: effect.Headers, Body: body})
		o.Output = map[string]any{"status": 200}
	case *engine.Update:
		if o.Failure = s.w.refusesValues(effect.Properties); o.Failure == nil {
			s.contact.apply(&change{firstName: effect.FirstName, lastName: effect.LastName,
				unsubscribed: effect.Unsubscribed, properties: effect.Properties})
		}
	case *engine.Addition:
		if s.w.Segment != nil {
			o.Failure, err = s.w.Segment(effect.SegmentID)
		}
		if err == nil && o.Failure == nil {
			s.contact.apply(&change{joins: []string{effect.SegmentID}})
		}
	case engine.Deletion:
		s.contact = nil
	}
	return o, err
}

// mail sends an email to the made-up contact.
func (s *simulation) mail(step string, e *engine.Email) (o engine.Outcome) {
	if o.Failure, o.Skipped = s.w.refusesMail(e.TopicID, s.contact.topics[e.TopicID]); o.Failure != nil ||
		o.Skipped != "" {
		return o
	}
	m := Mail{At: s.now, After: s.after(), Step: step, To: s.contact.Address, Template: e.TemplateID,
		Variables: map[string]any{}, From: Text(e.From), Subject: Text(e.Subject), ReplyTo: Text(e.ReplyTo),
		TopicID: Text(e.TopicID)}
	octets := 0
	for name, v := range e.Variables {
		octets += len(name) + len(v.Text)
	}
	if s.fits(octets) {
		m.Variables = plainValues(e.Variables)
	}
	s.report.Emails = append(s.report.Emails, m)
	s.contact.counted("mailed", s.now)
	return o
}

func (s *simulation) facts() engine.Facts {
	f := engine.Facts{Now: s.now}
	if s.contact == nil {
		return f
	}
	who := s.contact.Contact
	who.Properties = s.w.withFallbacks(who.Properties)
	f.Contact = &who
	f.Fields = func(rule *filter.Rule) (schema filter.Schema, get func(string) filter.Value, err error) {
		if s.w.Fields == nil {
			return s.contact.schema(s.w, rule), s.contact.field, nil
		}
		schema, err = s.w.Fields(rule)
		return schema, s.contact.field, err
	}
	return f
}
