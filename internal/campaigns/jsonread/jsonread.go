// Package jsonread reads the JSON of requests member by member. The errors that this package returns are Invalid and
// Missing faults. A fault's field is the path of the JSON value, such as steps[2].config.url, and its message is a
// sentence about that value.
//
// The automation engine and its simulation use this package, because decoding into Go structs would lose the paths of
// values.
package jsonread

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/lib/fault"
)

// Object is a JSON object in a request.
type Object struct {
	Path    string // path of the object in the request, such as steps[2].config
	Members map[string]jsontext.Value
}

// ParseObject parses the JSON object at the given path.
func ParseObject(path string, text jsontext.Value) (Object, error) {
	o := Object{Path: path}
	if err := json.Unmarshal(text, &o.Members); err != nil || o.Members == nil {
		return o, Invalidf(path, "must be an object, with each member once and in UTF-8.")
	}
	return o, nil
}

// At returns the path of the member with the given name.
func (o Object) At(name string) string { return Join(o.Path, name) }

// Join appends a member's name to the path of its object. Join truncates names that are longer than 100 characters.
func Join(path, name string) string {
	const limit = 100
	if utf8.RuneCountInString(name) > limit {
		name = string([]rune(name)[:limit]) + "…"
	}
	return path + "." + name
}

// Has reports whether the object has a member that is not null.
func (o Object) Has(name string) bool {
	text, ok := o.Members[name]
	return ok && text.Kind() != jsontext.KindNull
}

// Only returns an error if the object has a member that is not in names, so that misspelled member names are detected.
func (o Object) Only(names ...string) error {
	for _, name := range slices.Sorted(maps.Keys(o.Members)) {
		if !slices.Contains(names, name) {
			return Invalidf(o.At(name), "is not known. There are `%s`.", strings.Join(names, "`, `"))
		}
	}
	return nil
}

// Renamed returns an error if the object has a member with the former name but no member with the new name.
func (o Object) Renamed(former, present string) error {
	if !o.Has(former) || o.Has(strings.Split(present, ".")[0]) {
		return nil
	}
	return Invalidf(o.At(former), "is not read any more: use `%s`.", o.At(present))
}

// Optional parses a member as [Line] does, and returns "" if the object does not have the member.
func (o Object) Optional(name string, limit int) (text string, err error) {
	if !o.Has(name) {
		return "", nil
	}
	return Line(o.At(name), o.Members[name], limit)
}

// Required parses a member as [Line] does, and returns an error if the member is missing or empty.
func (o Object) Required(name string, limit int) (string, error) {
	text, err := o.Optional(name, limit)
	if err == nil && text == "" {
		err = fault.MissingField(o.At(name))
	}
	return text, err
}

// Object returns the value of a member, which must be an object.
func (o Object) Object(name string) (Object, error) {
	if !o.Has(name) {
		return Object{}, fault.MissingField(o.At(name))
	}
	return ParseObject(o.At(name), o.Members[name])
}

// List returns the items of a member, which must be a list. List returns nil if the object does not have the member.
func (o Object) List(name string) (items []jsontext.Value, err error) {
	if !o.Has(name) {
		return nil, nil
	}
	return List(o.At(name), o.Members[name])
}

// List parses the JSON list at the given path and returns its items.
func List(path string, text jsontext.Value) (items []jsontext.Value, err error) {
	if err := json.Unmarshal(text, &items); err != nil || items == nil {
		return nil, Invalidf(path, "must be a list.")
	}
	return items, nil
}

// Text parses the JSON string at the given path. Text returns an error if the string contains NUL or has more
// characters than the limit.
func Text(path string, value jsontext.Value, limit int) (text string, err error) {
	if value.Kind() != jsontext.KindString || json.Unmarshal(value, &text) != nil {
		return "", Invalidf(path, "must be a text in UTF-8.")
	}
	if n := utf8.RuneCountInString(text); n > limit {
		return "", Invalidf(path, "has %d characters; the limit is %d.", n, limit)
	}
	if strings.ContainsRune(text, 0) {
		return "", Invalidf(path, "must not contain NUL characters.")
	}
	return text, nil
}

// Line is like [Text], but it also returns an error if the string contains control characters.
func Line(path string, value jsontext.Value, limit int) (string, error) {
	text, err := Text(path, value, limit)
	if err == nil && strings.ContainsFunc(text, unicode.IsControl) {
		err = Invalidf(path, "must not contain line breaks or other control characters.")
	}
	return text, err
}

// Quote quotes a string from a request for use in an error message, and truncates it to 60 characters.
func Quote(text string) string {
	const limit = 60
	if utf8.RuneCountInString(text) > limit {
		text = string([]rune(text)[:limit]) + "..."
	}
	return fmt.Sprintf("%q", text)
}

// Invalidf returns an Invalid fault for the field at the given path. The message is a sentence that begins with the
// path and continues with the formatted text.
func Invalidf(path, format string, args ...any) error {
	return fault.Invalidf(path, "The `%s` field %s", path, fmt.Sprintf(format, args...))
}
