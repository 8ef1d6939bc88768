package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/lib/fault"
)

const (
	start   = `{"key":"start","type":"trigger","config":{"event_name":"user.created"}}`
	segment = "019a0000-0000-7000-8000-000000000001"
)

// parse parses a graph and fails the test if the graph is invalid.
func parse(t testing.TB, steps, connections string) *engine.Graph {
	t.Helper()
	g, err := engine.Parse([]byte(steps), []byte(connections))
	if err != nil {
		t.Fatalf("Parse: %v", err)
	}
	return g
}

// line returns the JSON of a linear graph: a trigger followed by the given steps, which are passed as pairs of type and
// config. The key of each step is its type.
func line(all ...string) (steps, connections string) {
	list, links, last := []string{start}, []string{}, "start"
	for i := 0; i < len(all); i += 2 {
		list = append(list, fmt.Sprintf(`{"key":%q,"type":%[1]q,"config":%s}`, all[i], all[i+1]))
		links = append(links, fmt.Sprintf(`{"from":%q,"to":%q}`, last, all[i]))
		last = all[i]
	}
	return "[" + strings.Join(list, ",") + "]", "[" + strings.Join(links, ",") + "]"
}

// TestParseRefuses checks that Parse returns the expected field and message for each kind of invalid graph.
func TestParseRefuses(t *testing.T) {
	t.Parallel()
	step := func(kind, config string) string {
		return `[` + start + `,{"key":"x","type":"` + kind + `","config":` + config + `}]`
	}
	const toX = `[{"from":"start","to":"x"}]`
	many := "[" + start + strings.Repeat(","+start, engine.MaxSteps) + "]"
	delays := func(keys string) string {
		all := []string{start}
		for _, k := range keys {
			all = append(all, fmt.Sprintf(`{"key":"%c","type":"delay","config":{"duration":"1 day"}}`, k))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	links := func(pairs ...string) string {
		var all []string
		for _, p := range pairs {
			from, to, _ := strings.Cut(p, ">")
			all = append(all, fmt.Sprintf(`{"from":%q,"to":%q}`, strings.Replace(from, "s", "start", 1),
				strings.Replace(to, "s", "start", 1)))
		}
		return "[" + strings.Join(all, ",") + "]"
	}
	is := func(field, says string) string { return "The `" + field + "` field " + says }
	x := func(member, says string) string { return "Step `x`: " + is("steps[1].config"+member, says) }
	absent := func(member string) string { return "Step `x`: Missing `steps[1].config" + member + "` field." }
	type row struct{ steps, connections, field, says string }
	rows := []row{
		// The lists.
		{"", "[]", "steps", "Missing `steps` field."},
		{"null", "[]", "steps", "Missing `steps` field."},
		{"[" + start + "]", "null", "connections", "Missing `connections` field."},
		{"{}", "[]", "steps", is("steps", "must be a list.")},
		{"[", "[]", "steps", is("steps", "must be a list.")},
		{"[]", "[]", "steps", is("steps", "has 0 steps; an automation has 1 to 150.")},
		{many, "[]", "steps", is("steps", "has 151 steps; an automation has 1 to 150.")},
		{"[" + strings.Repeat(" ", engine.MaxText) + "]", "[]", "steps",
			is("steps", "and `connections` have 262148 bytes of JSON together; the limit is 262144.")},
		{`[7]`, "[]", "steps[0]", is("steps[0]", "must be an object, with each member once and in UTF-8.")},
		{`[{"key":"a","key":"b"}]`, "[]", "steps", is("steps", "must be a list.")},
		{`[` + start + `]`, `{}`, "connections", is("connections", "must be a list.")},
		{`[` + start + `]`, `["start"]`, "connections[0]",
			is("connections[0]", "must be an object, with each member once and in UTF-8.")},

		// Steps.
		{`[{"type":"trigger"}]`, "[]", "steps[0].key", "Missing `steps[0].key` field."},
		{`[{"key":"","type":"trigger"}]`, "[]", "steps[0].key", "Missing `steps[0].key` field."},
		{`[{"ref":"a","type":"trigger"}]`, "[]", "steps[0].ref",
			is("steps[0].ref", "is not read any more: use `steps[0].key`.")},
		{`[{"key":7}]`, "[]", "steps[0].key", is("steps[0].key", "must be a text in UTF-8.")},
		{`[{"key":"` + strings.Repeat("é", 101) + `"}]`, "[]", "steps[0].key",
			is("steps[0].key", "has 101 characters; the limit is 100.")},
		{`[{"key":"a\nb"}]`, "[]", "steps[0].key",
			is("steps[0].key", "must not contain line breaks or other control characters.")},
		{`[{"key":" a"}]`, "[]", "steps[0].key",
			is("steps[0].key", "must not begin or end with spaces, or contain backticks.")},
		{"[{\"key\":\"a`\"}]", "[]", "steps[0].key",
			is("steps[0].key", "must not begin or end with spaces, or contain backticks.")},
		{`[{"key":"a"}]`, "[]", "steps[0].type", "Step `a`: Missing `steps[0].type` field."},
		{`[{"key":"a","type":"sms"}]`, "[]", "steps[0].type", "Step `a`: " + is("steps[0].type", "is \"sms\", which is no "+
			"type of step. Use one of `trigger`, `send_email`, `delay`, `wait_for_event`, `wait_until`, `condition`, `split`, "+
			"`contact_update`, `contact_delete`, `add_to_segment`, `webhook`.")},
		{`[{"key":"a","type":"delay"}]`, "[]", "steps[0].config", "Step `a`: Missing `steps[0].config` field."},
		{`[{"key":"a","type":"delay","config":[]}]`, "[]", "steps[0].config",
			"Step `a`: " + is("steps[0].config", "must be an object, with each member once and in UTF-8.")},
		{`[` + start + `,` + start + `]`, "[]", "steps[1].key",
			"Step `start`: " + is("steps[1].key", "is that of `steps[0]` too. Give each step a key of its own.")},

		{step("contact_update", `{"properties":{"`+strings.Repeat("p", 5000)+`":[]}}`), toX,
			"steps[1].config.properties." + strings.Repeat("p", 100) + "…", "Step `x`: " + is("steps[1].config.properties."+
				strings.Repeat("p", 100)+"…", "is nested too deep: use a text, a number, true, false or {\"var\": "+
				"\"event.KEY\"}.")},

		// Connections.
		{delays("a"), `[{"to":"a"}]`, "connections[0].from", "Step `a`: Missing `connections[0].from` field."},
		{delays("a"), `[{"from":"start"}]`, "connections[0].to", "Step `start`: Missing `connections[0].to` field."},
		{delays("a"), `[{"from":"b","to":"c"}]`, "connections[0].from",
			is("connections[0].from", "is \"b\", but no step has this key.")},
		{delays("a"), `[{"from":"b","to":"a"}]`, "connections[0].from",
			"Step `a`: " + is("connections[0].from", "is \"b\", but no step has this key.")},
		{delays("a"), `[{"from":"start","to":"b"}]`, "connections[0].to",
			"Step `start`: " + is("connections[0].to", "is \"b\", but no step has this key.")},
		{delays("a"), `[{"from":"start","to":"a","type":"timeout"}]`, "connections[0].type",
			"Step `start`: " + is("connections[0].type", "is \"timeout\", but from a step of the type `trigger` lead "+
				"connections of the types `default`.")},
		{step("wait_for_event", `{"event_name":"e"}`), `[{"from":"start","to":"x"},{"from":"x","to":"x"}]`,
			"connections[1].type", "Step `x`: " + is("connections[1].type", "is \"default\", but from a step of the type "+
				"`wait_for_event` lead connections of the types `event_received`, `timeout`.")},
		{delays("a"), links("s>a", "a>s"), "connections[1].to",
			"Step `start`: " + is("connections[1].to", "names a trigger, where runs begin. Lead to the step after it.")},
		{delays("ab"), links("s>a", "s>b"), "connections[1]", "Step `start`: " + is("connections[1]",
			"is a second connection of the type `default`, to `b` as well as to `a`. Keep one.")},

		// The graph.
		{`[{"key":"a","type":"delay","config":{"duration":"1 day"}}]`, "[]", "steps",
			is("steps", "has no step of the type `trigger`. Add one, which names the event that begins a run.")},
		{delays("a"), "[]", "connections", is("connections",
			"must lead from the trigger to the other steps. It may be empty "+
				"only if the trigger is the only step.")},
		{`[` + start + `,{"key":"b","type":"trigger","config":{"event_name":"user.created"}}]`, "[]",
			"steps[1].config.event_name", "Step `b`: " + is("steps[1].config.event_name",
				"names the event of the trigger `start` too. Keep one.")},
		{`[{"key":"a","type":"trigger","config":{"event_name":"Resend:contact.created"}},
			{"key":"b","type":"trigger","config":{"event_name":"postrider:contact.created"}}]`, "[]",
			"steps[1].config.event_name",
			"Step `b`: " + is("steps[1].config.event_name", "names the event of the trigger `a` too. Keep one.")},
		{step("wait_for_event", `{"event_name":" "}`), toX, "steps[1].config.event_name", absent(".event_name")},
		{step("wait_for_event", `{"event_name":"019A0000-0000-7000-8000-000000000001"}`), toX,
			"steps[1].config.event_name", x(".event_name", "is a UUID, which would be taken for the id of an event. Choose "+
				"a name such as `user.created`.")},
		{step("wait_for_event", `{"event_name":"RESEND:Contact.created"}`), toX, "steps[1].config.event_name",
			x(".event_name", "names no system event. There are `postrider:contact.created`, "+
				"`postrider:contact.updated`, `postrider:contact.unsubscribed`, `postrider:contact.resubscribed`, "+
				"`postrider:topic.opted_in`, `postrider:topic.opted_out`, `postrider:email.opened`, "+
				"`postrider:email.clicked`, `postrider:email.bounced`, `postrider:email.complained`.")},
		{delays("a"), links("s>a", "a>a"), "connections[1]", "Step `a`: " + is("connections[1]",
			"is part of a circle, which leads back to the step. Remove one of its connections: every run must end.")},
		{delays("ab"), links("s>a"), "steps[2]",
			"Step `b`: " + is("steps[2]", "cannot be reached from a trigger. Connect the step or remove it.")},
		{delays("abc"), links("s>a", "b>c"), "steps[2]",
			"Step `b`: " + is("steps[2]", "cannot be reached from a trigger. Connect the step or remove it.")},
		{delays("abc"), links("s>a", "b>c", "c>b"), "connections[2]", "Step `b`: " + is("connections[2]",
			"is part of a circle, which leads back to the step. Remove one of its connections: every run must end.")},
	}
	for _, c := range []struct{ kind, config, member, says string }{
		{"trigger", `{}`, ".event_name", absent(".event_name")},
		{"trigger", `{"event_name":"` + strings.Repeat("a", 256) + `"}`, ".event_name",
			x(".event_name", "has 256 characters; the limit is 255.")},

		{"delay", `{}`, ".duration", absent(".duration")},
		{"delay", `{"duration":null}`, ".duration", absent(".duration")},
		{"delay", `{"seconds":60}`, ".seconds", x(".seconds", "is not read any more: use `steps[1].config.duration`.")},
		{"delay", `{"duration":60}`, ".duration", x(".duration", "must be a text in UTF-8.")},
		{"delay", `{"duration":"soon"}`, ".duration", x(".duration", `cannot be read: "soon" is not understood as a `+
			`duration: use a number and a unit such as "10 minutes", "2 hours", "1 day" or "1h 30m".`)},
		{"delay", `{"duration":"P1D"}`, ".duration", x(".duration", `cannot be read: "P1D" is not understood as a `+
			`duration: use a number and a unit such as "10 minutes", "2 hours", "1 day" or "1h 30m".`)},
		{"delay", `{"duration":"0 minutes"}`, ".duration",
			x(".duration", `is "0 minutes"; a wait lasts from 1 second to 30 days.`)},
		{"delay", `{"duration":"30 days 1 second"}`, ".duration",
			x(".duration", `is "30 days 1 second"; a wait lasts from 1 second to 30 days.`)},

		{"wait_for_event", `{}`, ".event_name", absent(".event_name")},
		{"wait_for_event", `{"event_name":"e","timeout_seconds":5}`, ".timeout_seconds",
			x(".timeout_seconds", "is not read any more: use `steps[1].config.timeout`.")},
		{"wait_for_event", `{"event_name":"e","timeout":"31 days"}`, ".timeout",
			x(".timeout", `is "31 days"; a wait lasts from 1 second to 30 days.`)},
		{"wait_for_event", `{"event_name":"e","filter_rule":{}}`, ".filter_rule.type", absent(".filter_rule.type")},
		{"wait_for_event", `{"event_name":"e","filter_rule":{"type":"rule","field":"contact.email","operator":"eq",` +
			`"value":"a"}}`, ".filter_rule.field", x(".filter_rule.field", `is "contact.email". Here there are `+
			"`event.KEY`, what the event has, and `trigger.KEY`, what the event has that began the run.")},

		{"wait_until", `{}`, ".property",
			"Step `x`: Missing `steps[1].config.property` field. Name a property with a date, " +
				"or a time of day as `steps[1].config.time`, or both."},
		{"wait_until", `{"time":"9am"}`, ".time", x(".time", `is "9am", but must be a time of day from `+
			"`00:00` to `23:59`.")},
		{"wait_until", `{"time":"24:00"}`, ".time", x(".time", `is "24:00", but must be a time of day from `+
			"`00:00` to `23:59`.")},
		{"wait_until", `{"time":"09:00","timezone":"Mars/Base"}`, ".timezone", x(".timezone", `cannot be read: "Mars/Base" `+
			"is not known as a time zone: use a name such as Europe/Berlin, or UTC.")},
		{"wait_until", `{"time":"09:00","timezone":{}}`, ".timezone.property", absent(".timezone.property")},
		{"wait_until", `{"time":"09:00","timezone":{"property":"tz","fallback":"x"}}`, ".timezone.fallback",
			x(".timezone.fallback", `cannot be read: "x" is not known as a time zone: use a name such as `+
				"Europe/Berlin, or UTC.")},

		{"condition", `{}`, ".type", absent(".type")},
		{"condition", `{"type":"rule","field":"event.a","operator":"equals","value":1}`, ".operator",
			x(".operator", `is "equals", which is no operator: use `+"`eq`.")},
		{"condition", `{"type":"and","rules":[{"type":"rule","field":"plan","operator":"eq","value":1}]}`,
			".rules[0].field", x(".rules[0].field", `is "plan". There are `+"`event.KEY`, `wait_events.STEP.KEY` and fields of "+
				"contacts, such as `contact.email` and `contact.properties.KEY`.")},
		{"condition", `{"type":"rule","field":"wait_events.y.a","operator":"exists"}`, ".field",
			x(".field", `is "wait_events.y.a". Name the key of a step of the type `+"`wait_for_event`, and what its event "+
				"has: `wait_events.STEP.plan`.")},
		{"condition", `{"type":"rule","field":"event.a","operator":"eq","value":{"var":"wait_events.y"}}`, ".value.var",
			x(".value.var", `is "wait_events.y". Name the key of a step of the type `+"`wait_for_event`, and what its event "+
				"has: `wait_events.STEP.plan`.")},

		{"split", `{}`, ".branches", x(".branches", "has 0 branches; a split has 2 to 10.")},
		{"split", `{"branches":{}}`, ".branches", x(".branches", "must be a list.")},
		{"split", `{"branches":[{"name":"a","percent":100}]}`, ".branches",
			x(".branches", "has 1 branches; a split has 2 to 10.")},
		{"split", `{"branches":[{"name":"a","percent":50},{"name":"b","percent":49.99}]}`, ".branches",
			x(".branches", "has percents that add up to 99.99. They must add up to 100.")},
		{"split", `{"branches":[{"name":"a","percent":50},{"name":"a","percent":50}]}`, ".branches[1].name",
			x(".branches[1].name", `is "a", as that of another branch. Choose another name.`)},
		{"split", `{"branches":[{"name":"timeout","percent":50},{}]}`, ".branches[0].name",
			x(".branches[0].name", `is "timeout", which is another type of connection. Choose another name.`)},
		{"split", `{"branches":[{"percent":50},{}]}`, ".branches[0].name", absent(".branches[0].name")},
		{"split", `{"branches":[{"name":"a"},{}]}`, ".branches[0].percent", absent(".branches[0].percent")},
		{"split", `{"branches":[{"name":"a","percent":"50"},{}]}`, ".branches[0].percent",
			x(".branches[0].percent", "must be a number from -9007199254740991 to 9007199254740991.")},
		{"split", `{"branches":[{"name":"a","percent":0},{}]}`, ".branches[0].percent",
			x(".branches[0].percent", "must be more than 0 and at most 100, with at most two decimals.")},
		{"split", `{"branches":[{"name":"a","percent":33.333},{}]}`, ".branches[0].percent",
			x(".branches[0].percent", "must be more than 0 and at most 100, with at most two decimals.")},

		{"send_email", `{}`, ".template", absent(".template")},
		{"send_email", `{"template_id":"a"}`, ".template_id",
			x(".template_id", "is not read any more: use `steps[1].config.template.id`.")},
		{"send_email", `{"template":"a"}`, ".template", x(".template", "must be an object, with each member once and in "+
			"UTF-8.")},
		{"send_email", `{"template":{}}`, ".template.id", absent(".template.id")},
		{"send_email", `{"template":{"id":"a","variables":[]}}`, ".template.variables",
			x(".template.variables", "must be an object, with each member once and in UTF-8.")},
		{"send_email", `{"template":{"id":"a","variables":{"":1}}}`, ".template.variables",
			x(".template.variables", "names a variable by 0 bytes; a name has 1 to 200.")},
		{"send_email", `{"template":{"id":"a","variables":{"A":{"b":{"c":{"d":1}}}}}}`, ".template.variables.A.b.c",
			x(".template.variables.A.b.c", `is nested too deep: use a text, a number, true, false or {"var": "event.KEY"}.`)},
		{"send_email", `{"template":{"id":"a","variables":{"A":{"var":"event"}}}}`, ".template.variables.A.var",
			x(".template.variables.A.var", `is "event", which names no value. Name what the event has, as in `+"`event.plan`.")},
		{"send_email", `{"template":{"id":"a","variables":{"A":{"var":"plan"}}}}`, ".template.variables.A.var",
			x(".template.variables.A.var", `is "plan", which names no value. Name `+"`event.KEY`, `wait_events.STEP.KEY`, "+
				"`contact.email`, `contact.first_name`, `contact.last_name`, `contact.id`, `contact.unsubscribed`, "+
				"`contact.created_at` or `contact.properties.KEY`.")},
		{"send_email", `{"template":{"id":"a","variables":{"A":{"var":"event.a","or":1}}}}`, ".template.variables.A",
			x(".template.variables.A", "must have no member beside `var`, which names another value.")},
		{"send_email", `{"template":{"id":"a","variables":{"A":{"var":""}}}}`, ".template.variables.A.var",
			absent(".template.variables.A.var")},
		{"send_email", `{"template":{"id":"a","variables":{"A":1e300}}}`, ".template.variables.A",
			x(".template.variables.A", "must be a number from -9007199254740991 to 9007199254740991.")},
		{"send_email", `{"template":{"id":"a","variables":{"A":"\u0000"}}}`, ".template.variables.A",
			x(".template.variables.A", "must not contain NUL characters.")},
		{"send_email", `{"template":{"id":"a"},"subject":"a\nb"}`, ".subject",
			x(".subject", "must not contain line breaks or other control characters.")},
		{"send_email", `{"template":{"id":"a"},"reply_to":["a@b.example"]}`, ".reply_to",
			x(".reply_to", "must be a text in UTF-8.")},
		{"send_email", `{"template":{"id":"a"},"topic_id":"news"}`, ".topic_id",
			x(".topic_id", "must be the id of a topic, which is a UUID.")},

		{"contact_update", `{}`, "", x("", "must have one of `first_name`, `last_name`, `unsubscribed` and `properties`.")},
		{"contact_update", `{"first_name":1}`, ".first_name",
			x(".first_name", `must be a text of at most 255 characters without line breaks, null or {"var": "event.KEY"}.`)},
		{"contact_update", `{"last_name":"` + strings.Repeat("a", 256) + `"}`, ".last_name",
			x(".last_name", `must be a text of at most 255 characters without line breaks, null or {"var": "event.KEY"}.`)},
		{"contact_update", `{"first_name":["a"]}`, ".first_name",
			x(".first_name", `is nested too deep: use a text, a number, true, false or {"var": "event.KEY"}.`)},
		{"contact_update", `{"first_name":{"var":"wait_events.a.b"}}`, ".first_name.var",
			x(".first_name.var", `is "wait_events.a.b", which names no value. Name the key of a step of the type `+
				"`wait_for_event`, and what its event has: `wait_events.STEP.plan`.")},
		{"contact_update", `{"unsubscribed":"true"}`, ".unsubscribed",
			x(".unsubscribed", `must be true, false or {"var": "event.KEY"}.`)},
		{"contact_update", `{"first_name":"a\nb"}`, ".first_name",
			x(".first_name", "must be a text of at most 255 characters without line breaks, null or {\"var\": "+
				"\"event.KEY\"}.")},
		{"contact_update", `{"properties":{"":"x"}}`, ".properties",
			x(".properties", "has a member without a name.")},
		{"contact_update", `{"properties":{"plan":{"var":"contact.plan"}}}`, ".properties.plan.var",
			x(".properties.plan.var", `is "contact.plan", which names no value. Name `+"`event.KEY`, `wait_events.STEP.KEY`, "+
				"`contact.email`, `contact.first_name`, `contact.last_name`, `contact.id`, `contact.unsubscribed`, "+
				"`contact.created_at` or `contact.properties.KEY`.")},

		{"add_to_segment", `{}`, ".segment_id", absent(".segment_id")},
		{"add_to_segment", `{"segment_id":"vip"}`, ".segment_id",
			x(".segment_id", "must be the id of a segment, which is a UUID.")},

		{"webhook", `{}`, ".url", absent(".url")},
		{"webhook", `{"url":"ftp://a.example"}`, ".url", x(".url", "must be a URL such as https://example.com/hook.")},
		{"webhook", `{"url":"https:///x"}`, ".url", x(".url", "must be a URL such as https://example.com/hook.")},
		{"webhook", `{"url":"https://a.example","headers":{"Content-Type":"a"}}`, ".headers.Content-Type",
			x(".headers.Content-Type", "cannot be set: it is a header that is always the server's own.")},
		{"webhook", `{"url":"https://a.example","headers":{"A B":"a"}}`, ".headers",
			"Step `x`: The `steps[1].config.headers` field has the header \"A B\", which is no name of a header."},
		{"webhook", `{"url":"https://a.example","headers":{"A":"a","a":"b"}}`, ".headers.a",
			x(".headers.a", "is there twice, in other letters. Keep one.")},
		{"webhook", `{"url":"https://a.example","headers":{"A":"a\r\nB: c"}}`, ".headers.A",
			x(".headers.A", "must not contain line breaks or other control characters.")},
		{"webhook", `{"url":"https://a.example","headers":{"A":"é"}}`, ".headers.A",
			x(".headers.A", "must be a text in ASCII.")},
		{"webhook", `{"url":"https://a.example","payload":[1]}`, ".payload", x(".payload", "must be an object.")},
		{"webhook", `{"url":"https://a.example","payload":{"var":"event.a"}}`, ".payload",
			x(".payload", "must be an object.")},
		{"webhook", `{"url":"https://a.example","payload":{"a":"` + strings.Repeat("a", 33000) + `"}}`, ".payload",
			x(".payload", "has 33008 bytes of JSON; the limit is 32768.")},
		{"webhook", `{"url":"https://a.example","payload":{"a":` + strings.Repeat("[", 10) + strings.Repeat("]", 10) + `}}`,
			".payload.a" + strings.Repeat("[0]", 9), x(".payload.a"+strings.Repeat("[0]", 9),
				`is nested too deep: use a text, a number, true, false or {"var": "event.KEY"}.`)},
		{"webhook", `{"url":"https://a.example","payload":{"a":[` + strings.Repeat(`{"var":"event.a"},`, 101) + `1]}}`,
			".payload.a[100]", x(".payload.a[100]", "is one too many: a step has at most 100 references.")},
		{"webhook", `{"url":"https://a.example","payload":{"a":[` + strings.Repeat(`1,`, 1001) + `1]}}`,
			".payload.a[998]", x(".payload.a[998]", "is one too many: a step has at most 1000 values.")},
	} {
		rows = append(rows, row{step(c.kind, c.config), toX, "steps[1].config" + c.member, c.says})
	}
	for _, r := range rows {
		g, err := engine.Parse([]byte(r.steps), []byte(r.connections))
		f, ok := err.(*fault.Error)
		if g != nil || !ok {
			t.Errorf("Parse(%.200s, %.200s) = %v, %v; want a fault", r.steps, r.connections, g, err)
			continue
		}
		if f.Field != r.field || f.Message != r.says || f.Kind != fault.Invalid && f.Kind != fault.Missing {
			t.Errorf("Parse(%.200s, %.200s):\n got %s: %s\nwant %s: %s", r.steps, r.connections, f.Field, f.Message, r.field,
				r.says)
		}
	}
}

// The error about a cycle in a graph names a step that is on the cycle.
func TestCircle(t *testing.T) {
	t.Parallel()
	steps := "[" + start
	for _, k := range "abcde" {
		steps += fmt.Sprintf(`,{"key":"%c","type":"split","config":{"branches":[{"name":"l","percent":50},`+
			`{"name":"r","percent":50}]}}`, k)
	}
	_, err := engine.Parse([]byte(steps+"]"), []byte(`[{"from":"start","to":"a"},{"from":"a","to":"b","type":"l"},
		{"from":"b","to":"c","type":"l"},{"from":"c","to":"b","type":"r"},{"from":"c","to":"d","type":"l"},
		{"from":"d","to":"e","type":"l"}]`))
	f, ok := err.(*fault.Error)
	if !ok || f.Field != "connections[1]" && f.Field != "connections[2]" && f.Field != "connections[3]" ||
		!strings.HasPrefix(f.Message, "Step `b`:") && !strings.HasPrefix(f.Message, "Step `c`:") {
		t.Errorf("a circle of b and c: %v", err)
	}
}

// everything contains the steps of a graph that uses every step type.
const everything = `[
	{"key":"start","type":"trigger","config":{"event_name":"user.created","note":"ignored"},"x":1},
	{"key":"again","type":"trigger","config":{"event_name":"resend:contact.created"}},
	{"key":"mail","type":"send_email","config":{"template":{"id":"welcome","variables":{
		"NAME":{"var":"contact.first_name"},
		"n":1.50,"b":true,"o":{"a":"x","l":["x",2,{"var":"event.y"}]},"l":[],"none":null}},"from":"Ann <ann@acme.example>",
		"subject":"Hi","reply_to":"help@acme.example","topic_id":"019A0000-0000-7000-8000-000000000002"}},
	{"key":"pause","type":"delay","config":{"duration":"90 min"}},
	{"key":"order","type":"wait_for_event","config":{"event_name":"order.placed","timeout":"1 week","filter_rule":
		{"type":"rule","field":"event.total","operator":"gt","value":{"var":"trigger.least"}}}},
	{"key":"any","type":"wait_for_event","config":{"event_name":"seen","timeout":null}},
	{"key":"until","type":"wait_until","config":{"property":"properties.birthday","time":"09:00",
		"timezone":{"property":"contact.properties.tz","fallback":"Europe/Berlin"}}},
	{"key":"big","type":"condition","config":{"rules":[{"operator":"gt","field":"wait_events.order.total","type":"rule",
		"value":100},{"type":"rule","field":"properties.plan","operator":"eq","value":"pro"}],"type":"and"}},
	{"key":"half","type":"split","config":{"branches":[{"name":"a","percent":33.33},{"name":"b","percent":66.67}]}},
	{"key":"set","type":"contact_update","config":{"first_name":null,"last_name":{"var":"event.name"},
		"unsubscribed":{"var":"event.out"},"properties":{"plan":"pro","seats":5,"old":null,"by":{"var":"properties.plan"}}}},
	{"key":"add","type":"add_to_segment","config":{"segment_id":"019A0000-0000-7000-8000-000000000001"}},
	{"key":"call","type":"webhook","config":{"url":"https://acme.example/hook","headers":{"X-A":"b"},
		"payload":{"who":{"var":"contact.email"},"deep":[[{"a":null}]]}}},
	{"key":"gone","type":"contact_delete"}]`

const everythingConnected = `[{"from":"start","to":"mail"},{"from":"again","to":"mail","type":null},
	{"from":"mail","to":"pause","type":"default"},{"from":"pause","to":"order"},
	{"from":"order","to":"big","type":"event_received"},{"from":"order","to":"any","type":"timeout"},
	{"from":"any","to":"until","type":"timeout"},{"from":"until","to":"half"},
	{"from":"big","to":"half","type":"condition_met"},
	{"from":"half","to":"set","type":"a"},{"from":"half","to":"add","type":"b"},{"from":"set","to":"add"},
	{"from":"add","to":"call"},{"from":"call","to":"gone"}]`

// The JSON of a graph contains the defaults, and writes durations in words. The JSON contains no unknown members, and
// can be parsed into the same graph.
func TestWritten(t *testing.T) {
	t.Parallel()
	g := parse(t, everything, everythingConnected)
	want := `[{"key":"start","type":"trigger","config":{"event_name":"user.created"}},
{"key":"again","type":"trigger","config":{"event_name":"resend:contact.created"}},
{"key":"mail","type":"send_email","config":{"from":"Ann <ann@acme.example>","reply_to":"help@acme.example",
"subject":"Hi","template":{"id":"welcome","variables":{"NAME":{"var":"contact.first_name"},"b":true,"l":[],"n":1.5,
"o":{"a":"x","l":["x",2,{"var":"event.y"}]}}},"topic_id":"019a0000-0000-7000-8000-000000000002"}},
{"key":"pause","type":"delay","config":{"duration":"1 hour 30 minutes"}},
{"key":"order","type":"wait_for_event","config":{"event_name":"order.placed","filter_rule":{"type":"rule",
"field":"event.total","operator":"gt","value":{"var":"trigger.least"}},"timeout":"7 days"}},
{"key":"any","type":"wait_for_event","config":{"event_name":"seen"}},
{"key":"until","type":"wait_until","config":{"property":"birthday","time":"09:00",
"timezone":{"fallback":"Europe/Berlin","property":"tz"}}},
{"key":"big","type":"condition","config":{"type":"and","rules":[{"type":"rule","field":"wait_events.order.total",
"operator":"gt","value":100},{"type":"rule","field":"properties.plan","operator":"eq","value":"pro"}]}},
{"key":"half","type":"split","config":{"branches":[{"name":"a","percent":33.33},{"name":"b","percent":66.67}]}},
{"key":"set","type":"contact_update","config":{"first_name":null,"last_name":{"var":"event.name"},
"properties":{"by":{"var":"properties.plan"},"old":null,"plan":"pro","seats":5},"unsubscribed":{"var":"event.out"}}},
{"key":"add","type":"add_to_segment","config":{"segment_id":"019a0000-0000-7000-8000-000000000001"}},
{"key":"call","type":"webhook","config":{"headers":{"X-A":"b"},"payload":{"deep":[[{"a":null}]],
"who":{"var":"contact.email"}},"url":"https://acme.example/hook"}},
{"key":"gone","type":"contact_delete","config":{}}]`
	if diff := cmp.Diff(strings.ReplaceAll(want, "\n", ""), string(g.StepsJSON())); diff != "" {
		t.Errorf("the steps (-want +got):\n%s", diff)
	}
	if got := string(g.ConnectionsJSON()); !strings.HasPrefix(got, `[{"from":"start","to":"mail","type":"default"},`+
		`{"from":"again","to":"mail","type":"default"},`) {
		t.Errorf("the connections: %s", got)
	}
	again := parse(t, string(g.StepsJSON()), string(g.ConnectionsJSON()))
	if string(again.StepsJSON()) != string(g.StepsJSON()) ||
		string(again.ConnectionsJSON()) != string(g.ConnectionsJSON()) {
		t.Errorf("read again it is another graph:\n%s", again.StepsJSON())
	}
	if diff := cmp.Diff([]string{"user.created", "postrider:contact.created"}, g.Triggers()); diff != "" {
		t.Errorf("the triggers (-want +got):\n%s", diff)
	}
}

// References returns all references that the caller must look up, with their paths.
func TestReferences(t *testing.T) {
	t.Parallel()
	g := parse(t, everything, everythingConnected)
	var got []string
	for _, r := range g.References() {
		line := strings.Join([]string{r.Step, r.Field, r.Kind, r.ID + string(r.Literal.Type)}, " ")
		if r.Kind == engine.RefRule {
			line += strings.Join(r.Rule.Fields(), ",")
		}
		got = append(got, line+strings.Join(r.Names, ","))
	}
	want := []string{
		"mail steps[2].config.template.id template welcomeNAME,b,l,n,o_a,o_l",
		"mail steps[2].config.topic_id topic 019a0000-0000-7000-8000-000000000002",
		"mail steps[2].config.from from Ann <ann@acme.example>",
		"mail steps[2].config.reply_to reply_to help@acme.example",
		"until steps[6].config.property property birthday",
		"until steps[6].config.timezone.property property tz",
		"big steps[7].config rule wait_events.order.total,contact.properties.plan",
		"set steps[9].config.properties.by property by",
		"set steps[9].config.properties.old property old",
		"set steps[9].config.properties.plan property planstring",
		"set steps[9].config.properties.seats property seatsnumber",
		"set steps[9].config.properties.by.var property plan",
		"add steps[10].config.segment_id segment 019a0000-0000-7000-8000-000000000001",
		"call steps[11].config.url url https://acme.example/hook",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("the references (-want +got):\n%s", diff)
	}
}

// CheckRule checks a condition's rule against the available contact and event fields.
func TestCheckRule(t *testing.T) {
	t.Parallel()
	text := filter.Schema{Fields: map[string]filter.Field{"contact.properties.plan": {Type: filter.TextField}}}
	number := filter.Schema{Fields: map[string]filter.Field{"contact.properties.plan": {Type: filter.NumberField}},
		Unknown: func(string) string { return "Create it." }}
	g := parse(t, everything, everythingConnected)
	for _, r := range g.References() {
		if r.Kind != engine.RefRule {
			continue
		}
		if err := g.CheckRule(r, text); err != nil {
			t.Errorf("with a property of text: %v", err)
		}
		for schema, want := range map[*filter.Schema]string{
			&number: "Step `big`: The `steps[7].config.rules[1].value` field must be a number.",
			&filter.Schema{}: "Step `big`: The `steps[7].config.rules[1].field` field is \"properties.plan\", which is " +
				"no field.",
		} {
			if err := g.CheckRule(r, *schema); err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		}
	}
}

// ReferenceError returns an error that names the step and whose field is the path of the reference.
func TestRefused(t *testing.T) {
	t.Parallel()
	g := parse(t, everything, everythingConnected)
	r := engine.Reference{Step: "mail", Field: "steps[2].config.template.id"}
	err := g.ReferenceError(r, fault.NotFoundf("There is no such template."))
	if f, ok := err.(*fault.Error); !ok || f.Kind != fault.Invalid || f.Field != r.Field ||
		f.Message != "Step `mail`: There is no such template." {
		t.Errorf("Refused: %#v", err)
	}
	err = g.ReferenceError(r, fault.Invalidf("steps[2].config.template.id.x", "No."))
	if f, ok := err.(*fault.Error); !ok || f.Field != "steps[2].config.template.id.x" {
		t.Errorf("Refused of a place within: %#v", err)
	}
	if err := g.ReferenceError(r, fault.New(fault.Unavailable, "", "Later.")); err.Error() != "Later." {
		t.Errorf("Refused of what may pass: %v", err)
	}
}
