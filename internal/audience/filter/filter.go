// Package filter implements rules that select contacts: the filters of segments, the audiences of broadcasts and the
// conditions of automations (API reference section 22.3). docs/filters.md describes the language for users.
//
// A [Rule] is a tree. [Parse] reads it from JSON and checks everything that does not depend on the team; [Rule.Check]
// checks the fields and values against a [Schema]. [Rule.Where] compiles the rule into an SQL condition for both
// engines, and [Rule.Match] evaluates it in memory for one contact.
//
// # Invariants
//
// Where and Match select the same contacts. Both methods treat a leaf as one positive comparison with the value of the
// field, which may be negated. A comparison has no third truth value: if a field has no value, every positive
// comparison is false, and neq, not_in, is_empty and not_within_last are true. The empty text counts as no value.
//
// Texts are compared byte by byte, whatever the collation of the database. Values are SQL parameters and never part of
// the SQL text.
//
// A rule has at most [MaxLeaves] leaves in at most [MaxDepth] levels, and its JSON has at most [MaxText] bytes.
//
// # Errors
//
// Errors in a rule are Invalid and Missing faults that name the path, such as filter.rules[2].operator. A rule is
// checked each time it is used. A rule that names a deleted object is refused: treating that field as empty could
// select all contacts.
//
// # Limits of this package
//
// It reads no rows and knows no tables: the schema contains the columns.
package filter

// Limits of a rule.
const (
	MaxDepth   = 10       // levels; a single leaf has one
	MaxLeaves  = 100      // comparisons
	MaxText    = 64 << 10 // bytes of JSON
	MaxString  = 2000     // characters of a text in a comparison
	MaxList    = 500      // values of one list
	MaxField   = 200      // characters of the name of a field
	MaxNumber  = 1 << 53  // largest absolute value: beyond it, not every integer is a float64
	maxNumeral = 16       // characters of a text that is parsed as a number
)

// Kind is the kind of a node of the tree.
type Kind string

const (
	And  Kind = "and"  // all of Rules hold
	Or   Kind = "or"   // at least one of Rules holds
	Not  Kind = "not"  // Rules has one element, which does not hold
	Leaf Kind = "rule" // a comparison
)

// Rule is a node of the tree.
type Rule struct {
	Kind  Kind
	Rules []*Rule // operands of And, Or and Not

	// Only for a leaf:
	Field    string
	Operator Operator
	Value    Value // none for operators that take no value

	place string // path of the filter in errors; only set in the root
}

// Operator is the operator of a comparison.
type Operator string

const (
	Eq            Operator = "eq"
	Neq           Operator = "neq"
	Gt            Operator = "gt"
	Gte           Operator = "gte"
	Lt            Operator = "lt"
	Lte           Operator = "lte"
	Contains      Operator = "contains"
	StartsWith    Operator = "starts_with"
	EndsWith      Operator = "ends_with"
	Exists        Operator = "exists"
	IsEmpty       Operator = "is_empty"
	In            Operator = "in"
	NotIn         Operator = "not_in"
	WithinLast    Operator = "within_last"
	NotWithinLast Operator = "not_within_last"
	Before        Operator = "before"
	After         Operator = "after"
)

// operators are all operators, in the order in which errors list them.
var operators = []Operator{Eq, Neq, Gt, Gte, Lt, Lte, Contains, StartsWith, EndsWith, Exists, IsEmpty, In, NotIn,
	WithinLast, NotWithinLast, Before, After}

// meant maps operators of other languages to ours, for suggestions in errors.
var meant = map[string]Operator{
	"equals": Eq, "equal": Eq, "is": Eq, "=": Eq, "==": Eq, "not_equals": Neq, "not_equal": Neq, "notequals": Neq,
	"is_not": Neq, "ne": Neq, "!=": Neq, "<>": Neq, "greater_than": Gt, ">": Gt, "greater_than_or_equal": Gte,
	">=": Gte, "ge": Gte, "less_than": Lt, "<": Lt, "less_than_or_equal": Lte, "<=": Lte, "le": Lte, "includes": Contains,
	"like": Contains, "begins_with": StartsWith, "startswith": StartsWith, "prefix": StartsWith, "endswith": EndsWith,
	"suffix": EndsWith, "is_not_empty": Exists, "not_empty": Exists, "is_set": Exists, "not_null": Exists,
	"empty": IsEmpty, "is_null": IsEmpty, "not_exists": IsEmpty, "is_not_set": IsEmpty, "one_of": In, "any_of": In,
	"none_of": NotIn, "nin": NotIn, "last": WithinLast, "not_last": NotWithinLast,
}

// positive returns the positive form of an operator, and whether o negates it.
func (o Operator) positive() (is Operator, negated bool) {
	switch o {
	case Neq:
		return Eq, true
	case IsEmpty:
		return Exists, true
	case NotIn:
		return In, true
	case NotWithinLast:
		return WithinLast, true
	}
	return o, false
}

// takesValue reports whether a leaf with the operator has a value.
func (o Operator) takesValue() bool { return o != Exists && o != IsEmpty }

// Leaves calls f for each leaf of the rule, in the order of the JSON.
func (r *Rule) Leaves(f func(*Rule)) {
	if r.Kind == Leaf {
		f(r)
	}
	for _, sub := range r.Rules {
		sub.Leaves(f)
	}
}

// Fields returns the full names of all fields that the rule reads, including references, each once.
func (r *Rule) Fields() []string {
	var names []string
	seen := map[string]bool{}
	add := func(name string) {
		if name = FullName(name); !seen[name] {
			seen[name] = true
			names = append(names, name)
		}
	}
	r.Leaves(func(leaf *Rule) {
		add(leaf.Field)
		if leaf.Value.kind == Reference {
			add(leaf.Value.text)
		}
	})
	return names
}
