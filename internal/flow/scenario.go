package flow

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/fault"
	"github.com/postrider/postrider/internal/id"
	"github.com/postrider/postrider/internal/scalar"
	"github.com/postrider/postrider/internal/schedule"
)

// Limits of scenarios.
const (
	MaxScenario  = 2 << 20 // octets of JSON
	MaxTimetable = 1000    // entries
	maxMembers   = 200     // properties, segments or topics of the made-up contact
)

// madeUp is the id of a made-up contact whose scenario gives none.
const madeUp = "00000000-0000-7000-8000-000000000001"

// Scenario is a made-up contact and what happens to it: the event that begins a run, and a timetable.
type Scenario struct {
	run       string
	start     time.Time
	contact   *person
	event     Event // without a name for that of the only trigger
	timetable []happening
	outcomes  map[string]Outcome
}

// happening is an entry of the timetable: an event, a change of the contact, or its deletion.
type happening struct {
	at      time.Time
	event   *Event
	change  *object
	deleted bool
}

// person is a made-up contact.
type person struct {
	Contact
	segments   []string
	topics     map[string]string // opt_in or opt_out, by the id
	engagement map[string]any    // a number or a time, by the name of the field
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
		if err := s.event.read(e, "name"); err != nil {
			return nil, err
		}
	}
	if err := s.readTimetable(o); err != nil {
		return nil, err
	}
	return s, s.readOutcomes(o)
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
	return t, nil
}

// read reads the name, which is the member of that name, and the payload of an event.
func (e *Event) read(o object, name string) (err error) {
	if e.Name, err = o.optional(name, MaxEvent); err != nil || !o.has("payload") {
		return err
	}
	place := o.at("payload")
	if n := len(o.members["payload"]); n > MaxPayload {
		return invalid(place, "has %d octets of JSON; the limit is %d.", n, MaxPayload)
	}
	if err := json.Unmarshal(o.members["payload"], &e.Payload); err != nil || e.Payload == nil {
		return invalid(place, "must be an object, with each member once and in UTF-8.")
	}
	return CheckNumbers(place, o.members["payload"])
}

func readPerson(o object, start time.Time) (p *person, err error) {
	p = &person{Contact: Contact{ID: madeUp, Properties: map[string]scalar.Value{}}, topics: map[string]string{}}
	if p.Address, err = o.required("email", maxMailbox); err != nil {
		return nil, err
	}
	if text, err := o.optional("id", MaxKey); err != nil {
		return nil, err
	} else if text != "" {
		p.ID = text
	}
	if p.CreatedAt, err = o.time("created_at", start); err != nil {
		return nil, err
	}
	return p, p.change(o)
}

// change reads what is given of a contact, and leaves the rest as it is. Null clears names and properties.
func (p *person) change(o object) (err error) {
	for _, name := range []struct {
		name string
		to   *string
	}{{"first_name", &p.FirstName}, {"last_name", &p.LastName}} {
		if _, ok := o.members[name.name]; ok {
			if *name.to, err = o.optional(name.name, maxContactName); err != nil {
				return err
			}
		}
	}
	if o.has("unsubscribed") {
		if json.Unmarshal(o.members["unsubscribed"], &p.Unsubscribed) != nil {
			return invalid(o.at("unsubscribed"), "must be true or false.")
		}
	}
	if err := p.changeProperties(o); err != nil {
		return err
	}
	segments, err := o.list("segments")
	if err != nil {
		return err
	}
	for i, text := range segments {
		segment, err := readLine(fmt.Sprintf("%s[%d]", o.at("segments"), i), text, MaxKey)
		if err != nil {
			return err
		}
		p.add(strings.ToLower(segment))
	}
	if err := p.changeTopics(o); err != nil {
		return err
	}
	if len(p.Properties) > maxMembers || len(p.segments) > maxMembers || len(p.topics) > maxMembers {
		return invalid(o.place, "has more than %d properties, segments or topics.", maxMembers)
	}
	return p.changeEngagement(o)
}

// add adds the contact to a segment.
func (p *person) add(segment string) {
	if !slices.Contains(p.segments, segment) {
		p.segments = append(p.segments, segment)
	}
}

func (p *person) changeProperties(o object) error {
	if !o.has("properties") {
		return nil
	}
	members, err := o.object("properties")
	if err != nil {
		return err
	}
	for name, text := range members.members {
		v := scalar.Value{}
		switch text.Kind() {
		case jsontext.KindNull:
			delete(p.Properties, name)
			continue
		case jsontext.KindNumber:
			n, err := readNumber(members.at(name), text)
			if err != nil {
				return err
			}
			v = scalar.OfNumber(n)
		default:
			s, err := readText(members.at(name), text, scalar.MaxText)
			if err != nil {
				return err
			}
			v = scalar.OfText(s)
		}
		p.Properties[name] = v
	}
	return nil
}

func (p *person) changeTopics(o object) error {
	if !o.has("topics") {
		return nil
	}
	members, err := o.object("topics")
	if err != nil {
		return err
	}
	for topic := range members.members {
		choice, err := members.required(topic, MaxKey)
		if err != nil {
			return err
		}
		if !id.Valid(topic) || choice != "opt_in" && choice != "opt_out" {
			return invalid(members.at(topic), "must be `opt_in` or `opt_out` by the id of a topic.")
		}
		p.topics[strings.ToLower(topic)] = choice
	}
	return nil
}

// changeEngagement reads what is known of the mail that the contact got.
func (p *person) changeEngagement(o object) error {
	if !o.has("engagement") {
		return nil
	}
	members, err := o.object("engagement")
	if err != nil {
		return err
	}
	p.engagement = maps.Clone(p.engagement)
	if p.engagement == nil {
		p.engagement = map[string]any{}
	}
	for _, name := range []string{"mailed", "opened", "clicked"} {
		if members.has(name) {
			if p.engagement[name], err = readNumber(members.at(name), members.members[name]); err != nil {
				return err
			}
		}
		if members.has(name + "_at") {
			if p.engagement[name+"_at"], err = members.time(name+"_at", time.Time{}); err != nil {
				return err
			}
		}
	}
	return nil
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
		if h.event.Name == "" {
			return h, fault.MissingField(o.at("event"))
		}
	}
	if o.has("contact") {
		given++
		change, err := o.object("contact")
		if err != nil {
			return h, err
		}
		// What is wrong with it is found now and not when its time has come.
		trial := &person{Contact: Contact{Properties: map[string]scalar.Value{}}, topics: map[string]string{}}
		if err := trial.change(change); err != nil {
			return h, err
		}
		h.change = &change
	}
	if given != 1 {
		return h, invalid(place, "must have one of `event`, `contact` and `contact_deleted`.")
	}
	return h, nil
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
