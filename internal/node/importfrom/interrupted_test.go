package importfrom_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/node/importfrom"
)

// An import that stopped within the contacts is not ended by one of other kinds, which would forget the rest of them.
func TestOnlyOthersAfterAnInterruption(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, w *world) {
		page := func(address string) importfrom.Page {
			return importfrom.Page{Contacts: []importfrom.Contact{{Address: address}}}
		}
		a := &account{pages: map[importfrom.Kind][]importfrom.Page{
			importfrom.Contacts: {page("a@one.example"), page("b@one.example")}}}
		a.before = func(kind importfrom.Kind, n int) error {
			if kind == importfrom.Contacts && n == 1 {
				return errors.New("stopped")
			}
			return nil
		}
		if _, _, err := w.run(a, false); err == nil {
			t.Fatal("the import did not stop")
		}
		a.before = nil
		if _, _, err := w.run(a, false, importfrom.Domains); err == nil || !strings.Contains(err.Error(), "stopped within") {
			t.Errorf("only domains: %v", err)
		}
		if _, _, err := w.run(a, false); err != nil {
			t.Fatal(err)
		}
		if n := w.Count(`SELECT COUNT(*) FROM contacts`); n != 2 {
			t.Errorf("%d contacts", n)
		}
	})
}
