package api

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// IDs in responses are in lower case even if the request contains them in upper case.
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

// A contact property accepts 2,000 characters of any kind, because no database index contains property values.
func TestLongestValues(t *testing.T) {
	t.Parallel()
	text := make([]rune, scalar.MaxText)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range text {
		text[i] = 0x20000 + random.Int32N(0xa000) // 4-byte characters, which compress badly
	}
	long := string(text)
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFixture(t, d, Options{})
		f.do(t, "POST /contact-properties\n\n"+`{"key":"bio","type":"string"}`)
		if w := f.do(t, "POST /contacts\n\n"+`{"email":"a@example.org","properties":{"bio":"`+long+`"}}`); w.Code != 201 {
			t.Errorf("%d %.300s", w.Code, w.Body)
		}
		importID := f.importing(t, "email,bio\nb@example.org,short\nc@example.org,"+long+"\n",
			map[string]string{"column_map": `{"email":"email","properties":{"bio":{"column":"bio","type":"string"}}}`})
		if i, text := f.imported(t, importID); i.Status != "completed" || i.Counts != (importCounts{2, 2, 0, 0, 0}) {
			t.Errorf("%s", text)
		}
		for _, address := range []string{"a@example.org", "c@example.org"} {
			if w := f.do(t, "GET /contacts/"+address); !strings.Contains(w.Body.String(), long) {
				t.Errorf("%s has %.300s", address, w.Body)
			}
		}
	})
}
