package filter

import (
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/db"
)

// Where returns an SQL condition on a contact c that is true if the contact matches the rule at the given time. Where
// appends the condition's arguments to args and returns the result as all. The numbering of the parameters continues
// after args.
//
// The condition makes the database look up the values of one contact at a time by primary key, regardless of its
// planner statistics. The time for a query that reads contacts in index order is therefore proportional to the number
// of contacts read. To find all matching contacts through the indexes on values, use [Rule.Find].
func (r *Rule) Where(s Schema, now time.Time, args []any) (text string, all []any, err error) {
	w := writer{schema: &s, now: now, args: args}
	text, err = w.where(r.root(), r)
	if err != nil {
		return "", nil, err
	}
	return text, w.args, nil
}

// writer builds SQL and collects its arguments.
type writer struct {
	schema *Schema
	now    time.Time
	args   []any
}

// arg adds an argument and returns the parameter for it, such as $3.
func (w *writer) arg(v any) string {
	w.args = append(w.args, v)
	return fmt.Sprintf("$%d", len(w.args))
}

func (w *writer) where(place string, r *Rule) (string, error) {
	if r.Kind == Leaf {
		t, err := w.resolve(place, r)
		if err != nil {
			return "", err
		}
		return w.condition(&t), nil
	}
	var parts []string
	for i, sub := range r.Rules {
		part, err := w.where(r.within(place, i), sub)
		if err != nil {
			return "", err
		}
		parts = append(parts, part)
	}
	return join(r.Kind, parts), nil
}

// join combines the conditions for a group's subrules.
func join(kind Kind, parts []string) string {
	switch kind {
	case Not:
		return "NOT " + parts[0]
	case Or:
		return "(" + strings.Join(parts, " OR ") + ")"
	}
	return "(" + strings.Join(parts, " AND ") + ")"
}

// resolve returns a leaf's test, or a fault if the field has no column.
func (w *writer) resolve(place string, r *Rule) (test, error) {
	t, err := r.resolve(w.schema, place, w.now, nil)
	if err == nil && t.Column.Value == "" {
		place += ".field"
		err = fault.Invalidf(place, "The `%s` field is %s, which has a value only while an automation runs.", place,
			quote(r.Field))
	}
	return t, err
}

// condition returns the condition that one leaf imposes on the contact c.
//
// The condition looks up the value in a scalar subquery rather than with EXISTS. SQLite would turn EXISTS into a join
// and, for a condition such as value < $3, might read all values below $3 for each contact. PostgreSQL would read all
// rows of the table for a page of contacts if it expected few matches.
func (w *writer) condition(t *test) string {
	c := t.Column
	if c.Table == "" {
		not := ""
		if t.negated {
			not = "NOT "
		}
		return not + "(" + w.comparison(t, c.Value) + ")"
	}
	return w.lookup(t, Sets{Table: c.Table, Contact: "contact_id", Value: c.Value, Key: c.Key, KeyValue: c.KeyValue})
}

// lookup returns the condition that one leaf imposes on the contact c, for a field whose value is in a row of another
// table.
func (w *writer) lookup(t *test, in Sets) string {
	text := "COALESCE((SELECT "
	if t.negated {
		text = "NOT " + text
	}
	from := " FROM " + in.Table + " v WHERE v." + in.Contact + " = c.id"
	if t.Type == SetField {
		return text + "TRUE" + from + " AND " + w.comparison(t, in.Value) + " LIMIT 1), FALSE)"
	}
	text += w.comparison(t, in.Value) + from
	if in.Key != "" {
		text += " AND v." + in.Key + " = " + w.arg(in.key())
	}
	if t.holds(t.Default) {
		return text + "), TRUE)"
	}
	return text + "), FALSE)"
}

// comparison returns the positive comparison with the SQL expression x. The comparison uses only functions that
// PostgreSQL and SQLite both have and that compare bytes. LIKE is avoided because it ignores case on SQLite. The
// operator < is avoided for strings because it depends on the collation on PostgreSQL.
func (w *writer) comparison(t *test, x string) string {
	switch t.op {
	case Exists:
		return t.present(x)
	case Eq:
		return x + " = " + w.arg(t.argument(t.operands[0]))
	case In:
		return x + " = ANY(" + w.arg(t.list()) + ")"
	case Gt, Gte, Lt, Lte:
		sign := map[Operator]string{Gt: " > ", Gte: " >= ", Lt: " < ", Lte: " <= "}[t.op]
		if t.Type == NumberField {
			return x + sign + w.arg(t.number)
		}
		return "CASE WHEN " + numeralSQL(x) + " THEN CAST(" + x + " AS DOUBLE PRECISION)" + sign + w.arg(t.number) +
			" ELSE FALSE END"
	case WithinLast:
		// The lower bound is at least 1, because a stored 0 means that there is no value.
		return x + " >= " + w.arg(max(t.from, 1)) + " AND " + x + " < " + w.arg(t.to)
	}
	n := len([]rune(t.text))
	switch t.op {
	case Contains:
		return "REPLACE(" + x + ", " + w.arg(t.text) + ", '') <> " + x
	case StartsWith:
		return "SUBSTR(" + x + ", 1, " + w.arg(n) + ") = " + w.arg(t.text)
	default:
		// If the start is before the first character, SUBSTR returns fewer characters than the operand has, on both
		// PostgreSQL and SQLite.
		return "SUBSTR(" + x + ", LENGTH(" + x + ") - " + w.arg(n-1) + ") = " + w.arg(t.text)
	}
}

// present returns the condition that the SQL expression x has a value.
func (t *test) present(x string) string {
	switch t.Type {
	case TextField, ChoiceField:
		return x + " <> ''"
	case TimeField:
		return x + " <> 0"
	}
	return "TRUE"
}

// key returns the value of the key column, which is an id, as an argument for a parameter.
func (s *Sets) key() any { return db.ID(s.KeyValue) }

// list returns the operands as the argument for a list parameter.
func (t *test) list() any {
	if t.Type == NumberField {
		var numbers []float64
		for _, o := range t.operands {
			numbers = append(numbers, o.number)
		}
		return numbers
	}
	var texts []string
	for _, o := range t.operands {
		texts = append(texts, o.text)
	}
	if t.Type == SetField {
		return db.IDs(texts)
	}
	return texts
}

// argument returns a value as an argument for a parameter. The values of a SetField are ids.
func (t *test) argument(v Value) any {
	switch v.kind {
	case Number:
		return v.number
	case Bool:
		return v.number != 0
	}
	if t.Type == SetField {
		return db.ID(v.text)
	}
	return v.text
}

// numeralSQL returns an SQL condition that is true if the numeral function would accept the value of an expression.
func numeralSQL(x string) string {
	const digits = "'0123456789'"
	unsigned := func(x string) string {
		return "LTRIM(" + x + ", " + digits + ") <> " + x + " AND RTRIM(" + x + ", " + digits + ") <> " + x +
			" AND RTRIM(LTRIM(" + x + ", " + digits + "), " + digits + ") IN ('', '.')"
	}
	return fmt.Sprintf("LENGTH(%s) <= %d AND (%s OR SUBSTR(%[1]s, 1, 1) = '-' AND %[4]s)", x, maxNumeral, unsigned(x),
		unsigned("SUBSTR("+x+", 2)"))
}
