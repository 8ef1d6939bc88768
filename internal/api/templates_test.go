package api

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/db/dbtest"
)

// A change with null where there must be a value is refused and has no effect. Empty strings that the Go client sends
// for what it leaves as it is change nothing.
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
		code, body := patch(`{"subject":"new","` + name + `":null}`)
		if code != 422 || !strings.Contains(body, "`"+name+"`") {
			t.Errorf("%s: %d %s", name, code, body)
		}
	}
	shown := func() string { return f.do(t, "GET /templates/x\nAuthorization: full").Body.String() }
	if text := shown(); !strings.Contains(text, `"subject":"old"`) {
		t.Errorf("after changes that were refused: %s", text)
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
