package filter

import "strings"

// Type is the type of a field.
type Type uint8

const (
	TextField   Type = iota + 1
	NumberField      // numbers
	BoolField        // true or false
	TimeField        // instants
	ChoiceField      // one string out of a fixed set
	SetField         // any number of ids, such as those of segments
	AnyField         // a payload field without a declared type
)

// String returns the type's name for use in error messages.
func (t Type) String() string {
	return [...]string{"nothing", "a text", "a number", "true or false", "a time", "a choice", "a set", "anything"}[t]
}

// accepts lists the operators that each type supports.
var accepts = map[Type][]Operator{
	TextField:   {Eq, Neq, Gt, Gte, Lt, Lte, Contains, StartsWith, EndsWith, Exists, IsEmpty, In, NotIn},
	NumberField: {Eq, Neq, Gt, Gte, Lt, Lte, Exists, IsEmpty, In, NotIn},
	BoolField:   {Eq, Neq, Exists, IsEmpty},
	TimeField:   {Before, After, WithinLast, NotWithinLast, Exists, IsEmpty},
	ChoiceField: {Eq, Neq, Exists, IsEmpty, In, NotIn},
	SetField:    {Eq, Neq, In, NotIn},
	AnyField:    operators,
}

// Field is a field that rules can name.
type Field struct {
	Type    Type
	Default Value // used for contacts without a value; for example, the number 0
	Lower   bool  // stored values are in lower case; operands are converted with message.FoldCase

	// Allow checks a string that is compared with a ChoiceField or a SetField. If the string is allowed, Allow returns
	// ""; otherwise, it returns the end of an error message that begins with the path. If Allow is nil, every string is
	// allowed.
	Allow func(text string) (problem string)

	Column Column
}

// Column says where SQL finds a field's values. Fields that exist only in memory have the zero Column. The strings in a
// Column become part of the SQL and must not come from users, except for KeyValue, which becomes a parameter.
type Column struct {
	// Value is an SQL expression, such as c.first_name, where c is the contact, or v.value, where v is a row of Table.
	// The expression must never be NULL. An empty string or the time 0 means that the field has no value.
	Value string

	// Table is the table that contains the values; it has a contact_id column. Table is "" if the value is a column of
	// the contact itself. A contact without a value has no row for the field. A contact with a value has one row or,
	// for a SetField, one or more rows.
	Table string

	Key      string // the column of Table that identifies the field; "" if all rows belong to this field
	KeyValue string // value of the Key column for this field, an id

	// Sets describes the index that finds all contacts with a given value, if it is not an index on Table and Key.
	// Contacts that are missing from the index must have the field's default value.
	Sets *Sets
}

// Sets says where SQL finds the contacts that have a given value. Like the strings in [Column], the strings in Sets
// must not come from users.
type Sets struct {
	Table    string
	Contact  string // the column of Table that contains the contact's id; a contact has at most one row
	Value    string // the expression to compare, where v is the row
	Key      string // a column that must equal KeyValue; "" for none
	KeyValue string
	Only     string // condition of a partial index (v is the row); rows outside the index have the default value

	// Head is an SQL expression for the first HeadSize characters of a string. If Head is set, the index contains Head
	// instead of Value.
	Head string
}

// HeadSize is the number of characters in [Sets.Head].
const HeadSize = 500

// sets returns a column's Sets, and reports whether an index finds contacts by the column's value.
func (c *Column) sets(t Type) (s Sets, ok bool) {
	if c.Sets != nil {
		return *c.Sets, true
	}
	s = Sets{Table: c.Table, Contact: "contact_id", Value: c.Value, Key: c.Key, KeyValue: c.KeyValue}
	return s, c.Table != "" && (c.Key != "" || t == SetField)
}

// Schema describes the fields that a rule can name.
type Schema struct {
	Fields map[string]Field // by full name

	// Open contains prefixes of field names, such as "event.". A field that has such a prefix but is not in Fields is
	// an AnyField.
	Open []string

	// Unknown returns an extra sentence for the error message about an unknown field, or "" for none. Unknown may be
	// nil.
	Unknown func(name string) string

	References bool // whether operands may be references to other fields
}

// FullName returns the full name of a field: properties.plan is short for contact.properties.plan.
func FullName(name string) string {
	if strings.HasPrefix(name, "properties.") {
		return "contact." + name
	}
	return name
}

// field returns the field with the given name.
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
