package simulate

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/platform/events"
)

// Run simulates a run through a graph, given a scenario and a world. If w is nil, Run uses the world that the scenario
// describes. Run assumes that templates and senders exist and that effects succeed, unless the world or the scenario
// contradicts this. If the scenario is invalid, Run returns an Invalid fault. Run also returns any error from the
// world's functions.
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
	sim := &simulation{g: g, s: s, w: w, now: s.start, contact: s.contact.copy(), bytesLeft: MaxReport}
	sim.run = g.Begin(s.run, sim.fillSystemEvent(event))
	if sim.run == nil {
		return nil, jsonread.Invalidf("scenario.event.name", "is %s, for which there is no trigger. Use `%s`.",
			jsonread.Quote(event.Name),
			strings.Join(triggers, "` or `"))
	}
	sim.report = &Report{Status: "completed", StartedAt: s.start, Entries: []Entry{}, Emails: []Mail{}, Calls: []Post{}}
	return sim.report, sim.runAll()
}

// check returns an error if the scenario refers to steps that are not in the graph, or to properties or topics that are
// not in the world.
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
		if _, f := w.fitValues(c.properties); f != nil {
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

// simulation is the current state of a simulation.
type simulation struct {
	g         *engine.Graph
	s         *Scenario
	w         *World
	run       *engine.Run
	now       time.Time
	contact   *person // nil after the contact has been deleted
	report    *Report
	bytesLeft int // number of bytes that outputs may still use in the report
}

// runAll simulates the run from its start to its end.
func (s *simulation) runAll() error {
	if err := s.advance(); err != nil {
		return err
	}
	for i, h := range s.s.timetable {
		// If a wait ends exactly when a timetable entry is due, the wait ends first.
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
		if err := s.applyEntry(h); err != nil {
			return err
		}
	}
	for s.run.At != "" {
		if err := s.wake(); err != nil {
			return err
		}
	}
	s.report.EndedAt = s.now
	s.report.Took = elapsed(s.s.start, s.now)
	s.report.Contact = s.contact.toReport()
	return nil
}

// wake advances the simulated time to the end of the run's wait and continues the run.
func (s *simulation) wake() error {
	s.now = s.run.Waits.Until
	return s.advance()
}

// advance carries out the run's steps until the run waits or has ended.
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
		o, err := s.applyEffect(a)
		if err != nil {
			return err
		}
		rec := s.g.Done(s.run, a, o, f)
		s.record(rec, describeStep(rec, a, to))
		if rec.Status == engine.StepWaiting {
			return nil
		}
	}
	return nil
}

func (s *simulation) end(status, reason, message string) {
	s.report.Status, s.report.Reason, s.report.Message = status, Text(reason), Text(message)
}

// record adds an entry for a step to the report. Call record after the run has advanced to the next step.
func (s *simulation) record(r engine.Record, happened string) {
	e := Entry{At: s.now, After: s.after(), Sentence: happened, Step: Text(r.Key), Type: Text(r.Type),
		Status: Text(r.Status)}
	if s.reserve(engine.TextSize(r.Output, s.bytesLeft)) {
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

// reserve subtracts size from the space that remains in the report. If too little space remains, reserve counts an
// omission and returns false.
func (s *simulation) reserve(size int) bool {
	if size > s.bytesLeft {
		s.report.Omitted++
		return false
	}
	s.bytesLeft -= size
	return true
}

// recordEntry records a timetable entry in the report.
func (s *simulation) recordEntry(event, happened string) {
	s.report.Entries = append(s.report.Entries, Entry{At: s.now, After: s.after(), Sentence: happened,
		Event: Text(event)})
}

// after returns the time since the start of the simulation, in words.
func (s *simulation) after() string { return elapsed(s.s.start, s.now) }

// fillSystemEvent replaces an event's name with the canonical name. For a system event, fillSystemEvent also adds the
// payload members that the event has in production. Members from the scenario override these.
func (s *simulation) fillSystemEvent(e engine.Event) engine.Event {
	e.Name = events.CanonicalName(e.Name)
	switch {
	case strings.HasPrefix(e.Name, events.SystemPrefix+"email."):
		e.Payload = engine.EmailPayload(simulatedEmailID, "", e.Payload)
	case events.ReservedPrefix(e.Name) != "":
		e.Payload = s.contact.EventPayload(e.Payload)
	}
	return e
}

// applyEntry applies a timetable entry that is due.
func (s *simulation) applyEntry(h timetableEntry) error {
	switch {
	case h.event != nil && s.contact == nil:
		s.recordEntry(h.event.Name, "The event is ignored, because the contact was deleted.")
	case h.event != nil:
		switch events.CanonicalName(h.event.Name) {
		case engine.EmailOpened:
			s.contact.countEngagement("opened", s.now)
		case engine.EmailClicked:
			s.contact.countEngagement("clicked", s.now)
		}
		if !s.receive(s.fillSystemEvent(*h.event), h.event.Name) {
			s.recordEntry(h.event.Name, "The event is ignored, because the run does not wait for it.")
			return nil
		}
		return s.advance()
	case h.deleted:
		s.recordEntry("", "The contact is deleted.")
		if s.contact != nil { // nil if the run has deleted its own contact; such a run continues
			s.run.At, s.run.Waits = "", nil
			s.end("cancelled", engine.NoContact, "The contact was deleted.")
		}
		s.contact = nil
	case s.contact == nil:
		s.recordEntry("", "The change is ignored, because the contact was deleted.")
	default:
		s.recordEntry("", "The contact changes.")
		changed := s.contact.apply(h.change)
		if changed == nil {
			return nil
		}
		// The run advances only after all events for the change have been delivered, because in production one transaction
		// records all of them.
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

// receive delivers an event to the run and reports whether the run was waiting for the event.
func (s *simulation) receive(e engine.Event, name string) bool {
	rec, ok := s.g.Receive(s.run, e)
	if !ok {
		return false
	}
	what := "The event `" + name + "` came."
	if rec.Failure != nil {
		what = describeStep(rec, engine.Action{}, "")
	}
	s.record(rec, what)
	return true
}

// applyEffect applies the effect of an action to the simulated contact. The run receives no events for changes made by
// its own steps, because a run is not waiting while it carries out a step.
func (s *simulation) applyEffect(a engine.Action) (o engine.Outcome, err error) {
	if o, ok := s.s.outcomes[a.Step.Key]; ok && a.Effect != nil {
		return o, nil
	}
	switch effect := a.Effect.(type) {
	case *engine.Email:
		return s.sendEmail(a.Step.Key, effect), nil
	case *engine.Call:
		body := jsontext.Value(effect.Body)
		if !s.reserve(len(body)) {
			body = jsontext.Value("null")
		}
		s.report.Calls = append(s.report.Calls, Post{At: s.now, After: s.after(), Step: a.Step.Key, URL: effect.URL,
			Headers: effect.Headers, Body: body})
		o.Output = map[string]any{"status": 200}
	case *engine.Update:
		var fit map[string]scalar.Value
		if fit, o.Failure = s.w.fitValues(effect.Properties); o.Failure == nil {
			s.contact.apply(&change{firstName: effect.FirstName, lastName: effect.LastName,
				unsubscribed: effect.Unsubscribed, properties: fit})
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

// sendEmail adds to the report an email that the run would send.
func (s *simulation) sendEmail(step string, e *engine.Email) (o engine.Outcome) {
	if o.Failure, o.Skipped = s.w.checkTopic(e.TopicID, s.contact.topics[e.TopicID]); o.Failure != nil ||
		o.Skipped != "" {
		return o
	}
	m := Mail{At: s.now, After: s.after(), Step: step, To: s.contact.Address, Template: e.TemplateID,
		Variables: map[string]any{}, From: Text(e.From), Subject: Text(e.Subject), ReplyTo: Text(e.ReplyTo),
		TopicID: Text(e.TopicID)}
	size := 0
	for name, v := range e.Variables {
		size += len(name) + len(v.Text)
	}
	if s.reserve(size) {
		m.Variables = plainValues(e.Variables)
	}
	s.report.Emails = append(s.report.Emails, m)
	s.contact.countEngagement("mailed", s.now)
	return o
}

func (s *simulation) facts() engine.Facts {
	f := engine.Facts{Now: s.now}
	if s.contact == nil {
		return f
	}
	contact := s.contact.Contact
	contact.Properties = s.w.withFallbacks(contact.Properties)
	f.Contact = &contact
	f.Fields = func(rule *filter.Rule) (schema filter.Schema, get func(string) filter.Value, err error) {
		if s.w.Fields == nil {
			return s.contact.schema(s.w, rule), s.contact.field, nil
		}
		schema, err = s.w.Fields(rule)
		return schema, s.contact.field, err
	}
	return f
}
