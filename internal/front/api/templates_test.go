package api

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// Setting a required template field to null leaves the field unchanged, and an update that contains only such nulls is
// refused. An empty string leaves a template field unchanged, because the Go client sends empty strings for unset
// fields.
func TestChangesOfATemplateWithNothing(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	if w := f.do(t, "POST /templates\nAuthorization: full\n\n"+`{"name":"Order","alias":"x","from":"a@example.org",
		"subject":"old","html":"<p>{{{A}}}</p>","variables":[{"key":"A","type":"string"}]}`); w.Code != 201 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	patch := func(body string) (int, string) {
		w := f.do(t, "PATCH /templates/x\nAuthorization: full\n\n"+body)
		return w.Code, w.Body.String()
	}
	for _, name := range []string{"name", "html", "variables"} {
		if code, body := patch(`{"` + name + `":null}`); code != 422 || !strings.Contains(body, "`"+name+"`") {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	shown := func() string { return f.do(t, "GET /templates/x\nAuthorization: full").Body.String() }
	if text := shown(); !strings.Contains(text, `"subject":"old"`) {
		t.Errorf("after changes that were refused: %s", text)
	}
	if code, body := patch(`{"subject":"older","name":null,"html":null,"variables":null}`); code != 200 {
		t.Errorf("nulls beside a subject: %d %s", code, body)
	}
	if code, body := patch(`{"name":"","html":"","from":"","alias":"","subject":"new"}`); code != 200 {
		t.Errorf("empty strings: %d %s", code, body)
	}
	for _, part := range []string{`"name":"Order"`, `"alias":"x"`, `"from":"a@example.org"`, `"subject":"new"`,
		`{{{A}}}`} {
		if text := shown(); !strings.Contains(text, part) {
			t.Errorf("%s is gone: %s", part, text)
		}
	}
}

// Requests for large templates release the memory reserved for their responses, and wait if too many of them run at the
// same time.
func TestLargeTemplates(t *testing.T) {
	t.Parallel()
	f := newFixture(t, dbtest.SQLite(t), Options{})
	html := "<p>" + strings.Repeat("x", 19<<16) // 1.2 MB
	if w := f.do(t, "POST /templates\nAuthorization: full\n\n"+`{"name":"Large","alias":"x","from":"a@acme.example",
		"subject":"s","html":"`+html+`"}`); w.Code != 201 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	for _, request := range []string{"GET /templates/x", "GET /templates/x/versions/1",
		"GET /templates/x/versions/1/compare/1", "POST /templates/x/render", "POST /templates/x/checks"} {
		body := ""
		if strings.HasPrefix(request, "POST") {
			body = `{"version":"draft"}`
		}
		for i := range 20 { // 150 MB
			if w := f.do(t, request+"\nAuthorization: full\n\n"+body); w.Code != 200 {
				t.Fatalf("%s: the answer to request %d is %d %.200s", request, i, w.Code, w.Body)
			}
		}
	}
}
