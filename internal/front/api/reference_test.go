package api

import (
	"go/format"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/front/api/wire"
)

func groups(t *testing.T) []wire.ReferenceGroup {
	t.Helper()
	if _, err := loadReference(); err != nil {
		t.Fatal(err)
	}
	all, err := New(Options{}).ReferenceGroups()
	if err != nil || len(all) < 15 {
		t.Fatalf("%d groups, error %v", len(all), err)
	}
	return all
}

// Every operation says what it does, what a second request does, its errors and the scope that it needs, and has an
// example in each language.
func TestReferenceIsComplete(t *testing.T) {
	t.Parallel()
	described := map[string]bool{}
	may := rolesOf(t)
	for _, g := range groups(t) {
		for _, o := range g.Operations {
			described[o.Method+" "+o.Path] = true
		}
		if g.Description == "" {
			t.Errorf("the group %s has no description", g.Tag)
		}
		for _, o := range g.Operations {
			name := o.Method + " " + o.Path
			if o.Description == "" || o.Repeat == "" != (o.Method == http.MethodGet) {
				t.Errorf("%s: the description is %q; what a second request does, except for GET, is %q", name, o.Description,
					o.Repeat)
			}
			code, err := format.Source([]byte(example(&o, "go") + "\n"))
			if err != nil || string(code) != example(&o, "go")+"\n" {
				t.Errorf("%s has no example in Go that is formatted as gofmt does it, error %v:\n%s", name, err, example(&o, "go"))
			}
			if len(o.Examples) < 6 || len(o.Scopes) != 1+len(furtherScopes[name]) || len(o.Errors) < 6 {
				t.Errorf("%s has %d examples, %d scopes and %d errors", name, len(o.Examples), len(o.Scopes), len(o.Errors))
			}
			if roles := strings.Join(o.Roles, " "); roles != may[name] {
				t.Errorf("%s is for the roles %q, but %q may use it", name, roles, may[name])
			}
			for _, e := range o.Errors {
				if !strings.HasSuffix(e.Cause, ".") || e.Status < 400 {
					t.Errorf("%s has the error %+v", name, e)
				}
			}
			seen := map[wire.ReferenceError]bool{}
			for _, e := range o.Errors {
				if seen[e] {
					t.Errorf("%s lists the error %+v twice", name, e)
				}
				seen[e] = true
			}
		}
	}
	r, err := loadReference()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range r.order {
		if !described[key] {
			t.Errorf("the files of the reference describe %s, which is no operation", key)
		}
	}
}

// The names of errors are those of the table of errors.
func TestReferenceErrorsExist(t *testing.T) {
	t.Parallel()
	known := map[wire.ReferenceError]bool{}
	for _, e := range wire.AllErrors() {
		known[e] = true
	}
	for _, g := range groups(t) {
		for _, o := range g.Operations {
			for _, e := range o.Errors {
				if !known[wire.ReferenceError{Status: e.Status, Name: e.Name}] {
					t.Errorf("%s %s has the error %d %s, which the API does not know", o.Method, o.Path, e.Status, e.Name)
				}
			}
		}
	}
}

// A page of a group has a section for each operation, with the operation's ID.
func TestReferencePages(t *testing.T) {
	t.Parallel()
	a := New(Options{})
	for _, g := range groups(t) {
		page, ok, err := a.RenderReferenceGroup(g.ID, true)
		if err != nil || !ok {
			t.Fatalf("%s: %v, error %v", g.ID, ok, err)
		}
		for _, o := range g.Operations {
			if !strings.Contains(string(page), `id="`+o.ID+`"`) {
				t.Errorf("the page %s has no section %s", g.ID, o.ID)
			}
			form := `data-method="` + o.Method + `" data-path="` + o.Path + `"`
			if strings.Contains(string(page), form) != o.CanTry() {
				t.Errorf("the page %s has a form for %s %s: not %v", g.ID, o.Method, o.Path, o.CanTry())
			}
		}
	}
	if page, _, err := a.RenderReferenceGroup("emails", false); err != nil || strings.Contains(string(page), "data-try") {
		t.Errorf("a node that is not for development has forms, error %v", err)
	}
	if _, ok, err := a.RenderReferenceGroup("nothing", false); ok || err != nil {
		t.Errorf("a page of a group that does not exist: %v, error %v", ok, err)
	}
}

// anyJSON lists fields whose values are of any JSON type.
var anyJSON = []string{"request_body", "response_body"}

// Every parameter and every field of a request or a response has a description and a type, and every description in
// fields.txt is used.
func TestFieldsAreDescribed(t *testing.T) {
	t.Parallel()
	checked := 0
	var check func(at string, all []wire.ReferenceField)
	check = func(at string, all []wire.ReferenceField) {
		for _, f := range all {
			checked++
			if f.Description == "" {
				t.Errorf("%s.%s has no description", at, f.Name)
			}
			if strings.Contains(f.Type, "any") && !slices.Contains(anyJSON, f.Name) {
				t.Errorf("%s.%s has the type %s", at, f.Name, f.Type)
			}
			check(at+"."+f.Name, f.Children)
		}
	}
	var used []string
	a := New(Options{})
	for _, g := range groups(t) {
		for _, o := range g.Operations {
			for part, all := range map[string][]wire.ReferenceField{"path": o.PathParams, "query": o.Query,
				"header": o.Headers, "body": o.Body, "response": o.Response} {
				check(o.Method+" "+o.Path+" "+part, all)
			}
		}
	}
	if checked < 1500 {
		t.Errorf("%d fields", checked)
	}
	r, err := loadReference()
	if err != nil {
		t.Fatal(err)
	}
	d := description()
	d.FieldText = func(schema, field string) string {
		for _, name := range []string{schema + "." + field, field} {
			if r.fields[name] != "" {
				used = append(used, name)
				return r.fields[name]
			}
		}
		return ""
	}
	if _, err := wire.New(wire.Options{Operations: a.operations(), Description: d}).ReferenceGroups(); err != nil {
		t.Fatal(err)
	}
	for name := range r.fields {
		if !slices.Contains(used, name) {
			t.Errorf("no field takes the description of %s in fields.txt", name)
		}
	}
}

// rolesOf returns the names of the roles that may use each operation, as TestScopes found them.
func rolesOf(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(scopesFile)
	if err != nil {
		t.Fatal(err)
	}
	column := regexp.MustCompile(` {2,}`)
	var roles []string
	all := map[string]string{}
	for i, line := range strings.Split(strings.TrimSpace(string(text)), "\n") {
		cells := column.Split(strings.TrimSpace(line), -1)
		if i == 0 {
			roles = cells
			continue
		}
		var names []string
		for j, cell := range cells {
			if role, ok := strings.CutPrefix(roles[j], "role: "); ok && cell == "yes" {
				names = append(names, role)
			}
		}
		all[cells[0]] = strings.Join(names, " ")
	}
	return all
}
