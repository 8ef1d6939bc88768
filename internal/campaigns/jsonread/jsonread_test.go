package jsonread_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/lib/fault"
)

// The error returned by each function that reads a value names the value's path.
func TestPaths(t *testing.T) {
	t.Parallel()
	o, err := jsonread.ParseObject("steps[2]", []byte(`{"a":{"b":[1]},"line":"x\ny","long":"äöü","n":9007199254740993,
		"none":null}`))
	if err != nil {
		t.Fatal(err)
	}
	text := func(name string, limit int) error { _, err := o.Required(name, limit); return err }
	_, noList := o.List("a")
	_, noObject := o.Object("none")
	_, tooLarge := jsonread.Number(o.At("n"), o.Members["n"])
	for path, err := range map[string]error{
		"steps[2].line": text("line", 10), "steps[2].long": text("long", 2), "steps[2].none": text("none", 10),
		"steps[2].a": noList, "steps[2].n": tooLarge,
	} {
		if f, ok := err.(*fault.Error); !ok || f.Field != path {
			t.Errorf("%s: %v", path, err)
		}
	}
	if fault.KindOf(noObject) != fault.Missing {
		t.Errorf("a missing object: %v", noObject)
	}
	if err := o.Only("a", "line", "long", "n"); err == nil || !strings.Contains(err.Error(), "steps[2].none") {
		t.Errorf("an unknown member: %v", err)
	}
	if err := o.Renamed("line", "present.name"); err == nil || !strings.Contains(err.Error(), "steps[2].present.name") {
		t.Errorf("a former name: %v", err)
	}
	if got, err := o.Optional("missing", 1); got != "" || err != nil {
		t.Errorf("a missing text: %q, %v", got, err)
	}
}

// CheckNumbers detects numbers at any depth that a float64 cannot represent exactly.
func TestCheckNumbers(t *testing.T) {
	t.Parallel()
	for text, path := range map[string]string{
		`{"items":[{"id":1},{"id":12345678901234567}]}`: "payload.items[1].id",
		`{"a":1e400}`: "payload.a",
		`{"a":[9007199254740991,-9007199254740991,0.5]}`: "",
		`not JSON`: "",
	} {
		err := jsonread.CheckNumbers("payload", []byte(text))
		if path == "" {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if f, ok := err.(*fault.Error); !ok || f.Field != path {
			t.Errorf("%s: %v, want the field %s", text, err, path)
		}
	}
}
