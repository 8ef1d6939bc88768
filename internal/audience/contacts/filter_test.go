package contacts

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// words are strings that SQL and Go might compare differently, for example because of LIKE patterns, collations or
// numerals.
var words = []string{"", "pro", "Pro", "PRO", "free", "50%", "50_", `5\%`, "é", "É", "e\u0301", "E", "z", "Z", "a b",
	" ", "a\tb", "10", "9", "9.0", "-1.5", "-", ".5", "1e3", "007", "٣", "1234567890123456", "12345678901234567", "$1",
	"?", "'; DROP TABLE contacts; --", "Straße", "STRASSE", "ﬁ", "😀x", "x😀", "İ", "null", "true", "\u202e\u200b",
	strings.Repeat("x", 2000)}

// TestFiltersMeanTheSameInSQLAndInMemory compares the results of the SQL queries with those of Match, for random
// contacts and rules.
func TestFiltersMeanTheSameInSQLAndInMemory(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFiltered(t, d)
		crowd := []*person{}
		draw := rapid.Custom(f.drawPerson)
		for seed := range 60 {
			p := draw.Example(seed)
			f.write(p)
			crowd = append(crowd, p)
		}
		last := id.New()
		chosen, all := 0, 0
		rapid.Check(t, func(t *rapid.T) {
			one := draw.Draw(t, "contact")
			one.ID = last
			f.write(one)
			rule := f.rule(t, f.drawRule(t, 4))
			schema, err := f.s.FilterSchema(f.t.Context(), d.Reader, f.team, rule)
			if err == nil {
				err = rule.Check(schema)
			}
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, p := range append(crowd, one) {
				ok, err := rule.Match(schema, f.now, func(name string) filter.Value { return f.value(p, name) })
				if err != nil {
					t.Fatal(err)
				}
				if ok {
					want = append(want, p.ID)
				}
			}
			slices.Sort(want)
			if got := f.found(t, rule); !slices.Equal(got, want) {
				text, _ := json.Marshal(rule)
				t.Fatalf("%s\nSQL finds %q\nMatch finds %q", text, got, want)
			}
			values, err := f.s.FilterValues(f.t.Context(), d.Reader, &one.Contact, schema, rule)
			if err != nil {
				t.Fatal(err)
			}
			if ok, err := rule.Match(schema, f.now, values); err != nil || ok != slices.Contains(want, last) {
				t.Fatalf("Match of what FilterValues reads: %t, %v", ok, err)
			}
			chosen, all = chosen+len(want), all+len(crowd)+1
		})
		// If all rules selected either no contacts or all contacts, the comparison would prove nothing.
		if chosen*10 < all || chosen*10 > 9*all {
			t.Errorf("the rules find %d of %d", chosen, all)
		}
	})
}

// TestFiltersCompareAddressesByTheirKeys checks that SQL and Match both compare the normalized key of an address.
// Unicode lowercasing maps the capital İ and the Kelvin sign to i and k. Addresses with these characters belong to
// other people than addresses with i and k.
func TestFiltersCompareAddressesByTheirKeys(t *testing.T) {
	const letters = "iIİkK\u212aéÉ"
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFiltered(t, d)
		all := map[string]*person{}
		for _, a := range letters {
			for _, b := range letters {
				key := message.Address{Local: string([]rune{a, b}), Domain: "example.com"}.Key()
				if all[key] == nil {
					all[key] = &person{Contact: Contact{ID: id.New(), TeamID: f.team, Address: key, CreatedAt: f.now},
						subscriptions: []string{"", ""}}
					f.write(all[key])
				}
			}
		}
		rapid.Check(t, func(t *rapid.T) {
			local := rapid.StringOfN(rapid.RuneFrom([]rune(letters)), 2, 2, -1).Draw(t, "local")
			key := message.Address{Local: local, Domain: "example.com"}.Key()
			operator := rapid.SampledFrom([]string{"eq", "in", "starts_with", "ends_with", "contains"}).Draw(t, "operator")
			var value any = local + "@Example.com"
			if operator == "in" {
				value = []any{value}
			}
			rule := f.rule(t, tree{"type": "rule", "field": "contact.email", "operator": operator, "value": value})
			if got := f.found(t, rule); !slices.Equal(got, []string{all[key].ID}) {
				t.Fatalf("%s %q finds %d contacts, want that of %q alone", operator, value, len(got), key)
			}
			schema, err := f.s.FilterSchema(f.t.Context(), d.Reader, f.team, rule)
			if err != nil {
				t.Fatal(err)
			}
			for address, p := range all {
				ok, err := rule.Match(schema, f.now, func(name string) filter.Value { return f.value(p, name) })
				if err != nil || ok != (address == key) {
					t.Fatalf("%s %q matches %q: %t, %v", operator, value, address, ok, err)
				}
			}
		})
	})
}

// incompressible returns a fixed string of n 4-byte characters that PostgreSQL cannot compress.
func incompressible(n int) string {
	text := make([]rune, n)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range text {
		text[i] = 0x20000 + random.Int32N(0xa000)
	}
	return string(text)
}

// TestFiltersOfLongTexts compares strings that differ only after the part that PostgreSQL's index contains.
func TestFiltersOfLongTexts(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFiltered(t, d)
		long := incompressible(scalar.MaxText)
		head := string([]rune(long)[:filter.HeadSize])
		var people []*person
		values := []string{long, head, head + "a", head + "b", string([]rune(head)[1:]), string([]rune(head)[:499]), "short"}
		for i, value := range values {
			p := &person{Contact: Contact{ID: id.New(), TeamID: f.team, Address: fmt.Sprintf("%d@example.com", i),
				CreatedAt: f.now}, texts: map[string]string{"plan": value}, subscriptions: []string{"", ""}}
			f.write(p)
			people = append(people, p)
		}
		operators := map[string]func(value, of string) bool{
			"eq": func(v, of string) bool { return v == of }, "neq": func(v, of string) bool { return v != of },
			"in":          func(v, of string) bool { return v == of || v == "short" },
			"not_in":      func(v, of string) bool { return v != of && v != "short" },
			"starts_with": strings.HasPrefix, "ends_with": strings.HasSuffix, "contains": strings.Contains,
			"exists": func(v, _ string) bool { return true },
		}
		for operator, holds := range operators {
			for _, of := range values {
				leaf := tree{"type": "rule", "field": "properties.plan", "operator": operator, "value": of}
				switch operator {
				case "in", "not_in":
					leaf["value"] = []string{of, "short"}
				case "exists":
					delete(leaf, "value")
				}
				var want []string
				for _, p := range people {
					if holds(p.texts["plan"], of) {
						want = append(want, p.ID)
					}
				}
				slices.Sort(want)
				rule := f.rule(t, leaf)
				if got := f.found(t, rule); !slices.Equal(got, want) {
					t.Errorf("%s a text of %d characters finds %d contacts, want %d", operator, len([]rune(of)), len(got),
						len(want))
				}
			}
		}
	})
}

func TestFiltersNameWhatTheTeamHas(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f, other := newFiltered(t, d), newFiltered(t, d)
		f.exec(`UPDATE contact_properties SET deleted_at = 1 WHERE id = $1`, db.ID(f.property["note"]))
		f.exec(`UPDATE topics SET deleted_at = 1 WHERE id = $1`, db.ID(f.topics[1]))
		f.exec(`UPDATE segments SET deleted_at = 1 WHERE id = $1`, db.ID(f.segments[1]))
		f.exec(`UPDATE contact_properties SET name = 'theirs' WHERE id = $1`, db.ID(other.property["plan"]))
		for _, c := range []struct {
			field, operator string
			value           any
			place, says     string
		}{
			{"contact.properties.note", "eq", "x", "field", "no such contact property"},
			{"contact.properties.theirs", "eq", "x", "field", "no such contact property"},
			{"contact.properties.PLAN", "eq", "x", "field", "no such contact property"},
			{"contact.properties.", "eq", "x", "field", "no such contact property"},
			{"plan", "eq", "x", "field", "contact.properties.plan"},
			{"contact.phone", "eq", "x", "field", "contact.created_at"},
			{"event.x", "eq", "x", "field", "contact.created_at"},
			{"contact.topics", "eq", "x", "field", "TOPIC_ID"},
			{"contact.topics." + f.topics[1], "eq", "opt_in", "field", "no topic"},
			{"contact.topics." + other.topics[0], "eq", "opt_in", "field", "no topic"},
			{"contact.topics." + f.topics[0], "eq", "in", "value", "`opt_out`"},
			{"contact.segments", "eq", f.segments[1], "value", "segment of this team"},
			{"contact.segments", "in", []string{f.segments[0], other.segments[0]}, "value", "segment of this team"},
			{"contact.segments", "in", []string{f.segments[2]}, "value", "has a filter itself"},
			{"contact.segments", "eq", "' OR 1=1 --", "value", "segment of this team"},
		} {
			rule := f.rule(t, tree{"type": "and", "rules": []tree{{"type": "rule", "field": c.field, "operator": c.operator,
				"value": c.value}}})
			schema, err := f.s.FilterSchema(t.Context(), d.Reader, f.team, rule)
			if err != nil {
				t.Fatal(err)
			}
			err = rule.Check(schema)
			place := "`filter.rules[0]." + c.place
			if fault.KindOf(err) != fault.Invalid || !strings.Contains(err.Error(), c.says) ||
				!strings.Contains(err.Error(), place) {
				t.Errorf("%s %s %v: %v; want %q about %s", c.field, c.operator, c.value, err, c.says, place)
			}
		}
	})
}

// TestTheLargestFilters evaluates filters with the maximum numbers of comparisons, levels and values.
func TestTheLargestFilters(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFiltered(t, d)
		p := &person{Contact: Contact{ID: id.New(), TeamID: f.team, Address: "a@example.com", CreatedAt: f.now},
			texts: map[string]string{"plan": "12"}, numbers: map[string]float64{"age": 499}}
		f.write(p)
		numbers := make([]int, filter.MaxList)
		for i := range numbers {
			numbers[i] = i
		}
		gt := tree{"type": "rule", "field": "properties.plan", "operator": "gt", "value": 11.5}
		in := tree{"type": "rule", "field": "properties.age", "operator": "in", "value": numbers}
		topic := tree{"type": "rule", "field": "contact.topics." + f.topics[0], "operator": "eq", "value": "opt_in"}
		for _, leaf := range []tree{gt, topic} {
			for _, kind := range []string{"and", "or"} {
				rules := []tree{in}
				for len(rules) < filter.MaxLeaves {
					rules = append(rules, leaf)
				}
				rule := tree{"type": kind, "rules": rules}
				for range filter.MaxDepth - 2 {
					rule = tree{"type": "not", "rule": rule}
				}
				if ids := f.found(t, f.rule(t, rule)); !slices.Equal(ids, []string{p.ID}) {
					t.Errorf("100 in %s find %q", kind, ids)
				}
			}
		}
		var groups []tree
		for i := range filter.MaxLeaves / 9 {
			rule := tree{"type": "and", "rules": []tree{in, gt}}
			for depth := range filter.MaxDepth - 3 {
				kind := []string{"or", "and"}[(depth+i)%2]
				rule = tree{"type": kind, "rules": []tree{gt, rule}}
			}
			groups = append(groups, rule)
		}
		if ids := f.found(t, f.rule(t, tree{"type": "and", "rules": groups})); !slices.Equal(ids, []string{p.ID}) {
			t.Errorf("nested groups find %q", ids)
		}
	})
}

// TestFiltersGoByIndexes checks, using query plans, that walks look up values by contact id and that counts use the
// indexes on values.
func TestFiltersGoByIndexes(t *testing.T) {
	whole := regexp.MustCompile(`Seq Scan|SCAN [^jC]|Sort |FOR ORDER BY`) // allows json_each and CONSTANT ROW in plans
	byContact := regexp.MustCompile(`contact_id=\?|\(contact_id = c\.id\)`)
	byValue := regexp.MustCompile(`AND (value|\w+_at)[<>=]|AND \((value|head|\w+_at) [<>=]`)
	dbtest.EachTraced(t, func(t *testing.T, d *db.DB, trace *dbtest.Trace) {
		f := newFiltered(t, d)
		// SQLite stores memberships in their primary key, which has no name there.
		memberships := map[string]string{"sqlite": "SEARCH v USING PRIMARY KEY (segment_id=?",
			"postgres": "contact_segments_"}[d.Engine()]
		plan := func() string {
			asked := trace.Take()
			return trace.Plan(t, asked[len(asked)-1])
		}
		for _, c := range []struct {
			field, operator string
			value           any
			index           string // the index that the count uses
			byValue         bool   // whether the index condition includes the value
		}{
			{"properties.plan", "eq", "pro", "contact_texts_value", true},
			{"properties.plan", "neq", "pro", "contact_texts_value", true},
			{"properties.plan", "in", []string{"pro", "free"}, "contact_texts_value", true},
			{"properties.plan", "in", []string{"pro", incompressible(2000)}, "contact_texts_value", true},
			{"properties.plan", "contains", "pro", "contact_texts_value", false},
			{"properties.plan", "gt", 5, "contact_texts_value", false},
			{"properties.age", "lt", 18, "contact_numbers_value", true},
			{"properties.age", "exists", nil, "contact_numbers_value", false},
			{"contact.topics." + f.topics[0], "eq", "opt_in", "contact_topics_choice", false},
			{"contact.segments", "eq", f.segments[0], memberships, false},
			{"contact.engagement.opened_at", "within_last", "30 days", "contact_engagement_opened", true},
			{"contact.engagement.clicked_at", "before", "2026-01-01", "contact_engagement_clicked", true},
			{"contact.engagement.mailed_at", "before", "2026-01-01", "", false}, // primary key, unnamed on SQLite
			{"contact.unsubscribed", "eq", false, "contacts_unsubscribed", false},
			{"contact.email", "ends_with", "@example.com", "contacts_", false},
		} {
			leaf := tree{"type": "rule", "field": c.field, "operator": c.operator}
			if c.value != nil {
				leaf["value"] = c.value
			}
			rule := f.rule(t, leaf)
			schema, err := f.s.FilterSchema(t.Context(), d.Reader, f.team, rule)
			if err != nil {
				t.Fatal(err)
			}
			text, args, err := rule.Where(schema, f.now, []any{db.ID(f.team), db.NoID})
			if err != nil {
				t.Fatal(err)
			}
			rows, err := d.Query(t.Context(), `SELECT c.id FROM contacts c WHERE c.team_id = $1 AND c.id > $2 AND `+text+
				` ORDER BY c.id LIMIT 10`, args...)
			if _, err := db.Collect(rows, err, scanID); err != nil {
				t.Fatal(err)
			}
			walk := plan()
			lookup := byContact.MatchString(walk) || strings.HasPrefix(c.index, "contacts_")
			if !strings.Contains(walk, "contacts_team") || !lookup || byValue.MatchString(walk) || whole.MatchString(walk) {
				t.Errorf("a walk by %s %s is\n%s", c.field, c.operator, walk)
			}
			if _, err := countMatches(t.Context(), d.Reader, f.team, rule, schema, f.now); err != nil {
				t.Fatal(err)
			}
			count := plan()
			if !strings.Contains(count, c.index) || byValue.MatchString(count) != c.byValue || whole.MatchString(count) {
				t.Errorf("a count by %s %s is\n%s", c.field, c.operator, count)
			}
			if c.operator != "eq" || c.index != "contact_texts_value" {
				continue
			}
			of := source{teamID: f.team, rule: rule, schema: schema, now: f.now}
			if _, ok, err := matchIDs(t.Context(), d.Reader, &of, span{beyond: id.New()}, 10); err != nil || !ok {
				t.Fatal(ok, err)
			}
			page := plan()
			if !strings.Contains(page, c.index) || !byValue.MatchString(page) || whole.MatchString(page) {
				t.Errorf("a page by %s %s is\n%s", c.field, c.operator, page)
			}
		}
	})
}

// TestConditionsOverEventsAndContacts evaluates a rule as an automation does, with a schema that also has event fields.
func TestConditionsOverEventsAndContacts(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		f := newFiltered(t, d)
		p := &person{Contact: Contact{ID: id.New(), TeamID: f.team, Address: "a@example.com", CreatedAt: f.now},
			texts: map[string]string{"plan": "pro"}}
		f.write(p)
		rule := f.rule(t, tree{"type": "and", "rules": []tree{
			{"type": "rule", "field": "event.plan", "operator": "eq", "value": tree{"var": "properties.plan"}},
			{"type": "rule", "field": "contact.engagement.opened", "operator": "lt", "value": 1},
			{"type": "rule", "field": "contact.topics." + f.topics[1], "operator": "eq", "value": "opt_out"},
		}})
		schema, err := f.s.FilterSchema(t.Context(), d.Reader, f.team, rule)
		if err != nil {
			t.Fatal(err)
		}
		schema.Open, schema.References = []string{"event."}, true
		values, err := f.s.FilterValues(t.Context(), d.Reader, &p.Contact, schema, rule)
		if err != nil {
			t.Fatal(err)
		}
		for plan, want := range map[string]bool{"pro": true, "free": false} {
			got, err := rule.Match(schema, f.now, func(name string) filter.Value {
				if name == "event.plan" {
					return filter.TextValue(plan)
				}
				return values(name)
			})
			if err != nil || got != want {
				t.Errorf("an event with the plan %s: %t, %v; want %t", plan, got, err, want)
			}
		}
		if _, _, err := rule.Where(schema, f.now, nil); fault.KindOf(err) != fault.Invalid {
			t.Errorf("SQL of a rule over events: %v", err)
		}
	})
}
