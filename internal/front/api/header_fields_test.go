package api

import (
	"errors"
	"testing"

	"github.com/go-json-experiment/json"
	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/lib/fault"
)

// An email's custom header fields keep their order from the request. Fields with the value null are omitted.
func TestHeaderFieldsKeepTheirOrder(t *testing.T) {
	t.Parallel()
	want := headerFields{{Name: "B", Value: "1"}, {Name: "A", Value: "2"}, {Name: "C", Value: "true"}}
	var got headerFields
	err := json.Unmarshal([]byte(`{"B":"1","A":2,"C":true,"D":null}`), &got)
	if diff := gocmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("error %v, difference %s", err, diff)
	}
	if err := json.Unmarshal([]byte("null"), &got); err != nil || len(got) > 0 {
		t.Errorf("null: %v, error %v", got, err)
	}
}

// If the field headers is not an object of strings, the request is refused with an error that names the field.
func TestHeaderFieldsAreRefused(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ body, field, message string }{
		{`{"headers":[]}`, "headers", "The `headers` field must be an object of strings."},
		{`{"headers":{"A":[]}}`, "headers.A", "The value of a header must be a string (`headers.A`)."},
	} {
		var in struct {
			Fields headerFields `json:"headers"`
		}
		e, ok := errors.AsType[*fault.Error](json.Unmarshal([]byte(c.body), &in))
		if !ok || e.Kind != fault.Invalid || e.Field != c.field || e.Message != c.message {
			t.Errorf("%s: %+v", c.body, e)
		}
	}
}
