package api

import (
	"cmp"
	"reflect"
	"testing"

	"github.com/postrider/postrider/internal/campaigns/automations/engine"
	"github.com/postrider/postrider/internal/outbound/requestlog"
)

// Members of a webhook step's config that a later version of the engine adds are masked. They do not make the
// automation unreadable.
func TestUnknownMembersOfStepsAreMasked(t *testing.T) {
	t.Parallel()
	got, err := hideStepCredentials([]byte(`[{"key":"post","type":"webhook","config":{
		"url":"https://a.example/?key=s3cret","headers":{"X-Key":"s3cret"},"payload":{"a":1},"password":"s3cret",
		"tls":{"key":"s3cret"}}},
		{"key":"wait","type":"delay","config":{"duration":"1 hour"}}]`))
	const mask = requestlog.Mask
	want := `[{"key":"post","type":"webhook","config":{"headers":{"X-Key":"` + mask + `"},"password":"` + mask +
		`","payload":{"a":1},"tls":"` + mask + `","url":"https://a.example/?` + mask + `"}},` +
		`{"key":"wait","type":"delay","config":{"duration":"1 hour"}}]`
	if err != nil || string(got) != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// Each field of the engine's webhook steps is one that hideCallCredentials knows. If the engine gets a new field,
// decide in hideCallCredentials what readers may see of it; until then they see a mask.
func TestFieldsOfWebhookSteps(t *testing.T) {
	t.Parallel()
	g, err := engine.Parse([]byte(`[{"key":"start","type":"trigger","config":{"event_name":"a"}},
		{"key":"post","type":"webhook","config":{"url":"https://a.example"}}]`), []byte(`[{"from":"start","to":"post"}]`))
	if err != nil {
		t.Fatal(err)
	}
	config := reflect.ValueOf(g.Steps[1]).FieldByName("config").Elem().Type()
	for field := range config.Fields() {
		if field.Anonymous {
			continue
		}
		value := map[string]string{"headers": `{"a":"b"}`}[field.Name]
		step := `[{"key":"post","type":"webhook","config":{"` + field.Name + `":` + cmp.Or(value, `"v4lue"`) + `}}]`
		got, err := hideStepCredentials([]byte(step))
		if known := field.Name == "headers" || string(got) == step; err != nil || !known {
			t.Errorf("the field %s: %s, %v", field.Name, got, err)
		}
	}
}
