package engine

import (
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/schedule"
)

// maxAhead limits how far in the future the date of a wait may be.
const maxAhead = 400 * 24 * time.Hour

// waitUntil is the config of a step that waits for a date in a contact property, for a time of day, or for both.
type waitUntil struct {
	plain
	property string              // contact property with the date; "" to wait for the next occurrence of time
	time     *schedule.TimeOfDay // nil for midnight; ignored if the property's value has a time
	zone     string              // "" for UTC
	zoneOf   string              // contact property with the time zone; zone is used for contacts without it
}

var timeOfDay = regexp.MustCompile(`^([01][0-9]|2[0-3]):([0-5][0-9])$`)

func readWaitUntil(o jsonread.Object) (config, error) {
	c := waitUntil{}
	var err error
	if c.property, err = o.Optional("property", maxName); err != nil {
		return nil, err
	}
	c.property = strings.TrimPrefix(strings.TrimPrefix(c.property, "contact."), "properties.")
	text, err := o.Optional("time", 100)
	if err != nil {
		return nil, err
	}
	if text == "" && c.property == "" {
		return nil, fault.New(fault.Missing, o.At("property"), "Missing `%s` field. Name a property with a date, or a "+
			"time of day as `%s`, or both.", o.At("property"), o.At("time"))
	}
	if text != "" {
		m := timeOfDay.FindStringSubmatch(text)
		if m == nil {
			return nil, jsonread.Invalidf(o.At("time"), "is %s, but must be a time of day from `00:00` to `23:59`.",
				jsonread.Quote(text))
		}
		hour, _ := strconv.Atoi(m[1])
		minute, _ := strconv.Atoi(m[2])
		c.time = &schedule.TimeOfDay{Hour: hour, Minute: minute}
	}
	return c, c.readZone(o)
}

// readZone parses the time zone. The time zone is given either as a zone name, or as an object with a fallback zone and
// the name of the contact property that contains the zone.
func (c *waitUntil) readZone(o jsonread.Object) (err error) {
	path := o.At("timezone")
	switch {
	case !o.Has("timezone"):
		return nil
	case o.Members["timezone"].Kind() != '{':
		c.zone, err = o.Optional("timezone", 100)
	default:
		var of jsonread.Object
		if of, err = o.Object("timezone"); err != nil {
			return err
		}
		if c.zoneOf, err = of.Required("property", maxName); err != nil {
			return err
		}
		c.zoneOf = strings.TrimPrefix(strings.TrimPrefix(c.zoneOf, "contact."), "properties.")
		path = of.At("fallback")
		c.zone, err = of.Optional("fallback", 100)
	}
	if err != nil || c.zone == "" {
		return err
	}
	if _, err := schedule.Zone(c.zone); err != nil {
		return jsonread.Invalidf(path, "cannot be read: %v.", err)
	}
	return nil
}

func (c waitUntil) references(path string) (all []Reference) {
	if c.property != "" {
		all = append(all, Reference{Field: path + ".property", Kind: RefProperty, ID: c.property})
	}
	if c.zoneOf != "" {
		all = append(all, Reference{Field: path + ".timezone.property", Kind: RefProperty, ID: c.zoneOf})
	}
	return all
}

func (c waitUntil) plan(m *stepContext) (Action, error) {
	zone := c.location(m)
	var t time.Time
	switch {
	case c.property == "":
		t = c.time.Next(m.facts.Now, zone)
	case m.facts.Contact == nil:
		return Action{Skipped: NoContact}, nil
	default:
		v := m.facts.Contact.Properties[c.property]
		if v.Text == "" {
			return Action{Skipped: NoDate}, nil
		}
		var ok bool
		if t, ok = c.date(v, zone); !ok {
			return Action{Skipped: BadDate}, nil
		}
	}
	if t.Sub(m.facts.Now) > maxAhead {
		return Action{Failure: &Failure{TooFar, "The date to wait for is more than 400 days ahead."}}, nil
	}
	if !t.After(m.facts.Now) {
		return Action{Output: untilOutput(t)}, nil
	}
	return waitUntilTime(t), nil
}

func (c waitUntil) waitOver(m *stepContext) Action {
	return Action{Output: untilOutput(m.run.Waits.Until)}
}

// location returns the contact's time zone or, if the contact has no valid time zone, the step's time zone.
func (c waitUntil) location(m *stepContext) *time.Location {
	if m.facts.Contact != nil && c.zoneOf != "" {
		if zone, err := schedule.Zone(m.facts.Contact.Properties[c.zoneOf].Text); err == nil {
			return zone
		}
	}
	if zone, err := schedule.Zone(c.zone); err == nil {
		return zone
	}
	return time.UTC
}

// date converts the value of a contact property to a time. If the value is a date without a time, date uses the step's
// time of day. If the value is not a date, date returns false.
func (c waitUntil) date(v scalar.Value, zone *time.Location) (time.Time, bool) {
	if v.Type != scalar.String {
		return time.Time{}, false
	}
	d, ok := schedule.ParseDate(v.Text)
	if !ok {
		return time.Time{}, false
	}
	at := schedule.TimeOfDay{}
	if c.time != nil {
		at = *c.time
	}
	return d.In(zone, at), true
}

func (c waitUntil) jsonValue() any {
	w := map[string]any{}
	if c.property != "" {
		w["property"] = c.property
	}
	if c.time != nil {
		w["time"] = time.Date(0, 1, 1, c.time.Hour, c.time.Minute, 0, 0, time.UTC).Format("15:04")
	}
	switch {
	case c.zoneOf != "" && c.zone != "":
		w["timezone"] = map[string]string{"property": c.zoneOf, "fallback": c.zone}
	case c.zoneOf != "":
		w["timezone"] = map[string]string{"property": c.zoneOf}
	case c.zone != "":
		w["timezone"] = c.zone
	}
	return w
}
