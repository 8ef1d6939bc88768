// Package filter is the language of rules that choose contacts: the filters of segments, the audiences of broadcasts
// and the conditions of automations (API reference section 22.3). docs/filters.md describes it for users.
//
// A [Rule] is a tree. [Parse] reads it from JSON and checks everything that needs no knowledge of the team;
// [Rule.Check] checks the fields and the values against a [Schema]. [Rule.Where] makes an SQL condition of it, for both
// engines, and [Rule.Match] evaluates it in memory for one contact.
//
// # Invariants
//
// Where and Match find the same contacts. Both read a leaf as one positive comparison with what the field holds, which
// may be negated; there is no third truth value. A field without a value makes every positive comparison false, so
// that neq, not_in, is_empty and not_within_last are true of it. The empty text is no value.
//
// Texts are compared octet by octet, whatever the collation of the database is. Values are parameters of the SQL and
// never part of its text.
//
// A rule has at most [MaxLeaves] leaves in at most [MaxDepth] levels, and its JSON has at most [MaxText] octets.
//
// # When it fails
//
// Errors of a rule are Invalid and Missing faults that name the place, such as filter.rules[2].operator. A rule is
// checked whenever it is used: one that names what has been deleted since is refused rather than read as though the
// field had no value, because it might then choose everybody.
//
// # What it does not do
//
// It reads no rows, and knows no tables: the schema has the columns.
package filter

// Limits of a rule.
const (
	MaxDepth   = 10       // levels; a single leaf has one
	MaxLeaves  = 100      // comparisons
	MaxText    = 64 << 10 // octets of JSON
	MaxString  = 2000     // characters of a text that is compared
	MaxList    = 500      // values of one list
	MaxField   = 200      // characters of the name of a field
	MaxNumber  = 1 << 53  // of a number, and its negative the least: beyond it not every integer is a float64
	maxNumeral = 16       // characters of a text that is read as a number
)

// Kind is the kind of a node of the tree.
type Kind string

const (
	And  Kind = "and"  // all of Rules hold
	Or   Kind = "or"   // at least one of Rules holds
	Not  Kind = "not"  // the only one of Rules does not hold
	Leaf Kind = "rule" // a comparison
)

// Rule is a node of the tree.
type Rule struct {
	Kind  Kind
	Rules []*Rule // of And, Or and Not

	// Of a leaf:
	Field    string
	Operator Operator
	Value    Value // none for operators that take no value

	place string // of the root: how errors name it
}

// Operator is how a leaf compares.
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

// operators has all operators, in the order in which errors list them.
var operators = []Operator{Eq, Neq, Gt, Gte, Lt, Lte, Contains, StartsWith, EndsWith, Exists, IsEmpty, In, NotIn,
	WithinLast, NotWithinLast, Before, After}

// meant has operators of other languages that users try.
var meant = map[string]Operator{
	"equals": Eq, "equal": Eq, "is": Eq, "=": Eq, "==": Eq, "not_equals": Neq, "not_equal": Neq, "notequals": Neq,
	"is_not": Neq, "ne": Neq, "!=": Neq, "<>": Neq, "greater_than": Gt, ">": Gt, "greater_than_or_equal": Gte,
	">=": Gte, "ge": Gte, "less_than": Lt, "<": Lt, "less_than_or_equal": Lte, "<=": Lte, "le": Lte, "includes": Contains,
	"like": Contains, "begins_with": StartsWith, "startswith": StartsWith, "prefix": StartsWith, "endswith": EndsWith,
	"suffix": EndsWith, "is_not_empty": Exists, "not_empty": Exists, "is_set": Exists, "not_null": Exists,
	"empty": IsEmpty, "is_null": IsEmpty, "not_exists": IsEmpty, "is_not_set": IsEmpty, "one_of": In, "any_of": In,
	"none_of": NotIn, "nin": NotIn, "last": WithinLast, "not_last": NotWithinLast,
}

// positive returns the operator whose negation o is, or o itself.
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

// takesValue reports whether leaves with the operator have a value.
func (o Operator) takesValue() bool { return o != Exists && o != IsEmpty }

// Leaves calls f for each leaf of the rule, in the order of the text.
func (r *Rule) Leaves(f func(*Rule)) {
	if r.Kind == Leaf {
		f(r)
	}
	for _, sub := range r.Rules {
		sub.Leaves(f)
	}
}

// Fields returns the full names of the fields that the rule reads, each once, also those that values refer to.
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
