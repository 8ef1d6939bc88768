package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/schedule"
)

// Limits of scenarios.
const (
	MaxScenario  = 256 << 10 // octets of JSON
	MaxTimetable = 1000      // entries
	maxMembers   = 200       // properties, segments or topics of a contact or of the team

	// Times of a scenario are from the first of these years to before the second. A run lasts 165 years at most, and a
	// time of the year 10000 could not be written any more.
	firstYear = 1970
	lastYear  = 9000
)

// Scenario is a made-up contact and what happens to it: the event that begins a run, and a timetable.
type Scenario struct {
	run       string
	start     time.Time
	contact   *person
	event     Event // without a name for that of the only trigger
	timetable []happening
	outcomes  map[string]Outcome
	world     *World // of simulations that are given none
}

// happening is an entry of the timetable: an event, a change of the contact, or its deletion.
type happening struct {
	at      time.Time
	event   *Event
	change  *change
	deleted bool
}

// ParseScenario reads a scenario from JSON. now is when it begins if it does not say; times such as "in 2 days" are
// reckoned from the beginning. Errors are Invalid and Missing faults whose field begins with scenario.
func ParseScenario(text []byte, now time.Time) (*Scenario, error) {
	if len(text) > MaxScenario {
		return nil, invalid("scenario", "has %d octets of JSON; the limit is %d.", len(text), MaxScenario)
	}
	o, err := readObject("scenario", text)
	if err != nil {
		return nil, err
	}
	if err := o.only("start", "contact", "event", "timetable", "outcomes", "run", "properties", "topics"); err != nil {
		return nil, err
	}
	s := &Scenario{start: now.UTC(), outcomes: map[string]Outcome{}}
	if s.start, err = o.time("start", s.start); err != nil {
		return nil, err
	}
	if s.run, err = o.optional("run", MaxKey); err != nil {
		return nil, err
	}
	s.run = cmp.Or(s.run, "simulation")
	who, err := o.object("contact")
	if err != nil {
		return nil, err
	}
	if s.contact, err = readPerson(who, s.start); err != nil {
		return nil, err
	}
	s.event.At = s.start
	if o.has("event") {
		e, err := o.object("event")
		if err != nil {
			return nil, err
		}
		if err := e.only("name", "payload"); err != nil {
			return nil, err
		}
		if err := s.event.read(e, "name"); err != nil {
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

// only refuses a member that has none of some names: a misspelt one would say nothing.
func (o object) only(names ...string) error {
	for _, name := range slices.Sorted(maps.Keys(o.members)) {
		if !slices.Contains(names, name) {
			return invalid(o.at(name), "is not known. There are `%s`.", strings.Join(names, "`, `"))
		}
	}
	return nil
}

// time reads a time or a phrase that is reckoned from another time, which it returns if there is none.
func (o object) time(name string, from time.Time) (time.Time, error) {
	text, err := o.optional(name, 200)
	if err != nil || text == "" {
		return from, err
	}
	t, err := schedule.Parse(text, from)
	if err != nil {
		return from, invalid(o.at(name), "cannot be read: %v.", err)
	}
	if t.Year() < firstYear || t.Year() >= lastYear {
		return from, invalid(o.at(name), "must be a time from the years %d to %d.", firstYear, lastYear-1)
	}
	return t, nil
}

// read reads the name, which is the member of that name, and the payload of an event.
func (e *Event) read(o object, member string) (err error) {
	if o.has(member) {
		if e.Name, err = o.eventName(member); err != nil {
			return err
		}
	}
	if !o.has("payload") {
		return nil
	}
	place := o.at("payload")
	if n := len(o.members["payload"]); n > events.MaxPayload {
		return invalid(place, "has %d octets of JSON; the limit is %d.", n, events.MaxPayload)
	}
	if err := json.Unmarshal(o.members["payload"], &e.Payload); err != nil || e.Payload == nil {
		return invalid(place, "must be an object, with each member once and in UTF-8.")
	}
	return CheckNumbers(place, o.members["payload"])
}

func (s *Scenario) readTimetable(o object) error {
	items, err := o.list("timetable")
	if err != nil {
		return err
	}
	if len(items) > MaxTimetable {
		return invalid(o.at("timetable"), "has %d entries; the limit is %d.", len(items), MaxTimetable)
	}
	for i, text := range items {
		h, err := s.readHappening(fmt.Sprintf("%s[%d]", o.at("timetable"), i), text)
		if err != nil {
			return err
		}
		s.timetable = append(s.timetable, h)
	}
	slices.SortStableFunc(s.timetable, func(a, b happening) int { return a.at.Compare(b.at) })
	return nil
}

func (s *Scenario) readHappening(place string, text jsontext.Value) (h happening, err error) {
	o, err := readObject(place, text)
	if err != nil {
		return h, err
	}
	if err := o.only("at", "event", "payload", "contact", "contact_deleted"); err != nil {
		return h, err
	}
	if !o.has("at") {
		return h, fault.MissingField(o.at("at"))
	}
	if h.at, err = o.time("at", s.start); err != nil {
		return h, err
	}
	if h.at.Before(s.start) {
		return h, invalid(o.at("at"), "is before the start of the scenario, %s.", stamp(s.start))
	}
	if o.has("contact_deleted") {
		if json.Unmarshal(o.members["contact_deleted"], &h.deleted) != nil {
			return h, invalid(o.at("contact_deleted"), "must be true or false.")
		}
	}
	given := 0
	if h.deleted {
		given++
	}
	if o.has("event") {
		given++
		h.event = &Event{At: h.at}
		if err := h.event.read(o, "event"); err != nil {
			return h, err
		}
	} else if o.has("payload") {
		return h, invalid(o.at("payload"), "is that of an event, which is not there. Name it as `%s`.", o.at("event"))
	}
	if o.has("contact") {
		given++
		of, err := o.object("contact")
		if err != nil {
			return h, err
		}
		if err := of.only(changeMembers...); err != nil {
			return h, err
		}
		if h.change, err = readChange(of, h.at); err != nil {
			return h, err
		}
	}
	if given != 1 {
		return h, invalid(place, "must have one of `event`, `contact` and `contact_deleted`.")
	}
	return h, nil
}

// readWorld reads what the scenario says of the team.
func (s *Scenario) readWorld(o object) (err error) {
	s.world = &World{Properties: map[string]Property{}}
	if s.world.Topics, err = readTopics(o); err != nil {
		return err
	}
	if !o.has("properties") {
		return nil
	}
	all, err := o.object("properties")
	if err != nil {
		return err
	}
	if len(all.members) > maxMembers || len(s.world.Topics) > maxMembers {
		return invalid(o.place, "has more than %d properties or topics.", maxMembers)
	}
	for _, name := range slices.Sorted(maps.Keys(all.members)) {
		if s.world.Properties[name], err = readProperty(all, name); err != nil {
			return err
		}
	}
	return nil
}

func readProperty(all object, name string) (p Property, err error) {
	o, err := all.object(name)
	if err != nil {
		return p, err
	}
	if err := o.only("type", "fallback_value"); err != nil {
		return p, err
	}
	kind, err := o.required("type", MaxKey)
	if err != nil {
		return p, err
	}
	if p.Type = scalar.Type(kind); p.Type != scalar.String && p.Type != scalar.Number {
		return p, invalid(o.at("type"), "must be `string` or `number`.")
	}
	if !o.has("fallback_value") {
		return p, nil
	}
	place := o.at("fallback_value")
	if p.Fallback, err = readScalar(place, o.members["fallback_value"]); err != nil {
		return p, err
	}
	return p, p.Fallback.Check(place, p.Type)
}

// readOutcomes reads which effects fail or are not done.
func (s *Scenario) readOutcomes(o object) error {
	if !o.has("outcomes") {
		return nil
	}
	all, err := o.object("outcomes")
	if err != nil {
		return err
	}
	if len(all.members) > MaxSteps {
		return invalid(all.place, "has %d members; the limit is %d.", len(all.members), MaxSteps)
	}
	for _, key := range slices.Sorted(maps.Keys(all.members)) {
		one, err := all.object(key)
		if err != nil {
			return err
		}
		if err := one.only("fail", "skip"); err != nil {
			return err
		}
		outcome := Outcome{}
		reason, err := one.optional("fail", MaxKey)
		if err != nil {
			return err
		}
		if outcome.Skipped, err = one.optional("skip", MaxKey); err != nil {
			return err
		}
		if reason == "" == (outcome.Skipped == "") {
			return invalid(one.place, "must have one of `fail` and `skip`: a reason such as `template_not_found`.")
		}
		if reason != "" {
			outcome.Failure = &Failure{reason, "The scenario says so."}
		}
		s.outcomes[key] = outcome
	}
	return nil
}
