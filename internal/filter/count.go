package filter

import (
	"strings"
	"time"
)

// Count returns a query for how many contacts the rule chooses at the time now, and its arguments. The contacts are
// those of the query with the end
//
//	FROM contacts c WHERE c.team_id =
//
// and a parameter after it that is teamID.
//
// The values of a field are looked up for all contacts at once, by the index of values, as a set of ids, and the sets
// are intersected, united or subtracted: each costs time in proportion to its size, so that a filter on two properties
// does not look at contacts that have neither. What a contact has itself, such as a name, is looked up for those that
// are left.
func (r *Rule) Count(s Schema, now time.Time, everyone, teamID string) (text string, args []any, err error) {
	c := counter{writer: writer{schema: &s, now: now}, from: everyone, teamID: teamID}
	p, err := c.part(r.root(), r)
	if err != nil {
		return "", nil, err
	}
	switch p.kind {
	case set:
		text = "SELECT COUNT(*) FROM (" + p.text + ") s"
	case rest:
		text = "SELECT (SELECT COUNT(*) " + c.everyone() + ") - (SELECT COUNT(*) FROM (" + p.text + ") s)"
	case condition:
		text = "SELECT COUNT(*) " + c.everyone() + " AND " + p.text
	}
	return text, c.args, nil
}

// counter writes a query by sets.
type counter struct {
	writer
	from, teamID string
	team         string // the parameter that is teamID, "" while it is not needed: PostgreSQL refuses unused ones
}

// everyone returns the end of a query for all contacts c.
func (c *counter) everyone() string {
	if c.team == "" {
		c.team = c.arg(c.teamID)
	}
	return c.from + " " + c.team
}

// part is what a part of a rule chooses.
type part struct {
	kind     partKind
	text     string
	compound bool // whether text is several SELECTs
}

type partKind uint8

const (
	set       partKind = iota // text is a SELECT of the ids of contacts, each once
	rest                      // the contacts that the SELECT does not find
	condition                 // text is a condition on the contact c
)

func (c *counter) part(place string, r *Rule) (part, error) {
	if r.Kind == Leaf {
		t, err := c.resolve(place, r)
		if err != nil {
			return part{}, err
		}
		return c.leaf(&t), nil
	}
	var parts []part
	for i, sub := range r.Rules {
		p, err := c.part(r.within(place, i), sub)
		if err != nil {
			return part{}, err
		}
		parts = append(parts, p)
	}
	switch r.Kind {
	case Not:
		return parts[0].not(), nil
	case Or:
		// One of them holds unless none of them does.
		for i := range parts {
			parts[i] = parts[i].not()
		}
		return c.all(parts).not(), nil
	}
	return c.all(parts), nil
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

func (c *counter) leaf(t *test) part {
	at := t.Column
	if at.Table == "" || at.Key == "" && t.Type != SetField { // there is no index of the values
		return part{kind: condition, text: c.condition(t)}
	}
	// A contact without a row is like one whose row has the default. Where the default makes the comparison true, the
	// rows that make it false are looked up.
	byDefault := t.holds(t.Default)
	text := "SELECT "
	if t.Type == SetField && len(t.operands) > 1 {
		text += "DISTINCT "
	}
	text += "v.contact_id FROM " + at.Table + " v WHERE "
	if at.Key != "" {
		text += "v." + at.Key + " = " + c.arg(at.KeyValue) + " AND "
	}
	if byDefault {
		text += "NOT "
	}
	p := part{kind: set, text: text + "(" + c.comparison(t) + ")"}
	if byDefault != t.negated {
		return p.not()
	}
	return p
}

// all returns what all parts choose.
func (c *counter) all(parts []part) part {
	of := map[partKind][]part{}
	for _, p := range parts {
		of[p.kind] = append(of[p.kind], p)
	}
	var conditions []string
	for _, p := range of[condition] {
		conditions = append(conditions, p.text)
	}
	where := strings.Join(conditions, " AND ")
	chosen := func(where string) part {
		return part{kind: set, text: "SELECT c.id AS contact_id " + c.everyone() + " AND " + where}
	}
	switch {
	case len(of[set]) > 0:
		p := compound(of[set], "INTERSECT", of[rest])
		if where != "" {
			p = chosen("c.id IN (" + p.text + ") AND " + where)
		}
		return p
	case where == "":
		return compound(of[rest], "UNION", nil).not()
	case len(of[rest]) == 0:
		return part{kind: condition, text: "(" + where + ")"}
	}
	return compound([]part{chosen(where)}, "INTERSECT", of[rest])
}

// compound returns the set that an operator makes of some SELECTs, without those of others.
func compound(parts []part, operator string, without []part) part {
	if len(parts) == 1 && len(without) == 0 {
		return part{kind: set, text: parts[0].text, compound: parts[0].compound}
	}
	var text strings.Builder
	for i, p := range parts {
		if i > 0 {
			text.WriteString(" " + operator + " ")
		}
		text.WriteString(p.operand())
	}
	// INTERSECT and EXCEPT are read from the left to the right by both engines.
	for _, p := range without {
		text.WriteString(" EXCEPT " + p.operand())
	}
	return part{kind: set, text: text.String(), compound: true}
}

// operand returns a SELECT as a part of a compound one. SQLite takes no parentheses there.
func (p part) operand() string {
	if p.compound {
		return "SELECT s.contact_id FROM (" + p.text + ") s"
	}
	return p.text
}
