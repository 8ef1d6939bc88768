package engine_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/lib/fault"
)

var noon = time.Date(2026, 8, 5, 12, 0, 0, 0, time.UTC)

// payload decodes an event payload from JSON.
func payload(t testing.TB, text string) (p map[string]any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Fatal(err)
	}
	return p
}

func ann() *engine.Contact {
	return &engine.Contact{ID: "c1", Address: "ann@acme.example", FirstName: "Ann", CreatedAt: noon.Add(-time.Hour),
		Properties: map[string]scalar.Value{"plan": scalar.OfText("pro"), "seats": scalar.OfNumber(5),
			"birthday": scalar.OfText("2026-08-10"), "tz": scalar.OfText("America/New_York"), "empty": {}}}
}

const began = `{"plan":"team","n":1.5,"yes":true,"none":null,"list":["a",2,null,false],
	"items":[{"x":1}],"mixed":["a",[1]],
	"user":{"name":"Bo","a.b":"dot",
	"of":{"it":3}},"user.name":"whole","empty":""}`

// atStep returns a graph and a run that is at the third step of the graph.
func atStep(t testing.TB, kind, config string) (*engine.Graph, *engine.Run) {
	t.Helper()
	g := parse(t, `[`+start+`,{"key":"before","type":"wait_for_event","config":{"event_name":"order.placed"}},
		{"key":"x","type":"`+kind+`","config":`+config+`}]`,
		`[{"from":"start","to":"before"},{"from":"before","to":"x","type":"event_received"}]`)
	return g, &engine.Run{ID: "run", At: "x", Event: engine.Event{Name: "user.created", Payload: payload(t, began),
		At: noon},
		Received: map[string]engine.Event{"before": {Name: "order.placed", Payload: payload(t,
			`{"total":30,"by":{"id":"7"}}`)}}}
}

func plan(t testing.TB, g *engine.Graph, r *engine.Run, f engine.Facts) engine.Action {
	t.Helper()
	a, err := g.Plan(r, f)
	if err != nil {
		t.Fatalf("Plan: %v", err)
	}
	return a
}

func TestEmail(t *testing.T) {
	t.Parallel()
	text, number := scalar.OfText, scalar.OfNumber
	for config, want := range map[string]map[string]scalar.Value{
		`"text"`: {"V": text("text")}, `""`: {"V": text("")}, `2.50`: {"V": number(2.5)}, `true`: {"V": text("true")},
		`null`:                 {},
		`{"var":"event.plan"}`: {"V": text("team")}, `{"var":"event.n"}`: {"V": number(1.5)},
		`{"var":"event.yes"}`:  {"V": text("true")},
		`{"var":"event.none"}`: {}, `{"var":"event.missing"}`: {}, `{"var":"event.empty"}`: {"V": text("")},
		`{"var":"event.user.name"}`: {"V": text("whole")}, `{"var":"event.user.a.b"}`: {"V": text("dot")},
		`{"var":"event.user.of.it"}`: {"V": number(3)}, `{"var":"event.user.of.it.x"}`: {},
		`{"var":"event.list"}`: {"V": text("a, 2, false")}, `{"var":"event.items"}`: {}, `{"var":"event.mixed"}`: {},
		`["a",{"var":"event.items"}]`: {},
		`{"var":"event.user"}`:        {"V_name": text("Bo"), "V_a.b": text("dot"), "V_of_it": number(3)},
		`{"a":{"var":"event.plan"},"b":{"var":"event.missing"},"c":["x",{"var":"event.missing"},3]}`: {"V_a": text("team"),
			"V_c": text("x, 3")},
		`[]`: {"V": text("")}, `{}`: {},
		`{"var":"contact.first_name"}`: {"V": text("Ann")}, `{"var":"contact.last_name"}`: {},
		`{"var":"contact.email"}`: {"V": text("ann@acme.example")}, `{"var":"contact.id"}`: {"V": text("c1")},
		`{"var":"contact.unsubscribed"}`:    {"V": text("false")},
		`{"var":"contact.created_at"}`:      {"V": text("2026-08-05T11:00:00.000Z")},
		`{"var":"contact.properties.plan"}`: {"V": text("pro")}, `{"var":"properties.seats"}`: {"V": number(5)},
		`{"var":"properties.missing"}`: {}, `{"var":"properties.empty"}`: {},
		`{"var":"wait_events.before.total"}`:       {"V": number(30)},
		`{"var":"wait_events.order.placed.by.id"}`: {"V": text("7")},
		`{"var":"wait_events.before.missing"}`:     {},
	} {
		g, r := atStep(t, "send_email", `{"template":{"id":"welcome","variables":{"V":`+config+`}},"from":"a@b.example",
			"subject":"s","reply_to":"r@b.example"}`)
		got := plan(t, g, r, engine.Facts{Now: noon, Contact: ann()})
		if diff := cmp.Diff(&engine.Email{TemplateID: "welcome", Variables: want, From: "a@b.example", Subject: "s",
			ReplyTo: "r@b.example"}, got.Effect); diff != "" || got.Failure != nil || got.Branch != engine.Default {
			t.Errorf("%s (-want +got):\n%s%+v", config, diff, got.Failure)
		}
	}
	g, r := atStep(t, "send_email", `{"template":{"id":"welcome"}}`)
	out := ann()
	out.Unsubscribed = true
	for want, who := range map[string]*engine.Contact{engine.NoContact: nil, engine.IsUnsubscribed: out} {
		a := plan(t, g, r, engine.Facts{Now: noon, Contact: who})
		if a.Skipped != want || a.Effect != nil || a.Branch != engine.Default {
			t.Errorf("an email that is skipped: %+v; want %s", a, want)
		}
	}
	wide := map[string]any{}
	for i := range 300 {
		wide[fmt.Sprint(i)] = "x"
	}
	g, r = atStep(t, "send_email", `{"template":{"id":"welcome","variables":{"V":{"var":"event.wide"}}}}`)
	r.Event.Payload = map[string]any{"wide": wide}
	a := plan(t, g, r, engine.Facts{Now: noon, Contact: ann()})
	if a.Failure == nil || a.Failure.Reason != engine.TooManyVariables || a.Effect != nil {
		t.Errorf("300 variables: %+v", a)
	}

	// The step has many variables that all refer to the same long string.
	var many []string
	for i := range 17 {
		many = append(many, fmt.Sprintf(`"V%d":{"var":"event.long"}`, i))
	}
	for _, long := range []any{strings.Repeat("x", 32<<10), []any{strings.Repeat("x", 32<<10)},
		map[string]any{"y": strings.Repeat("x", 32<<10)}} {
		for n, want := range map[int]string{15: "", 17: engine.VariablesTooLarge} {
			g, r = atStep(t, "send_email", `{"template":{"id":"welcome","variables":{`+strings.Join(many[:n], ",")+`}}}`)
			r.Event.Payload = map[string]any{"long": long}
			got := ""
			if a := plan(t, g, r, engine.Facts{Now: noon, Contact: ann()}); a.Failure != nil {
				got = a.Failure.Reason
			}
			if got != want {
				t.Errorf("%d variables of 32 KB by %T: %q, want %q", n, long, got, want)
			}
		}
	}
}

func TestContactUpdate(t *testing.T) {
	t.Parallel()
	none := map[string]scalar.Value{}
	for config, want := range map[string]any{
		`{"first_name":"Bo","last_name":null}`: &engine.Update{FirstName: new("Bo"), LastName: new(""),
			Properties: none},
		`{"first_name":{"var":"event.n"}}`:             &engine.Update{FirstName: new("1.5"), Properties: none},
		`{"first_name":{"var":"event.list"}}`:          &engine.Update{FirstName: new("a, 2, false"), Properties: none},
		`{"first_name":{"var":"event.user"}}`:          engine.WrongValue,
		`{"first_name":{"var":"event.items"}}`:         engine.WrongValue,
		`{"properties":{"p":{"var":"event.items"}}}`:   engine.WrongValue,
		`{"properties":{"p":{"var":"event.mixed"}}}`:   engine.WrongValue,
		`{"first_name":{"var":"event.missing"}}`:       engine.Unresolved,
		`{"unsubscribed":true}`:                        &engine.Update{Unsubscribed: new(true), Properties: none},
		`{"unsubscribed":{"var":"event.yes"}}`:         &engine.Update{Unsubscribed: new(true), Properties: none},
		`{"unsubscribed":{"var":"event.plan"}}`:        engine.NotBoolean,
		`{"unsubscribed":{"var":"event.missing"}}`:     engine.Unresolved,
		`{"properties":{"p":{"var":"event.missing"}}}`: engine.Unresolved,
		`{"properties":{"a":"x","b":2,"c":null,"d":{"var":"event.yes"},"e":{"var":"properties.seats"},
			"f":true}}`: &engine.Update{
			Properties: map[string]scalar.Value{"a": scalar.OfText("x"), "b": scalar.OfNumber(2), "c": {},
				"d": scalar.OfText("true"), "e": scalar.OfNumber(5), "f": scalar.OfText("true")}},
	} {
		g, r := atStep(t, "contact_update", config)
		a := plan(t, g, r, engine.Facts{Now: noon, Contact: ann()})
		got := a.Effect
		if a.Failure != nil {
			got = a.Failure.Reason
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", config, diff)
		}
		if a := plan(t, g, r, engine.Facts{Now: noon}); a.Skipped != engine.NoContact || a.Effect != nil {
			t.Errorf("%s without a contact: %+v", config, a)
		}
	}
	g, r := atStep(t, "contact_update", `{"first_name":{"var":"event.name"}}`)
	for _, name := range []string{strings.Repeat("é", 256), "Ann\nLee", "Ann\rLee"} {
		r.Event.Payload = map[string]any{"name": name}
		a := plan(t, g, r, engine.Facts{Now: noon, Contact: ann()})
		if a.Failure == nil || a.Failure.Reason != engine.NameUnusable {
			t.Errorf("the name %q: %+v", name, a)
		}
	}
}

func TestContactSteps(t *testing.T) {
	t.Parallel()
	for kind, want := range map[string]any{"contact_delete": engine.Deletion{},
		"add_to_segment": &engine.Addition{SegmentID: segment}} {
		g, r := atStep(t, kind, `{"segment_id":"`+segment+`"}`)
		if a := plan(t, g, r, engine.Facts{Now: noon, Contact: ann()}); !cmp.Equal(a.Effect, want) {
			t.Errorf("%s: %+v", kind, a)
		}
		if a := plan(t, g, r, engine.Facts{Now: noon}); a.Skipped != engine.NoContact || a.Effect != nil {
			t.Errorf("%s without a contact: %+v", kind, a)
		}
	}
}

func TestWebhook(t *testing.T) {
	t.Parallel()
	g, r := atStep(t, "webhook", `{"url":"https://acme.example/hook","headers":{"X-Key":"k"},
		"payload":{"a":{"var":"event.user.of"},"b":[1,{"var":"event.missing"}],"c":null,"d":{"var":"event.missing"}}}`)
	r.Event.Payload = payload(t, `{"user":{"of":{"it":3}}}`)
	a := plan(t, g, r, engine.Facts{Now: noon, Contact: ann()})
	want := `{"type":"automation.webhook","created_at":"2026-08-05T12:00:00.000Z","data":{"run_id":"run","step":"x",` +
		`"contact":{"id":"c1","email":"ann@acme.example","first_name":"Ann","last_name":"","unsubscribed":false,` +
		`"properties":{"birthday":"2026-08-10","empty":"","plan":"pro","seats":5,"tz":"America/New_York"}},` +
		`"event":{"name":"user.created","payload":{"user":{"of":{"it":3}}}},` +
		`"payload":{"a":{"it":3},"b":[1,null],"c":null,"d":null}}}`
	c, ok := a.Effect.(*engine.Call)
	if !ok || c.URL != "https://acme.example/hook" || c.Headers["X-Key"] != "k" {
		t.Fatalf("the effect: %+v", a)
	}
	if diff := cmp.Diff(want, string(c.Body)); diff != "" {
		t.Errorf("the body (-want +got):\n%s", diff)
	}
	g, r = atStep(t, "webhook", `{"url":"https://acme.example/hook"}`)
	r.Event.Payload = nil
	a = plan(t, g, r, engine.Facts{Now: noon})
	if c, ok := a.Effect.(*engine.Call); !ok || !strings.Contains(string(c.Body), `"contact":null`) ||
		!strings.Contains(string(c.Body), `"payload":null}}`) {
		t.Errorf("without a contact and a payload: %+v", a)
	}
	g, r = atStep(t, "webhook", `{"url":"https://acme.example/hook","payload":{"l":[`+
		strings.TrimSuffix(strings.Repeat(`{"var":"event.long"},`, 100), ",")+`]}}`)
	r.Event.Payload = map[string]any{"long": strings.Repeat("x", 10_000)}
	if a := plan(t, g, r, engine.Facts{Now: noon}); a.Failure == nil || a.Failure.Reason != engine.WebhookTooLarge {
		t.Errorf("a body of a million bytes: %+v", a)
	}
}

// known returns a Facts.Fields function for the contact ann.
func known(rule *filter.Rule) (filter.Schema, func(string) filter.Value, error) {
	fields := map[string]filter.Field{
		"contact.first_name": {Type: filter.TextField}, "contact.properties.seats": {Type: filter.NumberField},
		"contact.unsubscribed": {Type: filter.BoolField, Default: filter.BoolValue(false)},
	}
	values := map[string]filter.Value{"contact.first_name": filter.TextValue("Ann"),
		"contact.properties.seats": filter.NumberValue(5)}
	return filter.Schema{Fields: fields}, func(name string) filter.Value { return values[name] }, nil
}

func TestCondition(t *testing.T) {
	t.Parallel()
	for rule, want := range map[string]bool{
		`"field":"event.plan","operator":"eq","value":"team"`:                                true,
		`"field":"event.plan","operator":"eq","value":"Team"`:                                false,
		`"field":"event.n","operator":"gt","value":1.4`:                                      true,
		`"field":"event.n","operator":"gt","value":"1.6"`:                                    false,
		`"field":"event.missing","operator":"gt","value":1`:                                  false,
		`"field":"event.missing","operator":"neq","value":1`:                                 true,
		`"field":"event.user","operator":"exists"`:                                           true,
		`"field":"event.empty","operator":"is_empty"`:                                        true,
		`"field":"event.yes","operator":"eq","value":true`:                                   true,
		`"field":"wait_events.before.total","operator":"gte","value":30`:                     true,
		`"field":"wait_events.before.by.id","operator":"lt","value":8`:                       true,
		`"field":"wait_events.order.placed.total","operator":"eq","value":30`:                true,
		`"field":"contact.first_name","operator":"starts_with","value":"A"`:                  true,
		`"field":"properties.seats","operator":"eq","value":{"var":"event.user.of.it"}`:      false,
		`"field":"event.plan","operator":"eq","value":{"var":"event.plan"}`:                  true,
		`"field":"event.plan","operator":"eq","value":{"var":"event.missing"}`:               false,
		`"field":"contact.unsubscribed","operator":"eq","value":false`:                       true,
		`"field":"wait_events.before.total","operator":"gt","value":{"var":"event.missing"}`: false,
	} {
		g, r := atStep(t, "condition", `{"type":"rule",`+rule+`}`)
		a := plan(t, g, r, engine.Facts{Now: noon, Contact: ann(), Fields: known})
		branch := map[bool]string{true: engine.ConditionMet, false: engine.ConditionNotMet}[want]
		if a.Branch != branch || a.Output["result"] != want {
			t.Errorf("%s: %+v; want %s", rule, a, branch)
		}
	}

	// If the contact has been deleted, contact fields have no values, and Facts.Fields is not called.
	g, r := atStep(t, "condition", `{"type":"rule","field":"contact.first_name","operator":"is_empty"}`)
	if a := plan(t, g, r, engine.Facts{Now: noon}); a.Branch != engine.ConditionMet {
		t.Errorf("without a contact: %+v", a)
	}
	// A rule that names a field missing from the schema makes the step fail. A database error does not make the step fail.
	g, r = atStep(t, "condition", `{"type":"rule","field":"contact.properties.gone","operator":"eq","value":1}`)
	a := plan(t, g, r, engine.Facts{Now: noon, Contact: ann(), Fields: known})
	if a.Failure == nil || a.Failure.Reason != engine.RuleRefused || !strings.Contains(a.Failure.Message,
		"properties.gone") {
		t.Errorf("a property that is gone: %+v", a)
	}
	broken := errors.New("broken")
	f := engine.Facts{Now: noon, Contact: ann()}
	f.Fields = func(*filter.Rule) (filter.Schema, func(string) filter.Value, error) {
		return filter.Schema{}, nil, broken
	}
	if _, err := g.Plan(r, f); !errors.Is(err, broken) {
		t.Errorf("a database that is broken: %v", err)
	}
	f.Fields = func(*filter.Rule) (filter.Schema, func(string) filter.Value, error) {
		return filter.Schema{}, nil, fault.Invalidf("x", "Gone.")
	}
	if a := plan(t, g, r, f); a.Failure == nil || a.Failure.Message != "Gone." {
		t.Errorf("a fault of the fields: %+v", a)
	}
}

// The branch chosen at a split depends only on the run and the step, and each branch gets its percentage of the runs.
func TestSplit(t *testing.T) {
	t.Parallel()
	g, r := atStep(t, "split",
		`{"branches":[{"name":"a","percent":20},{"name":"b","percent":79.99},{"name":"c","percent":0.01}]}`)
	counts := map[string]int{}
	for i := range 20_000 {
		r.ID = fmt.Sprint("run", i)
		a := plan(t, g, r, engine.Facts{Now: noon})
		counts[a.Branch]++
		if i < 100 {
			if again := plan(t, g, r, engine.Facts{Now: noon.AddDate(0, 0, i),
				Contact: ann()}); again.Branch != a.Branch {
				t.Fatalf("run %d went by %s and then by %s", i, a.Branch, again.Branch)
			}
		}
	}
	if counts["a"] < 3700 || counts["a"] > 4300 || counts["c"] > 20 || counts["a"]+counts["b"]+counts["c"] != 20_000 {
		t.Errorf("20, 79.99 and 0.01 percent of 20,000 are %v", counts)
	}
	// The branches of two consecutive splits are independent.
	two := parse(t, `[`+start+`,{"key":"x","type":"split","config":{"branches":[{"name":"l","percent":50},
		{"name":"r","percent":50}]}},{"key":"y","type":"split","config":{"branches":[{"name":"l","percent":50},
		{"name":"r","percent":50}]}}]`, `[{"from":"start","to":"x"},{"from":"x","to":"y","type":"l"}]`)
	same := 0
	for i := range 1000 {
		x := plan(t, two, &engine.Run{ID: fmt.Sprint(i), At: "x"}, engine.Facts{})
		y := plan(t, two, &engine.Run{ID: fmt.Sprint(i), At: "y"}, engine.Facts{})
		if x.Branch == y.Branch {
			same++
		}
	}
	if same < 400 || same > 600 {
		t.Errorf("two halvings went the same way %d times of 1000", same)
	}
}

// waitUntilRows are the cases of TestWaitUntil. The field want contains the expected end of the wait, or the reason why
// the step does not wait.
var waitUntilRows = []struct{ now, config, value, want string }{
	// In the following rows, the step waits until a time of day.
	{"2026-08-05T12:00:00Z", `{"time":"13:00"}`, "", "2026-08-05T13:00:00Z"},
	{"2026-08-05T12:00:00Z", `{"time":"11:00"}`, "", "2026-08-06T11:00:00Z"},
	{"2026-08-05T12:00:00Z", `{"time":"12:00"}`, "", "now"},
	{"2026-08-05T12:00:00Z", `{"time":"09:00","timezone":"America/New_York"}`, "", "2026-08-05T13:00:00Z"},
	{"2026-08-05T12:00:00Z", `{"time":"09:00","timezone":{"property":"tz"}}`, "", "2026-08-05T13:00:00Z"},
	{"2026-08-05T12:00:00Z", `{"time":"09:00","timezone":{"property":"no","fallback":"Asia/Tokyo"}}`, "",
		"2026-08-06T00:00:00Z"},
	{"2026-08-05T12:00:00Z", `{"time":"09:00","timezone":{"property":"plan"}}`, "", "2026-08-06T09:00:00Z"},
	{"2026-12-31T23:30:00Z", `{"time":"00:15","timezone":"Europe/Berlin"}`, "", "2027-01-01T23:15:00Z"},
	// In Berlin, the time 02:30 does not exist on 29 March and occurs twice on 25 October.
	{"2026-03-28T12:00:00Z", `{"time":"02:30","timezone":"Europe/Berlin"}`, "", "2026-03-29T01:30:00Z"},
	{"2026-10-24T12:00:00Z", `{"time":"02:30","timezone":"Europe/Berlin"}`, "", "2026-10-25T00:30:00Z"},
	{"2026-10-25T01:00:00Z", `{"time":"02:30","timezone":"Europe/Berlin"}`, "", "2026-10-26T01:30:00Z"},
	// A date.
	{"2026-08-05T12:00:00Z", `{"property":"d"}`, "2026-08-10", "2026-08-10T00:00:00Z"},
	{"2026-08-05T12:00:00Z", `{"property":"contact.properties.d"}`, "2026-08-10", "2026-08-10T00:00:00Z"},
	{"2026-08-05T12:00:00Z", `{"property":"d","time":"09:00"}`, " 2026-08-10 ", "2026-08-10T09:00:00Z"},
	{"2026-08-05T12:00:00Z", `{"property":"d","time":"09:00","timezone":"America/New_York"}`, "2026-11-01",
		"2026-11-01T14:00:00Z"},
	{"2026-03-01T12:00:00Z", `{"property":"d","time":"02:30","timezone":"America/New_York"}`, "2026-03-08",
		"2026-03-08T07:30:00Z"},
	{"2026-10-30T12:00:00Z", `{"property":"d","time":"01:30","timezone":"America/New_York"}`, "2026-11-01",
		"2026-11-01T05:30:00Z"},
	{"2026-08-05T12:00:00Z", `{"property":"d"}`, "2026-08-05", "now"},
	{"2026-08-05T12:00:00Z", `{"property":"d"}`, "1990-01-01", "now"},
	{"2026-08-05T12:00:00Z", `{"property":"d"}`, "2027-09-09T12:00:00Z", "2027-09-09T12:00:00Z"}, // 400 days
	{"2026-08-05T12:00:00Z", `{"property":"d"}`, "2027-09-09T12:00:01Z", engine.TooFar},
	// If the property contains a date with a time, that time overrides the step's time of day.
	{"2026-08-05T12:00:00Z", `{"property":"d","time":"09:00"}`, "2026-08-10T15:04:05+02:00",
		"2026-08-10T13:04:05Z"},
	{"2026-08-05T12:00:00Z", `{"property":"d","timezone":"Europe/Berlin"}`, "2026-08-10T15:04:05",
		"2026-08-10T13:04:05Z"},
	{"2026-08-05T12:00:00Z", `{"property":"d","timezone":"Europe/Berlin"}`, "2026-08-10 15:04",
		"2026-08-10T13:04:00Z"},
	// No date.
	{"2026-08-05T12:00:00Z", `{"property":"d"}`, "", engine.NoDate},
	{"2026-08-05T12:00:00Z", `{"property":"seats"}`, "", engine.BadDate},
	{"2026-08-05T12:00:00Z", `{"property":"d"}`, "tomorrow", engine.BadDate},
	{"2026-08-05T12:00:00Z", `{"property":"d"}`, "2026-02-30", engine.BadDate},
}

func TestWaitUntil(t *testing.T) {
	t.Parallel()
	when := func(text string) time.Time {
		got, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, c := range waitUntilRows {
		g, r := atStep(t, "wait_until", c.config)
		who := ann()
		if c.value != "" {
			who.Properties["d"] = scalar.OfText(c.value)
		}
		f := engine.Facts{Now: when(c.now), Contact: who}
		a := plan(t, g, r, f)
		var got string
		switch {
		case a.Failure != nil:
			got = a.Failure.Reason
		case a.Skipped != "":
			got = a.Skipped
		case a.Wait != nil:
			got = a.Wait.Until.Format(time.RFC3339)
		default:
			got = "now"
		}
		if got != c.want {
			t.Errorf("at %s %s with %q: %s, want %s", c.now, c.config, c.value, got, c.want)
		}
		if a.Wait == nil {
			continue
		}
		// Once a wait is over, Plan does not compute the end of that wait again.
		g.Done(r, a, engine.Outcome{}, f)
		f.Now, f.Contact = a.Wait.Until, nil
		if a := plan(t, g, r, f); a.Wait != nil || a.Branch != engine.Default {
			t.Errorf("%s when the time has come: %+v", c.config, a)
		}
	}
	g, r := atStep(t, "wait_until", `{"property":"d","time":"09:00"}`)
	if a := plan(t, g, r, engine.Facts{Now: noon}); a.Skipped != engine.NoContact {
		t.Errorf("a property without a contact: %+v", a)
	}
	g, r = atStep(t, "wait_until", `{"time":"13:00"}`)
	if a := plan(t, g, r, engine.Facts{Now: noon}); a.Wait == nil {
		t.Errorf("a time of day without a contact: %+v", a)
	}
}

// Planning a waiting step repeatedly returns the same wait. A wait ends when its time has passed or its event arrives.
func TestWaits(t *testing.T) {
	t.Parallel()
	g := parse(t, `[`+start+`,{"key":"pause","type":"delay","config":{"duration":"2 days"}},
		{"key":"order","type":"wait_for_event","config":{"event_name":"order.placed","timeout":"1 day","filter_rule":
			{"type":"rule","field":"event.total","operator":"gte","value":{"var":"trigger.least"}}}},
		{"key":"got","type":"contact_delete"},{"key":"not","type":"contact_delete"}]`,
		`[{"from":"start","to":"pause"},{"from":"pause","to":"order"},{"from":"order","to":"got","type":"event_received"},
		{"from":"order","to":"not","type":"timeout"}]`)
	if g.Begin("run", engine.Event{Name: "other"}) != nil {
		t.Error("an event that no trigger names began a run")
	}
	begin := func() *engine.Run {
		r := g.Begin("run", engine.Event{Name: "user.created", Payload: payload(t, `{"least":10}`), At: noon})
		for _, at := range []time.Time{noon, noon, noon.Add(48 * time.Hour), noon.Add(49 * time.Hour)} {
			f := engine.Facts{Now: at, Contact: ann()}
			g.Done(r, plan(t, g, r, f), engine.Outcome{}, f)
		}
		return r
	}
	r := g.Begin("run", engine.Event{Name: "user.created", At: noon})
	f := engine.Facts{Now: noon, Contact: ann()}
	rec := g.Done(r, plan(t, g, r, f), engine.Outcome{}, f)
	if diff := cmp.Diff(engine.Record{Key: "start", Type: engine.Trigger, Status: engine.StepCompleted, StartedAt: noon,
		CompletedAt: noon, Output: map[string]any{"event": "user.created"}}, rec); diff != "" || r.At != "pause" {
		t.Errorf("the trigger (-want +got):\n%s", diff)
	}
	rec = g.Done(r, plan(t, g, r, f), engine.Outcome{}, f)
	if diff := cmp.Diff(engine.Record{Key: "pause", Type: engine.Delay, Status: engine.StepWaiting, StartedAt: noon,
		Output: map[string]any{"until": "2026-08-07T12:00:00.000Z"}}, rec); diff != "" || r.At != "pause" {
		t.Errorf("the delay (-want +got):\n%s", diff)
	}
	f.Now = noon.Add(48*time.Hour - 1)
	if a := plan(t, g, r, f); a.Wait == nil || !a.Wait.Until.Equal(noon.Add(48*time.Hour)) {
		t.Errorf("a nanosecond before the end: %+v", a)
	}
	if _, ok := g.Receive(r, engine.Event{Name: "order.placed", At: f.Now}); ok {
		t.Error("a delay was ended by an event")
	}
	f.Now = noon.Add(48 * time.Hour)
	rec = g.Done(r, plan(t, g, r, f), engine.Outcome{}, f)
	if diff := cmp.Diff(engine.Record{Key: "pause", Type: engine.Delay, Status: engine.StepCompleted, CompletedAt: f.Now,
		Output: map[string]any{"until": "2026-08-07T12:00:00.000Z"}}, rec); diff != "" || r.At != "order" ||
		r.Waits != nil {
		t.Errorf("the end of the delay (-want +got):\n%s", diff)
	}

	r = begin()
	end := noon.Add(73 * time.Hour)
	if diff := cmp.Diff(&engine.Wait{Until: end, Event: "order.placed"}, r.Waits); diff != "" || r.At != "order" {
		t.Fatalf("the wait (-want +got):\n%s", diff)
	}
	for what, e := range map[string]engine.Event{
		"another name":       {Name: "order", Payload: payload(t, `{"total":10}`), At: noon},
		"too little":         {Name: "order.placed", Payload: payload(t, `{"total":9}`), At: noon},
		"no total":           {Name: "order.placed", At: noon},
		"at the end":         {Name: "order.placed", Payload: payload(t, `{"total":10}`), At: end},
		"a total of objects": {Name: "order.placed", Payload: payload(t, `{"total":{}}`), At: noon},
	} {
		if rec, ok := g.Receive(r, e); ok || r.At != "order" || r.Waits == nil || rec.Key != "" {
			t.Errorf("%s ended the wait", what)
		}
	}
	e := engine.Event{Name: "order.placed", Payload: payload(t, `{"total":10}`), At: end.Add(-time.Second)}
	rec, ok := g.Receive(r, e)
	if diff := cmp.Diff(engine.Record{Key: "order", Type: engine.WaitForEvent, Status: engine.StepCompleted,
		CompletedAt: e.At,
		Output:      map[string]any{"event": "order.placed", "payload": e.Payload}}, rec); !ok || diff != "" {
		t.Errorf("the event (-want +got):\n%s", diff)
	}
	if r.At != "got" || r.Waits != nil || len(r.Received) > 0 {
		t.Errorf("after the event: %+v", r)
	}
	if _, ok := g.Receive(r, e); ok {
		t.Error("an event ended a wait twice")
	}

	r = begin()
	f.Now = end
	rec = g.Done(r, plan(t, g, r, f), engine.Outcome{}, f)
	if rec.Status != engine.StepCompleted || rec.Output["timed_out"] != true || r.At != "not" {
		t.Errorf("the timeout: %+v, then at %q", rec, r.At)
	}
}

// Event names with the prefix resend: are aliases of system events.
func TestCanonical(t *testing.T) {
	t.Parallel()
	g := parse(t, `[{"key":"a","type":"trigger","config":{"event_name":"resend:contact.created"}},
		{"key":"b","type":"wait_for_event","config":{"event_name":"resend:email.opened"}},
		{"key":"c","type":"condition","config":{"type":"rule","field":"wait_events.postrider:email.opened.x","operator":
		"exists"}}]`, `[{"from":"a","to":"b"},{"from":"b","to":"c","type":"event_received"}]`)
	r := g.Begin("run", engine.Event{Name: "postrider:contact.created", At: noon})
	f := engine.Facts{Now: noon}
	for range 2 {
		g.Done(r, plan(t, g, r, f), engine.Outcome{}, f)
	}
	if r.Waits == nil || r.Waits.Event != "postrider:email.opened" {
		t.Fatalf("it waits for %+v", r.Waits)
	}
	if _, ok := g.Receive(r, engine.Event{Name: "postrider:email.opened", Payload: map[string]any{"x": "y"},
		At: noon}); !ok {
		t.Error("the event was not received")
	}
	if a := plan(t, g, r, f); a.Branch != engine.ConditionMet {
		t.Errorf("the event by its other name: %+v", a)
	}
}

// Depending on the outcome of a step's effect, Done records the step as completed, skipped or failed.
func TestDone(t *testing.T) {
	t.Parallel()
	g := parse(t, `[`+start+`,{"key":"x","type":"add_to_segment","config":{"segment_id":"`+segment+`"}},
		{"key":"y","type":"contact_delete"}]`, `[{"from":"start","to":"x"},{"from":"x","to":"y"}]`)
	gone := &engine.Failure{Reason: "segment_not_found", Message: "Gone."}
	f := engine.Facts{Now: noon, Contact: ann()}
	for _, c := range []struct {
		o      engine.Outcome
		status engine.Status
		output map[string]any
		at     string
	}{
		{engine.Outcome{}, engine.StepCompleted, map[string]any{"segment_id": segment}, "y"},
		{engine.Outcome{Output: map[string]any{"new": true}}, engine.StepCompleted,
			map[string]any{"segment_id": segment, "new": true}, "y"},
		{engine.Outcome{Skipped: "suppressed"}, engine.StepSkipped,
			map[string]any{"segment_id": segment, "reason": "suppressed"}, "y"},
		{engine.Outcome{Failure: gone}, engine.StepFailed, map[string]any{"segment_id": segment}, ""},
	} {
		r := &engine.Run{At: "x"}
		want := engine.Record{Key: "x", Type: engine.AddToSegment, Status: c.status, Output: c.output, Failure: c.o.Failure,
			StartedAt: noon, CompletedAt: noon}
		if diff := cmp.Diff(want, g.Done(r, plan(t, g, r, f), c.o, f)); diff != "" || r.At != c.at {
			t.Errorf("%+v: at %q (-want +got):\n%s", c.o, r.At, diff)
		}
	}
	r := &engine.Run{At: "y"}
	if g.Done(r, plan(t, g, r, f), engine.Outcome{}, f); r.At != "" {
		t.Errorf("after the last step it is at %q", r.At)
	}
	if _, err := g.Plan(r, f); err == nil {
		t.Error("a run that has ended was planned")
	}
	// A run ends if no connection leads from its branch.
	g, r = atStep(t, "condition", `{"type":"rule","field":"event.plan","operator":"exists"}`)
	if rec := g.Done(r, plan(t, g, r, f), engine.Outcome{}, f); r.At != "" || rec.Failure != nil {
		t.Errorf("after a branch without a connection: %+v, at %q", rec, r.At)
	}
}
