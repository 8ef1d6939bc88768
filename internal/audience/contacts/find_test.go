package contacts_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
)

func TestFind(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		add := func(address, first, last string) contacts.Contact {
			return w.upsert(address, contacts.Change{FirstName: &first, LastName: &last})
		}
		laura := add("laura@acme.example", "Laura", "Meyer")
		add("meyers@one.example", "", "")
		add("a@one.example", "Émile", "Ångström")
		add("b@one.example", "100%", "_x")
		add("c@one.example", "", "Laurason")
		other := "laura@other.example"
		if _, _, err := w.Contacts.Upsert(t.Context(), w.Other.TeamID, other, contacts.Change{}); err != nil {
			t.Fatal(err)
		}
		for text, want := range map[string]string{
			"laura": "laura@acme.example c@one.example", "LAURA@Acme.example": "laura@acme.example", "laura@": "laura@acme.example",
			" laura  mey": "laura@acme.example", "meyer": "meyers@one.example laura@acme.example", "émi": "a@one.example",
			"Émile Å": "a@one.example", "ångs": "a@one.example", "100%": "b@one.example", "10_": "", "_x": "b@one.example",
			laura.ID: "laura@acme.example", strings.ToUpper(laura.ID): "laura@acme.example",
			"01890a5d-ac96-774b-bcce-b302099a8057": "", "": "", " ": "", "nobody": "", "a\x00": "", "\xff": "",
			strings.Repeat("x", 400): "", "eyer": "",
		} {
			all, err := w.Contacts.Find(t.Context(), w.team, text, 10)
			if err != nil {
				t.Fatal(text, err)
			}
			var got []string
			for _, c := range all {
				got = append(got, c.Address)
			}
			if diff := cmp.Diff(want, strings.Join(got, " ")); diff != "" {
				t.Errorf("%q finds: %s", text, diff)
			}
		}
		if all, err := w.Contacts.Find(t.Context(), w.team, "laura", 1); err != nil || len(all) != 1 {
			t.Errorf("with a limit of 1: %v, %v", all, err)
		}
	})
}
