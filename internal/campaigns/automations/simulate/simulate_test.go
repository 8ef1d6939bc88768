package simulate_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/campaigns/automations/simulate"
	"github.com/postrider/postrider/internal/lib/fault"
)

const (
	start   = `{"key":"start","type":"trigger","config":{"event_name":"user.created"}}`
	segment = "019a0000-0000-7000-8000-000000000001"
)

var noon = time.Date(2026, 8, 5, 12, 0, 0, 0, time.UTC)

// parse parses a graph and fails the test if the graph is invalid.
func parse(t testing.TB, steps, connections string) *engine.Graph {
	t.Helper()
	g, err := engine.Parse([]byte(steps), []byte(connections))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return g
}

// A graph with two triggers. A scenario for this graph must name the event.
const (
	twoTriggers = `[` + start + `,{"key":"added","type":"trigger","config":{"event_name":"postrider:contact.created"}},
		{"key":"mail","type":"send_email","config":{"template":{"id":"hello"}}}]`
	twoTriggersConnected = `[{"from":"start","to":"mail"},{"from":"added","to":"mail"}]`
)

const welcome = `[` + start + `,
	{"key":"hello","type":"send_email","config":{"template":{"id":"hello","variables":{"NAME":{"var":"contact.first_name"},
		"PLAN":{"var":"event.plan"}}}}},
	{"key":"settle","type":"delay","config":{"duration":"3 days"}},
	{"key":"order","type":"wait_for_event","config":{"event_name":"order.placed","timeout":"1 week","filter_rule":
		{"type":"rule","field":"event.total","operator":"gt","value":0}}},
	{"key":"big","type":"condition","config":{"type":"and","rules":[
		{"type":"rule","field":"wait_events.order.total","operator":"gte","value":100},
		{"type":"rule","field":"contact.properties.seats","operator":"gt","value":3},
		{"type":"rule","field":"contact.segments","operator":"neq","value":"` + segment + `"},
		{"type":"rule","field":"contact.engagement.opened","operator":"eq","value":2},
		{"type":"rule","field":"contact.engagement.opened_at","operator":"within_last","value":"30 days"},
		{"type":"rule","field":"contact.topics.019a0000-0000-7000-8000-000000000002","operator":"eq","value":"opt_out"}]}},
	{"key":"vip","type":"add_to_segment","config":{"segment_id":"` + segment + `"}},
	{"key":"mark","type":"contact_update","config":{"last_name":null,"properties":{
		"total":{"var":"wait_events.order.total"},"plan":null}}},
	{"key":"news","type":"send_email","config":{"template":{"id":"news"},
		"topic_id":"019a0000-0000-7000-8000-000000000002"}},
	{"key":"tell","type":"webhook","config":{"url":"https://acme.example/vip"}},
	{"key":"remind","type":"send_email","config":{"template":{"id":"remind"}}},
	{"key":"bye","type":"contact_delete","config":{}},
	{"key":"late","type":"send_email","config":{"template":{"id":"late"}}}]`

const welcomeConnected = `[{"from":"start","to":"hello"},{"from":"hello","to":"settle"},{"from":"settle","to":"order"},
	{"from":"order","to":"big","type":"event_received"},{"from":"order","to":"remind","type":"timeout"},
	{"from":"big","to":"vip","type":"condition_met"},{"from":"vip","to":"mark"},{"from":"mark","to":"news"},
	{"from":"news","to":"tell"},{"from":"remind","to":"bye"},{"from":"bye","to":"late"}]`

const person = `"start":"2026-08-05T12:00:00Z","contact":{"email":"Ann@acme.example","first_name":"Ann",
	"last_name":"Lee",
	"properties":{"seats":5,"plan":"pro"},"topics":{"019A0000-0000-7000-8000-000000000002":"opt_out"},
	"engagement":{"opened":2,"opened_at":"2026-08-01"}},"event":{"payload":{"plan":"team"}}`

// run simulates a scenario and fails the test if the scenario is invalid.
func run(t testing.TB, g *engine.Graph, scenario string) *simulate.Report {
	t.Helper()
	s, err := simulate.ParseScenario([]byte("{"+scenario+"}"), noon)
	if err != nil {
		t.Fatalf("ParseScenario: %v", err)
	}
	r, err := simulate.Run(g, s, nil)
	if err != nil {
		t.Fatalf("Simulate: %v", err)
	}
	return r
}

// reportLines formats each entry of a report as one line.
func reportLines(r *simulate.Report) (lines []string) {
	for _, e := range r.Entries {
		lines = append(lines, strings.Join([]string{e.After, string(e.Step + e.Event), string(e.Status), e.Sentence,
			string(e.Next)},
			"|"))
	}
	return append(lines, strings.Join([]string{r.Took, r.Status, string(r.Reason), fmt.Sprint(r.Ignored)}, "|"))
}

// In the simulation, the welcome series takes different branches with and without an order.
func TestSimulate(t *testing.T) {
	t.Parallel()
	g := parse(t, welcome, welcomeConnected)
	beginning := []string{
		"at once|start|completed|The event `user.created` begins the run.|hello",
		"at once|hello|completed|Sends the template `hello` to ann@acme.example.|settle",
		"at once|settle|waiting|Waits until 2026-08-08 12:00:00 UTC.|",
	}
	r := run(t, g, person+`,"timetable":[
		{"at":"in 11 days","event":"late"},
		{"at":"2026-08-10T12:00:00Z","event":"order.placed","payload":{"total":120}},
		{"at":"in 1 day","event":"order.placed","payload":{"total":120}},
		{"at":"in 4 days","event":"order.placed","payload":{"total":0}},
		{"at":"in 4 days","contact":{"first_name":"Bo"}}]`)
	want := append(beginning,
		"1 day|order.placed||The event is ignored, because the run does not wait for it.|",
		"3 days|settle|completed|The time has come.|order",
		"3 days|order|waiting|Waits for the event `order.placed` until 2026-08-15 12:00:00 UTC.|",
		"4 days|order.placed||The event is ignored, because the run does not wait for it.|",
		"4 days|||The contact changes.|",
		"5 days|order|completed|The event `order.placed` came.|big",
		"5 days|big|completed|The condition is met.|vip",
		"5 days|vip|completed|Adds the contact to the segment "+segment+".|mark",
		"5 days|mark|completed|Changes last_name, properties.plan, properties.total.|news",
		"5 days|news|skipped|Sends nothing, because the contact opted out of the topic.|tell",
		"5 days|tell|completed|Posts to https://acme.example/vip.|",
		"5 days|completed||1")
	if diff := cmp.Diff(want, reportLines(r)); diff != "" {
		t.Errorf("with an order (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]simulate.Mail{{At: noon, After: "at once", Step: "hello", To: "ann@acme.example",
		Template:  "hello",
		Variables: map[string]any{"NAME": "Ann", "PLAN": "team"}}}, r.Emails); diff != "" {
		t.Errorf("the emails (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(&simulate.Person{ID: "00000000-0000-7000-8000-000000000001", Email: "ann@acme.example",
		FirstName:  "Bo",
		Properties: map[string]any{"seats": 5.0, "total": 120.0}, Segments: []string{segment},
		Topics: map[string]string{"019a0000-0000-7000-8000-000000000002": "opt_out"}}, r.Contact); diff != "" {
		t.Errorf("the contact (-want +got):\n%s", diff)
	}
	if len(r.Calls) != 1 || r.Calls[0].Step != "tell" || !strings.Contains(string(r.Calls[0].Body),
		`"first_name":"Bo"`) {
		t.Errorf("the calls: %+v", r.Calls)
	}
	if text, err := json.Marshal(r); err != nil || !strings.Contains(string(text), `"at":"2026-08-05T12:00:00Z"`) {
		t.Errorf("the report as JSON: %s, %v", text, err)
	}

	r = run(t, g, person+`,"timetable":[{"at":"in 10 days","event":"order.placed","payload":{"total":1}}]`)
	want = append(beginning[:3:3],
		"3 days|settle|completed|The time has come.|order",
		"3 days|order|waiting|Waits for the event `order.placed` until 2026-08-15 12:00:00 UTC.|",
		"10 days|order|completed|The event `order.placed` did not come in time.|remind",
		"10 days|remind|completed|Sends the template `remind` to ann@acme.example.|bye",
		"10 days|bye|completed|Deletes the contact.|late",
		"10 days|late|skipped|Does nothing, because the contact was deleted.|",
		"10 days|completed||1")
	if diff := cmp.Diff(want, reportLines(r)); diff != "" || r.Contact != nil {
		t.Errorf("without an order, %v (-want +got):\n%s", r.Contact, diff)
	}

	r = run(t, g, person+`,"timetable":[{"at":"in 2 days","contact":{"unsubscribed":true}},
		{"at":"in 9 days","contact_deleted":true}]`)
	if got := reportLines(r); got[len(got)-1] != "9 days|cancelled|contact_deleted|0" {
		t.Errorf("a contact that is deleted: %q", got)
	}
	r = run(t, g, person+`,"timetable":[{"at":"in 2 days","contact":{"unsubscribed":true}}],
		"outcomes":{"bye":{"fail":"contact_not_found"}}`)
	got := reportLines(r)
	if diff := cmp.Diff([]string{"10 days|remind|skipped|Sends nothing, because the contact is unsubscribed.|bye",
		"10 days|bye|failed|Fails: The scenario makes this step fail.|", "10 days|failed|contact_not_found|0"},
		got[len(got)-3:]); diff != "" {
		t.Errorf("a step that fails (-want +got):\n%s", diff)
	}
}

// A simulation does not modify its scenario, so repeating the simulation gives the same result.
func TestSimulateAgain(t *testing.T) {
	t.Parallel()
	g := parse(t, welcome, welcomeConnected)
	s, err := simulate.ParseScenario([]byte("{"+person+`,"timetable":[{"at":"in 5 days","event":"order.placed","payload":
		{"total":500}},{"at":"in 1 hour","contact":{"engagement":{"opened":2},"properties":{"a":"b"},
		"segments":["x"]}}]}`), noon)
	if err != nil {
		t.Fatal(err)
	}
	var first []byte
	for range 3 {
		r, err := simulate.Run(g, s, nil)
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = text
		}
		if string(text) != string(first) {
			t.Errorf("simulated again:\n%s\nbefore:\n%s", text, first)
		}
	}
}

func TestScenarioRefused(t *testing.T) {
	t.Parallel()
	const who = `"contact":{"email":"a@b.example"}`
	for text, want := range map[string]string{
		`[]`:             "scenario: The `scenario` field must be an object, with each member once and in UTF-8.",
		`{}`:             "scenario.contact: Missing `scenario.contact` field.",
		`{"contact":{}}`: "scenario.contact.email: Missing `scenario.contact.email` field.",
		`{` + who + `,"topics":[],"timetabel":[]}`: "scenario.timetabel: The `scenario.timetabel` field is not known. " +
			"There are `start`, `contact`, `event`, `timetable`, `outcomes`, `run`, `properties`, `topics`.",
		`{"contact":{"email":"a@b.example","name":"A"}}`: "scenario.contact.name: The `scenario.contact.name` field is " +
			"not known. There are `email`, `first_name`, `last_name`, `unsubscribed`, `properties`, `segments`, `topics`, " +
			"`engagement`, `id`, `created_at`.",
		`{"contact":{"email":"a@b.example","engagement":{"open":1}}}`: "scenario.contact.engagement.open: The",
		`{"contact":{"email":"a"}}`: "scenario.contact.email: The " +
			"`scenario.contact.email` field is no address",
		`{` + who + `,"event":{"event":"x"}}`: "scenario.event.event: The `scenario.event.event` " +
			"field is not",
		`{` + who + `,"event":{"name":"resend:x"}}`: "scenario.event.name: The `scenario.event.name` " +
			"field names no",
		`{` + who + `,"outcomes":{"mail":{"by":1}}}`: "scenario.outcomes.mail.by: The " +
			"`scenario.outcomes.mail.by` field",
		`{` + who + `,"properties":{"a":{}}}`:         "scenario.properties.a.type: Missing",
		`{` + who + `,"properties":{"a":{"type":1}}}`: "scenario.properties.a.type: The",
		`{` + who + `,"properties":{"a":{"type":"number","fallback_value":"x"}}}`: "scenario.properties.a." +
			"fallback_value: The `scenario.properties.a.fallback_value` field must be a number.",
		`{` + who + `,"properties":{"a":{"type":"boolean"}}}`: "scenario.properties.a.type: The " +
			"`scenario.properties.a.type` field must be `string` or `number`.",
		`{` + who + `,"topics":{"x":"opt_in"}}`: "scenario.topics.x: The `scenario.topics.x` field must be",
		`{` + who + `,"timetable":[{"at":"in 1 day","payload":{}}]}`: "scenario.timetable[0].payload: The " +
			"`scenario.timetable[0].payload` field is that of an event, which is not there.",
		`{` + who + `,"timetable":[{"at":"in 1 day","contact":{"id":"x"}}]}`: "scenario.timetable[0].contact.id: The",
		`{` + who + `,"start":"9999-12-31T23:00:00Z"}`: "scenario.start: The `scenario.start` field must be a time from " +
			"the years 1970 to 8999.",
		`{` + who + `,"start":"1969-12-31"}`: "scenario.start: The `scenario.start` field must be a time from",
		`{` + who + `,"start":"8999-12-31","timetable":[{"at":"in 2 days"}]}`: "scenario.timetable[0].at: The " +
			"`scenario.timetable[0].at` field must be a time from",
		`{"contact":{"email":"a@b.example","created_at":"9000-01-01"}}`: "scenario.contact.created_at: The",
		"{" + strings.Repeat(" ", 256<<10) + "}": "scenario: The `scenario` field has 262146 bytes of JSON; the limit " +
			"is 262144.",
		`{"start":"x",` + who +
			`}`: "scenario.start: The `scenario.start` field cannot be read: \"x\" is not understood as a time",
		`{"contact":{"email":"a@b.example","unsubscribed":1}}`: "scenario.contact.unsubscribed: The " +
			"`scenario.contact.unsubscribed` field must be true or false.",
		`{"contact":{"email":"a@b.example","properties":{"a":true}}}`: "scenario.contact.properties.a: The " +
			"`scenario.contact.properties.a` field must be a text in UTF-8.",
		`{"contact":{"email":"a@b.example","segments":[1]}}`: "scenario.contact.segments[0]: The " +
			"`scenario.contact.segments[0]` field must be a text in UTF-8.",
		`{"contact":{"email":"a@b.example","topics":{"x":"opt_in"}}}`: "scenario.contact.topics.x: The " +
			"`scenario.contact.topics.x` field must be `opt_in` or `opt_out` by the id of a topic.",
		`{"contact":{"email":"a@b.example","engagement":{"opened":"x"}}}`: "scenario.contact.engagement.opened: The " +
			"`scenario.contact.engagement.opened` field must be a number",
		`{` + who +
			`,"event":{"payload":[]}}`: "scenario.event.payload: The `scenario.event.payload` field must be an object",
		`{` + who + `,"event":{"name":"user.created","payload":{
			"ids":[1,12345678901234567]}}}`: "scenario.event.payload.ids[1]: " +
			"The `scenario.event.payload.ids[1]` field must be a number from -9007199254740991 to 9007199254740991. Send",
		`{` + who + `,"timetable":[{"at":"in 1 day","event":"x","payload":{
			"id":1e30}}]}`: "scenario.timetable[0].payload.id: " +
			"The `scenario.timetable[0].payload.id` field must be a number",
		`{` + who +
			`,"event":{"name":"x"}}`: "scenario.event.name: The `scenario.event.name` field is \"x\", for which there " +
			"is no trigger. Use `user.created` or `postrider:contact.created`.",
		`{` + who + `}`: "scenario.event.name: The `scenario.event.name` field must be one of `user.created`, " +
			"`postrider:contact.created`.",
		`{` + who + `,"timetable":[{}]}`: "scenario.timetable[0].at: Missing `scenario.timetable[0].at` field.",
		`{` + who +
			`,"timetable":[{"at":"in 1 day"}]}`: "scenario.timetable[0]: The `scenario.timetable[0]` field must have " +
			"one of `event`, `contact` and `contact_deleted`.",
		`{` + who + `,"timetable":[{"at":"in 1 day","event":""}]}`: "scenario.timetable[0].event: Missing " +
			"`scenario.timetable[0].event` field.",
		`{` + who + `,"timetable":[{"at":"2020-01-01","event":"x"}]}`: "scenario.timetable[0].at: The " +
			"`scenario.timetable[0].at` field is before the start of the scenario, 2026-08-05T12:00:00.000Z.",
		`{` + who +
			`,"timetable":[{"at":"in 1 day","contact":{"first_name":1}}]}`: "scenario.timetable[0].contact.first_name: " +
			"The `scenario.timetable[0].contact.first_name` field must be a text in UTF-8.",
		`{` + who + `,"timetable":[` + strings.Repeat("1,", 1000) +
			`1]}`: "scenario.timetable: The `scenario.timetable` field " +
			"has 1001 entries; the limit is 1000.",
		`{` + who +
			`,"outcomes":{"mail":{}}}`: "scenario.outcomes.mail: The `scenario.outcomes.mail` field must have one of " +
			"`fail` and `skip`: a reason such as `template_not_found`.",
		`{` + who +
			`,"outcomes":{"nobody":{"fail":"x"}}}`: "scenario.outcomes.nobody: The `scenario.outcomes.nobody` field " +
			"names no step.",
	} {
		s, err := simulate.ParseScenario([]byte(text), noon)
		if err == nil {
			_, err = simulate.Run(parse(t, twoTriggers, twoTriggersConnected), s, nil)
		}
		f, ok := err.(*fault.Error)
		if !ok || !strings.HasPrefix(f.Field+": "+f.Message, want) {
			t.Errorf("%.100s: %v\nwant %s", text, err, want)
		}
	}
}

// FuzzScenario checks that every input produces either a fault or a report.
func FuzzScenario(f *testing.F) {
	f.Add("{" + person + `,"timetable":[{"at":"in 5 days","event":"order.placed","payload":{"total":500}}]}`)
	f.Add(`{"contact":{"email":"a@b.example"},"event":{"name":"user.created"},
		"timetable":[{"at":"in 3 days","contact_deleted":true}]}`)
	f.Add(`{"contact":{"email":"a@b.example"},"outcomes":{"hello":{"skip":"x"}},"start":"tomorrow at 9am"}`)
	g := parse(f, welcome, welcomeConnected)
	f.Fuzz(func(t *testing.T, text string) {
		s, err := simulate.ParseScenario([]byte(text), noon)
		var r *simulate.Report
		if err == nil {
			r, err = simulate.Run(g, s, nil)
		}
		if err != nil {
			if e, ok := err.(*fault.Error); !ok || !strings.HasPrefix(e.Field, "scenario") {
				t.Fatalf("%v", err)
			}
			return
		}
		if r.Status == "" || len(r.Entries) > 2*engine.MaxSteps+simulate.MaxTimetable || r.EndedAt.Before(r.StartedAt) {
			t.Fatalf("the report: %+v", r)
		}
	})
}

// BenchmarkSimulate simulates a 30-day email series with a thousand events.
func BenchmarkSimulate(b *testing.B) {
	g := parse(b, welcome, welcomeConnected)
	events := strings.TrimSuffix(strings.Repeat(`{"at":"in 4 days","event":"order.placed","payload":{"total":0}},`,
		1000), ",")
	for name, timetable := range map[string]string{"alone": "", "events": events} {
		s, err := simulate.ParseScenario([]byte("{"+person+`,"timetable":[`+timetable+`]}`), noon)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if r, err := simulate.Run(g, s, nil); err != nil || r.EndedAt.Sub(r.StartedAt) != 10*24*time.Hour {
					b.Fatal(r, err)
				}
			}
		})
	}
}
