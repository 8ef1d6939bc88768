package receiving_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/outbound/receiving"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/search"
)

// searchAll returns the ids of all pages of a search. If up is true, it begins with the oldest page.
func (f *fixture) searchAll(t *testing.T, x receiving.Filter, limit int, up bool) (ids []string) {
	t.Helper()
	p := page.Page{Limit: limit}
	if up {
		p.Before = "00000000-0000-7000-8000-000000000000"
	}
	for pages := 0; ; pages++ {
		found, err := f.Search(t.Context(), f.Acme.TeamID, x, p)
		if err != nil || len(found.Items) > limit || pages > 10_000 {
			t.Fatalf("%+v: %d emails, %v", x, len(found.Items), err)
		}
		var some []string
		for _, e := range found.Items {
			some = append(some, e.ID)
		}
		cursor := found.Cursor(func(e *receiving.Email) string { return e.ID })
		if up {
			if found.Next == "" && len(some) > 0 {
				cursor = some[0]
			}
			ids, p.Before = append(some, ids...), cursor
		} else {
			ids, p.After = append(ids, some...), cursor
		}
		if !found.HasMore {
			return ids
		}
		if found.Next == "" && len(some) < limit || found.Next != "" != !found.SearchedBackTo.IsZero() {
			t.Fatalf("%+v: %d emails of a page, and there are more: %+v", x, len(some), found)
		}
	}
}

// insertMany inserts received emails of team Acme, one a minute before a time, without content. It returns their ids,
// oldest first.
func (f *fixture) insertMany(t *testing.T, n int, before time.Time) (ids []string) {
	t.Helper()
	rows, subjects, at := make([]db.ID, n), make([]string, n), make([]int64, n)
	for i := range rows {
		created := before.Add(time.Duration(i-n) * time.Minute).Truncate(time.Microsecond)
		ids = append(ids, id.First(created)[:24]+fmt.Sprintf("%012x", i))
		rows[i], at[i], subjects[i] = db.ID(ids[i]), created.UnixMicro(), fmt.Sprintf("Newsletter number%d", i)
	}
	f.Update(func(tx *db.Tx) error {
		_, err := tx.InsertRows(t.Context(), `received_emails (team_id, id, sender, subject, message_id, recipients,
			received_for, files, thread_id, origin, authentication, spam, size, blob_key, created_at)`, "",
			db.ID(f.Acme.TeamID), rows, "list@news.example", subjects, "", `{"to":["us@in.acme.example"]}`,
			`["archive@in.acme.example"]`, "", rows, `{}`, "", "", int64(1), "", at)
		return err
	})
	return ids
}

// Searches find received emails by words, addresses, conversation and time, in both directions.
func TestSearch(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		old := f.insertMany(t, 3000, time.Now().AddDate(0, 0, -1))
		f.deliver(t, "From: José <Jose@Sender.example>\nTo: other@example.net\nSubject: no\n\n", "x@other.example")
		f.deliver(t, "From: Maja Lind <maja@fjord.example>\nTo: help@in.acme.example\nCc: \"Carla\" <carla@copy.example>\n"+
			"Subject: =?utf-8?q?=C3=9Cberweisung?= of order 4711\nMessage-ID: <first@fjord.example>\n\nHi.",
			"help@in.acme.example", "hidden@in.acme.example")
		f.deliver(t, "From: jo@sender.example\nTo: list@elsewhere.example\nSubject: Re: order\n"+
			"References: <first@fjord.example>\n\nHi.", "sales@in.acme.example")
		all := f.list(t, f.Acme.TeamID)
		second, first := all[0], all[1]
		if second.ThreadID != first.ThreadID {
			t.Fatal("the emails are not of one conversation")
		}
		both, none := []string{second.ID, first.ID}, []string(nil)
		week := time.Now().AddDate(0, 0, -7)
		for _, c := range []struct {
			f    receiving.Filter
			want []string
		}{
			{receiving.Filter{Query: search.Query{Text: "UBER"}}, both[1:]},
			{receiving.Filter{Query: search.Query{Text: "order 47"}}, both[1:]},
			{receiving.Filter{Query: search.Query{Text: "order"}}, both},
			{receiving.Filter{Query: search.Query{Text: "jose"}}, none},
			{receiving.Filter{Query: search.Query{Text: "@elsew"}}, both[:1]},
			{receiving.Filter{Query: search.Query{Text: "carla@co"}}, both[1:]},
			{receiving.Filter{Query: search.Query{Text: first.ID}}, both[1:]},
			{receiving.Filter{Query: search.Query{Text: old[2]}}, old[2:3]},
			{receiving.Filter{Query: search.Query{Text: id.New()}}, none},
			{receiving.Filter{Query: search.Query{To: "hidden@in.acme.example"}}, both[1:]},
			{receiving.Filter{Query: search.Query{To: "copy.example"}}, both[1:]},
			{receiving.Filter{Query: search.Query{To: "elsewhere.example", From: "sender.example"}}, both[:1]},
			{receiving.Filter{Query: search.Query{From: "MAJA@fjord.example"}}, both[1:]},
			{receiving.Filter{Query: search.Query{Subject: "order"}}, both},
			{receiving.Filter{Query: search.Query{Subject: "fjord"}}, none},
			{receiving.Filter{Query: search.Query{Subject: "order"}, ThreadID: first.ThreadID}, both},
			{receiving.Filter{Query: search.Query{Subject: "order"}, ThreadID: old[0]}, none},
			{receiving.Filter{Query: search.Query{Text: "number7 newsletter"}}, reversed(numbered(old, "7"))},
			{receiving.Filter{Query: search.Query{CreatedAfter: first.CreatedAt}}, both},
			{receiving.Filter{Query: search.Query{CreatedAfter: week, CreatedBefore: first.CreatedAt}}, reversed(old)},
			{receiving.Filter{Query: search.Query{Text: "number29", CreatedBefore: week}}, none},
			{receiving.Filter{Query: search.Query{To: "archive@in.acme.example"}}, reversed(old)},
		} {
			for _, up := range []bool{false, true} {
				for _, limit := range []int{2, 100} {
					if limit == 2 && len(c.want) > 2 {
						continue
					}
					if diff := gocmp.Diff(c.want, f.searchAll(t, c.f, limit, up)); diff != "" {
						t.Errorf("%+v, by %d, up %v: %.400s", c.f, limit, up, diff)
					}
				}
			}
		}
		found, err := f.Search(t.Context(), f.Acme.TeamID, receiving.Filter{Query: search.Query{Text: "uber"}},
			page.Page{Limit: 1})
		if err != nil || len(found.Items) != 1 || found.Items[0].Origin.Hello != "mail.example.org" {
			t.Errorf("%+v, %v", found, err)
		}
		for name, q := range map[string]search.Query{"q": {Text: "--"}, "to": {To: "a b"}, "from": {From: "@"},
			"subject":       {Subject: strings.Repeat("x", 501)},
			"created_after": {CreatedAfter: week, CreatedBefore: week}} {
			_, err := f.Search(t.Context(), f.Acme.TeamID, receiving.Filter{Query: q}, page.Page{Limit: 1})
			if e, ok := err.(*fault.Error); !ok || e.Kind != fault.Invalid || e.Field != name {
				t.Errorf("%+v: %v", q, err)
			}
		}
	})
}

// numbered returns the emails of insertMany whose numbers begin with the given digits.
func numbered(ids []string, digits string) (some []string) {
	for i, emailID := range ids {
		if strings.HasPrefix(fmt.Sprint(i), digits) {
			some = append(some, emailID)
		}
	}
	return some
}

func reversed(ids []string) []string {
	ids = slices.Clone(ids)
	slices.Reverse(ids)
	return ids
}

// A statement of a search reads a bounded number of rows in the order of an index, however many emails a team has.
func TestSearchGoesByIndexes(t *testing.T) {
	t.Parallel()
	eachTraced(t, func(t *testing.T, f *fixture, trace *dbtest.Trace) {
		old := f.insertMany(t, 300, time.Now())
		for _, x := range []receiving.Filter{{Query: search.Query{Text: "nothing"}}, {Query: search.Query{Text: old[3]}},
			{Query: search.Query{CreatedAfter: time.Now().AddDate(0, 0, -1), From: "other.example"}},
			{Query: search.Query{Subject: "nothing"}, ThreadID: old[5]}} {
			for _, p := range []page.Page{{Limit: 5}, {Limit: 5, After: old[200]}, {Limit: 5, Before: old[100]}} {
				trace.Take()
				if _, err := f.Search(t.Context(), f.Acme.TeamID, x, p); err != nil {
					t.Fatal(err)
				}
				for _, s := range trace.Take() {
					index := "received_emails_pkey"
					if x.ThreadID != "" {
						index = "received_emails_thread"
					} else if f.DB.Alone() {
						index = "sqlite_autoindex_received_emails_1"
					}
					plan := trace.Plan(t, s)
					if !strings.Contains(plan, index) || strings.Contains(plan, "B-TREE") || strings.Contains(plan, "Sort") ||
						!strings.Contains(s.SQL, "LIMIT") {
						t.Errorf("%s\n%s", s.SQL, plan)
					}
				}
			}
		}
	})
}
