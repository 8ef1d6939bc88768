package contacts

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"pgregory.net/rapid"

	"github.com/postrider/postrider/internal/audience/filter"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
)

// filtered is a team with two string properties (plan and note), two number properties (age and score), and two topics
// (opt-in and opt-out by default). The team has three segments, the last one with a filter.
type filtered struct {
	t        testing.TB
	s        *Service
	team     string
	property map[string]string // ids by name
	topics   []string
	segments []string
	now      time.Time
}

func newFiltered(t testing.TB, d *db.DB) *filtered {
	t.Helper()
	now := time.Date(2026, 3, 31, 12, 0, 0, 0, time.UTC)
	f := &filtered{t: t, s: newService(Deps{DB: d}), team: id.New(), property: map[string]string{}, now: now}
	for _, p := range [][2]string{{"plan", "string"}, {"note", "string"}, {"age", "number"}, {"score", "number"}} {
		f.property[p[0]] = id.New()
		f.exec(`INSERT INTO contact_properties (id, team_id, name, type, fallback, has_fallback, created_at, deleted_at)
			VALUES ($1, $2, $3, $4, 'pro', TRUE, 0, 0)`, db.ID(f.property[p[0]]), db.ID(f.team), p[0], p[1])
	}
	for _, byDefault := range []string{"opt_in", "opt_out"} {
		f.topics = append(f.topics, id.New())
		f.exec(`INSERT INTO topics (id, team_id, name, description, default_subscription, visibility, created_at,
			deleted_at)
			VALUES ($1, $2, $3, '', $3, 'public', 0, 0)`, db.ID(f.topics[len(f.topics)-1]), db.ID(f.team), byDefault)
	}
	for _, text := range []string{"", "", `{"type": "rule", "field": "contact.email", "operator": "exists"}`} {
		f.segments = append(f.segments, id.New())
		f.exec(`INSERT INTO segments (id, team_id, name, filter, created_at, deleted_at) VALUES ($1, $2, 's', $3, 0, 0)`,
			db.ID(f.segments[len(f.segments)-1]), db.ID(f.team), text)
	}
	return f
}

func (f *filtered) exec(text string, args ...any) {
	f.t.Helper()
	if err := f.s.DB.Update(f.t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(f.t.Context(), text, args...)
		return err
	}); err != nil {
		f.t.Fatal(err)
	}
}

// person is a contact with all data that filters can read.
type person struct {
	Contact
	texts         map[string]string  // by property name
	numbers       map[string]float64 // by property name
	subscriptions []string           // by the index of the topic; "" for no choice
	segments      []bool             // by segment index
	engaged       bool               // whether the contact has an engagement row
	counts        [3]int             // mailed, opened, clicked
	times         [3]time.Time       // times of the last events, in the same order; zero if there was none
}

// write replaces the database rows of a person.
func (f *filtered) write(p *person) {
	f.t.Helper()
	ctx := f.t.Context()
	if err := f.s.DB.Update(ctx, func(tx *db.Tx) error {
		for _, table := range []string{"contact_texts", "contact_numbers", "contact_topics", "contact_segments",
			"contact_engagement"} {
			tx.Queue(ctx, `DELETE FROM `+table+` WHERE contact_id = $1`, db.ID(p.ID))
		}
		tx.Queue(ctx, `DELETE FROM contacts WHERE id = $1`, db.ID(p.ID))
		if _, err := insertContact(ctx, tx, &p.Contact); err != nil {
			return err
		}
		for name, text := range p.texts {
			tx.Queue(ctx, `INSERT INTO contact_texts (team_id, contact_id, property_id, value) VALUES ($1, $2, $3, $4)`,
				db.ID(f.team), db.ID(p.ID), db.ID(f.property[name]), text)
		}
		for name, n := range p.numbers {
			tx.Queue(ctx, `INSERT INTO contact_numbers (team_id, contact_id, property_id, value) VALUES ($1, $2, $3, $4)`,
				db.ID(f.team), db.ID(p.ID), db.ID(f.property[name]), n)
		}
		for i, subscription := range p.subscriptions {
			if subscription != "" {
				setSubscription(ctx, tx, &p.Contact, Choice{f.topics[i], Subscription(subscription)}, "")
			}
		}
		for i, in := range p.segments {
			if in {
				tx.Queue(ctx, `INSERT INTO contact_segments (team_id, segment_id, contact_id, created_at)
					VALUES ($1, $2, $3, 0)`, db.ID(f.team), db.ID(f.segments[i]), db.ID(p.ID))
			}
		}
		if p.engaged {
			at := func(i int) any { return db.MicrosOrNull(p.times[i]) }
			tx.Queue(ctx, `INSERT INTO contact_engagement (contact_id, team_id, mailed, opened, clicked, mailed_at,
				opened_at,
				clicked_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`, db.ID(p.ID), db.ID(f.team), p.counts[0], p.counts[1],
				p.counts[2], at(0), at(1), at(2))
		}
		return nil
	}); err != nil {
		f.t.Fatal(err)
	}
}

// value returns the value that a field has for a person, according to docs/filters.md.
func (f *filtered) value(p *person, name string) filter.Value {
	for i, topic := range f.topics {
		if strings.EqualFold(name, "contact.topics."+topic) {
			return filter.TextValue(p.subscriptions[i])
		}
	}
	for i, what := range []string{"mailed", "opened", "clicked"} {
		if name == "contact.engagement."+what && p.engaged {
			return filter.NumberValue(float64(p.counts[i]))
		}
		if name == "contact.engagement."+what+"_at" && p.engaged {
			return filter.TimeValue(p.times[i])
		}
	}
	switch name {
	case "contact.email":
		return filter.TextValue(p.Address)
	case "contact.first_name":
		return filter.TextValue(p.FirstName)
	case "contact.last_name":
		return filter.TextValue(p.LastName)
	case "contact.unsubscribed":
		return filter.BoolValue(p.Unsubscribed)
	case "contact.created_at":
		return filter.TimeValue(p.CreatedAt)
	case "contact.segments":
		var ids []string
		for i, in := range p.segments {
			if in {
				ids = append(ids, f.segments[i])
			}
		}
		return filter.ListValue(ids)
	}
	key := strings.TrimPrefix(name, "contact.properties.")
	if n, ok := p.numbers[key]; ok {
		return filter.NumberValue(n)
	}
	return filter.TextValue(p.texts[key])
}

// found returns the sorted ids of the contacts that a rule, evaluated in SQL, selects.
func (f *filtered) found(t rapid.TB, rule *filter.Rule) []string {
	t.Helper()
	schema, err := f.s.FilterSchema(f.t.Context(), f.s.DB.Reader, f.team, rule)
	if err != nil {
		t.Fatal(err)
	}
	text, args, err := rule.Where(schema, f.now, []any{db.ID(f.team)})
	if err != nil {
		t.Fatal(err)
	}
	rows, err := f.s.DB.Query(f.t.Context(),
		`SELECT c.id FROM contacts c WHERE c.team_id = $1 AND `+text+` ORDER BY c.id`,
		args...)
	ids, err := db.Collect(rows, err, scanID)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	n, err := countMatches(f.t.Context(), f.s.DB.Reader, f.team, rule, schema, f.now)
	if err != nil || n != len(ids) {
		t.Fatalf("counted %d, %v; Where finds %d", n, err, len(ids))
	}
	// If the sets are large, Count combines them with a different query.
	large := func(string, []any) (int, error) { return math.MaxInt, nil }
	text, args, err = rule.Count(schema, f.now, "contacts c WHERE c.team_id =", f.team, large)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.s.DB.QueryRow(f.t.Context(), text, args...).Scan(&n); err != nil || n != len(ids) {
		t.Fatalf("%s\ncounts %d, %v; Where finds %d", text, n, err, len(ids))
	}
	f.sets(t, rule, schema, ids)
	return ids
}

// sets compares the ids that Find selects with the ids that Where selects, without bounds and within several bounds.
func (f *filtered) sets(t rapid.TB, rule *filter.Rule, schema filter.Schema, ids []string) {
	t.Helper()
	large := func(string, []any) (int, error) { return math.MaxInt, nil }
	bounds := []filter.Bounds{{}}
	if n := len(ids); n > 0 {
		bounds = append(bounds, filter.Bounds{After: ids[n/2]}, filter.Bounds{Before: ids[n/2]},
			filter.Bounds{After: ids[0], Before: ids[n-1]})
	}
	for i, within := range bounds {
		ask := measure(f.t.Context(), f.s.DB.Reader)
		if i%2 == 1 {
			ask = large
		}
		q, ok, err := rule.Find(schema, f.now, "contacts c WHERE c.team_id =", f.team, within, ask)
		if err != nil {
			t.Fatal(err)
		}
		if !ok {
			continue
		}
		rows, err := f.s.DB.Query(f.t.Context(), `SELECT x.contact_id FROM (`+q.Text+`) x ORDER BY x.contact_id`, q.Args...)
		found, err := db.Collect(rows, err, scanID)
		want := slices.DeleteFunc(slices.Clone(ids), func(id string) bool {
			return id <= within.After || within.Before != "" && id >= within.Before
		})
		if err != nil || !slices.Equal(found, want) {
			t.Fatalf("%s\nfinds %d within %+v, %v; Where finds %d", q.Text, len(found), within, err, len(want))
		}
	}
}

func (f *filtered) rule(t rapid.TB, rule any) *filter.Rule {
	t.Helper()
	text, err := json.Marshal(rule, json.Deterministic(true))
	if err != nil {
		t.Fatal(err)
	}
	r, err := filter.Parse(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return r
}

func drawWord(t *rapid.T) string {
	word := []rune(rapid.SampledFrom(words).Draw(t, "word"))
	from := rapid.IntRange(0, len(word)).Draw(t, "from")
	to := rapid.IntRange(from, len(word)).Draw(t, "to")
	if rapid.Bool().Draw(t, "whole") {
		return string(word)
	}
	return string(word[from:to])
}

func drawNumber(t *rapid.T) float64 {
	return rapid.OneOf(rapid.SampledFrom([]float64{0, 1, -1, 2, 1.5, 18, 0.1, 0.30000000000000004, 1 << 53,
		-(1 << 53), 1e-300,
		math.Copysign(0, -1)}), rapid.Float64Range(-1<<53, 1<<53)).Draw(t, "number")
}

// drawTime generates random times, some near the times that random rules compare against and some far from them.
func (f *filtered) drawTime(t *rapid.T) time.Time {
	near := rapid.SampledFrom([]time.Duration{0, -time.Hour, -30 * 24 * time.Hour, -12 * time.Hour, -84 * time.Hour,
		time.Minute, 12 * time.Hour, -365 * 24 * time.Hour}).Draw(t, "near")
	by := rapid.SampledFrom([]time.Duration{0, time.Microsecond, -time.Microsecond, time.Second}).Draw(t, "by")
	return f.now.Add(near + by)
}

func (f *filtered) drawPerson(t *rapid.T) *person {
	flag := func(name string) bool { return rapid.Bool().Draw(t, name) }
	p := &person{Contact: Contact{ID: id.New(), TeamID: f.team, Unsubscribed: flag("unsubscribed"),
		FirstName: drawWord(t),
		LastName:  drawWord(t), CreatedAt: f.drawTime(t), UpdatedAt: f.now}, texts: map[string]string{},
		numbers: map[string]float64{}, engaged: flag("engaged")}
	p.Address = strings.ToLower(p.ID + "@" + rapid.SampledFrom([]string{"example.com", "example.net"}).Draw(t,
		"domain"))
	for _, name := range []string{"plan", "note"} {
		if flag(name) {
			p.texts[name] = drawWord(t)
		}
	}
	for _, name := range []string{"age", "score"} {
		if flag(name) {
			p.numbers[name] = drawNumber(t)
		}
	}
	for range f.topics {
		p.subscriptions = append(p.subscriptions, rapid.SampledFrom([]string{"", "opt_in", "opt_out"}).Draw(t, "topic"))
	}
	for range 2 {
		p.segments = append(p.segments, flag("segment"))
	}
	for i := range p.counts {
		p.counts[i] = rapid.IntRange(0, 3).Draw(t, "count")
		if flag("ever") {
			p.times[i] = f.drawTime(t)
		}
	}
	return p
}

type tree = map[string]any

// drawRule generates a random rule that has at most the given number of levels.
func (f *filtered) drawRule(t *rapid.T, depth int) tree {
	kind := "rule"
	if depth > 1 {
		kind = rapid.SampledFrom([]string{"rule", "and", "or", "not"}).Draw(t, "type")
	}
	switch kind {
	case "rule":
		return f.drawLeaf(t)
	case "not":
		return tree{"type": kind, "rule": f.drawRule(t, depth-1)}
	}
	var rules []tree
	for range rapid.IntRange(1, 3).Draw(t, "rules") {
		rules = append(rules, f.drawRule(t, depth-1))
	}
	return tree{"type": kind, "rules": rules}
}

func (f *filtered) drawLeaf(t *rapid.T) tree {
	texts := []string{"contact.email", "contact.first_name", "contact.last_name", "contact.properties.plan",
		"properties.note"}
	numbers := []string{"contact.properties.age", "properties.score", "contact.engagement.opened",
		"contact.engagement.mailed"}
	times := []string{"contact.created_at", "contact.engagement.opened_at", "contact.engagement.clicked_at"}
	topics := []string{"contact.topics." + f.topics[0], "contact.topics." + strings.ToUpper(f.topics[1])}
	all := slices.Concat(texts, numbers, times, topics, []string{"contact.unsubscribed", "contact.segments"})
	field := rapid.SampledFrom(all).Draw(t, "field")
	operator := func(names ...string) string { return rapid.SampledFrom(names).Draw(t, "operator") }
	leaf := tree{"type": "rule", "field": field}
	one, drawn := func() any { return drawWord(t) }, ""
	switch {
	case slices.Contains(texts, field):
		drawn = operator("eq", "neq", "in", "not_in", "contains", "starts_with", "ends_with", "gt", "gte", "lt", "lte",
			"exists",
			"is_empty")
		if strings.HasPrefix(drawn, "g") || strings.HasPrefix(drawn, "l") {
			one = func() any { return drawNumber(t) }
		}
	case slices.Contains(numbers, field):
		drawn = operator("eq", "neq", "in", "not_in", "gt", "gte", "lt", "lte", "exists", "is_empty")
		one = func() any { return drawNumber(t) }
	case slices.Contains(times, field):
		drawn = operator("before", "after", "within_last", "not_within_last", "exists", "is_empty")
		one = func() any {
			return rapid.SampledFrom([]string{"2026-03-31", "2026-03-28", "2026-03-31T13:00:00+02:00",
				"2026-03-31T00:00:00Z",
				"2026-03-31T12:00:00.0000019Z", "1969-12-31", "9999-12-31"}).Draw(t, "time")
		}
		if strings.HasSuffix(drawn, "within_last") {
			one = func() any {
				return rapid.SampledFrom([]string{"1 hour", "30 days", "500 weeks", "1s"}).Draw(t, "duration")
			}
		}
	case slices.Contains(topics, field):
		drawn = operator("eq", "neq", "in", "not_in", "exists", "is_empty")
		one = func() any { return rapid.SampledFrom([]string{"opt_in", "opt_out"}).Draw(t, "subscription") }
	case field == "contact.unsubscribed":
		drawn = operator("eq", "neq", "exists", "is_empty")
		one = func() any { return rapid.Bool().Draw(t, "value") }
	default:
		drawn = operator("eq", "neq", "in", "not_in")
		one = func() any {
			return rapid.SampledFrom([]string{f.segments[0], strings.ToUpper(f.segments[1])}).Draw(t, "segment")
		}
	}
	leaf["operator"] = drawn
	if value := f.drawValue(t, drawn, one); drawn != "exists" && drawn != "is_empty" {
		leaf["value"] = value
	}
	return leaf
}

func (f *filtered) drawValue(t *rapid.T, operator string, one func() any) any {
	value := one()
	switch operator {
	case "in", "not_in":
		list := []any{"1"}
		for range rapid.IntRange(0, 2).Draw(t, "more") {
			if more := one(); more != "" {
				list = append(list, more)
			}
		}
		if value != "" {
			list[0] = value
		}
		return list
	case "contains", "starts_with", "ends_with":
		if value == "" {
			return "p"
		}
	}
	return value
}
