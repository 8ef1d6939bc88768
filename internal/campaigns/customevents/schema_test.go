package customevents

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/events"
)

func TestCheckName(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"user.created": "", "Bestellung aufgegeben ✓": "", "postriders": "", "resend.x": "", "a:b": "",
		strings.Repeat("é", MaxName): "",
		"":                           "Missing", " ": "Missing", "a\nb": "control characters", "a\x00": "control characters",
		"a\xff": "control characters", "a\u0085": "control characters", strings.Repeat("é", MaxName+1): "256 characters",
		id.New(): "UUID", "postrider:contact.created": "reserved", "PostRider:": "reserved", "resend:x": "reserved",
		"RESEND:X": "reserved",
	} {
		err := CheckName("name", name)
		if f, ok := err.(*fault.Error); want == "" && err != nil ||
			want != "" && (!ok || f.Field != "name" || !strings.Contains(f.Message, want)) {
			t.Errorf("%.40q: %v, want %q", name, err, want)
		}
	}
}

func TestCheckSchema(t *testing.T) {
	t.Parallel()
	many := Schema{}
	for i := range MaxFields {
		many[fmt.Sprint("field ", i)] = String
	}
	if err := many.check(); err != nil {
		t.Errorf("the largest schema: %v", err)
	}
	many["more"] = String
	for name, c := range map[string]struct {
		schema Schema
		field  string // "" if the schema is valid
	}{
		"none":         {nil, ""},
		"empty":        {Schema{}, ""},
		"all types":    {Schema{"a": String, "b": Number, "c": Boolean, "d": Date}, ""},
		"too many":     {many, "schema"},
		"no name":      {Schema{"": String}, "schema"},
		"a long name":  {Schema{strings.Repeat("a", maxKey+1): String}, "schema"},
		"a line break": {Schema{"a\nb": String}, "schema"},
		"no type":      {Schema{"plan": ""}, "schema.plan"},
		"another type": {Schema{"plan": "integer"}, "schema.plan"},
	} {
		err := c.schema.check()
		if f, ok := err.(*fault.Error); c.field == "" && err != nil || c.field != "" && (!ok || f.Field != c.field) {
			t.Errorf("%s: %v, want a fault of %q", name, err, c.field)
		}
	}
}

func TestCheckPayload(t *testing.T) {
	t.Parallel()
	schema := Schema{"plan": String, "seats": Number, "trial": Boolean, "until": Date}
	largest := `{"a":"` + strings.Repeat("x", events.MaxPayload-8) + `"}`
	nested := func(n int) string {
		return strings.Repeat(`{"a":`, n-1) + "[]" + strings.Repeat("}", n-1)
	}
	for _, c := range []struct{ text, want, field, says string }{
		{"", "", "", ""},
		{"null", "", "", ""},
		{" { } ", "{}", "", ""},
		{`{ "plan" : "pro", "seats":1.5e3, "trial":false }`, `{"plan":"pro","seats":1.5e3,"trial":false}`, "", ""},
		{`{"plan":null,"more":[1,{"b":2}]}`, `{"plan":null,"more":[1,{"b":2}]}`, "", ""},
		{`{"b\u0079":["ann\u002Bshop\u0040x.example","\/\u00e9\u003c\"\\"],"n":1234567890123456}`,
			`{"by":["ann+shop@x.example","/é<\"\\"],"n":1234567890123456}`, "", ""},
		{largest, largest, "", ""},
		{nested(MaxDepth), nested(MaxDepth), "", ""},
		{nested(MaxDepth + 1), "", "payload", "more than 10 deep"},
		{largest + " x", "", "payload", "32770 bytes"},
		{"[]", "", "payload", "must be an object"},
		{`"a"`, "", "payload", "must be an object"},
		{`{"a":1,"a":2}`, "", "payload", `names "a" twice`},
		{`{"a":{"b":1,"b":2}}`, "", "payload", `names "b" twice`},
		{`{"a":1`, "", "payload", "not valid JSON"},
		{`{"a":1}{}`, "", "payload", "not valid JSON"},
		{"{\"a\":\"\xff\"}", "", "payload", "not valid JSON"},
		{`{"a":"\ud800"}`, "", "payload", "not valid JSON"},
		{`{"a":"\u0000"}`, "", "payload", "NUL"},
		{`{"a":[1e999]}`, "", "payload.a[0]", "as texts"},
		{`{"a":{"1":[{},{"id":12345678901234567}]}}`, "", "payload.a.1[1].id", "from -9007199254740991 to 9007199254740991"},
		{`{"seats":-9007199254740992}`, "", "payload.seats", "as texts"},
		{`{"a":900719925474099.3e1}`, "", "payload.a", "as texts"},
		{`{"a":[9007199254740991,-9007199254740991,19.90,1e-400]}`, `{"a":[9007199254740991,-9007199254740991,19.90,1e-400]}`,
			"", ""},
		{`{"plan":1}`, "", "payload.plan", "must be a string"},
		{`{"plan":["pro"]}`, "", "payload.plan", "must be a string"},
		{`{"seats":"1"}`, "", "payload.seats", "must be a number"},
		{`{"trial":"true"}`, "", "payload.trial", "must be a boolean"},
		{`{"until":1767225600}`, "", "payload.until", "must be a date"},
		{`{"until":"31.1.2026"}`, "", "payload.until", "must be a date"},
		{`{"until":"2026-02-30"}`, "", "payload.until", "must be a date"},
	} {
		got, err := checkPayload([]byte(c.text), "trial.ends", schema)
		f, ok := err.(*fault.Error)
		switch {
		case c.says == "" && (err != nil || got != c.want):
			t.Errorf("%.60s: %.60q, %v", c.text, got, err)
		case c.says != "" && (!ok || f.Field != c.field || f.Kind != fault.Invalid || !strings.Contains(f.Message, c.says)):
			t.Errorf("%.60s: %v, want a fault of %s with %q", c.text, err, c.field, c.says)
		}
	}
	for _, date := range []string{"2026-01-31", "2026-01-31T09:30:00Z", "2026-01-31T09:30:00.123456+02:00",
		"2026-01-31T09:30Z", "2026-01-31T09:30:00", "2026-01-31T09:30", "2026-01-31T09:30:00.5"} {
		if _, err := checkPayload([]byte(`{"until":"`+date+`"}`), "trial.ends", schema); err != nil {
			t.Errorf("%s: %v", date, err)
		}
	}
}

// Any JSON parser can decode every payload that checkPayload accepts, and the result has the same content as the input.
func FuzzCheckPayload(f *testing.F) {
	for _, text := range []string{"", "null", "{}", `{"plan":"pro","seats":1,"trial":true,"until":"2026-01-31"}`,
		`{"plan":null,"a":[{"b":[1,2,{}]}]}`, `{"a":1,"a":2}`, `{"\u0000":1}`, "{\"a\":\"\xff\"}", `{"a":1e999}`} {
		f.Add([]byte(text))
	}
	schema := Schema{"plan": String, "seats": Number, "trial": Boolean, "until": Date}
	f.Fuzz(func(t *testing.T, text []byte) {
		got, err := checkPayload(text, "e", schema)
		if err != nil {
			if fault.KindOf(err) != fault.Invalid {
				t.Errorf("%q: %v", text, err)
			}
			return
		}
		if got == "" {
			return
		}
		var is, was map[string]any
		if err := json.Unmarshal([]byte(got), &is); err != nil || is == nil {
			t.Fatalf("%q became %q, which is no object: %v", text, got, err)
		}
		if err := json.Unmarshal(text, &was); err != nil || fmt.Sprint(is) != fmt.Sprint(was) {
			t.Errorf("%q became %q: %v", text, got, err)
		}
		if again, err := checkPayload([]byte(got), "e", schema); err != nil || again != got {
			t.Errorf("%q became %q, and that %q: %v", text, got, again, err)
		}
	})
}
