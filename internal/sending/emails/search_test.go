package emails_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	"golang.org/x/sync/errgroup"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/node/testnode"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// searchable is an email of a test of searches.
type searchable struct {
	id, from, to, subject, tag, state string
	recipients                        string // the column, or "" if there is one recipient
	domain, key, template, broadcast  string
	at                                time.Time
}

var searchStates = map[string]int64{"delivered": 5, "bounced": 8, "complained": 12}

// insertSearchable inserts emails of a team, as acceptance would have.
func (f *fixture) insertSearchable(teamID string, all []searchable) {
	f.T.Helper()
	n := len(all)
	ids, domains, keys, templates, broadcasts := make([]db.ID, n), make([]db.ID, n), make([]db.ID, n), make([]db.ID, n),
		make([]db.ID, n)
	from, to, subjects, tags, recipients := make([]string, n), make([]string, n), make([]string, n), make([]string, n),
		make([]string, n)
	states, at := make([]int64, n), make([]int64, n)
	for i, e := range all {
		ids[i], domains[i], keys[i], templates[i], broadcasts[i] = db.ID(e.id), db.ID(e.domain), db.ID(e.key),
			db.ID(e.template), db.ID(e.broadcast)
		from[i], to[i], subjects[i], recipients[i] = e.from, e.to, e.subject, e.recipients
		if e.tag != "" {
			tags[i] = `[{"name":"campaign","value":"` + e.tag + `"}]`
		}
		states[i], at[i] = searchStates[e.state], e.at.UnixMicro()
	}
	f.Update(func(tx *db.Tx) error {
		_, err := tx.InsertRows(f.T.Context(), `emails (id, team_id, actor_id, domain_id, message_id, sender, subject,
			recipients, tags, template_id, broadcast_id, last_event, rank, created_at, actor_kind, recipient)`, "", ids,
			db.ID(teamID), keys, domains, "", from, subjects, recipients, tags, templates, broadcasts, states, int64(40), at,
			int64(1), to)
		return err
	})
}

var searchWords = strings.Fields("order invoice receipt Ärger überfällig welcome reset password shipped account café 2026 " +
	"newsletter summer winter offer")

// searchables returns emails that are spread over a time span.
func searchables(seed uint64, n int, from, to time.Time) []searchable {
	r := rand.New(rand.NewPCG(seed, 7))
	fixed := func(i int) string { return fmt.Sprintf("0197%04x-0000-7000-8000-000000000000", i) }
	all := make([]searchable, n)
	for i := range all {
		at := from.Add(to.Sub(from) * time.Duration(i) / time.Duration(n)).Truncate(time.Microsecond)
		e := searchable{from: "Shop <shop@acme.example>", at: at, state: "delivered", domain: fixed(1), key: fixed(10 + i%2),
			to: fmt.Sprintf("user%d.smith@host%d.example", r.IntN(n), r.IntN(5))}
		e.id = id.First(at)[:15] + fmt.Sprintf("%03x-8%03x-%012x", r.IntN(4096), r.IntN(4096), r.Int64N(1<<48))
		words := []string{fmt.Sprintf("#%d", r.IntN(n))}
		for range 3 {
			words = append(words, searchWords[r.IntN(len(searchWords))])
		}
		e.subject = strings.Join(words, " ")
		switch r.IntN(20) {
		case 0:
			e.from, e.domain = "José García <Jose@other.example>", fixed(2)
		case 1:
			e.state = "bounced"
		case 2:
			e.tag, e.template = fmt.Sprintf("c%d", r.IntN(3)), fixed(3)
		case 3:
			e.broadcast = fixed(4)
		case 4:
			e.recipients = `{"to":["` + e.to + `"],"cc":["Carla Copy <carla@copy.example>"]}`
			e.to = ""
		}
		if r.IntN(n) < 3 {
			e.state = "complained"
		}
		all[i] = e
	}
	slices.SortFunc(all, func(a, b searchable) int { return strings.Compare(a.id, b.id) })
	return all
}

// foldText is an independent form of what searches do with upper case and accents.
var foldText = strings.NewReplacer("Ä", "a", "ä", "a", "ü", "u", "é", "e", "í", "i")

// words returns the words of the email's texts.
func (e *searchable) words(texts ...string) []string {
	text := strings.ToLower(foldText.Replace(strings.Join(texts, " ")))
	return strings.FieldsFunc(text, func(r rune) bool { return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyz0123456789", r) })
}

func (e *searchable) addresses() []string {
	if e.recipients != "" {
		return []string{strings.Split(e.recipients, `"`)[3], "carla@copy.example"}
	}
	return []string{e.to}
}

// matches is an independent implementation of a filter.
func (e *searchable) matches(f emails.Filter) bool {
	sender := strings.ToLower(strings.Trim(e.from[strings.IndexByte(e.from, '<'):], "<>"))
	address := func(want string, have ...string) bool {
		return slices.ContainsFunc(have, func(a string) bool {
			return a == strings.ToLower(want) || !strings.Contains(strings.TrimPrefix(want, "@"), "@") &&
				strings.HasSuffix(a, "@"+strings.TrimPrefix(want, "@"))
		})
	}
	begin := func(text string, words []string) bool {
		for _, w := range e.words(text) {
			if !slices.ContainsFunc(words, func(x string) bool { return strings.HasPrefix(x, w) }) {
				return false
			}
		}
		return true
	}
	if strings.Contains(f.Query, "@") {
		local, host, _ := strings.Cut(f.Query, "@")
		if !slices.ContainsFunc(append(e.addresses(), sender), func(a string) bool {
			return strings.HasPrefix(a, f.Query) || local == "" && strings.HasPrefix(a[strings.IndexByte(a, '@')+1:], host)
		}) {
			return false
		}
	} else if id.Valid(f.Query) {
		if e.id != f.Query {
			return false
		}
	} else if !begin(f.Query, e.words(append(e.addresses(), e.from, e.subject, e.recipients)...)) {
		return false
	}
	return (f.To == "" || address(f.To, e.addresses()...)) && (f.From == "" || address(f.From, sender)) &&
		begin(f.Subject, e.words(e.subject)) && (len(f.Status) == 0 || slices.Contains(f.Status, e.state)) &&
		(f.TagName == "" || f.TagName == "campaign" && e.tag != "" && (f.TagValue == "" || f.TagValue == e.tag)) &&
		(f.DomainID == "" || f.DomainID == e.domain) && (f.KeyID == "" || f.KeyID == e.key) &&
		(f.TemplateID == "" || f.TemplateID == e.template) && (f.BroadcastID == "" || f.BroadcastID == e.broadcast) &&
		(f.CreatedAfter.IsZero() || !e.at.Before(f.CreatedAfter)) &&
		(f.CreatedBefore.IsZero() || e.at.Before(f.CreatedBefore))
}

// searchAll returns the ids of all pages of a search. If up is true, it begins with the oldest page.
func (f *fixture) searchAll(x emails.Filter, limit int, up bool) (ids []string) {
	f.T.Helper()
	p := page.Page{Limit: limit}
	if up {
		p.Before = "00000000-0000-7000-8000-000000000000"
	}
	for pages := 0; ; pages++ {
		found, err := f.Emails.Search(f.T.Context(), f.Acme, x, p)
		if err != nil || len(found.Items) > limit || pages > 20_000 {
			f.T.Fatalf("%+v: %d emails, %v", x, len(found.Items), err)
		}
		var some []string
		for _, e := range found.Items {
			some = append(some, e.ID)
		}
		cursor := found.Next
		if cursor == "" && len(some) > 0 {
			cursor = some[len(some)-1]
			if up {
				cursor = some[0]
			}
		}
		if up {
			ids, p.Before = append(some, ids...), cursor
		} else {
			ids, p.After = append(ids, some...), cursor
		}
		if !found.HasMore {
			return ids
		}
		if found.Next == "" && len(some) < limit || found.Next != "" != !found.SearchedBackTo.IsZero() {
			f.T.Fatalf("%+v: %d emails of a page, and there are more: %+v", x, len(some), found)
		}
	}
}

// searchFilters returns filters of all kinds for the given emails.
func searchFilters(all []searchable) []emails.Filter {
	one := all[len(all)/3]
	return []emails.Filter{{}, {Query: one.id}, {Query: id.New()}, {Query: "order"}, {Query: "ord"}, {Query: "arger uber"},
		{Query: "CAFÉ summ"}, {Query: "user1"}, {Query: "smith"}, {Query: "carla copy"}, {Query: "nothing"}, {Query: "jose"},
		{Query: one.addresses()[0]}, {Query: "user2"}, {Query: "@host3.ex"}, {Query: "@copy.example"}, {Query: "host1.example"},
		{Query: "user1", Status: []string{"bounced"}}, {To: one.addresses()[0]}, {To: "CARLA@copy.example"},
		{To: "copy.example"}, {To: "@host2.example", Subject: "invoice"}, {From: "jose@OTHER.example"}, {From: "acme.example"},
		{From: "nobody.example"}, {Subject: "invoice"}, {Subject: "inv rec"}, {Subject: "smith"}, {Status: []string{"bounced"}},
		{Status: []string{"complained", "bounced"}}, {Status: []string{"canceled"}}, {TagName: "campaign"},
		{TagName: "campaign", TagValue: "c1"}, {TagName: "other"}, {TagName: "campaign", TagValue: "c1", Query: "order"},
		{DomainID: "01970002-0000-7000-8000-000000000000"}, {KeyID: "0197000a-0000-7000-8000-000000000000", Query: "winter"},
		{TemplateID: "01970003-0000-7000-8000-000000000000"}, {BroadcastID: "01970004-0000-7000-8000-000000000000"},
		{CreatedAfter: one.at}, {CreatedBefore: one.at}, {CreatedBefore: one.at, Query: "order"},
		{CreatedAfter: one.at, CreatedBefore: all[len(all)/2].at, Subject: "of"}}
}

// checkSearches compares the results of searches with those of an independent implementation.
func (f *fixture) checkSearches(t *testing.T, when string, all []searchable) {
	t.Helper()
	for i, x := range searchFilters(all) {
		if strings.HasPrefix(when, "again") && i%5 != 0 {
			continue
		}
		var want []string
		for _, e := range slices.Backward(all) {
			if e.matches(x) {
				want = append(want, e.id)
			}
		}
		for _, up := range []bool{false, true} {
			for _, limit := range []int{7, 100} {
				if limit == 7 && (len(want) > 40 || up) {
					continue
				}
				if diff := gocmp.Diff(want, f.searchAll(x, limit, up)); diff != "" {
					t.Fatalf("%s, by %d, up %v: %+v, want %d: %.800s", when, limit, up, x, len(want), diff)
				}
			}
		}
	}
}

// Searches find the same emails on both engines, whether they are in the index or not. They find what an independent
// implementation finds.
func TestSearch(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		ctx, today := t.Context(), time.Now().UTC().Truncate(24*time.Hour)
		all := searchables(1, 700, today.AddDate(0, 0, -40), today.AddDate(0, 0, -3))
		f.insertSearchable(f.Acme.TeamID, all)
		f.insertSearchable(f.Other.TeamID, searchables(2, 100, today.AddDate(0, 0, -40), today))
		f.checkSearches(t, "without an index", all)
		if err := f.Emails.Index.Update(ctx); err != nil {
			t.Fatal(err)
		}
		segments := func() int {
			return f.Count(`SELECT COUNT(*) FROM email_terms WHERE from_id IS NOT NULL AND team_id = $1`, db.ID(f.Acme.TeamID))
		}
		if n := segments(); n != 37 {
			t.Errorf("%d segments, want one for each day", n)
		}
		f.checkSearches(t, "with an index", all)
		// Later emails of one day are appended in pieces, which are merged.
		later := searchables(3, 500, today.AddDate(0, 0, -2), today.AddDate(0, 0, -1))
		for some := range slices.Chunk(later, 50) {
			f.insertSearchable(f.Acme.TeamID, some)
			all = append(all, some...)
			if err := f.Emails.Index.Update(ctx); err != nil {
				t.Fatal(err)
			}
		}
		tail := searchables(4, 150, today, time.Now())
		f.insertSearchable(f.Acme.TeamID, tail)
		all = append(all, tail...)
		if n := segments(); n != 38 {
			t.Errorf("%d segments, want one for each day", n)
		}
		f.checkSearches(t, "with an index and new emails", all)
		f.change(`UPDATE email_terms SET state = 2 WHERE from_id IS NOT NULL AND emails > 15 AND team_id = $1`,
			db.ID(f.Acme.TeamID))
		f.checkSearches(t, "with broken segments", all)
		if err := f.Emails.Index.Update(ctx); err != nil {
			t.Fatal(err)
		}
		if n := f.Count(`SELECT COUNT(*) FROM email_terms WHERE state > 1`); n > 0 {
			t.Errorf("%d segments are broken", n)
		}
		f.checkSearches(t, "again with repaired segments", all)
		f.change(`DELETE FROM email_terms WHERE emails > 18 AND team_id = $1`, db.ID(f.Acme.TeamID))
		f.checkSearches(t, "again without some segments", all)
		if err := f.Emails.Index.Rebuild(ctx, f.Acme.TeamID); err != nil {
			t.Fatal(err)
		}
		f.checkSearches(t, "again with a new index", all)
	})
}

// Invalid values of a filter are refused, and the fault names the parameter.
func TestSearchRefuses(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		now := time.Now()
		for name, x := range map[string]emails.Filter{"q": {Query: "--"}, "to": {To: "a b"}, "from": {From: "@"},
			"subject": {Subject: "!"}, "status": {Status: []string{"sent", "lost"}}, "tag": {TagValue: "x"},
			"domain_id": {DomainID: "x"}, "api_key_id": {KeyID: "x"}, "template_id": {TemplateID: "x"},
			"broadcast_id": {BroadcastID: "x"}, "created_after": {CreatedAfter: now, CreatedBefore: now}} {
			_, err := f.Emails.Search(t.Context(), f.Acme, x, page.Page{Limit: 1})
			if e, ok := err.(*fault.Error); !ok || e.Kind != fault.Invalid || e.Field != name {
				t.Errorf("%+v: %v", x, err)
			}
		}
	})
}

// index brings the search index up to date.
func (f *fixture) index() {
	f.T.Helper()
	if err := f.Emails.Index.Update(f.T.Context()); err != nil {
		f.T.Fatal(err)
	}
}

// named returns the number of rows of the search index that contain a text.
func (f *fixture) named(text string) (n int) {
	f.T.Helper()
	rows, err := f.DB.Query(f.T.Context(), `SELECT data FROM email_terms WHERE team_id = $1`, db.ID(f.Acme.TeamID))
	all, err := db.Collect(rows, err, func(r db.Row) (b []byte, err error) { return b, r.Scan(&b) })
	if err != nil {
		f.T.Fatal(err)
	}
	for _, data := range all {
		if strings.Contains(string(data), text) {
			n++
		}
	}
	return n
}

// The search index follows erasures, retention, emails that were committed late, and interrupted jobs.
func TestSearchIndexFollowsEmails(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		ctx, today := t.Context(), time.Now().UTC().Truncate(24*time.Hour)
		all := searchables(5, 200, today.AddDate(0, 0, -6), today.AddDate(0, 0, -4))
		all[50].to, all[50].recipients = "zebra.only@erased.example", ""
		all[150].to, all[150].recipients = "", `{"to":["zebra.both@erased.example","kept@two.example"]}`
		all[150].subject = "For zebra.both@erased.example"
		f.insertSearchable(f.Acme.TeamID, all)
		f.Update(func(tx *db.Tx) error {
			_, err := tx.InsertRows(ctx, `email_recipients (updated_at, email_id, team_id, position, rank, kind, state, address,
				domain)`, "", int64(1), db.ID(all[150].id), db.ID(f.Acme.TeamID), []int64{0, 1}, int64(40), int64(1), int64(5),
				[]string{"zebra.both@erased.example", "kept@two.example"}, []string{"erased.example", "two.example"})
			return err
		})
		f.index()
		if f.named("zebra") == 0 {
			t.Fatal("the index does not have the addresses")
		}
		if err := f.Metrics.RollUp(ctx); err != nil {
			t.Fatal(err)
		}
		for _, address := range []string{"zebra.only@erased.example", "zebra.both@erased.example"} {
			a, err := erasure.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			if found, err := f.Emails.EraseAddress(ctx, a, erasure.Scope{Teams: []string{f.Acme.TeamID}}); err != nil {
				t.Fatalf("%v, %v", found, err)
			}
			if ids := f.searchAll(emails.Filter{To: address}, 10, false); len(ids) > 0 {
				t.Errorf("%s is found in %q", address, ids)
			}
		}
		if ids := f.searchAll(emails.Filter{To: "kept@two.example"}, 10, false); !slices.Equal(ids, []string{all[150].id}) {
			t.Errorf("the other recipient is found in %q", ids)
		}
		f.index()
		if n := f.named("zebra"); n > 0 {
			t.Errorf("%d rows of the index have an erased address", n)
		}
		all = slices.Delete(slices.Delete(all, 150, 151), 50, 51)

		// An email was committed after the segment was appended. Until the segment is checked, it is missing.
		late := searchables(6, 1, all[20].at.Add(time.Millisecond), all[20].at.Add(2*time.Millisecond))
		f.insertSearchable(f.Acme.TeamID, late)
		f.change(`UPDATE email_terms SET state = 0 WHERE from_id IS NOT NULL`)
		f.index()
		if ids := f.searchAll(emails.Filter{To: late[0].addresses()[0]}, 10, false); !slices.Contains(ids, late[0].id) {
			t.Errorf("the late email is not found in %q", ids)
		}

		// Jobs were interrupted while they wrote a segment, and while they deleted one.
		f.change(`INSERT INTO email_terms (team_id, last_id, gen, term, from_id, emails, state, data)
			SELECT team_id, last_id, gen + 5, term, from_id, emails, 3, data FROM email_terms WHERE from_id IS NOT NULL`)
		f.change(`INSERT INTO email_terms (team_id, last_id, gen, term, from_id, emails, state, data)
			SELECT team_id, last_id, gen + 6, term, from_id, emails, 4, data FROM email_terms WHERE from_id IS NOT NULL AND state < 2`)
		f.index()
		if n := f.Count(`SELECT COUNT(*) FROM email_terms WHERE state <> 1 OR gen > 5`); n > 0 {
			t.Errorf("%d rows of interrupted jobs are left", n)
		}

		before := f.Count(`SELECT COUNT(*) FROM email_terms WHERE from_id IS NOT NULL`)
		for after := ""; ; {
			var err error
			after, err = f.Emails.RemoveBefore(ctx, f.Acme.TeamID, today.AddDate(0, 0, -5), after)
			if err != nil {
				t.Fatal(err)
			}
			if after == "" {
				break
			}
		}
		if n := f.Count(`SELECT COUNT(*) FROM email_terms WHERE from_id IS NOT NULL`); before != 2 || n != 1 {
			t.Errorf("%d segments of %d are left", n, before)
		}
		if err := f.Emails.EraseTeam(ctx, f.Acme.TeamID); err != nil {
			t.Fatal(err)
		}
		if n := f.Count(`SELECT COUNT(*) FROM email_terms`); n > 0 {
			t.Errorf("%d rows of a deleted team are left", n)
		}
	})
}

// Nodes that make the index at the same time make it once. A node that accepts many emails appends them by itself.
func TestSearchIndexOfManyNodes(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *fixture) {
		today := time.Now().UTC().Truncate(24 * time.Hour)
		all := searchables(8, 300, today.AddDate(0, 0, -9), today.AddDate(0, 0, -4))
		f.insertSearchable(f.Acme.TeamID, all)
		g := errgroup.Group{}
		for range 4 {
			g.Go(func() error { return f.Emails.Index.Update(t.Context()) })
		}
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		f.index()
		if n := f.Count(`SELECT COUNT(*) FROM email_terms WHERE from_id IS NOT NULL`); n != 5 {
			t.Errorf("%d segments, want one for each day", n)
		}
		f.checkSearches(t, "again by several nodes", all)
		if f.DB.Alone() {
			ctx, stop := context.WithCancel(t.Context())
			g.Go(func() error { return f.Emails.Index.Run(ctx) })
			many := make([]emails.Send, emails.MaxBatch)
			for i := range many {
				many[i] = hello(fmt.Sprintf("u%d@one.example", i))
			}
			for range 6 {
				if _, err := f.Emails.SendBatch(t.Context(), f.Acme, many, false, emails.Idempotency{}); err != nil {
					t.Fatal(err)
				}
			}
			testnode.Until(t, "the new emails are in the index", func() bool {
				return f.Count(`SELECT COALESCE(SUM(emails), 0) FROM email_terms`) >= len(all)+tailEmails
			})
			stop()
			g.Wait()
		}
	})
}

// tailEmails is the number of emails after which a node appends them to the index.
const tailEmails = 512
