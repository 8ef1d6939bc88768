package importfrom_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/node/importfrom"
)

// A dry run refuses what exceeds the limits of a team, like an import.
func TestLimits(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		a := &account{pages: map[importfrom.Kind][]importfrom.Page{importfrom.Properties: {{}}, importfrom.Topics: {{}},
			importfrom.Segments: {{}}}}
		for i := range contacts.MaxProperties + 1 {
			a.pages[importfrom.Properties][0].Properties = append(a.pages[importfrom.Properties][0].Properties,
				importfrom.Property{Key: fmt.Sprint("p", i), Type: scalar.String})
		}
		for i := range contacts.MaxTopics + 2 {
			a.pages[importfrom.Topics][0].Topics = append(a.pages[importfrom.Topics][0].Topics,
				importfrom.Topic{ID: fmt.Sprint(i), Name: fmt.Sprint(i), Default: contacts.OptIn})
		}
		for i := range segments.Max + 3 {
			a.pages[importfrom.Segments][0].Segments = append(a.pages[importfrom.Segments][0].Segments,
				importfrom.Segment{ID: fmt.Sprint(i), Name: fmt.Sprint(i)})
		}
		a.pages[importfrom.Contacts] = []importfrom.Page{{Contacts: []importfrom.Contact{{Address: "a@example.net",
			Values: map[string]scalar.Value{"more": scalar.OfText("x")}}}}}
		want := []string{"properties: 200 created", "properties: 2 refused", "segments: 1000 created", "segments: 3 refused",
			"topics: 200 created", "topics: 2 refused", "contacts: 1 created"}
		for _, dry := range []bool{true, false} {
			got, _, err := w.run(a, dry)
			w.check(fmt.Sprint("dry ", dry), want, got, err)
		}
	})
}

// A template that the source returns twice is created once.
func TestRepeatedTemplates(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		some := importfrom.Page{Templates: []importfrom.Template{{ID: "1", Name: "Order", HTML: "x"},
			{ID: "2", Name: "Order", HTML: "y"}}}
		a := &account{pages: map[importfrom.Kind][]importfrom.Page{importfrom.Templates: {some, some, some}}}
		got, _, err := w.run(a, false)
		w.check("import", []string{"templates: 2 created", "templates: 4 kept"}, got, err)
		if n := w.Count(`SELECT COUNT(*) FROM templates`); n != 2 {
			t.Errorf("%d templates", n)
		}
	})
}

// A huge name fills neither the report nor the state file.
func TestHugeNames(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		huge := strings.Repeat("x", 1<<20)
		a := &account{pages: map[importfrom.Kind][]importfrom.Page{
			importfrom.Templates: {{Templates: []importfrom.Template{{Name: huge, HTML: "x", Note: huge}},
				Refused: []importfrom.Refused{{Name: huge, Reason: huge}}, Notes: []string{huge}}},
			importfrom.Contacts: {{Contacts: []importfrom.Contact{{Address: "a@example.net",
				Values: map[string]scalar.Value{huge: scalar.OfText("x")}}}}}}}
		down := errors.New("down")
		a.before = func(kind importfrom.Kind, _ int) error {
			if kind == importfrom.Webhooks {
				return down
			}
			return nil
		}
		if _, _, err := w.run(a, false); !errors.Is(err, down) {
			t.Fatal(err)
		}
		if info, err := os.Stat(w.state); err != nil || info.Size() > 20_000 {
			t.Errorf("the state file: %+v, %v", info, err)
		}
	})
}

// endless is a source with pages without end.
type endless struct{ pages int }

func (e *endless) Kinds() []importfrom.Kind { return []importfrom.Kind{importfrom.Webhooks} }

func (e *endless) Page(context.Context, importfrom.Kind, string) (importfrom.Page, error) {
	if e.pages++; e.pages > 5000 {
		return importfrom.Page{}, errors.New("the import does not end")
	}
	return importfrom.Page{Next: fmt.Sprint(e.pages)}, nil
}

// A kind of which an account has few records has an end.
func TestEndlessPages(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		_, err := importfrom.Run(t.Context(), importfrom.Deps{DB: w.DB, Contacts: w.Contacts, Domains: w.Domains,
			Templates: w.Templates, Suppressions: w.Suppressions, Webhooks: w.hooks}, importfrom.Options{TeamID: w.team,
			Source: &endless{}, Name: "test", DryRun: true})
		if err == nil || !strings.Contains(err.Error(), "more than 1000 pages") {
			t.Error(err)
		}
	})
}
