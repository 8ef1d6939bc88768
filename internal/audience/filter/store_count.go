package filter

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/platform/db"
)

// If the smallest set of an "and" group has fewer than maxAnchor contacts, each of these contacts is looked up in the
// other sets. Larger sets are intersected. One look-up takes as long as intersecting about 15 more contacts, or longer
// if the rows are not in memory.
const maxAnchor = 20_000

// maxSizes is the maximum number of sets that are measured in a group.
const maxSizes = 8

// Measure runs a query that returns one number.
type Measure func(text string, args []any) (int, error)

// Bounds limit the contacts to those with ids between After and Before, exclusive. An empty string means no bound.
type Bounds struct{ After, Before string }

// Count returns a query, with its arguments, for the number of contacts that match the rule at the given time. The
// query counts the contacts that are selected by
//
//	FROM contacts c WHERE c.team_id =
//
// followed by a parameter for teamID. The parameter everyone is the part of this SQL after FROM. Count calls the
// measure function to get the sizes of the sets that it combines; each measurement stops at 20,000 contacts.
//
// Each comparison is evaluated as a set of contact ids, which the index on values finds. In an "and" group, the
// contacts of the smallest set are looked up in the other sets; if all sets are large, they are intersected. The time
// for a count is therefore proportional to the smallest set in an "and" group. In an "or" group, it is proportional to
// the sum of all sets. Columns of the contact itself, such as the name, are then checked only for the contacts that the
// sets contain.
func (r *Rule) Count(s Schema, now time.Time, everyone, teamID string, measure Measure) (text string, args []any,
	err error) {
	c := newCounter(s, now, everyone, teamID, Bounds{}, measure)
	p, err := c.part(r.root(), r)
	if err != nil {
		return "", nil, err
	}
	switch p.kind {
	case set:
		text = "SELECT COUNT(*) FROM (" + c.query(p) + ") s"
	case rest:
		text = "SELECT (SELECT COUNT(*) FROM " + c.everyone() + ") - (SELECT COUNT(*) FROM (" + c.query(p) + ") s)"
	case condition:
		text = "SELECT COUNT(*) FROM " + c.everyone() + " AND " + p.text
	}
	return text, c.args, nil
}

// Found is a query that returns distinct contact ids in the column contact_id.
type Found struct {
	Text string
	Args []any

	// Ordered reports whether an index returns the ids in order. If Ordered is false, the caller must keep PostgreSQL
	// from reading all contacts in id order, which PostgreSQL might do if it expects many matches.
	Ordered bool
}

// Find returns a query for the contacts that match the rule. The parameters are the same as for [Rule.Count], plus
// bounds that limit the ids. Find returns false if indexes cannot find the matching contacts. Indexes cannot find them
// if the rule selects all contacts except certain ones, or needs a condition on each contact. If Find returns false,
// use [Rule.Where] instead.
func (r *Rule) Find(s Schema, now time.Time, everyone, teamID string, within Bounds, measure Measure) (f Found,
	ok bool, err error) {
	c := newCounter(s, now, everyone, teamID, within, measure)
	p, err := c.part(r.root(), r)
	if err != nil || p.kind != set || p.walks {
		return f, false, err
	}
	f.Ordered = p.leaf != nil && p.leaf.op == Eq
	f.Text = c.query(p)
	f.Args = c.args
	return f, true, nil
}

// counter builds a query that combines sets of contact ids.
type counter struct {
	writer
	within       Bounds
	from, teamID string
	team         string // the parameter of teamID; "" until it is needed, because PostgreSQL rejects unused parameters
	measure      Measure
}

func newCounter(s Schema, now time.Time, everyone, teamID string, within Bounds, measure Measure) *counter {
	return &counter{writer: writer{schema: &s, now: now}, within: within, from: everyone, teamID: teamID, measure: measure}
}

// everyone returns the SQL that follows FROM to select, as c, all of the team's contacts within the bounds. The result
// includes the WHERE condition.
func (c *counter) everyone() string {
	if c.team == "" {
		c.team = c.arg(db.ID(c.teamID))
	}
	return c.from + " " + c.team + c.bounds("c.id")
}

// bounds returns a condition, beginning with AND, that keeps a column within the bounds, or "" if there are no bounds.
func (c *counter) bounds(column string) (text string) {
	if c.within.After != "" {
		text += " AND " + column + " > " + c.arg(db.ID(c.within.After))
	}
	if c.within.Before != "" {
		text += " AND " + column + " < " + c.arg(db.ID(c.within.Before))
	}
	return text
}

// part is the compiled form of a subrule.
type part struct {
	kind     partKind
	leaf     *test // used instead of text if a single test defines the set or rest
	text     string
	compound bool // text contains several SELECTs
	walks    bool // text evaluates a condition on every contact
}

type partKind uint8

const (
	set       partKind = iota // the contacts whose distinct ids a SELECT returns
	rest                      // all contacts whose ids the SELECT does not return
	condition                 // text is a condition on the contact c
)

func (c *counter) part(place string, r *Rule) (part, error) {
	if r.Kind == Leaf {
		t, err := c.resolve(place, r)
		if err != nil {
			return part{}, err
		}
		if _, ok := t.Column.sets(t.Type); !ok {
			return part{kind: condition, text: c.condition(&t)}, nil
		}
		p := part{kind: set, leaf: &t}
		if t.holds(t.Default) != t.negated {
			p.kind = rest
		}
		return p, nil
	}
	var parts []part
	for i, sub := range r.Rules {
		p, err := c.part(r.within(place, i), sub)
		if err != nil {
			return part{}, err
		}
		if r.Kind != And {
			p = p.not()
		}
		parts = append(parts, p)
	}
	if r.Kind == Not {
		return parts[0], nil
	}
	p, err := c.all(parts)
	if r.Kind == Or { // a or b = not (not a and not b)
		p = p.not()
	}
	return p, err
}

func (p part) not() part {
	switch p.kind {
	case set:
		p.kind = rest
	case rest:
		p.kind = set
	case condition:
		text, negated := strings.CutPrefix(p.text, "NOT ")
		if p.text = text; !negated {
			p.text = "NOT " + text
		}
	}
	return p
}

// all returns a part that selects the contacts matching all the given parts.
func (c *counter) all(parts []part) (part, error) {
	of := map[partKind][]part{}
	var conditions []string
	for _, p := range parts {
		if p.kind == condition {
			conditions = append(conditions, p.text)
			continue
		}
		of[p.kind] = append(of[p.kind], p)
	}
	where := strings.Join(conditions, " AND ")
	switch {
	case len(of[set]) == 0 && where == "":
		return c.compound(of[rest], "UNION", nil).not(), nil
	case len(of[set]) == 0 && len(of[rest]) == 0:
		return part{kind: condition, text: "(" + where + ")"}, nil
	case len(of[set]) == 0:
		chosen := part{text: "SELECT c.id AS contact_id FROM " + c.everyone() + " AND " + where, walks: true}
		return c.compound([]part{chosen}, "INTERSECT", of[rest]), nil
	}
	p, err := c.narrow(of[set], of[rest])
	if err != nil {
		return part{}, err
	}
	if where != "" {
		// In a CROSS JOIN, SQLite always scans the left side in the outer loop.
		p = part{text: "SELECT c.id AS contact_id FROM (" + c.query(p) + ") s CROSS JOIN " + c.everyone() +
			" AND c.id = s.contact_id AND " + where, walks: p.walks}
	}
	return p, nil
}

// narrow intersects the sets in its first parameter and removes the contacts in any set of its second parameter.
func (c *counter) narrow(sets, without []part) (part, error) {
	if len(sets)+len(without) == 1 {
		return sets[0], nil
	}
	first, err := c.smallest(sets)
	if err != nil || first < 0 {
		return c.compound(sets, "INTERSECT", without), err
	}
	anchor := c.rows(sets[first].leaf, "id")
	sets = slices.Delete(sets, first, first+1)
	var looked []string
	for _, p := range sets {
		if p.leaf != nil {
			looked = append(looked, c.found(p.leaf))
		}
	}
	for _, p := range without {
		if p.leaf != nil {
			looked = append(looked, "NOT "+c.found(p.leaf))
		}
	}
	text := "SELECT c.id AS contact_id FROM (" + anchor + ") c"
	if len(looked) > 0 {
		text += " WHERE " + strings.Join(looked, " AND ")
	}
	isLeaf := func(p part) bool { return p.leaf != nil }
	sets = append([]part{{text: text}}, slices.DeleteFunc(sets, isLeaf)...)
	return c.compound(sets, "INTERSECT", slices.DeleteFunc(without, isLeaf)), nil
}

// smallest returns the index of the smallest set among those that consist of a single comparison, or -1 if all of these
// are large.
func (c *counter) smallest(sets []part) (int, error) {
	smallest, least, measured := -1, maxAnchor, 0
	for i, p := range sets {
		if p.leaf == nil || measured == maxSizes {
			continue
		}
		measured++
		w := counter{within: c.within}
		text := "SELECT COUNT(*) FROM (" + w.query(p) + " LIMIT " + w.arg(least) + ") s"
		n, err := c.measure(text, w.args)
		if err != nil {
			return 0, err
		}
		if n < least {
			smallest, least = i, n
		}
	}
	return smallest, nil
}

// rows returns the SELECT statement for one comparison, with the given name for its result column. A contact without a
// row has the default value. If the default value satisfies the comparison, the statement selects the contacts that do
// not satisfy it.
func (c *counter) rows(t *test, name string) string {
	from, _ := t.Column.sets(t.Type)
	text := "SELECT "
	if t.Type == SetField && len(t.operands) > 1 {
		text += "DISTINCT "
	}
	text += "v." + from.Contact + " AS " + name + " FROM " + from.Table + " v WHERE "
	if from.Key != "" {
		text += "v." + from.Key + " = " + c.arg(from.key()) + " AND "
	}
	if from.Only != "" {
		text += from.Only + " AND "
	}
	if t.holds(t.Default) {
		text += "NOT "
	}
	return text + "(" + c.indexed(t, &from) + ")" + c.bounds("v."+from.Contact)
}

// indexed returns the positive comparison against the indexed form of the value. If only the head of each string is
// indexed, the whole string is read only for comparisons that the head cannot decide. A head with fewer than HeadSize
// characters is the whole string.
func (c *counter) indexed(t *test, in *Sets) string {
	if in.Head == "" || t.op == Contains || t.op == EndsWith || t.op == StartsWith && cut(t.text) {
		return c.comparison(t, in.Value)
	}
	long := slices.ContainsFunc(t.operands, func(v Value) bool { return cut(v.text) })
	if !long {
		return c.comparison(t, in.Head)
	}
	heads := *t
	heads.operands = slices.Clone(t.operands)
	for i := range heads.operands {
		if o := &heads.operands[i]; cut(o.text) {
			o.text = string([]rune(o.text)[:HeadSize])
		}
	}
	return c.comparison(&heads, in.Head) + " AND " + c.comparison(t, in.Value)
}

// cut reports whether a string is so long that a different string may have the same head.
func cut(text string) bool { return utf8.RuneCountInString(text) >= HeadSize }

// found returns the condition that the contact c is one of those that the statement returned by rows selects. The
// condition uses only the id of c.
func (c *counter) found(t *test) string {
	in, _ := t.Column.sets(t.Type)
	positive := *t
	positive.negated = t.holds(t.Default)
	return c.lookup(&positive, in)
}

// query returns the SELECT statement for a part of kind set or rest.
func (c *counter) query(p part) string {
	if p.leaf != nil {
		return c.rows(p.leaf, "contact_id")
	}
	return p.text
}

// compound combines sets with a set operator and removes the contacts in any set of its last parameter.
func (c *counter) compound(parts []part, operator string, without []part) part {
	if len(parts) == 1 && len(without) == 0 {
		parts[0].kind = set
		return parts[0]
	}
	var text strings.Builder
	walks := false
	for _, p := range slices.Concat(parts, without) {
		walks = walks || p.walks
	}
	for i, p := range parts {
		if i > 0 {
			text.WriteString(" " + operator + " ")
		}
		text.WriteString(c.operand(p))
	}
	// PostgreSQL and SQLite both evaluate this chain of set operators from left to right, INTERSECT before EXCEPT.
	for _, p := range without {
		text.WriteString(" EXCEPT " + c.operand(p))
	}
	return part{text: text.String(), compound: true, walks: walks}
}

// operand returns a SELECT that can be an operand of a compound SELECT. SQLite does not accept operands in parentheses,
// so a compound SELECT is wrapped in another SELECT.
func (c *counter) operand(p part) string {
	if p.compound {
		return "SELECT s.contact_id FROM (" + p.text + ") s"
	}
	return c.query(p)
}
