package exports

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/audience/segments"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// insertContacts inserts n contacts into a team.
func insertContacts(t *testing.T, d *db.DB, teamID string, from, n int) {
	t.Helper()
	insert(t, d, `INSERT INTO contacts (id, team_id, address, first_name, last_name, unsubscribed, source_id, created_at,
		updated_at) VALUES ($1, $2, $3, '', '', $4, NULL, $5, 0)`, from, n, func(i int) []any {
		return []any{db.ID(strings.Replace(number(i), "8000", "8"+teamID[len(teamID)-3:], 1)), db.ID(teamID),
			fmt.Sprintf("%05d@one.example", i), false, time.Now().UnixMicro()}
	})
}

// TestExportOfManyContacts checks that the number of queries is proportional to the number of contacts. The first
// batches of an export are small.
func TestExportOfManyContacts(t *testing.T) {
	t.Parallel()
	const rows = 20_000
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		s := newService(t, d)
		insertContacts(t, d, mine, 0, rows)
		insertContacts(t, d, others, 0, 10)
		trace.Take()
		e, err := s.Contacts(t.Context(), mine, "")
		if err != nil {
			t.Fatal(err)
		}
		lines, batches := 0, 0
		for batch, err := range e.Batches(t.Context(), Options{Format: NDJSON}) {
			if err != nil {
				t.Fatal(err)
			}
			if batches++; batches == 10 {
				insertContacts(t, d, mine, rows, 2000) // contacts added during the export
			}
			for line := range strings.Lines(string(batch)) {
				var row ContactRow
				if err := json.Unmarshal([]byte(line), &row); err != nil || row.Email != fmt.Sprintf("%05d@one.example", lines) {
					t.Fatalf("line %d is %s, %v", lines, line, err)
				}
				lines++
			}
			if len(batch) > 2*batchBytes {
				t.Errorf("a part of %d octets", len(batch))
			}
		}
		asked := len(slices.DeleteFunc(trace.Take(), func(s db.Statement) bool { return strings.HasPrefix(s.SQL, "INSERT") }))
		if most := rows/contactsMax + 10; lines != rows || batches > most || asked > 3*most+1 {
			t.Errorf("%d contacts in %d parts by %d queries", lines, batches, asked)
		}
	})
}

// TestExportOfLargeContacts: contacts with large values are read in small batches, which limits memory use.
func TestExportOfLargeContacts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		s := newService(t, d)
		insertContacts(t, d, mine, 0, 200)
		for p := range 50 {
			name := fmt.Sprintf("p%02d", p)
			insert(t, d, `INSERT INTO contact_properties (id, team_id, name, type, fallback, has_fallback, created_at,
				deleted_at) VALUES ($1, $2, $3, 'string', '', $4, 0, 0)`, 0, 1, func(int) []any {
				return []any{db.ID(dbtest.ID(name)), db.ID(mine), name, false}
			})
			insert(t, d, `INSERT INTO contact_texts (team_id, contact_id, property_id, value) VALUES ($1, $2, $3, $4)`, 100, 100,
				func(i int) []any {
					return []any{db.ID(mine), db.ID(strings.Replace(number(i), "8000", "8"+mine[len(mine)-3:], 1)),
						db.ID(dbtest.ID(name)), strings.Repeat("x", 2000)}
				})
		}
		e, err := s.Contacts(t.Context(), mine, "")
		if err != nil {
			t.Fatal(err)
		}
		whole, most := 0, 0
		for batch, err := range e.Batches(t.Context(), Options{}) {
			if err != nil {
				t.Fatal(err)
			}
			whole, most = whole+len(batch), max(most, len(batch))
		}
		if whole < 100*50*2000 || most > whole*9/10 {
			t.Errorf("%d octets, %d in one part", whole, most)
		}
	})
}

// An export file preserves every character of the contacts' data, and can be imported without changes.
func TestExportOfContacts(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		ctx := t.Context()
		s := newService(t, d)
		c := testnode.Bare(t, d, testnode.Options{}).Contacts
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		for name, typ := range map[string]scalar.Type{"plan": scalar.String, "Zed": scalar.Number,
			"id": scalar.String} {
			_, err := c.CreateProperty(ctx, mine, contacts.NewProperty{Name: name, Type: typ})
			must(err)
		}
		topic, err := c.CreateTopic(ctx, mine, contacts.NewTopic{Name: "a,\"b\"", Default: contacts.OptIn})
		must(err)
		segment, err := c.Segments.Create(ctx, mine, segments.Definition{Name: "=News"})
		must(err)
		want := [][]string{{"email", "first_name", "last_name", "unsubscribed", "Zed", "id", "plan"}}
		for i, text := range hostile {
			text = strings.ReplaceAll(text, "\x00", "")
			name := strings.NewReplacer("\r", "", "\n", "").Replace(text)
			change := contacts.Change{FirstName: &name, LastName: &name, Unsubscribed: new(i%2 == 0),
				Properties: map[string]scalar.Value{"plan": scalar.OfText(text),
					"Zed": scalar.OfNumber(float64(i) - 2.5)}}
			line := []string{fmt.Sprintf("%02d@one.example", i), name, name, fmt.Sprint(i%2 == 0), fmt.Sprint(float64(i) - 2.5),
				"", text}
			if i == 3 {
				change.Segments = []string{segment.ID}
				change.Topics = []contacts.Choice{{TopicID: topic.ID, Subscription: contacts.OptOut}}
			}
			_, _, err := c.Upsert(ctx, mine, line[0], change)
			must(err)
			want = append(want, line)
		}
		_, _, err = c.Upsert(ctx, others, "other@one.example", contacts.Change{})
		must(err)
		e, err := s.Contacts(ctx, mine, "")
		must(err)
		lines, err := parse(read(t, e, Options{}))
		must(err)
		var got [][]string
		for _, line := range lines {
			got = append(got, line[:7])
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"contact.created_at", "contact.updated_at", "contact.segments", "contact.topics",
			"contact.id"}, lines[0][7:]); diff != "" {
			t.Error(diff)
		}
		for format, has := range map[Format]string{CSV: "00@one.example", NDJSON: `"plan":"a,b"`} {
			e, err := s.Contacts(ctx, mine, segment.ID)
			must(err)
			text := read(t, e, Options{Format: format})
			if strings.Contains(text, has) == (format == CSV) || strings.Count(text, "=News") != 1 ||
				strings.Count(text, "opt_out") != 1 || strings.Count(text, "@one.example") != 1 {
				t.Errorf("of a segment: %s", text)
			}
		}
		for _, segmentID := range []string{topic.ID, "nonsense"} {
			e, err := s.Contacts(ctx, mine, segmentID)
			must(err)
			for _, err := range e.Batches(ctx, Options{}) {
				if fault.KindOf(err) != fault.NotFound {
					t.Errorf("a segment that is not there: %v", err)
				}
			}
		}
	})
}
