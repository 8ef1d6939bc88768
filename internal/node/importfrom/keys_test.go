package importfrom_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/node/importfrom"
	"github.com/postrider/postrider/internal/node/testnode"
)

// Names of values that would become the same key get keys of their own, which stay the same when an import continues.
func TestKeysOfValues(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		page := func(address string, values ...string) importfrom.Page {
			c := importfrom.Contact{Address: address, Values: map[string]scalar.Value{}}
			for _, name := range values {
				c.Values[name] = scalar.OfText("of " + name)
			}
			return importfrom.Page{Contacts: []importfrom.Contact{c}}
		}
		long := strings.Repeat("x", 60)
		a := &account{pages: map[importfrom.Kind][]importfrom.Page{importfrom.Contacts: {
			page("a@example.net", "first-name", "a.b", "a b", "a_b", "email", long+"1", long+"2", " "),
			page("b@example.net", "a-b", "a b"), page("c@example.net", "A_B", "a b", "a.b")}}}
		down := errors.New("down")
		a.before = func(_ importfrom.Kind, page int) error {
			if page == 2 {
				return down
			}
			return nil
		}
		if _, _, err := w.run(a, false); !errors.Is(err, down) {
			t.Fatal(err)
		}
		a.before = nil
		_, r, err := w.run(a, false)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]map[string]string{
			"a": {"first_name_": "of first-name", "a_b": "of a_b", "a_b_2": "of a b", "a_b_3": "of a.b", "email_": "of email",
				long[:50]: "of " + long + "1", long[:48] + "_2": "of " + long + "2"},
			"b": {"a_b_4": "of a-b", "a_b_2": "of a b"},
			"c": {"A_B": "of A_B", "a_b_2": "of a b", "a_b_3": "of a.b"}}
		for name, want := range want {
			got := map[string]string{}
			for key, v := range testnode.Must(w.Contacts.Member(t.Context(), w.team, "", name+"@example.net")).Properties {
				got[key] = v.Text
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s: %s", name, diff)
			}
		}
		if len(r.Notes) != 4 || !slices.Contains(r.Notes, `The values of "a b" are in the property a_b_2, because a_b has the `+
			`values of "a_b".`) {
			t.Errorf("the notes are %q", r.Notes)
		}
		if len(r.LeftOut) != 1 || r.LeftOut[0].Count != 1 {
			t.Errorf("left out: %+v", r.LeftOut)
		}
	})
}
