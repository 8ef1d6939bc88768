package simulate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/schedule"
)

// Limits of scenarios.
const (
	MaxScenario  = 256 << 10 // bytes of JSON
	MaxTimetable = 1000      // entries
	maxMembers   = 200       // maximum number of properties, segments or topics, per contact and per team

	// The times in a scenario must be in the years firstYear to lastYear-1. Because a run lasts at most 165 years, all
	// simulated times are before the year 10000 and can therefore be encoded.
	firstYear = 1970
	lastYear  = 9000
)

// Scenario contains a simulated contact, the event that begins a run for the contact, and a timetable of later events
// and changes.
type Scenario struct {
	run       string
	start     time.Time
	contact   *person
	event     engine.Event // an empty name means the event of the graph's only trigger
	timetable []timetableEntry
	outcomes  map[string]engine.Outcome
	world     *World // used if no world is passed to Run
}

// timetableEntry is an entry in the timetable: an event, a change to the contact, or the contact's deletion.
type timetableEntry struct {
	at      time.Time
	event   *engine.Event
	change  *change
	deleted bool
}

// ParseScenario parses a scenario from JSON. If the scenario has no start time, now is the start time. Times such as
// "in 2 days" are relative to the start time. ParseScenario returns Invalid and Missing faults whose fields begin with
// "scenario".
func ParseScenario(text []byte, now time.Time) (*Scenario, error) {
	if len(text) > MaxScenario {
		return nil, jsonread.Invalidf("scenario", "has %d bytes of JSON; the limit is %d.", len(text), MaxScenario)
	}
	o, err := jsonread.ParseObject("scenario", text)
	if err != nil {
		return nil, err
	}
	if err := o.Only("start", "contact", "event", "timetable", "outcomes", "run", "properties", "topics"); err != nil {
		return nil, err
	}
	s := &Scenario{start: now.UTC(), outcomes: map[string]engine.Outcome{}}
	if s.start, err = readTime(o, "start", s.start); err != nil {
		return nil, err
	}
	if s.run, err = o.Optional("run", engine.MaxKey); err != nil {
		return nil, err
	}
	s.run = cmp.Or(s.run, "simulation")
	contact, err := o.Object("contact")
	if err != nil {
		return nil, err
	}
	if s.contact, err = readPerson(contact, s.start); err != nil {
		return nil, err
	}
	s.event.At = s.start
	if o.Has("event") {
		e, err := o.Object("event")
		if err != nil {
			return nil, err
		}
		if err := e.Only("name", "payload"); err != nil {
			return nil, err
		}
		if err := readEvent(&s.event, e, "name"); err != nil {
			return nil, err
		}
	}
	if err := s.readTimetable(o); err != nil {
		return nil, err
	}
	if err := s.readWorld(o); err != nil {
		return nil, err
	}
	return s, s.readOutcomes(o)
}

// readTime parses a time, or a phrase such as "in 2 days", which is relative to the given time. If the member is
// missing, readTime returns the given time.
func readTime(o jsonread.Object, name string, from time.Time) (time.Time, error) {
	text, err := o.Optional(name, 200)
	if err != nil || text == "" {
		return from, err
	}
	t, err := schedule.Parse(text, from)
	if err != nil {
		return from, jsonread.Invalidf(o.At(name), "cannot be read: %v.", err)
	}
	if t.Year() < firstYear || t.Year() >= lastYear {
		return from, jsonread.Invalidf(o.At(name), "must be a time from the years %d to %d.", firstYear, lastYear-1)
	}
	return t, nil
}

// readEvent parses an event: its payload, and its name, which is in the given member.
func readEvent(e *engine.Event, o jsonread.Object, member string) (err error) {
	if o.Has(member) {
		if e.Name, err = engine.ReadEventName(o, member); err != nil {
			return err
		}
	}
	if !o.Has("payload") {
		return nil
	}
	path := o.At("payload")
	if n := len(o.Members["payload"]); n > events.MaxPayload {
		return jsonread.Invalidf(path, "has %d bytes of JSON; the limit is %d.", n, events.MaxPayload)
	}
	if err := json.Unmarshal(o.Members["payload"], &e.Payload); err != nil || e.Payload == nil {
		return jsonread.Invalidf(path, "must be an object, with each member once and in UTF-8.")
	}
	return jsonread.CheckNumbers(path, o.Members["payload"])
}

func (s *Scenario) readTimetable(o jsonread.Object) error {
	items, err := o.List("timetable")
	if err != nil {
		return err
	}
	if len(items) > MaxTimetable {
		return jsonread.Invalidf(o.At("timetable"), "has %d entries; the limit is %d.", len(items), MaxTimetable)
	}
	for i, text := range items {
		h, err := s.readEntry(fmt.Sprintf("%s[%d]", o.At("timetable"), i), text)
		if err != nil {
			return err
		}
		s.timetable = append(s.timetable, h)
	}
	slices.SortStableFunc(s.timetable, func(a, b timetableEntry) int { return a.at.Compare(b.at) })
	return nil
}

func (s *Scenario) readEntry(path string, text jsontext.Value) (h timetableEntry, err error) {
	o, err := jsonread.ParseObject(path, text)
	if err != nil {
		return h, err
	}
	if err := o.Only("at", "event", "payload", "contact", "contact_deleted"); err != nil {
		return h, err
	}
	if !o.Has("at") {
		return h, fault.MissingField(o.At("at"))
	}
	if h.at, err = readTime(o, "at", s.start); err != nil {
		return h, err
	}
	if h.at.Before(s.start) {
		return h, jsonread.Invalidf(o.At("at"), "is before the start of the scenario, %s.", engine.FormatTime(s.start))
	}
	if o.Has("contact_deleted") {
		if json.Unmarshal(o.Members["contact_deleted"], &h.deleted) != nil {
			return h, jsonread.Invalidf(o.At("contact_deleted"), "must be true or false.")
		}
	}
	given := 0
	if h.deleted {
		given++
	}
	if o.Has("event") {
		given++
		h.event = &engine.Event{At: h.at}
		if err := readEvent(h.event, o, "event"); err != nil {
			return h, err
		}
	} else if o.Has("payload") {
		return h, jsonread.Invalidf(o.At("payload"), "is that of an event, which is not there. Name it as `%s`.",
			o.At("event"))
	}
	if o.Has("contact") {
		given++
		of, err := o.Object("contact")
		if err != nil {
			return h, err
		}
		if err := of.Only(changeMembers...); err != nil {
			return h, err
		}
		if h.change, err = readChange(of, h.at); err != nil {
			return h, err
		}
	}
	if given != 1 {
		return h, jsonread.Invalidf(path, "must have one of `event`, `contact` and `contact_deleted`.")
	}
	return h, nil
}

// readWorld parses the team's contact properties and topics, as given in the scenario.
func (s *Scenario) readWorld(o jsonread.Object) (err error) {
	s.world = &World{Properties: map[string]Property{}}
	if s.world.Topics, err = readTopics(o); err != nil {
		return err
	}
	if !o.Has("properties") {
		return nil
	}
	all, err := o.Object("properties")
	if err != nil {
		return err
	}
	if len(all.Members) > maxMembers || len(s.world.Topics) > maxMembers {
		return jsonread.Invalidf(o.Path, "has more than %d properties or topics.", maxMembers)
	}
	for _, name := range slices.Sorted(maps.Keys(all.Members)) {
		if s.world.Properties[name], err = readProperty(all, name); err != nil {
			return err
		}
	}
	return nil
}

func readProperty(all jsonread.Object, name string) (p Property, err error) {
	o, err := all.Object(name)
	if err != nil {
		return p, err
	}
	if err := o.Only("type", "fallback_value"); err != nil {
		return p, err
	}
	kind, err := o.Required("type", engine.MaxKey)
	if err != nil {
		return p, err
	}
	if p.Type = scalar.Type(kind); p.Type != scalar.String && p.Type != scalar.Number {
		return p, jsonread.Invalidf(o.At("type"), "must be `string` or `number`.")
	}
	if !o.Has("fallback_value") {
		return p, nil
	}
	path := o.At("fallback_value")
	if p.Fallback, err = readScalar(path, o.Members["fallback_value"]); err != nil {
		return p, err
	}
	return p, p.Fallback.Check(path, p.Type)
}

// readOutcomes parses the outcomes that the scenario specifies for effects that are to fail or to be skipped.
func (s *Scenario) readOutcomes(o jsonread.Object) error {
	if !o.Has("outcomes") {
		return nil
	}
	all, err := o.Object("outcomes")
	if err != nil {
		return err
	}
	if len(all.Members) > engine.MaxSteps {
		return jsonread.Invalidf(all.Path, "has %d members; the limit is %d.", len(all.Members), engine.MaxSteps)
	}
	for _, key := range slices.Sorted(maps.Keys(all.Members)) {
		one, err := all.Object(key)
		if err != nil {
			return err
		}
		if err := one.Only("fail", "skip"); err != nil {
			return err
		}
		outcome := engine.Outcome{}
		reason, err := one.Optional("fail", engine.MaxKey)
		if err != nil {
			return err
		}
		if outcome.Skipped, err = one.Optional("skip", engine.MaxKey); err != nil {
			return err
		}
		if reason == "" == (outcome.Skipped == "") {
			return jsonread.Invalidf(one.Path, "must have one of `fail` and `skip`: a reason such as `template_not_found`.")
		}
		if reason != "" {
			outcome.Failure = &engine.Failure{Reason: reason, Message: "The scenario makes this step fail."}
		}
		s.outcomes[key] = outcome
	}
	return nil
}
