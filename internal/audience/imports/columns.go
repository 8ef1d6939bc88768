package imports

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/postrider/postrider/internal/audience/contacts"
	"github.com/postrider/postrider/internal/audience/scalar"
	"github.com/postrider/postrider/internal/lib/fault"
)

// Map assigns the columns of a file to contact fields, by column name. A field that has no column is not imported.
type Map struct {
	Email        string // "" means the column email
	FirstName    string
	LastName     string
	Unsubscribed string
	Properties   map[string]Column // by property name
}

// Column is a column that contains a property's values.
type Column struct {
	Name string
	Type string // string, number or boolean; "" means string
}

// defaultMap is used if no Map is given; it requires the columns to have the same names as the fields.
var defaultMap = Map{FirstName: "first_name", LastName: "last_name", Unsubscribed: "unsubscribed"}

// resolve returns the indexes of the columns that m names, and the properties that these columns need. If m is nil, all
// columns except the email address are optional. Errors are faults for the `column_map` field.
func (m *Map) resolve(header []string) (c columns, needed []contacts.BulkProperty, err error) {
	given := m != nil
	if !given {
		m = &defaultMap
	}
	if c.Email = columnIndex(header, "email"); given && m.Email != "" || c.Email == ambiguous {
		if c.Email, err = namedColumn(header, "email", cmp.Or(m.Email, "email")); err != nil {
			return c, nil, err
		}
	}
	if c.Email < 0 {
		return c, nil, fault.Invalidf("column_map", "The `file` has no column `email`. Name the column of the addresses as "+
			"`email` in the `column_map` field. The file has: %.300s.", columnNames(header))
	}
	for _, f := range []struct {
		field, name string
		at          *int
	}{{"first_name", m.FirstName, &c.FirstName}, {"last_name", m.LastName, &c.LastName},
		{"unsubscribed", m.Unsubscribed, &c.Unsubscribed}} {
		switch *f.at = -1; {
		case f.name == "":
		case given:
			if *f.at, err = namedColumn(header, f.field, f.name); err != nil {
				return c, nil, err
			}
		default:
			*f.at = max(-1, columnIndex(header, f.name))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(m.Properties)) {
		p := property{Name: name, Type: scalar.String}
		switch of := m.Properties[name]; of.Type {
		case "", "string":
		case "number":
			p.Type = scalar.Number
		case "boolean":
			p.Bool = true
		default:
			return c, nil, fault.Invalidf("column_map", "The `column_map.properties.%.50s.type` field must be `string`, "+
				"`number` or `boolean`.", name)
		}
		if p.Column, err = namedColumn(header, "properties."+name, m.Properties[name].Name); err != nil {
			return c, nil, err
		}
		c.Properties = append(c.Properties, p)
		needed = append(needed, contacts.BulkProperty{Name: name, Type: p.Type})
	}
	return c, needed, nil
}

// columnIndex returns one of these negative values if it finds no column or several columns.
const (
	missing   = -1
	ambiguous = -2
)

// columnIndex returns the index of the column with the given name. An exact match takes precedence over a match that
// ignores case and surrounding spaces.
func columnIndex(header []string, name string) int {
	at := missing
	for _, same := range []func(a, b string) bool{
		func(a, b string) bool { return a == b },
		func(a, b string) bool { return strings.EqualFold(strings.TrimSpace(a), strings.TrimSpace(b)) },
	} {
		for i, h := range header {
			if !same(h, name) {
				continue
			}
			if at >= 0 {
				return ambiguous
			}
			at = i
		}
		if at >= 0 {
			break
		}
	}
	return at
}

// namedColumn returns the index of the column that a Map assigns to a field, or a fault for `column_map`.
func namedColumn(header []string, field, name string) (int, error) {
	at := columnIndex(header, name)
	switch {
	case at == ambiguous:
		return at, fault.Invalidf("column_map", "The `column_map.%.60s` field names the column %.60q, which the file has "+
			"more than once. Give one of them another name.", field, name)
	case at == missing:
		return at, fault.Invalidf("column_map", "The `column_map.%.60s` field names the column %.60q, which the file does "+
			"not have. It has: %.300s.", field, name, columnNames(header))
	}
	return at, nil
}

// columnNames returns the column names for use in an error message.
func columnNames(header []string) string {
	return strings.ToValidUTF8(strings.Join(header, ", "), "")
}

// row converts a record from the file into a row for package contacts. The error returned by row says what is wrong
// with the record.
func (p *plan) row(b *contacts.Bulk, fields []string) (row contacts.BulkRow, err error) {
	if more := len(fields) - len(p.Header); more > 0 && strings.Join(fields[len(p.Header):], "") != "" {
		return row, fault.Invalidf("", "The row has %d fields, and the first line names %d columns. Quote fields that "+
			"contain the separator.", len(fields), len(p.Header))
	}
	field := func(at int) string {
		if at < 0 || at >= len(fields) {
			return ""
		}
		return strings.Clone(strings.TrimSpace(fields[at])) // a mere substring would keep the whole record in memory
	}
	c := &p.Columns
	row.Address, row.FirstName, row.LastName = field(c.Email), field(c.FirstName), field(c.LastName)
	if text := field(c.Unsubscribed); text != "" {
		yes, ok := parseBool(text)
		if !ok {
			return row, notBool("unsubscribed", text)
		}
		row.Unsubscribed = &yes
	}
	row.Values = make([]string, len(c.Properties))
	for i, p := range c.Properties {
		text := field(p.Column)
		if p.Bool && text != "" {
			yes, ok := parseBool(text)
			if !ok {
				return row, notBool(p.Name, text)
			}
			text = "false"
			if yes {
				text = "true"
			}
		}
		row.Values[i] = text
	}
	return row, b.Check(&row)
}

// hasRows reports whether the last field with line breaks contains lines that look like rows, because its quote was not
// closed. Each line but the first and the last must look like a row, and at least two lines must.
func (p *plan) hasRows(fields []string) bool {
	for _, f := range slices.Backward(fields) {
		if !strings.ContainsAny(f, "\r\n") {
			continue
		}
		lines := strings.FieldsFunc(f, func(c rune) bool { return c == '\r' || c == '\n' })
		for i, line := range lines[min(1, len(lines)):] {
			if !p.isRow(line) {
				return i >= 2 && i == len(lines)-2
			}
		}
		return len(lines) > 2
	}
	return false
}

// isRow reports whether a line has as many fields as the first line of the file, and something like an address in the
// column of the addresses.
func (p *plan) isRow(line string) bool {
	fields := strings.Split(line, string(p.Form.Comma))
	if len(fields) != len(p.Header) {
		return false
	}
	local, domain, ok := strings.Cut(strings.Trim(fields[p.Columns.Email], " \t\""), "@")
	return ok && local != "" && domain != "" && !strings.ContainsAny(local+domain, "@ \t")
}

// parseBool parses booleans in the forms that spreadsheets and other services use.
func parseBool(text string) (yes, ok bool) {
	switch strings.ToLower(text) {
	case "true", "t", "yes", "y", "1":
		return true, true
	case "false", "f", "no", "n", "0":
		return false, true
	}
	return false, false
}

func notBool(field, text string) error {
	return fault.Invalidf(field, "The `%s` field must be `true` or `false`, not %.50q.", field, text)
}
