package filter

import "strings"

// Type is what kind of values a field holds.
type Type uint8

const (
	TextField   Type = iota + 1
	NumberField      // numbers
	BoolField        // true or false
	TimeField        // instants
	ChoiceField      // one of a few texts
	SetField         // any number of texts: ids of segments
	AnyField         // what a payload has that nobody described
)

// String returns the type as errors name it.
func (t Type) String() string {
	return [...]string{"nothing", "a text", "a number", "true or false", "a time", "a choice", "a set", "anything"}[t]
}

// accepts lists the operators of each type.
var accepts = map[Type][]Operator{
	TextField:   {Eq, Neq, Gt, Gte, Lt, Lte, Contains, StartsWith, EndsWith, Exists, IsEmpty, In, NotIn},
	NumberField: {Eq, Neq, Gt, Gte, Lt, Lte, Exists, IsEmpty, In, NotIn},
	BoolField:   {Eq, Neq, Exists, IsEmpty},
	TimeField:   {Before, After, WithinLast, NotWithinLast, Exists, IsEmpty},
	ChoiceField: {Eq, Neq, Exists, IsEmpty, In, NotIn},
	SetField:    {Eq, Neq, In, NotIn},
	AnyField:    operators,
}

// Field is a field that rules may name.
type Field struct {
	Type    Type
	Default Value // of a contact without a value, such as the number 0
	Lower   bool  // the values are in lower case, by message.FoldCase, and so is what they are compared with

	// Allow returns what is wrong with a text that a Choice or a Set is compared with, as the end of a sentence that
	// begins with the place, or "". Nil allows every text.
	Allow func(text string) (problem string)

	Column Column
}

// Column says where SQL finds the values of a field. The zero Column is that of fields that only exist in memory. Its
// texts become part of the SQL and must not come from users, except for KeyValue, which becomes a parameter.
type Column struct {
	// Value is an expression: c.first_name, where c is the contact, or v.value, where v is a row of Table. It is never
	// NULL; no value is '' for a text and 0 for a time.
	Value string

	// Table has rows with the column contact_id, "" when the value is a column of the contact itself. A contact has at
	// most one row for each field, except for a Set, and none where it has no value.
	Table string

	Key      string // the column of Table that tells fields apart, "" when all rows are of this field
	KeyValue string // its value

	// Sets says where all contacts with some value are found by an index, if that is not Table with its Key. Its Default
	// is that of the field, which must be the value of those that it does not find.
	Sets *Sets
}

// Sets is where SQL finds contacts by a value. Its texts are as those of a [Column].
type Sets struct {
	Table    string
	Contact  string // the column of Table with the id of the contact; a contact has one row at most
	Value    string // the expression that is compared, on the row v
	Key      string // a column that all rows looked for have KeyValue in
	KeyValue string
	Only     string // a condition on the row v, which a partial index has; rows that it leaves out have the Default

	// Head, if it is set, is an expression of the first HeadSize characters of a text, which the index has in place of
	// Value.
	Head string
}

// HeadSize is how many characters [Sets] has of a text whose Head it names.
const HeadSize = 500

// sets returns where the contacts with some value are found, if they are by an index.
func (c *Column) sets(t Type) (s Sets, ok bool) {
	if c.Sets != nil {
		return *c.Sets, true
	}
	s = Sets{Table: c.Table, Contact: "contact_id", Value: c.Value, Key: c.Key, KeyValue: c.KeyValue}
	return s, c.Table != "" && (c.Key != "" || t == SetField)
}

// Schema is what a rule may name.
type Schema struct {
	Fields map[string]Field // by the full name

	// Open has the beginnings of names, such as "event.", of which every field that is not in Fields is an AnyField.
	Open []string

	// Unknown returns a sentence about a field that is not there, for the error, or "". It may be nil.
	Unknown func(name string) string

	References bool // values may be references to other fields
}

// FullName returns the full name of a field: properties.plan is short for contact.properties.plan.
func FullName(name string) string {
	if strings.HasPrefix(name, "properties.") {
		return "contact." + name
	}
	return name
}

// field returns the field with a name.
func (s *Schema) field(name string) (Field, bool) {
	name = FullName(name)
	if f, ok := s.Fields[name]; ok {
		return f, true
	}
	for _, prefix := range s.Open {
		if len(name) > len(prefix) && strings.HasPrefix(name, prefix) {
			return Field{Type: AnyField}, true
		}
	}
	return Field{}, false
}
