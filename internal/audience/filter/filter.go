// Package filter implements rules that select contacts: segment filters, broadcast audiences and automation conditions
// (API reference section 22.3). The file docs/filters.md describes the rule language for users.
//
// A [Rule] is a tree. [Parse] reads a rule from JSON and checks everything that does not depend on the team;
// [Rule.Check] checks the fields and values against a [Schema]. [Rule.Where] compiles a rule into an SQL condition for
// PostgreSQL and SQLite, and [Rule.Match] evaluates a rule in memory for one contact.
//
// # Invariants
//
// Where and Match select the same contacts. Both methods evaluate a leaf as one positive comparison with the field's
// value; for a negative operator, they negate the result. Unlike in SQL, a comparison is either true or false. If a
// field has no value, every positive comparison is false, and neq, not_in, is_empty and not_within_last are true. A
// field whose value is the empty string counts as a field without a value.
//
// Strings are compared byte by byte, regardless of the database collation. Values in a rule become SQL parameters and
// are never part of the SQL text.
//
// A rule has at most [MaxLeaves] leaves in at most [MaxDepth] levels, and its JSON has at most [MaxText] bytes.
//
// # Failures
//
// Errors in a rule are Invalid or Missing faults that give the path of the error, such as filter.rules[2].operator.
// Each rule is checked every time it is used. A rule that names a deleted object is rejected, because treating the
// field as empty could select all contacts.
//
// # Out of scope
//
// Package filter does not access the database. The schema supplies the names of tables and columns to package filter.
package filter

// Limits on a rule.
const (
	MaxDepth   = 10       // maximum number of levels; a single leaf is one level
	MaxLeaves  = 100      // maximum number of comparisons
	MaxText    = 64 << 10 // maximum size of the JSON, in bytes
	MaxString  = 2000     // maximum length of a string in a comparison, in characters
	MaxList    = 500      // maximum number of values in a list
	MaxField   = 200      // maximum length of a field name, in characters
	MaxNumber  = 1 << 53  // largest absolute value of a number; float64 cannot represent every larger integer
	maxNumeral = 16       // maximum length of a string that is parsed as a number, in characters
)

// Kind is the kind of a node in the tree.
type Kind string

const (
	And  Kind = "and"  // true if all elements of Rules are true
	Or   Kind = "or"   // true if at least one element of Rules is true
	Not  Kind = "not"  // true if the only element of Rules is false
	Leaf Kind = "rule" // a comparison
)

// Rule is a node in the tree.
type Rule struct {
	Kind  Kind
	Rules []*Rule // operands of And, Or and Not

	// Set only for a leaf:
	Field    string
	Operator Operator
	Value    Value // None for operators without a value

	place string // path of the filter for error messages; set only in the root
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

// operators lists all operators in the order in which error messages list them.
var operators = []Operator{Eq, Neq, Gt, Gte, Lt, Lte, Contains, StartsWith, EndsWith, Exists, IsEmpty, In, NotIn,
	WithinLast, NotWithinLast, Before, After}

// meant maps operators from other languages to the operators in this package, for suggestions in error messages.
var meant = map[string]Operator{
	"equals": Eq, "equal": Eq, "is": Eq, "=": Eq, "==": Eq, "not_equals": Neq, "not_equal": Neq, "notequals": Neq,
	"is_not": Neq, "ne": Neq, "!=": Neq, "<>": Neq, "greater_than": Gt, ">": Gt, "greater_than_or_equal": Gte,
	">=": Gte, "ge": Gte, "less_than": Lt, "<": Lt, "less_than_or_equal": Lte, "<=": Lte, "le": Lte, "includes": Contains,
	"like": Contains, "begins_with": StartsWith, "startswith": StartsWith, "prefix": StartsWith, "endswith": EndsWith,
	"suffix": EndsWith, "is_not_empty": Exists, "not_empty": Exists, "is_set": Exists, "not_null": Exists,
	"empty": IsEmpty, "is_null": IsEmpty, "not_exists": IsEmpty, "is_not_set": IsEmpty, "one_of": In, "any_of": In,
	"none_of": NotIn, "nin": NotIn, "last": WithinLast, "not_last": NotWithinLast,
}

// positive returns the positive form of an operator, such as eq for neq, and whether the operator is the negation of
// that form.
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

// Leaves calls a function for each leaf of the rule, in the order of the JSON.
func (r *Rule) Leaves(f func(*Rule)) {
	if r.Kind == Leaf {
		f(r)
	}
	for _, sub := range r.Rules {
		sub.Leaves(f)
	}
}

// Fields returns the full names of all fields that the rule reads, including references, without duplicates.
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
