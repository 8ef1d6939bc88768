package api

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// hostileTexts lists strings that databases cannot store or that are hard to process, encoded for URLs.
var hostileTexts = []string{"%00", "a%00b", "%ff", "%ed%a0%80", "%zz", "%", "a%", "%5C", "%25", "_", "'", ";", "%F0%9F",
	strings.Repeat("_", 40_000),
	strings.Repeat("%25", 40_000), strings.Repeat("%5C%25", 5_000), strings.Repeat("%00", 100)}

// hostileStrings lists JSON strings, without quotes, that databases cannot store or that are hard to process.
var hostileStrings = []string{`\u0000`, `a\u0000b`, `\ud800`, `\udc00\ud800`, "\xff", "\xed\xa0\x80", "\\ufffe",
	`\u0001\u007f`, `\\u0000`, `\\`, `%`,
	strings.Repeat("_", 40_000), strings.Repeat("%", 40_000), strings.Repeat(`\\%`, 20_000)}

// asker sends requests that must not cause internal errors.
type asker struct {
	*fixture
	t     *testing.T
	asked int
}

func (k *asker) ask(method, path, query, body string, headers ...string) {
	k.t.Helper()
	r, err := http.NewRequestWithContext(k.t.Context(), method, "http://postrider.test/", strings.NewReader(body))
	if err != nil {
		k.t.Fatal(err)
	}
	if r.URL.Path, err = url.PathUnescape(path); err != nil {
		return // net/http refuses this path before the API sees it
	}
	r.URL.RawPath, r.URL.RawQuery = path, query
	r.Header.Set("Authorization", "Bearer "+k.keys["full"])
	for i := 0; i < len(headers); i += 2 {
		r.Header[headers[i]] = []string{headers[i+1]}
	}
	w := httptest.NewRecorder()
	k.ServeHTTP(w, r)
	k.asked++
	if w.Code >= 500 || strings.Contains(k.log.String(), "level=ERROR") {
		k.t.Errorf("%s %.200q?%.200q %.200q %.100q: %d %.300s\n%.2000s", method, path, query, body, headers, w.Code, w.Body,
			k.log)
	}
	k.log.Take()
}

// strings returns the paths of all strings in a request body, and of all field names that a client may choose.
func (doc *openAPIDoc) strings(s docSchema, at place) (all []place) {
	s = doc.resolve(s)
	if len(at) > 8 {
		return nil
	}
	for _, one := range s.OneOf {
		all = append(all, doc.strings(one, at)...)
	}
	if s.Type == "string" || fmt.Sprint(s.Type) == "[string null]" {
		return append(all, at)
	}
	if s.Items != nil {
		all = append(all, doc.strings(*s.Items, append(at[:len(at):len(at)], "[]"))...)
	}
	if open := s.AdditionalProperties; open != nil && open != false {
		all = append(all, append(at[:len(at):len(at)], "X-Any"), append(at[:len(at):len(at)], hostileName))
	}
	for name, p := range s.Properties {
		all = append(all, doc.strings(p, append(at[:len(at):len(at)], name))...)
	}
	return all
}

// hostileName and hostileValue are placeholders in a request body that the test replaces with hostile text.
const hostileName, hostileValue = "hostile-name", "hostile-value"

// put sets the value at a path in a request body and returns the modified body.
func put(body any, at place, value any) any {
	if len(at) == 0 {
		return value
	}
	if at[0] == "[]" {
		list, _ := body.([]any)
		if len(list) == 0 {
			list = []any{nil}
		}
		list[0] = put(list[0], at[1:], value)
		return list
	}
	object, _ := body.(map[string]any)
	if object == nil {
		object = map[string]any{}
	}
	object[at[0]] = put(object[at[0]], at[1:], value)
	return object
}

// rightBodies maps operations to valid request bodies. A valid body ensures that hostile values reach the code that
// runs after validation.
var rightBodies = map[string]string{
	"PUT /domains/{domain_id}/setup": `{"setup":"records"}`,
	"POST /emails":                   `{"from":"a@example.org","to":["b@example.net"],"subject":"s","text":"t"}`,
	"POST /emails/batch":             `[{"from":"a@example.org","to":["b@example.net"],"subject":"s","text":"t"}]`,
	"POST /approvals":                `{"from":"a@example.org","to":["b@example.net"],"subject":"s","text":"t"}`,
	"POST /webhooks":                 `{"endpoint":"https://hooks.example.org","events":["email.sent"]}`,
	"POST /api-keys":                 `{"name":"x"}`,
	"POST /broadcasts": `{"from":"a@example.org","subject":"s","text":"t",` +
		`"segment_id":"0199d0a1-b2c3-7def-8123-456789abcde6"}`,
	"POST /templates": `{"name":"x","html":"<p>","variables":[{"key":"A","type":"string"}]}`,
	"POST /contacts":  `{"email":"a@example.org"}`,
	"POST /segments":  `{"name":"x"}`,
	"POST /topics":    `{"name":"x","default_subscription":"opt_in"}`,
	"POST /events":    `{"name":"x","schema":{"plan":"string"}}`,

	"POST /events/send":     `{"event":"x","email":"a@example.org","payload":{"plan":"pro"}}`,
	"PATCH /events/{event}": `{"schema":{"plan":"string"}}`,

	"PATCH /broadcasts/{broadcast_id}": `{"name":"x"}`,

	"POST /automations": `{"name":"x","steps":[{"key":"a","type":"trigger","config":{"event_name":"e"}},` +
		`{"key":"b","type":"contact_update","config":{"first_name":"x"}}],"connections":[{"from":"a","to":"b"}]}`,
	"POST /automations/simulate": `{"steps":[{"key":"a","type":"trigger","config":{"event_name":"e"}}],"connections":[],` +
		`"scenario":{"contact":{"email":"a@example.org"},"event":{"payload":{"a":"x"}}}}`,
	"POST /automations/{automation_id}/simulate": `{"scenario":{"contact":{"email":"a@example.org"}}}`,

	"POST /contact-properties": `{"key":"x","type":"string"}`,
}

// Text that a database cannot store never causes an internal error. The test puts such text into path parameters, known
// and unknown query parameters, headers, and strings in bodies.
func TestHostileTextIsNoFailureOfOurs(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		k := &asker{fixture: newFixture(t, d, Options{}), t: t}
		doc, _ := readDocOf(t, k.fixture)
		k.verified("example.org")
		for _, o := range k.Operations() {
			k.hostilePaths(o)
			for _, name := range o.Query {
				for _, text := range hostileTexts {
					k.ask(o.Method, withIDs(o.Path), name+"="+text, "")
				}
			}
			for _, name := range append([]string{"unknown"}, o.Query...) {
				k.ask(o.Method, withIDs(o.Path), name+"=%00", "")
				// If a query string has a syntax error, the parameters that can be parsed must still be validated.
				k.ask(o.Method, withIDs(o.Path), "%zz&"+name+"=%00", "")
				k.ask(o.Method, withIDs(o.Path), "a;b&"+name+"=%ff", "")
			}
			k.remember(t) // the request log stores these headers in the database
			for _, header := range []string{"Idempotency-Key", "User-Agent", "X-Request-Id", "X-Batch-Validation"} {
				for _, text := range []string{"\x00", "a\xffb", strings.Repeat("_", 40_000), strings.Repeat("é", 200)} {
					k.ask(o.Method, withIDs(o.Path), "", rightBodies[o.Method+" "+o.Path], header, text)
				}
			}
			k.observe(nil)
			if content := doc.Paths[o.Path][strings.ToLower(o.Method)].RequestBody; content != nil {
				k.hostileBodies(o, doc.strings(content.Content["application/json"].Schema, nil))
			}
		}
		if k.asked < 2500 {
			t.Errorf("only %d requests", k.asked)
		}
	})
}

func (k *asker) hostilePaths(o wire.Operation) {
	params := pathParam.FindAllString(o.Path, -1)
	for _, p := range params {
		for _, text := range hostileTexts {
			k.ask(o.Method, withIDs(strings.Replace(o.Path, p, text, 1)), "", "{}")
		}
		k.ask(o.Method, withIDs(strings.Replace(o.Path, p, "msg_"+strings.ReplaceAll(id.New(), "-", "")+"%00", 1)), "", "{}")
	}
}

func (k *asker) hostileBodies(o wire.Operation, at []place) {
	for _, p := range at {
		name := o.Method + " " + o.Path
		var body any
		if right := rightBodies[name]; right != "" {
			if err := json.Unmarshal([]byte(right), &body); err != nil {
				k.t.Fatal(err)
			}
		}
		text, err := json.Marshal(put(body, p, hostileValue))
		if err != nil {
			k.t.Fatal(err)
		}
		for _, hostile := range hostileStrings {
			k.ask(o.Method, withIDs(o.Path), "", strings.NewReplacer(hostileName, hostile, hostileValue,
				hostile).Replace(string(text)))
		}
	}
}
