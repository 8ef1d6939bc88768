package api

import (
	"encoding/json"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// patched lists, for each PATCH operation, a request that creates a resource with a value for each field that can be
// removed. The path is that of the operation without the id. Operations without such fields have the reason instead.
var patched = map[string]struct{ path, body, none string }{
	"/api-keys/{api_key_id}":                      {none: "name is required"},
	"/audiences/{audience_id}/contacts/{contact}": {none: "the same fields as PATCH /contacts/{contact}"},
	"/automations/{automation_id}": {path: "/automations", body: `{"name":"a","steps":[{"key":"t","type":"trigger",
		"config":{"event_name":"e"}}],"connections":[]}`},
	"/broadcasts/{broadcast_id}": {path: "/broadcasts", body: `{"name":"b","segment_id":"SEGMENT","subject":"s",
		"from":"a@acme.example","reply_to":"r@acme.example","preview_text":"p","html":"<p>h</p>","text":"t",
		"topic_id":"TOPIC"}`},
	"/contact-properties/{contact_property_id}": {path: "/contact-properties",
		body: `{"key":"plan","type":"string","fallback_value":"free"}`},
	"/contacts/{contact}": {path: "/contacts",
		body: `{"email":"ann@acme.example","first_name":"Ann","last_name":"Lee"}`},
	"/contacts/{contact}/topics":                 {none: "a list"},
	"/domains/{domain_id}":                       {path: "/domains", body: `{"name":"example.org","tracking_subdomain":"links"}`},
	"/domains/{domain_id}/forwards/{forward_id}": {none: "match and enabled are required"},
	"/emails/{email_id}":                         {none: "scheduled_at is required"},
	"/events/{event}":                            {path: "/events", body: `{"name":"e","schema":{"plan":"string"}}`},
	"/oauth/grants/{oauth_grant_id}":             {none: "limits is required"},
	"/segments/{segment_id}":                     {path: "/segments", body: `{"name":"s"}`},
	"/team/members/{user_id}":                    {none: "role is required"},
	"/templates/{template}": {path: "/templates", body: `{"name":"t","alias":"a","from":"a@acme.example",
		"subject":"s","reply_to":"r@acme.example","html":"<p>h</p>","text":"t"}`},
	"/topics/{topic_id}": {path: "/topics",
		body: `{"name":"t","description":"d","default_subscription":"opt_in"}`},
	"/webhooks/{webhook_id}": {path: "/webhooks",
		body: `{"endpoint":"https://hooks.example/a","events":["email.sent"]}`},
}

// differs lists fields for which "" is a value: a text of "" means no text part.
var differs = []string{"/templates text", "/broadcasts text", "/contact-properties fallback_value"}

// In PATCH requests, null removes the value of each field that can be removed: each field that "" removes, and each
// field that a response may show as null. For all other fields, null changes nothing.
func TestNullRemovesWhatCanBeRemoved(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		doc, _ := readDocOf(t, f)
		fill := strings.NewReplacer("SEGMENT", f.segment(), "TOPIC",
			f.created(t, "POST /topics\n\n"+`{"name":"News","default_subscription":"opt_in"}`), "\n", " ", "\t", "")
		removed := 0
		for _, o := range f.operations() {
			of, ok := patched[o.Path]
			if o.Method != http.MethodPatch || ok && of.none != "" {
				continue
			}
			if !ok {
				t.Errorf("PATCH %s: is not listed in patched", o.Path)
				continue
			}
			body := doc.resolve(doc.Paths[o.Path]["patch"].RequestBody.Content["application/json"].Schema)
			shown := doc.resolve(doc.Paths[o.Path]["get"].Responses["200"].Content["application/json"].Schema)
			for field, schema := range body.Properties {
				// changed returns the field of a new resource before and after a PATCH with a value.
				changed := func(value string) (before, after any) {
					path := of.path + "/" + f.created(t, "POST "+of.path+"\n\n"+fill.Replace(of.body))
					read := func() any {
						var got map[string]any
						if err := json.Unmarshal(f.do(t, "GET "+path).Body.Bytes(), &got); err != nil {
							t.Fatal(err)
						}
						return got[field]
					}
					before = read()
					if w := f.do(t, "PATCH "+path+"\n\n"+`{"`+field+`":`+value+`}`); w.Code >= 500 {
						t.Errorf("%s %s: %d %s", of.path, field, w.Code, w.Body)
					}
					after = read()
					if w := f.do(t, "DELETE "+path); w.Code != 200 {
						t.Fatalf("delete %s: %d %s", path, w.Code, w.Body)
					}
					return before, after
				}
				before, null := changed("null")
				_, empty := changed(`""`)
				byNull, byEmpty := !reflect.DeepEqual(null, before), !reflect.DeepEqual(empty, before)
				if byNull {
					removed++
				}
				if before != nil && !byNull && nullable(shown.Properties[field]) && nullable(schema) {
					t.Errorf("%s: requests and responses allow null for %s, but null does not remove it", of.path, field)
				}
				if byEmpty && !reflect.DeepEqual(empty, null) && !slices.Contains(differs, of.path+" "+field) {
					t.Errorf(`%s: %s is %v, null makes it %v and "" makes it %v`, of.path, field, before, null, empty)
				}
			}
		}
		if removed < 15 {
			t.Errorf("null removed only %d values", removed)
		}
	})
}

// nullable reports whether a schema allows null.
func nullable(s docSchema) bool {
	types, _ := s.Type.([]any)
	return slices.Contains(types, "null") || slices.ContainsFunc(s.OneOf, func(one docSchema) bool {
		return one.Type == "null"
	})
}
