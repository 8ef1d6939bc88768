package filter

import (
	"slices"
	"strings"
	"time"
	"unicode/utf8"
)

// maxAnchor is up to how many contacts of a set are looked up one after the other in the others. A look-up costs as
// much as intersecting sets with some 15 contacts more, and more than that when the rows are not in memory.
const maxAnchor = 20_000

// maxSizes is how many sets of a group are measured.
const maxSizes = 8

// Measure returns the number that a query finds.
type Measure func(text string, args []any) (int, error)

// Bounds limit the contacts that are looked for to those whose ids lie between two, which are left out. "" is no bound.
type Bounds struct{ After, Before string }

// Count returns a query for how many contacts the rule chooses at the time now, and its arguments. The contacts are
// those of the query with the end
//
//	FROM contacts c WHERE c.team_id =
//
// of which everyone is what follows FROM, and a parameter that is teamID. Count asks measure how large the sets are
// that it combines; it stops at 20,000 in each.
//
// The contacts of which a comparison is true are looked up all at once, by the index of values, as a set of ids. Of
// sets that must all hold, the smallest is looked up in the others; when all are large they are intersected. So a count
// takes time in proportion to the smallest set of an and group, and to the sum of the sets of an or group. What a
// contact has itself, such as a name, is looked up for those that are left.
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

// Found is a query for the ids of contacts, in the column contact_id, each once.
type Found struct {
	Text string
	Args []any

	// Ordered reports whether an index has them in the order of their ids. The query of a part of the others is to be
	// kept from going through all contacts in that order, as PostgreSQL does where it expects many to be chosen.
	Ordered bool
}

// Find returns a query for the contacts that the rule chooses. The arguments are those of [Rule.Count]. It reports false if they are no set that indexes find: then they are
// what a few leave of all, or what a condition on each contact does, and [Rule.Where] finds them.
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

// counter writes a query by sets.
type counter struct {
	writer
	within       Bounds
	from, teamID string
	team         string // the parameter that is teamID, "" while it is not needed: PostgreSQL refuses unused ones
	measure      Measure
}

func newCounter(s Schema, now time.Time, everyone, teamID string, within Bounds, measure Measure) *counter {
	return &counter{writer: writer{schema: &s, now: now}, within: within, from: everyone, teamID: teamID, measure: measure}
}

// everyone returns contacts c and the condition on them.
func (c *counter) everyone() string {
	if c.team == "" {
		c.team = c.arg(c.teamID)
	}
	return c.from + " " + c.team + c.bounds("c.id")
}

// bounds returns the condition on the column of ids, which begins with AND if there is one.
func (c *counter) bounds(column string) (text string) {
	if c.within.After != "" {
		text += " AND " + column + " > " + c.arg(c.within.After)
	}
	if c.within.Before != "" {
		text += " AND " + column + " < " + c.arg(c.within.Before)
	}
	return text
}

// part is what a part of a rule chooses.
type part struct {
	kind     partKind
	leaf     *test // of a set or the rest of one: instead of text, because it may be used as a condition after all
	text     string
	compound bool // whether text is several SELECTs
	walks    bool // whether text asks a condition of every contact
}

type partKind uint8

const (
	set       partKind = iota // the ids that a SELECT finds, each once
	rest                      // the contacts whose ids the SELECT does not find
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
	if r.Kind == Or { // one of them holds unless none of them does
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

// all returns what all parts choose.
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
		// SQLite goes through the left side of a CROSS JOIN first.
		p = part{text: "SELECT c.id AS contact_id FROM (" + c.query(p) + ") s CROSS JOIN " + c.everyone() +
			" AND c.id = s.contact_id AND " + where, walks: p.walks}
	}
	return p, nil
}

// narrow returns the intersection of some sets without others.
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

// smallest returns the index of the smallest set of those that are of one comparison, or -1 if all are large.
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

// rows returns the SELECT of one comparison, which names its column. A contact without a row is like one whose row has
// the default; where the default makes the comparison true, these are the rows that make it false.
func (c *counter) rows(t *test, name string) string {
	from, _ := t.Column.sets(t.Type)
	text := "SELECT "
	if t.Type == SetField && len(t.operands) > 1 {
		text += "DISTINCT "
	}
	text += "v." + from.Contact + " AS " + name + " FROM " + from.Table + " v WHERE "
	if from.Key != "" {
		text += "v." + from.Key + " = " + c.arg(from.KeyValue) + " AND "
	}
	if from.Only != "" {
		text += from.Only + " AND "
	}
	if t.holds(t.Default) {
		text += "NOT "
	}
	return text + "(" + c.indexed(t, &from) + ")" + c.bounds("v."+from.Contact)
}

// indexed returns the positive comparison with what an index has of the value. Where that is the head of a text alone,
// the whole text is read only by comparisons that the head does not decide: a head with less than HeadSize characters
// is the whole text.
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

// cut reports whether the head of a text may be the head of others too.
func cut(text string) bool { return utf8.RuneCountInString(text) >= HeadSize }

// found returns the condition that rows finds the contact c, of which it reads nothing but the id.
func (c *counter) found(t *test) string {
	in, _ := t.Column.sets(t.Type)
	positive := *t
	positive.negated = t.holds(t.Default)
	return c.lookup(&positive, in)
}

// query returns the SELECT of a set or of the rest of one.
func (c *counter) query(p part) string {
	if p.leaf != nil {
		return c.rows(p.leaf, "contact_id")
	}
	return p.text
}

// compound returns the set that an operator makes of some sets, without those of others.
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
	// INTERSECT and EXCEPT are read from the left to the right by both engines.
	for _, p := range without {
		text.WriteString(" EXCEPT " + c.operand(p))
	}
	return part{text: text.String(), compound: true, walks: walks}
}

// operand returns a SELECT as a part of a compound one. SQLite takes no parentheses there.
func (c *counter) operand(p part) string {
	if p.compound {
		return "SELECT s.contact_id FROM (" + p.text + ") s"
	}
	return c.query(p)
}
