package api

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// place is a path in a JSON body. Each element is a field name, or [] for the elements of a list.
type place []string

// last returns the path's last name, or "" if the path is empty and therefore means the whole body.
func (p place) last() string {
	if len(p) == 0 {
		return ""
	}
	return p[len(p)-1]
}

// body returns a JSON body that contains the given text at the path p. If p ends in a field name, the field occurs the
// given number of times.
func (p place) body(text string, repeat int) string {
	if len(p) == 0 {
		return text
	}
	inner := p[:len(p)-1]
	if p.last() == "[]" {
		return inner.body("["+text+"]", 1)
	}
	member := fmt.Sprintf("%q:%s", p.last(), text)
	return inner.body("{"+strings.TrimSuffix(strings.Repeat(member+",", repeat), ",")+"}", 1)
}

// docList is a list, or an object with arbitrary field names, in an operation's request body.
type docList struct {
	place
	schema docSchema
	isMap  bool
	raw    bool // raw JSON, which stays a part of the body and has no limit of its own
}

// lists returns all lists in a schema from the OpenAPI document.
func (doc *openAPIDoc) lists(s docSchema, at place) (all []docList) {
	if len(at) > 8 {
		return nil
	}
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return doc.lists(doc.Components.Schemas[name], at)
	}
	for _, one := range s.OneOf {
		all = append(all, doc.lists(one, at)...)
	}
	if s.Items != nil {
		all = append(all, docList{at, s, false, false})
		all = append(all, doc.lists(*s.Items, append(at[:len(at):len(at)], "[]"))...)
	}
	if open := s.AdditionalProperties; open != nil && open != false {
		all = append(all, docList{at, s, true, open == true})
	}
	for name, p := range s.Properties {
		all = append(all, doc.lists(p, append(at[:len(at):len(at)], name))...)
	}
	return all
}

// resolve returns the schema that a $ref refers to.
func (doc *openAPIDoc) resolve(s docSchema) docSchema {
	if name, ok := strings.CutPrefix(s.Ref, "#/components/schemas/"); ok {
		return doc.Components.Schemas[name]
	}
	return s
}

// list returns a list with n minimal elements as JSON.
func (doc *openAPIDoc) list(l docList, n int) string {
	if l.isMap {
		return "{" + strings.TrimSuffix(strings.Repeat(`"ab":"",`, n), ",") + "}"
	}
	of := doc.resolve(*l.schema.Items)
	if len(of.OneOf) > 0 {
		of = doc.resolve(of.OneOf[0])
	}
	element := map[any]string{"string": `""`, "integer": `0`, "object": `{}`}[of.Type]
	if element == "" {
		panic(fmt.Sprintf("elements of type %v", of.Type))
	}
	return "[" + strings.TrimSuffix(strings.Repeat(element+",", n), ",") + "]"
}

// allocated returns the number of bytes that a request allocates, and the response.
func (f *fixture) allocated(t *testing.T, method, path, key, body string) (uint64, *httptest.ResponseRecorder) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, "http://postrider.test"+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Idempotency-Key", id.New())
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+f.keys[key])
	}
	w := httptest.NewRecorder()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f.ServeHTTP(w, r)
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, w
}

const (
	elements = 1_000_000
	// multiple is how many bytes a request may allocate for each byte of its body, in addition to the constant small.
	multiple = 10
	small    = 512 << 10
)

func withIDs(path string) string { return pathParam.ReplaceAllString(path, id.New()) }

// For every list in the OpenAPI document, a request with a million elements is refused with an error that names the
// list. Excess list elements and unknown fields use no memory. A JSON field with a list that is within its limit may be
// repeated until the body reaches its maximum size.
func TestEveryListIsBoundedWhileDecoded(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t), Options{})
	doc, _ := readDocOf(t, f)
	found := map[string][]docList{}
	names := map[string]docList{}
	for _, o := range f.Operations() {
		d := doc.Paths[o.Path][strings.ToLower(o.Method)]
		if d.RequestBody == nil {
			continue
		}
		for _, l := range doc.lists(d.RequestBody.Content["application/json"].Schema, nil) {
			name := o.Method + " " + o.Path + " " + strings.Join(l.place, ".")
			found[o.Method+" "+o.Path] = append(found[o.Method+" "+o.Path], l)
			names[l.last()] = l
			if l.last() != "content" && !l.raw && l.schema.MaxItems+l.schema.MaxProperties == 0 {
				t.Errorf("%s: the document has no limit", name)
			}
		}
	}
	unknown := ""
	for name, l := range names {
		unknown += fmt.Sprintf(`,"x%s":%s`, name, doc.list(l, elements/10/len(names)))
	}
	unknown = "{" + unknown[1:] + "}"
	total := 0
	for _, o := range f.Operations() {
		for _, l := range found[o.Method+" "+o.Path] {
			total++
			many := l.body(doc.list(l, elements), 1)
			sends := o.Scope == teams.EmailsSend || o.Scope == teams.ApprovalsRequest
			for key, allowed := range map[string]bool{"full": true, "sending": sends, "": false} {
				n, w := f.allocated(t, o.Method, withIDs(o.Path), key, many)
				name := fmt.Sprintf("%s %s %v with the key %q", o.Method, o.Path, l.place, key)
				if n > uint64(multiple*len(many)+small) {
					t.Errorf("%s: %d bytes were allocated for a body of %d", name, n, len(many))
				}
				if l.raw && allowed {
					if w.Code < 400 || w.Code >= 500 {
						t.Errorf("%s: %d %.300s", name, w.Code, w.Body)
					}
					continue
				}
				want := map[bool]int{true: 422, false: 401}[allowed]
				if w.Code != want || allowed && l.last() != "content" && !strings.Contains(w.Body.String(), l.last()) {
					t.Errorf("%s: %d %.300s", name, w.Code, w.Body)
				}
			}
			if len(l.place) == 0 {
				continue
			}
			full := doc.list(l, max(l.schema.MaxItems, l.schema.MaxProperties, 100))
			again := l.body(full, elements/4/len(full)+1)
			if n, w := f.allocated(t, o.Method, withIDs(o.Path), "full", again); n > uint64(multiple*len(again)+small) ||
				w.Code >= 500 {
				t.Errorf("%s %s %v again and again: %d bytes for a body of %d; %d %.300s", o.Method, o.Path, l.place, n,
					len(again), w.Code, w.Body)
			}
		}
		if n, w := f.allocated(t, o.Method, withIDs(o.Path), "full", unknown); n > uint64(multiple*len(unknown)+small) ||
			w.Code >= 500 {
			t.Errorf("%s %s with unknown lists: %d bytes for a body of %d; %d %.300s", o.Method, o.Path, n, len(unknown),
				w.Code, w.Body)
		}
	}
	if total < 25 {
		t.Errorf("only %d lists were found", total)
	}
}

// The memory used by other kinds of hostile request bodies is at most a small multiple of their size. The limit leaves
// room for an error message that copies a very long field name a few times.
func TestHostileBodiesAreCheap(t *testing.T) {
	f := newFixture(t, dbtest.SQLite(t), Options{})
	const n = 200_000
	for name, body := range map[string]string{
		"members that nobody knows": `{"x":{` + strings.TrimSuffix(strings.Repeat(`"a":0,`, n), ",") + `}}`,
		"names that nobody knows":   `{` + strings.TrimSuffix(strings.Repeat(`"a":0,`, n), ",") + `}`,
		"escaped names":             `{` + strings.TrimSuffix(strings.Repeat(`"\u0061":0,`, n), ",") + `}`,
		"deep lists":                `{"x":` + strings.Repeat("[", 9000) + strings.Repeat("]", 9000) + `}`,
		"too deep lists":            `{"x":` + strings.Repeat("[", n),
		"a subject again and again": `{` + strings.TrimSuffix(strings.Repeat(`"subject":"ab",`, n), ",") + `}`,
		"an html again and again":   `{` + strings.TrimSuffix(strings.Repeat(`"html":"ab",`, n), ",") + `}`,
		"templates": `{` + strings.TrimSuffix(strings.Repeat(`"template":null,"template":{},`, n/2), ",") +
			`}`,
		"a recipient again and again": `{` + strings.TrimSuffix(strings.Repeat(`"to":"",`, n), ",") + `}`,
		"base64 in words":             `{"attachments":[{"content":"` + strings.Repeat("A ", n) + `"}]}`,
		"base64 in escaped words":     `{"attachments":[{"content":"` + strings.Repeat(`A\n`, n) + `"}]}`,
		"buffers in buffers": `{"attachments":[{"content":` + strings.Repeat(`{"data":`, 9000) + `""` +
			strings.Repeat(`}`, 9000) + `}]}`,
		"a buffer's members": `{"attachments":[{"content":{` + strings.TrimSuffix(strings.Repeat(`"ab":0,`, n),
			",") + `}}]}`,
		"a file as numbers": `{"attachments":[{"content":[` + strings.TrimSuffix(strings.Repeat(`0,`, n), ",") +
			`]}]}`,
		"a header's long name":      `{"headers":{"` + strings.Repeat("a", n) + `":[]}}`,
		"a long name of a variable": `{"template":{"variables":{"` + strings.Repeat("a", n) + `":1}}}`,
		"values of variables": `{"template":{"id":"x","variables":{"a":[` +
			strings.TrimSuffix(strings.Repeat(`[],`, n), ",") + `]}}}`,
		"an empty email": `{}` + strings.Repeat(" ", n),
		"zeros":          `{"subject":` + strings.Repeat("0", n) + `}`,
	} {
		for _, path := range []string{"/emails", "/emails/batch"} {
			text := body
			if path == "/emails/batch" {
				text = "[" + body + "]"
			}
			took, w := f.allocated(t, http.MethodPost, path, "full", text)
			if took > uint64(multiple*len(text)+small) || w.Code < 400 || w.Code >= 500 || w.Body.Len() > 4000 {
				t.Errorf("%s, %s: %d bytes for a body of %d; %d %.300s (%d)", path, name, took, len(text), w.Code, w.Body,
					w.Body.Len())
			}
		}
	}
}

// In a permissive batch, an email with a list that is too long is refused like any other invalid email.
func TestBatchWithALongList(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	f.verified("example.org")
	good := `{"from":"a@example.org","to":"b@example.net","subject":"s","text":"t"}`
	body := `[` + good + `,{"to":["x"` + strings.Repeat(`,"x"`, 50) + `],"tags":[{"name":"a","value":{}}]},` + good + `]`
	var got batchOut
	w := f.do(t, "POST /emails/batch\nX-Batch-Validation: permissive\n\n"+body)
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil || w.Code != 200 || len(got.Data) != 2 ||
		len(*got.Errors) != 1 || (*got.Errors)[0].Index != 1 {
		t.Errorf("permissive: %d %s, error %v", w.Code, w.Body, err)
	}
	if w := f.do(t, "POST /emails/batch\n\n"+body); w.Code != 422 ||
		!strings.Contains(w.Body.String(), "`[1].to` field has more than 50 items") {
		t.Errorf("strict: %d %s", w.Code, w.Body)
	}
	for _, mode := range []string{"strict", "permissive"} {
		w := f.do(t, "POST /emails/batch\nX-Batch-Validation: "+mode+"\n\n["+strings.Repeat("{},", 2999)+"{}]")
		if want := "A batch must have 1 to 100 emails; this one has 3000."; w.Code != 422 ||
			!strings.Contains(w.Body.String(), want) {
			t.Errorf("%s: %d %s", mode, w.Code, w.Body)
		}
	}
}

// bodyCost is how many bytes of memory package wire reserves for each byte of a request body.
const bodyCost = 3

// A large request body and its decoded values use at most the memory that is reserved for the body.
func TestLargeBodiesCostWhatIsSetAside(t *testing.T) {
	var held uint64
	f := newRoute(t, Options{}, func(_ context.Context, c *wire.Call, in sendEmailIn) (int, error) {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		held = m.HeapAlloc
		runtime.KeepAlive(c) // c refers to the body
		return len(in.send().Attachments), nil
	})
	var before runtime.MemStats
	for name, body := range map[string]string{"html": `{"html":"` + strings.Repeat("x", 16<<20) + `"}`,
		"a file": `{"attachments":[{"content":"` + strings.Repeat("x", 16<<20) + `"}]}`} {
		runtime.GC()
		runtime.ReadMemStats(&before)
		if _, w := f.allocated(t, http.MethodPost, "/test", "full", body); w.Code != 200 {
			t.Fatalf("%s: %d %s", name, w.Code, w.Body)
		}
		if held-before.HeapAlloc > uint64(bodyCost*len(body)) {
			t.Errorf("%s: %d bytes are held for a body of %d", name, held-before.HeapAlloc, len(body))
		}
	}
}
