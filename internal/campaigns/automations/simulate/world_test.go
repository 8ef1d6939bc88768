package simulate_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/automations/simulate"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/events"
)

const topic = "019a0000-0000-7000-8000-000000000002"

// inLine returns a linear graph in which each step is connected to the next by the first of its connection types.
func inLine(t testing.TB, trigger string, steps ...string) *engine.Graph {
	t.Helper()
	all := []string{`{"key":"start","type":"trigger","config":{"event_name":"` + trigger + `"}}`}
	var links []string
	from, by := "start", ""
	for i, step := range steps {
		kind, config, _ := strings.Cut(step, " ")
		key := string(rune('a' + i))
		all = append(all, fmt.Sprintf(`{"key":%q,"type":%q,"config":%s}`, key, kind, config))
		links = append(links, fmt.Sprintf(`{"from":%q,"to":%q,"type":%q}`, from, key, by))
		from, by = key, map[string]string{"condition": "condition_met", "wait_for_event": "event_received"}[kind]
	}
	return parse(t, "["+strings.Join(all, ",")+"]", "["+strings.Join(links, ",")+"]")
}

// ends returns the results of a simulation's steps in the form "a completed", "a skipped REASON" or "a failed REASON".
func ends(r *simulate.Report) (all []string) {
	for _, e := range r.Entries {
		text := fmt.Sprintf("%s %s", e.Step, e.Status)
		if reason, ok := e.Output["reason"]; ok {
			text += fmt.Sprint(" ", reason)
		}
		if e.Step != "" && e.Step != "start" && e.Status != simulate.Text(engine.StepWaiting) {
			all = append(all, strings.TrimSpace(text+" "+string(e.Reason)))
		}
	}
	return all
}

func waits(event string) string {
	return `wait_for_event {"event_name":"` + event + `","timeout":"5 days"}`
}

func asks(field, operator, value string) string {
	return fmt.Sprintf(`condition {"type":"rule","field":%q,"operator":%q,"value":%s}`, field, operator, value)
}

const mails = `send_email {"template":{"id":"hello"}}`

// Changes to the simulated contact cause the same events for the run as changes to a real contact.
func TestSimulatedContacts(t *testing.T) {
	t.Parallel()
	const ann = `"contact":{"email":"Ann@acme.example","segments":["` + segment + `"]}`
	for name, c := range map[string]struct {
		trigger  string
		steps    []string
		scenario string
		want     []string
	}{
		"a change": {"e", []string{waits("resend:contact.updated"), asks("wait_events.a.first_name", "eq", `"Bo"`),
			asks("wait_events.a.email", "eq", `"ann@acme.example"`)},
			`"timetable":[{"at":"in 1 day","contact":{"first_name":"Bo"}}]`,
			[]string{"a completed", "b completed", "c completed"}},
		"a change that changes nothing": {"e", []string{waits("postrider:contact.updated"), mails},
			`"timetable":[{"at":"in 1 day","contact":{"email":"ANN@acme.example","unsubscribed":false}}]`,
			[]string{"a completed"}},
		"another address": {"e", []string{waits("postrider:contact.updated"), mails},
			`"timetable":[{"at":"in 1 day","contact":{"email":"bo@acme.example"}}]`,
			[]string{"a completed", "b completed"}},
		"unsubscribing": {"e", []string{waits("postrider:contact.unsubscribed"), mails,
			waits("postrider:contact.resubscribed"), mails},
			`"timetable":[{"at":"in 1 day","contact":{"unsubscribed":true}},
				{"at":"in 2 days","contact":{"unsubscribed":false}}]`,
			[]string{"a completed", "b skipped contact_unsubscribed", "c completed", "d completed"}},
		"a topic": {"e", []string{waits("postrider:topic.opted_out"), asks("wait_events.a.topic_id", "eq", `"`+topic+`"`),
			waits("postrider:topic.opted_in"), mails},
			`"timetable":[{"at":"in 1 day","contact":{"topics":{"` + topic + `":"opt_out"}}},
				{"at":"in 2 days","contact":{"topics":{"` + topic + `":"opt_in"}}}]`,
			[]string{"a completed", "b completed", "c completed", "d completed"}},
		"leaving a segment": {"e", []string{waits("postrider:contact.updated"),
			asks("contact.segments", "neq", `"`+segment+`"`), mails},
			`"timetable":[{"at":"in 1 day","contact":{"left_segments":["` + segment + `"]}}]`,
			[]string{"a completed", "b completed", "c completed"}},
		// One transaction records both events, so a run that receives the first event is not yet waiting for the second.
		"two events of one change": {"e", []string{waits("postrider:contact.updated"),
			waits("postrider:contact.unsubscribed"), mails},
			`"timetable":[{"at":"in 1 day","contact":{"unsubscribed":true}}]`,
			[]string{"a completed", "b completed"}},
		"a change by the run itself": {"e", []string{`contact_update {"first_name":"Bo"}`,
			waits("postrider:contact.updated"), mails}, "", []string{"a completed", "b completed"}},
		"emails are counted": {"e", []string{asks("contact.engagement.mailed", "eq", "0"), mails,
			asks("contact.engagement.mailed", "eq", "1"), asks("contact.engagement.mailed_at", "exists", "null"),
			waits("postrider:email.clicked"), asks("contact.engagement.clicked", "eq", "1"),
			asks("wait_events.e.email_id", "exists", "null"), asks("wait_events.e.link", "eq", `"https://a.example"`)},
			`"timetable":[{"at":"in 1 day","event":"resend:email.clicked","payload":{"link":"https://a.example"}}]`,
			[]string{"a completed", "b completed", "c completed", "d completed", "e completed", "f completed",
				"g completed", "h completed"}},
		"a system event begins it": {"Resend:contact.created", []string{asks("event.email", "eq", `"ann@acme.example"`),
			asks("event.contact_id", "exists", "null"), asks("event.unsubscribed", "eq", "false"), mails}, "",
			[]string{"a completed", "b completed", "c completed", "d completed"}},
		"a system event with more": {"postrider:topic.opted_in", []string{asks("event.topic_id", "eq", `"x"`),
			asks("event.first_name", "is_empty", "null"), mails}, `"event":{"payload":{"topic_id":"x"}}`,
			[]string{"a completed", "b completed", "c completed"}},
	} {
		steps := slices.Clone(c.steps)
		for i := range steps {
			steps[i] = strings.Replace(steps[i], `,"value":null`, "", 1)
		}
		got := ends(run(t, inLine(t, c.trigger, steps...), strings.TrimSuffix(ann+","+c.scenario, ",")))
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// completeWorld returns a complete World with three contact properties, one topic and no segments.
func completeWorld() *simulate.World {
	return &simulate.World{Complete: true,
		Properties: map[string]simulate.Property{"seats": {Type: scalar.Number, Fallback: scalar.OfNumber(7)},
			"plan": {Type: scalar.String}, "due": {Type: scalar.String, Fallback: scalar.OfText("2026-08-08")}},
		Topics: map[string]string{topic: "opt_out"},
		Segment: func(id string) (*engine.Failure, error) {
			return &engine.Failure{Reason: "segment_not_found", Message: "No."}, nil
		},
		Fields: func(*filter.Rule) (filter.Schema, error) {
			return filter.Schema{Fields: map[string]filter.Field{"contact.topics." + topic: {Type: filter.ChoiceField,
				Default: filter.TextValue("opt_out")}, "contact.properties.seats": {Type: filter.NumberField},
				"contact.engagement.mailed": {Type: filter.NumberField}}}, nil
		}}
}

// Run treats properties and topics in the same way, whether they come from the scenario or from the caller's World.
func TestSimulatedTeam(t *testing.T) {
	t.Parallel()
	news := `send_email {"template":{"id":"hello"},"topic_id":"` + topic + `"}`
	seats := `contact_update {"properties":{"seats":{"var":"event.n"}}}`
	world := completeWorld()
	const ofTeam = `"topics":{"` + topic + `":"opt_out"},"properties":{"seats":{"type":"number","fallback_value":7},
		"plan":{"type":"string"},"due":{"type":"string","fallback_value":"2026-08-08"}},`
	for name, c := range map[string]struct {
		steps   []string
		contact string // JSON of the contact, optionally followed by more members of the scenario
		want    []string
		alone   []string // result without a World; nil if it equals want
	}{
		"a topic to opt in to": {[]string{news}, `{}`, []string{"a skipped topic_not_opted_in"}, nil},
		"one that it opted in to": {[]string{news, asks("contact.engagement.mailed", "eq", "1"), mails},
			`{"topics":{"` + topic + `":"opt_in"}}`, []string{"a completed", "b completed", "c completed"}, nil},
		"one that it opted out of": {[]string{news}, `{"topics":{"` + topic + `":"opt_out"}}`,
			[]string{"a skipped topic_opted_out"}, nil},
		"another topic": {[]string{strings.ReplaceAll(news, topic, segment)}, `{}`, []string{"a failed topic_not_found"},
			[]string{"a completed"}},
		"the default in rules": {[]string{asks("contact.topics."+topic, "eq", `"opt_out"`), mails}, `{}`,
			[]string{"a completed", "b completed"}, nil},
		"a text for a number": {[]string{seats, asks("contact.properties.seats", "eq", "5"), mails},
			`{},"event":{"payload":{"n":"5"}}`, []string{"a completed", "b completed", "c completed"}, nil},
		"a text that is no number": {[]string{seats}, `{},"event":{"payload":{"n":"05"}}`,
			[]string{"a failed property_wrong_type"}, nil},
		"a number": {[]string{seats, asks("contact.properties.seats", "gt", "3"), mails},
			`{},"event":{"payload":{"n":4}}`, []string{"a completed", "b completed", "c completed"}, nil},
		"a text that is too long": {[]string{`contact_update {"properties":{"plan":{"var":"event.n"}}}`},
			`{},"event":{"payload":{"n":"` + strings.Repeat("x", 2001) + `"}}`, []string{"a failed property_unusable"}, nil},
		"another property": {[]string{`contact_update {"properties":{"nope":1}}`}, `{}`,
			[]string{"a failed property_not_found"}, []string{"a completed"}},
		"a segment": {[]string{`add_to_segment {"segment_id":"` + segment + `"}`}, `{}`,
			[]string{"a failed segment_not_found"}, []string{"a completed"}},
		"fallbacks": {[]string{`contact_update {"first_name":{"var":"properties.seats"}}`,
			asks("event.n", "eq", "7"), `wait_until {"property":"due"}`, mails}, `{},"event":{"payload":{"n":7}}`,
			[]string{"a completed", "b completed", "c completed", "d completed"}, nil},
		"fallbacks are not in rules": {[]string{asks("contact.properties.seats", "is_empty", "null"), mails}, `{}`,
			[]string{"a completed", "b completed"}, nil},
	} {
		for i := range c.steps {
			c.steps[i] = strings.Replace(c.steps[i], `,"value":null`, "", 1)
		}
		g := inLine(t, "e", c.steps...)
		who, rest, _ := strings.Cut(c.contact, "},\"event")
		if rest != "" {
			who, rest = who+"}", `,"event`+rest
		}
		who = strings.Replace(strings.Replace(who, "{", `{"email":"a@b.example",`, 1), ",}", "}", 1)
		text := `{"start":"2026-08-05",` + ofTeam + `"contact":` + who + rest + "}"
		for of, w := range map[string]*simulate.World{"the team": world, "the scenario": nil} {
			s, err := simulate.ParseScenario([]byte(text), noon)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			r, err := simulate.Run(g, s, w)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			want := c.want
			if w == nil && c.alone != nil {
				want = c.alone
			}
			if diff := cmp.Diff(want, ends(r)); diff != "" {
				t.Errorf("%s, by %s (-want +got):\n%s", name, of, diff)
			}
		}
	}
}

// Run rejects a scenario that names properties or topics that are missing from a complete World. Run returns errors
// from the World's functions.
func TestScenarioOutsideTheWorld(t *testing.T) {
	t.Parallel()
	world := completeWorld()
	for text, want := range map[string]string{
		`"contact":{"email":"a@b.example","properties":{"nope":1}}`: "scenario.contact: The `scenario.contact` field is " +
			"not possible. The `properties` field names \"nope\"",
		`"contact":{"email":"a@b.example","topics":{"` + segment + `":"opt_in"}}`: "scenario.contact.topics: The " +
			"`scenario.contact.topics` field names " + segment + ", which is no topic",
		`"contact":{"email":"a@b.example"},"timetable":[{"at":"tomorrow at 9am","contact":
			{"properties":{"seats":"x"}}}]`: "" +
			"scenario.timetable[0].contact: The `scenario.timetable[0].contact` field is not possible. The " +
			"`properties.seats` field must be a number.",
	} {
		s, err := simulate.ParseScenario([]byte("{"+text+"}"), noon)
		if err == nil {
			_, err = simulate.Run(inLine(t, "e", mails), s, world)
		}
		if f, ok := errors.AsType[*fault.Error](err); !ok || !strings.HasPrefix(f.Field+": "+f.Message, want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	lost := errors.New("the database was lost")
	world.Segment = func(string) (*engine.Failure, error) { return nil, lost }
	s, err := simulate.ParseScenario([]byte(`{"contact":{"email":"a@b.example"}}`), noon)
	if err != nil {
		t.Fatal(err)
	}
	g := inLine(t, "e", `add_to_segment {"segment_id":"`+segment+`"}`)
	if _, err := simulate.Run(g, s, world); !errors.Is(err, lost) {
		t.Errorf("an error of the caller: %v", err)
	}
}

// The total size of a report is limited, even if the graph produces large payloads.
func TestReportIsBounded(t *testing.T) {
	t.Parallel()
	var values, steps []string
	for i := range 15 {
		values = append(values, fmt.Sprintf(`"V%d":{"var":"event.x"}`, i))
	}
	for range 20 {
		steps = append(steps, `send_email {"template":{"id":"hello","variables":{`+strings.Join(values, ",")+`}}}`)
	}
	steps = append(steps, `webhook {"url":"https://a.example","payload":{"x":{"var":"event.x"}}}`)
	r := run(t, inLine(t, "e", steps...), `"contact":{"email":"a@b.example"},"event":{"payload":{"x":"`+
		strings.Repeat("x", 32<<10-10)+`"}}`)
	text, err := json.Marshal(r)
	if err != nil || len(text) > simulate.MaxReport+1<<16 {
		t.Errorf("a report of %d bytes, %v", len(text), err)
	}
	if len(r.Emails) != 20 || len(r.Emails[0].Variables) != 15 || len(r.Emails[19].Variables) != 0 ||
		r.Omitted != 19 || len(r.Calls) != 1 || string(r.Calls[0].Body) != "null" || r.Status != "completed" {
		t.Errorf("%d emails, %d omitted, %s; the calls: %.100q", len(r.Emails), r.Omitted, r.Status, r.Calls)
	}
}

// A run fails if the stored members of its received events exceed the limit, and the remaining timetable entries are
// ignored.
func TestTooMuchReceived(t *testing.T) {
	t.Parallel()
	const steps = 6
	var line, refs, timetable []string
	text := strings.Repeat("y", events.MaxPayload-20)
	for i := range steps {
		line = append(line, waits("e"))
		refs = append(refs, fmt.Sprintf(`{"var":"wait_events.%c.x"}`, 'a'+i))
		timetable = append(timetable, fmt.Sprintf(`{"at":"in %d minutes","event":"e","payload":{"x":%q}}`, i+1, text))
	}
	line = append(line, `webhook {"url":"https://a.example","payload":{"all":[`+strings.Join(refs, ",")+`]}}`)
	r := run(t, inLine(t, "began", line...), `"contact":{"email":"a@x.example"},"timetable":[`+
		strings.Join(timetable, ",")+`]`)
	if r.Status != "failed" || r.Reason != engine.ReceivedTooLarge || r.Ignored != 1 {
		t.Errorf("the simulation: %s, %s, %d ignored", r.Status, r.Reason, r.Ignored)
	}
}
