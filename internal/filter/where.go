package filter

import (
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/fault"
)

// Where returns an SQL condition that holds for the contacts c that the rule chooses at the time now, and the arguments
// args with those of the condition appended. Its parameters are numbered on from args. The condition looks up the rows
// of one contact after the other, for walks in the order of contacts and for a single contact.
func (r *Rule) Where(s Schema, now time.Time, args []any) (text string, all []any, err error) {
	w := where{schema: &s, now: now, args: args}
	if err := w.rule(r.root(), r); err != nil {
		return "", nil, err
	}
	return w.text.String(), w.args, nil
}

// where writes a condition.
type where struct {
	schema *Schema
	now    time.Time
	text   strings.Builder
	args   []any
}

// arg adds an argument and returns its parameter.
func (w *where) arg(v any) string {
	w.args = append(w.args, v)
	return fmt.Sprintf("$%d", len(w.args))
}

func (w *where) rule(place string, r *Rule) error {
	if r.Kind == Leaf {
		t, err := r.resolve(w.schema, place, w.now, nil)
		if err != nil {
			return err
		}
		if t.Column.Value == "" {
			place += ".field"
			return fault.Invalidf(place, "The `%s` field is %s, which has a value only while an automation runs.", place,
				quote(r.Field))
		}
		w.leaf(&t)
		return nil
	}
	between := " AND "
	switch r.Kind {
	case Not:
		w.text.WriteString("NOT ")
	case Or:
		between = " OR "
	}
	w.text.WriteString("(")
	for i, sub := range r.Rules {
		if i > 0 {
			w.text.WriteString(between)
		}
		if err := w.rule(r.within(place, i), sub); err != nil {
			return err
		}
	}
	w.text.WriteString(")")
	return nil
}

// leaf writes the condition of one comparison. A contact without a row is like one whose row has the default, so where
// the default makes the comparison true, the condition is that there is no row that makes it false.
func (w *where) leaf(t *test) {
	c := t.Column
	if c.Table == "" {
		if t.negated {
			w.text.WriteString("NOT ")
		}
		w.text.WriteString("(" + w.comparison(t) + ")")
		return
	}
	byDefault := t.holds(t.Default)
	if byDefault != t.negated {
		w.text.WriteString("NOT ")
	}
	w.text.WriteString("EXISTS (SELECT 1 FROM " + c.Table + " v WHERE v.contact_id = c.id AND ")
	if c.Key != "" {
		w.text.WriteString("v." + c.Key + " = " + w.arg(c.KeyValue) + " AND ")
	}
	if byDefault {
		w.text.WriteString("NOT ")
	}
	w.text.WriteString("(" + w.comparison(t) + "))")
}

// comparison returns the positive comparison with the column. Only functions are used that both engines have and that
// compare octets: LIKE ignores case on SQLite, and < goes by the collation of a PostgreSQL database.
func (w *where) comparison(t *test) string {
	x := t.Column.Value
	switch t.op {
	case Exists:
		return t.present()
	case Eq:
		return x + " = " + w.arg(t.operands[0].argument())
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
		// 0 is no value.
		return x + " >= " + w.arg(max(t.from, 1)) + " AND " + x + " < " + w.arg(t.to)
	}
	n := len([]rune(t.text))
	switch t.op {
	case Contains:
		return "REPLACE(" + x + ", " + w.arg(t.text) + ", '') <> " + x
	case StartsWith:
		return "SUBSTR(" + x + ", 1, " + w.arg(n) + ") = " + w.arg(t.text)
	default:
		// With a start before the first character the result is shorter than the text on both engines.
		return "SUBSTR(" + x + ", LENGTH(" + x + ") - " + w.arg(n-1) + ") = " + w.arg(t.text)
	}
}

// present is the condition that there is a value.
func (t *test) present() string {
	switch t.Type {
	case TextField, ChoiceField:
		return t.Column.Value + " <> ''"
	case TimeField:
		return t.Column.Value + " <> 0"
	}
	return "TRUE"
}

// list returns the operands as the parameter of a list.
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
	return texts
}

// argument returns a value as a parameter.
func (v Value) argument() any {
	switch v.kind {
	case Number:
		return v.number
	case Bool:
		return v.number != 0
	}
	return v.text
}

// numeralSQL is the condition that an expression is a numeral, as the function numeral defines it.
func numeralSQL(x string) string {
	const digits = "'0123456789'"
	unsigned := func(x string) string {
		return "LTRIM(" + x + ", " + digits + ") <> " + x + " AND RTRIM(" + x + ", " + digits + ") <> " + x +
			" AND RTRIM(LTRIM(" + x + ", " + digits + "), " + digits + ") IN ('', '.')"
	}
	return fmt.Sprintf("LENGTH(%s) <= %d AND (%s OR SUBSTR(%[1]s, 1, 1) = '-' AND %[4]s)", x, maxNumeral, unsigned(x),
		unsigned("SUBSTR("+x+", 2)"))
}
