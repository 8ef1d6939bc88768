package api

import (
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/db"
	"github.com/postrider/postrider/internal/db/dbtest"
)

// Ids are in lower case in every answer, however the request has them.
func TestContactTopicsInLowerCase(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		var topic ref
		w := f.do(t, "POST /topics\n\n"+`{"name":"News","default_subscription":"opt_in"}`)
		if err := json.Unmarshal(w.Body.Bytes(), &topic); err != nil {
			t.Fatal(err)
		}
		f.do(t, "POST /contacts\n\n"+`{"email":"a@example.org"}`)
		choice := `[{"id":"` + strings.ToUpper(topic.ID) + `","subscription":"opt_out"}]`
		w = f.do(t, "PATCH /contacts/a@example.org/topics\n\n"+choice)
		if want := `"topics":[{"id":"` + topic.ID + `","subscription":"opt_out"}]`; w.Code != 200 ||
			!strings.Contains(w.Body.String(), want) {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}
