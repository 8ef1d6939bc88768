package filter

import (
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
)

// team is a schema that has a field of each type.
var team = Schema{
	Fields: map[string]Field{
		"contact.email":           {Type: TextField, Lower: true, Column: Column{Value: "c.address"}},
		"contact.first_name":      {Type: TextField, Column: Column{Value: "c.first_name"}},
		"contact.unsubscribed":    {Type: BoolField, Column: Column{Value: "c.unsubscribed"}},
		"contact.created_at":      {Type: TimeField, Column: Column{Value: "c.created_at"}},
		"contact.properties.plan": {Type: TextField, Column: property("contact_texts")},
		"contact.properties.age":  {Type: NumberField, Column: property("contact_numbers")},
		"contact.topics.news": {Type: ChoiceField, Default: TextValue("opt_in"), Allow: optInOrOut,
			Column: topic},
		"contact.segments":             {Type: SetField, Allow: knownSegment, Column: segments},
		"contact.engagement.opened":    {Type: NumberField, Default: NumberValue(0), Column: engagement("opened")},
		"contact.engagement.opened_at": {Type: TimeField, Column: engagement("opened_at")},
	},
}

var (
	topic    = Column{Table: "contact_topics", Value: "v.subscription", Key: "topic_id", KeyValue: "t"}
	segments = Column{Table: "contact_segments", Value: "v.segment_id"}
)

func property(table string) Column {
	return Column{Table: table, Value: "v.value", Key: "property_id", KeyValue: "p"}
}

func engagement(column string) Column {
	return Column{Table: "contact_engagement", Value: "v." + column}
}

func optInOrOut(text string) string {
	if text == "opt_in" || text == "opt_out" {
		return ""
	}
	return "must be `opt_in` or `opt_out`."
}

func knownSegment(id string) string {
	if strings.HasPrefix(id, "s") {
		return ""
	}
	return "must be the id of a segment of this team."
}

// automation is the team's schema with additional fields for events.
func automation() Schema {
	s := Schema{Fields: map[string]Field{}, Open: []string{"wait_events."}, References: true}
	for name, f := range team.Fields {
		s.Fields[name] = f
	}
	s.Fields["event.plan"] = Field{Type: TextField}
	s.Fields["event.amount"] = Field{Type: NumberField}
	s.Fields["event.paid"] = Field{Type: BoolField}
	s.Fields["event.due"] = Field{Type: TimeField}
	return s
}

func mustParse(t testing.TB, text string) *Rule {
	t.Helper()
	r, err := Parse([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

func leafOf(field, operator, value string) string {
	if value != "" {
		value = `, "value": ` + value
	}
	return fmt.Sprintf(`{"type": "rule", "field": %q, "operator": %q%s}`, field, operator, value)
}

func TestParseRefusesWithThePlace(t *testing.T) {
	eq := leafOf("contact.email", "eq", `"a@example.com"`)
	powers := leafOf("contact.age", "in", "["+strings.Repeat("1e15,", 499)+"1e15]") // stored as 1000000000000000
	list := func(n int) string { return "[" + strings.Repeat(`"x",`, n-1) + `"x"]` }
	deep := func(levels int) string {
		return strings.Repeat(`{"type": "not", "rule": `, levels-1) + eq + strings.Repeat("}", levels-1)
	}
	for _, c := range []struct{ text, field, says string }{
		{``, "filter", "must be an object"},
		{`null`, "filter", "must be an object"},
		{`[]`, "filter", "must be an object"},
		{`"contact.email"`, "filter", "must be an object"},
		{`{"type": "and", "type": "or", "rules": []}`, "filter", "each member once"},
		{`{"type": "rule", "field": "` + "\xff" + `"}`, "filter", "UTF-8"},
		{`{}`, "filter.type", "Missing"},
		{`{"type": null}`, "filter.type", "Missing"},
		{`{"type": 1}`, "filter.type", "must be a text"},
		{`{"type": "xor"}`, "filter.type", "`and`, `or`, `not` or `rule`"},
		{`{"type": "and"}`, "filter.rules", "Missing"},
		{`{"type": "and", "rules": {}}`, "filter.rules", "list of rules"},
		{`{"type": "or", "rules": []}`, "filter.rules", "at least one"},
		{`{"type": "or", "rules": [` + eq + `, 1]}`, "filter.rules[1]", "must be an object"},
		{`{"type": "or", "rules": [` + eq + `], "rule": 1}`, "filter", `"rule"`},
		{`{"type": "not", "rules": []}`, "filter", "`rule`"},
		{`{"type": "not"}`, "filter.rule", "Missing"},
		{`{"type": "not", "rule": {"type": "and", "rules": [` + eq + `, {"type": "rule"}]}}`,
			"filter.rule.rules[1].field",
			"Missing"},
		{`{"type": "rule", "field": "", "operator": "eq", "value": 1}`, "filter.field", "name of a field"},
		{`{"type": "rule", "field": "contact.email", "value": 1}`, "filter.operator", "Missing"},
		{`{"type": "rule", "field": "contact.email", "operator": "eq", "valeu": 1}`, "filter", `"valeu"`},
		{leafOf(strings.Repeat("f", MaxField+1), "eq", "1"), "filter.field", "the limit is 200"},
		{leafOf("contact.email", "equals", `1`), "filter.operator", "use `eq`"},
		{leafOf("contact.email", ">=", `1`), "filter.operator", "use `gte`"},
		{leafOf("contact.email", "Contains", `1`), "filter.operator", "must be one of"},
		{leafOf("contact.email", "near", `1`), "filter.operator", "`within_last`"},
		{leafOf("contact.email", "eq", ""), "filter.value", "Missing"},
		{leafOf("contact.email", "exists", "true"), "filter.value", "takes no value"},
		{leafOf("contact.email", "eq", `{"x": 1}`), "filter.value", `"x"`},
		{leafOf("contact.email", "eq", `{"var": 1}`), "filter.value.var", "must be a text"},
		{leafOf("contact.email", "eq", `["x"]`), "filter.value", "Use `in`"},
		{leafOf("contact.email", "in", `"x"`), "filter.value", "list"},
		{leafOf("contact.email", "in", `[]`), "filter.value", "1 to 500"},
		{leafOf("contact.email", "in", list(501)), "filter.value", "1 to 500"},
		{leafOf("contact.email", "in", `["x", ["y"]]`), "filter.value[1]", "must be a text"},
		{leafOf("contact.email", "in", `["x", null]`), "filter.value[1]", "is_empty"},
		{leafOf("contact.email", "contains", `""`), "filter.value", "is_empty"},
		{leafOf("contact.email", "gt", `null`), "filter.value", "is_empty"},
		{leafOf("contact.email", "eq", `"a\u0000b"`), "filter.value", "NUL"},
		{leafOf("contact.email", "eq", `"`+strings.Repeat("é", MaxString+1)+`"`), "filter.value", "the limit is 2000"},
		{leafOf("contact.age", "eq", `1e300`), "filter.value", "9007199254740992"},
		{leafOf("contact.age", "eq", `1e400`), "filter.value", "9007199254740992"},
		{leafOf("contact.age", "eq", `-9007199254740994`), "filter.value", "9007199254740992"},
		{deep(11), "filter" + strings.Repeat(".rule", 10), "10 levels"},
		{strings.Repeat(`{"type":"not","rule":`, 3000), "filter", "must be an object"},
		{`{"type": "or", "rules": [` + strings.Repeat(eq+",", 100) + eq + `]}`, "filter.rules", "100 comparisons"},
		{`{"type": "or", "rules": [` + eq + `, {"type": "and", "rules": [` + strings.Repeat(eq+",", 99) + eq + `]}]}`,
			"filter.rules[1].rules[99]", "100 comparisons"},
		{leafOf("contact.email", "eq", `"`+strings.Repeat("x", MaxText)+`"`), "filter", "the limit is 65536"},
		{`{"type": "or", "rules": [` + strings.Repeat(powers+",", 19) + powers + `]}`, "filter", "the limit is 65536"},
	} {
		_, err := Parse([]byte(c.text))
		checkFault(t, c.text, err, c.field, c.says)
	}
	mustParse(t, deep(10))
	mustParse(t, `{"type": "or", "rules": [`+strings.Repeat(eq+",", 99)+eq+`]}`)
	mustParse(t, leafOf("contact.email", "in", list(500)))
	mustParse(t, leafOf("contact.email", "exists", "null"))
}

func checkFault(t *testing.T, text string, err error, field, says string) {
	t.Helper()
	if len(text) > 200 {
		text = text[:200] + "..."
	}
	f, ok := errors.AsType[*fault.Error](err)
	if !ok {
		t.Errorf("%s: error %v, want a fault", text, err)
		return
	}
	if f.Field != field || !strings.Contains(f.Message, says) || !strings.Contains(f.Message, "`"+field) {
		t.Errorf("%s: field %q, message %q; want %q and %q", text, f.Field, f.Message, field, says)
	}
	if f.Kind != fault.Invalid && f.Kind != fault.Missing {
		t.Errorf("%s: kind %v", text, f.Kind)
	}
}

func TestCheckRefusesWhatDoesNotFitTheField(t *testing.T) {
	for _, c := range []struct{ field, operator, value, place, says string }{
		{"contact.phone", "eq", `"x"`, "filter.field", "no field"},
		{"event.plan", "eq", `"x"`, "filter.field", "no field"},
		{"contact.email", "eq", `true`, "filter.value", "a text"},
		{"contact.email", "in", `["a", false]`, "filter.value", "a text"},
		{"contact.email", "gt", `"abc"`, "filter.value", "number"},
		{"contact.email", "before", `"2026-01-01"`, "filter.operator", "`contact.email` is a text"},
		{"contact.email", "contains", `5`, "filter.value", "text"},
		{"contact.properties.age", "contains", `"5"`, "filter.operator", "`gte`"},
		{"contact.properties.age", "eq", `"five"`, "filter.value", "number"},
		{"properties.age", "lt", `true`, "filter.value", "number"},
		{"contact.unsubscribed", "eq", `"true"`, "filter.value", "without quotes"},
		{"contact.unsubscribed", "gt", `1`, "filter.operator", "true or false"},
		{"contact.created_at", "gt", `5`, "filter.operator", "`before`"},
		{"contact.created_at", "before", `"tomorrow"`, "filter.value", "RFC 3339"},
		{"contact.created_at", "after", `20260101`, "filter.value", "RFC 3339"},
		{"contact.created_at", "within_last", `"P30D"`, "filter.value", "30 days"},
		{"contact.created_at", "within_last", `"0 days"`, "filter.value", "30 days"},
		{"contact.created_at", "within_last", `30`, "filter.value", "30 days"},
		{"contact.created_at", "not_within_last", `"9999 weeks"`, "filter.value", "30 days"},
		{"contact.topics.news", "eq", `"yes"`, "filter.value", "opt_in"},
		{"contact.topics.news", "contains", `"opt"`, "filter.operator", "a choice"},
		{"contact.segments", "eq", `"unknown"`, "filter.value", "segment of this team"},
		{"contact.segments", "in", `["s1", "unknown"]`, "filter.value", "segment of this team"},
		{"contact.segments", "eq", `null`, "filter.value", "segment"},
		{"contact.segments", "exists", ``, "filter.operator", "a set"},
		{"contact.email", "eq", `{"var": "contact.first_name"}`, "filter.value", "only automations"},
	} {
		text := leafOf(c.field, c.operator, c.value)
		r := mustParse(t, text)
		checkFault(t, text, r.Check(team), c.place, c.says)
		if _, _, err := r.Where(team, time.Time{}, nil); err == nil {
			t.Errorf("%s: Where gave no error", text)
		}
		if _, err := r.Match(team, time.Time{}, func(string) Value { return Value{} }); err == nil {
			t.Errorf("%s: Match gave no error", text)
		}
	}
	for _, c := range []struct{ field, operator, value, place, says string }{
		{"event.plan", "eq", `{"var": "event.none"}`, "filter.value.var", "no field"},
		{"event.plan", "eq", `{"var": "event.paid"}`, "filter.value.var", "true or false"},
		{"event.paid", "eq", `{"var": "event.plan"}`, "filter.value.var", "a text"},
		{"event.due", "within_last", `{"var": "event.plan"}`, "filter.value.var", "cannot be compared"},
		{"event.due", "contains", `"2026"`, "filter.operator", "a time"},
		{"event.due", "before", `{"var": "event.paid"}`, "filter.value.var", "true or false"},
		{"wait_events.", "eq", `1`, "filter.field", "no field"},
	} {
		text := leafOf(c.field, c.operator, c.value)
		checkFault(t, text, mustParse(t, text).Check(automation()), c.place, c.says)
	}
	r := mustParse(t, leafOf("event.plan", "eq", `"x"`))
	_, _, err := r.Where(automation(), time.Time{}, nil)
	checkFault(t, "event.plan in SQL", err, "filter.field", "while an automation runs")
}

func TestErrorsNameThePlaceWithinTheRequest(t *testing.T) {
	r, err := ParseAt("steps[3].config", []byte(`{"type": "or", "rules": [{"type": "not", "rule": `+
		leafOf("contact.phone", "eq", `1`)+`}]}`))
	if err != nil {
		t.Fatal(err)
	}
	checkFault(t, "steps", r.Check(team), "steps[3].config.rules[0].rule.field", `"contact.phone"`)
	_, err = ParseAt("steps[3].config", []byte(`{"type": "or", "rules": [`+leafOf("contact.phone", "is", `1`)+`]}`))
	checkFault(t, "steps", err, "steps[3].config.rules[0].operator", "`eq`")
}

var noon = time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)

// TestMatch checks the table in docs/filters.md, line by line.
func TestMatch(t *testing.T) {
	none := Value{}
	text, number := TextValue, NumberValue
	at := func(s string) Value {
		when, err := time.Parse(time.RFC3339Nano, s)
		if err != nil {
			t.Fatal(err)
		}
		return TimeValue(when)
	}
	type holds struct {
		value Value
		want  bool
	}
	const plan, age, created = "contact.properties.plan", "contact.properties.age", "contact.created_at"
	for _, c := range []struct {
		field, operator, value string
		on                     []holds
	}{
		{plan, "eq", `"pro"`, []holds{{text("pro"), true}, {text("Pro"), false}, {text("pro "), false}, {none, false}}},
		{plan, "neq", `"pro"`, []holds{{text("pro"), false}, {text("free"), true}, {none, true}}},
		{plan, "eq", `null`, []holds{{text("pro"), false}, {text(""), true}, {none, true}}},
		{plan, "eq", `""`, []holds{{text("pro"), false}, {text(""), true}, {none, true}}},
		{plan, "neq", `null`, []holds{{text("pro"), true}, {none, false}}},
		{plan, "exists", ``, []holds{{text("pro"), true}, {text(""), false}, {none, false}}},
		{plan, "is_empty", ``, []holds{{text("pro"), false}, {text(""), true}, {none, true}}},
		{plan, "in", `["pro", "free"]`, []holds{{text("free"), true}, {text("team"), false}, {none, false}}},
		{plan, "not_in", `["pro", "free"]`, []holds{{text("free"), false}, {text("team"), true}, {none, true}}},
		{plan, "contains", `"r%"`, []holds{{text("50 r%!"), true}, {text("R%"), false}, {text("rat"), false}, {none,
			false}}},
		{plan, "starts_with", `"_É"`, []holds{{text("_Ecole"), false}, {text("_É"), true}, {text("aÉ"), false},
			{none, false}}},
		{plan, "ends_with", `"é"`, []holds{{text("café"), true}, {text("é"), true}, {text("cafe"), false}, {none,
			false}}},
		{plan, "gt", `9`, []holds{{text("10"), true}, {text("9"), false}, {text("-10"), false}, {text("9.5"), true},
			{text("10 "), false}, {text("1e9"), false}, {text("٣٣"), false}, {text(".5"), false},
			{text("99999999999999999"), false},
			{none, false}}},
		{plan, "lte", `"-2.5"`, []holds{{text("-2.50"), true}, {text("-2"), false}, {text("--3"), false}, {text("-"),
			false},
			{none, false}}},
		{age, "eq", `18`, []holds{{number(18), true}, {number(18.5), false}, {none, false}}},
		{age, "eq", `"18.0"`, []holds{{number(18), true}, {none, false}}},
		{age, "neq", `18`, []holds{{number(18), false}, {none, true}}},
		{age, "in", `[17, "18"]`, []holds{{number(17), true}, {number(18), true}, {number(19), false}, {none, false}}},
		{age, "gte", `18`, []holds{{number(18), true}, {number(17.999), false}, {none, false}}},
		{age, "lt", `0`, []holds{{number(-1), true}, {number(0), false}, {none, false}}},
		{age, "exists", ``, []holds{{number(0), true}, {none, false}}},
		{"contact.unsubscribed", "eq", `true`, []holds{{BoolValue(true), true}, {BoolValue(false), false}}},
		{"contact.unsubscribed", "neq", `true`, []holds{{BoolValue(true), false}, {BoolValue(false), true}}},
		{"contact.email", "ends_with", `"@Example.com"`, []holds{{text("a@example.com"), true},
			{text("a@example.net"), false}}},
		{created, "before", `"2026-03-01"`, []holds{{at("2026-02-28T23:59:59Z"), true}, {at("2026-03-01T00:00:00Z"),
			false},
			{none, false}}},
		{created, "after", `"2026-03-01"`, []holds{{at("2026-03-01T23:59:59Z"), false}, {at("2026-03-02T00:00:00Z"),
			true},
			{none, false}}},
		{created, "after", `"2026-03-01T10:00:00+02:00"`, []holds{{at("2026-03-01T08:00:00Z"), false},
			{at("2026-03-01T08:00:00.000001Z"), true}}},
		{created, "within_last", `"30 days"`, []holds{{at("2026-03-01T12:00:00Z"), true}, {at("2026-03-01T11:59:59Z"),
			false},
			{at("2026-03-31T12:00:59Z"), true}, {at("2026-03-31T12:01:00Z"), false}, {none, false}}},
		{created, "not_within_last", `"30 days"`, []holds{{at("2026-03-01T12:00:00Z"), false},
			{at("2026-03-01T11:59:59Z"), true}, {none, true}}},
		{"contact.topics.news", "eq", `"opt_in"`, []holds{{text("opt_in"), true}, {text("opt_out"), false}, {none,
			true}}},
		{"contact.topics.news", "neq", `"opt_in"`, []holds{{text("opt_in"), false}, {text("opt_out"), true}, {none,
			false}}},
		{"contact.segments", "eq", `"s1"`, []holds{{ListValue([]string{"s1", "s2"}), true},
			{ListValue([]string{"s2"}), false},
			{none, false}}},
		{"contact.segments", "not_in", `["s1", "s3"]`, []holds{{ListValue([]string{"s1"}), false},
			{ListValue([]string{"s2"}), true}, {none, true}}},
		{"contact.engagement.opened", "lt", `1`, []holds{{number(1), false}, {number(0), true}, {none, true}}},
		{"contact.engagement.opened_at", "not_within_last", `"1 week"`, []holds{{none, true}, {TimeValue(noon), false}}},
		{"event.due", "before", `"2026-03-31"`, []holds{{text("2026-03-30"), true}, {text("2026-03-31"), false},
			{text("soon"), false}, {none, false}}},
		{"wait_events.x.n", "eq", `5`, []holds{{number(5), true}, {text("5"), true}, {text("five"), false},
			{BoolValue(true), false}, {OtherValue(), false}, {none, false}}},
		{"wait_events.x.n", "exists", ``, []holds{{OtherValue(), true}, {BoolValue(false), true}, {none, false}}},
		{"wait_events.x.n", "gt", `"5"`, []holds{{text("6"), true}, {number(6), true}, {OtherValue(), false}}},
		{"wait_events.x.n", "contains", `"5"`, []holds{{text("15"), true}, {number(15), false}}},
		{"wait_events.x.n", "after", `"2026-01-01"`, []holds{{text("2026-01-02T00:00:00Z"), true}, {number(2027),
			false}}},
	} {
		r := mustParse(t, leafOf(c.field, c.operator, c.value))
		if err := r.Check(automation()); err != nil {
			t.Error(err)
		}
		for _, h := range c.on {
			got, err := r.Match(automation(), noon, func(name string) Value { return h.value })
			if err != nil || got != h.want {
				t.Errorf("%+v is %s %s: %t, %v; want %t", h.value, c.operator, c.value, got, err, h.want)
			}
		}
	}
}

func TestMatchOfGroups(t *testing.T) {
	yes, no := leafOf("contact.first_name", "eq", `"Ann"`), leafOf("contact.first_name", "eq", `"Bob"`)
	group := func(kind string, rules ...string) string {
		return fmt.Sprintf(`{"type": %q, "rules": [%s]}`, kind, strings.Join(rules, ", "))
	}
	not := func(rule string) string { return `{"type": "not", "rule": ` + rule + `}` }
	for text, want := range map[string]bool{
		group("and", yes): true, group("and", yes, no): false, group("and", no, yes): false,
		group("or", no): false, group("or", no, yes): true, group("or", yes, no): true, not(no): true, not(yes): false,
		not(not(yes)): true, group("or", group("and", yes, no), not(group("or", no, no))): true,
	} {
		got, err := mustParse(t, text).Match(team, noon, func(string) Value { return TextValue("Ann") })
		if err != nil || got != want {
			t.Errorf("%s: %t, %v; want %t", text, got, err, want)
		}
	}
}

func TestReferences(t *testing.T) {
	payload := map[string]Value{"event.plan": TextValue("pro"), "event.amount": NumberValue(10),
		"wait_events.x.old": TextValue("pro"), "wait_events.x.five": TextValue("5"),
		"contact.properties.plan": TextValue("pro")}
	for _, c := range []struct {
		field, operator, of string
		want                bool
	}{
		{"properties.plan", "eq", "event.plan", true},
		{"event.plan", "eq", "properties.plan", true},
		{"event.plan", "neq", "contact.properties.plan", false},
		{"event.plan", "eq", "contact.first_name", false},
		{"event.plan", "neq", "contact.first_name", true},
		{"contact.first_name", "eq", "contact.first_name", false},
		{"event.amount", "gt", "wait_events.x.five", true},
		{"event.amount", "gt", "wait_events.x.old", false},
		{"wait_events.x.old", "contains", "event.plan", true},
		{"contact.topics.news", "neq", "wait_events.x.old", true},
	} {
		r := mustParse(t, leafOf(c.field, c.operator, fmt.Sprintf(`{"var": %q}`, c.of)))
		if err := r.Check(automation()); err != nil {
			t.Error(err)
		}
		got, err := r.Match(automation(), noon, func(name string) Value { return payload[name] })
		if err != nil || got != c.want {
			t.Errorf("%s %s %s: %t, %v; want %t", c.field, c.operator, c.of, got, err, c.want)
		}
	}
}

func TestFields(t *testing.T) {
	r := mustParse(t, `{"type": "and", "rules": [`+leafOf("properties.plan", "eq", `{"var": "event.plan"}`)+`, `+
		leafOf("contact.properties.plan", "exists", ``)+`, {"type": "not", "rule": `+leafOf("contact.email", "eq",
		`"x"`)+`}]}`)
	want := []string{"contact.properties.plan", "event.plan", "contact.email"}
	if got := r.Fields(); !reflect.DeepEqual(got, want) {
		t.Errorf("fields %v, want %v", got, want)
	}
}

func TestNumeralsAreReadAlike(t *testing.T) {
	for _, text := range []string{"0", "-0", "007", "1.50", "-12.25", "1234567890123456", "-1.3", "0.00000000000001"} {
		if _, ok := numeral(text); !ok {
			t.Errorf("%q is a numeral", text)
		}
	}
	for _, text := range []string{"", "-", ".", "1.", ".1", "-.1", "+1", "1e5", "0x1", "1_0", " 1", "1 ", "--1",
		"1-", "1.2.3",
		"inf", "NaN", "12345678901234567", "١", "1\n"} {
		if n, ok := numeral(text); ok {
			t.Errorf("%q is read as %v", text, n)
		}
	}
}

// FuzzParse checks that encoding a parsed rule and parsing the JSON yields the same rule, and that no string in a rule
// becomes part of the SQL.
func FuzzParse(f *testing.F) {
	for _, leaf := range []string{
		leafOf("contact.email", "contains", `"'; DROP TABLE contacts; --"`), leafOf("properties.age", "in", `[1, 2.5,
			"3"]`),
		leafOf("contact.created_at", "within_last", `"30 days"`), leafOf("contact.unsubscribed", "eq", `true`),
		leafOf("contact.email", "neq", `null`), leafOf("contact.topics.news", "eq", `"opt_out"`),
		leafOf("contact.segments", "in", `["s1", "s2"]`), leafOf("event.plan", "eq", `{"var": "event.x"}`),
		leafOf("contact.properties.plan", "ends_with", `"$1 ' \u0022"`), leafOf("contact.first_name", "gt", `-0`),
		leafOf("contact.engagement.opened", "gte", `1e3`), leafOf("contact.email", "is_empty", ``),
	} {
		f.Add([]byte(leaf))
		f.Add([]byte(`{"type": "and", "rules": [` + leaf + `, {"type": "not", "rule": ` + leaf + `}]}`))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		r, err := Parse(text)
		if err != nil {
			if fault.KindOf(err) == fault.Internal {
				t.Fatalf("not a fault: %v", err)
			}
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			t.Fatal(err)
		}
		if same := mustParse(t, string(again)); !reflect.DeepEqual(same, r) {
			t.Fatalf("%s was written as %s", text, again)
		}
		sql, args, err := r.Where(team, noon, []any{"team"})
		if err == nil {
			checkTokens(t, sql, len(args), 1)
			measure := func(sql string, args []any) (int, error) {
				checkTokens(t, sql, len(args), 0)
				return len(text) * 10_000 % (2 * maxAnchor), nil
			}
			if sql, args, err = r.Count(team, noon, "contacts c WHERE c.team_id =", "team", measure); err != nil {
				t.Fatalf("Where gives no error and Count %v", err)
			}
			checkTokens(t, sql, len(args), 0)
		}
	})
}

// checkTokens fails if the SQL contains a token that comes neither from this package nor from the schema, or if it
// leaves any argument unused. If first is n, the first n arguments may be unused.
func checkTokens(t *testing.T, sql string, args, first int) {
	t.Helper()
	found := tokens.FindAllString(sql, -1)
	for _, token := range found {
		if !slices.Contains(written, token) && !parameter.MatchString(token) {
			t.Fatalf("%s has %q", sql, token)
		}
	}
	for n := first + 1; n <= args; n++ {
		if !slices.Contains(found, fmt.Sprintf("$%d", n)) {
			t.Fatalf("%s does not use argument %d", sql, n)
		}
	}
}

var (
	tokens    = regexp.MustCompile(`'[^']*'|\$?[0-9]+|[A-Za-z_][A-Za-z_.]*|[<>=]+|[^ ]`)
	parameter = regexp.MustCompile(`^\$[0-9]+$`)
)

// written contains the tokens that may appear in queries besides parameters.
var written = strings.Fields(`contact_texts contact_numbers contact_topics contact_segments contact_engagement
	v v.contact_id v.property_id v.topic_id v.segment_id v.subscription v.value v.opened v.opened_at
	contacts c s s.contact_id contact_id id c.team_id c.id c.address c.first_name c.unsubscribed c.created_at
	COALESCE LIMIT COUNT DISTINCT CROSS JOIN INTERSECT UNION EXCEPT
	SELECT FROM WHERE AND NOT OR REPLACE SUBSTR LENGTH LTRIM RTRIM CASE WHEN THEN ELSE FALSE TRUE END CAST AS DOUBLE
	PRECISION ANY IN ( * ) , - = <> < <= > >= 0 1 2 16 '' '.' '-' '0123456789'`)
