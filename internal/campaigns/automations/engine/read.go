package engine

import (
	"fmt"
	"math"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/lib/fault"
)

// object is a JSON object of a request and where it stands, such as steps[2].config.
type object struct {
	place   string
	members map[string]jsontext.Value
}

func readObject(place string, text jsontext.Value) (object, error) {
	o := object{place: place}
	if err := json.Unmarshal(text, &o.members); err != nil || o.members == nil {
		return o, invalid(place, "must be an object, with each member once and in UTF-8.")
	}
	return o, nil
}

func (o object) at(name string) string { return under(o.place, name) }

// under returns the place of a member of an object. Names that are too long to be shown are shortened.
func under(place, name string) string {
	const limit = 100
	if utf8.RuneCountInString(name) > limit {
		name = string([]rune(name)[:limit]) + "…"
	}
	return place + "." + name
}

// has reports whether a member is there and not null.
func (o object) has(name string) bool {
	text, ok := o.members[name]
	return ok && text.Kind() != jsontext.KindNull
}

// renamed refuses the old name of a member that is not there.
func (o object) renamed(old, now string) error {
	if !o.has(old) || o.has(strings.Split(now, ".")[0]) {
		return nil
	}
	return invalid(o.at(old), "is not read any more: use `%s`.", o.at(now))
}

// optional reads a text of one line, "" if it is not there.
func (o object) optional(name string, limit int) (text string, err error) {
	if !o.has(name) {
		return "", nil
	}
	return readLine(o.at(name), o.members[name], limit)
}

// required is optional of a text that must be there and not be empty.
func (o object) required(name string, limit int) (string, error) {
	text, err := o.optional(name, limit)
	if err == nil && text == "" {
		err = fault.MissingField(o.at(name))
	}
	return text, err
}

func (o object) object(name string) (object, error) {
	if !o.has(name) {
		return object{}, fault.MissingField(o.at(name))
	}
	return readObject(o.at(name), o.members[name])
}

// list reads a list, which is empty if it is not there.
func (o object) list(name string) (items []jsontext.Value, err error) {
	if !o.has(name) {
		return nil, nil
	}
	return readList(o.at(name), o.members[name])
}

func readList(place string, text jsontext.Value) (items []jsontext.Value, err error) {
	if err := json.Unmarshal(text, &items); err != nil || items == nil {
		return nil, invalid(place, "must be a list.")
	}
	return items, nil
}

func readText(place string, value jsontext.Value, limit int) (text string, err error) {
	if value.Kind() != jsontext.KindString || json.Unmarshal(value, &text) != nil {
		return "", invalid(place, "must be a text in UTF-8.")
	}
	if n := utf8.RuneCountInString(text); n > limit {
		return "", invalid(place, "has %d characters; the limit is %d.", n, limit)
	}
	if strings.ContainsRune(text, 0) {
		return "", invalid(place, "must not contain NUL characters.")
	}
	return text, nil
}

func readLine(place string, value jsontext.Value, limit int) (string, error) {
	text, err := readText(place, value, limit)
	if err == nil && strings.ContainsFunc(text, unicode.IsControl) {
		err = invalid(place, "must not contain line breaks or other control characters.")
	}
	return text, err
}

func readNumber(place string, value jsontext.Value) (n float64, err error) {
	if value.Kind() != jsontext.KindNumber || json.Unmarshal(value, &n) != nil || math.Abs(n) > exact {
		return 0, invalid(place, "must be a number from -%d to %[1]d.", int64(exact))
	}
	return n, nil
}

// quote returns a text of a request for an error, shortened.
func quote(text string) string {
	const limit = 60
	if utf8.RuneCountInString(text) > limit {
		text = string([]rune(text)[:limit]) + "..."
	}
	return fmt.Sprintf("%q", text)
}

// invalid returns the fault of a field; format goes on a sentence that begins with its place.
func invalid(place, format string, args ...any) error {
	return fault.Invalidf(place, "The `%s` field %s", place, fmt.Sprintf(format, args...))
}
