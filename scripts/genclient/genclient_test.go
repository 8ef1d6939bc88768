package main

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/front/api"
)

// The files of the package client are those that genclient makes of the API as it is now.
func TestClientIsGenerated(t *testing.T) {
	t.Parallel()
	want, err := generate(api.Document())
	if err != nil {
		t.Fatal(err)
	}
	have, err := filepath.Glob(filepath.Join("..", "..", "client", "*"+suffix))
	if err != nil {
		t.Fatal(err)
	}
	for i := range have {
		have[i] = filepath.Base(have[i])
	}
	if diff := gocmp.Diff(slices.Sorted(maps.Keys(want)), have); diff != "" {
		t.Errorf("the client has other generated files; run: make client\n%s", diff)
	}
	for name, text := range want {
		got, err := os.ReadFile(filepath.Join("..", "..", "client", name))
		if err != nil {
			t.Error(err)
		} else if diff := gocmp.Diff(string(text), string(got)); diff != "" {
			t.Errorf("client/%s differs; run: make client\n%s", name, diff)
		}
	}
}

// Names follow from methods and paths.
func TestNames(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ method, path, base, want string }{
		{"GET", "/domains", "domains", "List"},
		{"GET", "/broadcasts/{broadcast_id}", "broadcasts", "Get"},
		{"POST", "/broadcasts/{broadcast_id}/pause", "broadcasts", "Pause"},
		{"POST", "/automations/{automation_id}/runs/{run_id}/cancel", "automations", "CancelRun"},
		{"PATCH", "/api-keys/{api_key_id}", "api-keys", "Update"},
		{"GET", "/contacts/erasures/{erasure_id}", "contacts", "GetErasure"},
		{"POST", "/team/invitations", "team", "CreateInvitation"},
	} {
		o := &endpoint{Method: c.method, Path: c.path}
		got := methodName(o, []string{c.base}, c.want == "List", []string{"/team/invitations"})
		if got != c.want {
			t.Errorf("%s %s is called %s, want %s", c.method, c.path, got, c.want)
		}
	}
}

func TestSentence(t *testing.T) {
	t.Parallel()
	for summary, want := range map[string]string{
		"Add a domain": "F adds a domain.", "Publish a template": "F publishes a template.",
		"Verify a claim":                        "F verifies a claim.",
		"Create or change a contact":            "F creates or changes a contact.",
		"Change, disable or enable an endpoint": "F changes, disables or enables an endpoint.",
		"List audiences (deprecated)":           "F lists audiences.",
	} {
		if got := sentence("F", summary); got != want {
			t.Errorf("%q becomes %q, want %q", summary, got, want)
		}
	}
}

func TestMethodText(t *testing.T) {
	t.Parallel()
	for description, want := range map[string]string{"": "F adds a domain.",
		"Adds a domain.\n\nMore.": "F adds a domain.\n\nMore.",
		"The domain is new.":      "F adds a domain. The domain is new."} {
		if got := methodText("F", "Add a domain", description); got != want {
			t.Errorf("%q becomes %q, want %q", description, got, want)
		}
	}
}

// A document that the client cannot express is refused.
func TestRefusedDocuments(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"no paths": `{"paths":{}}`,
		"OPTIONS":  `{"paths":{"/a":{"options":{"tags":["A"]}}}}`,
		"a list with another field": `{"paths":{"/a":{"get":{"tags":["A"],"summary":"List a","responses":{"200":{"content":{
			"application/json":{"schema":{"type":"object","properties":{"data":{"type":"array","items":{}},
			"has_more":{"type":"boolean"},"total":{"type":"integer"}}}}}}}}}}}`,
		"an unknown reference": `{"paths":{"/a":{"get":{"tags":["A"],"summary":"Get a","responses":{"200":{"content":{
			"application/json":{"schema":{"$ref":"#/components/schemas/B"}}}}}}}}}`,
	} {
		if _, err := generate([]byte(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
