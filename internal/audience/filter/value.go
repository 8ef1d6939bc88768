package filter

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/platform/schedule"
)

// ValueKind is the kind of a [Value].
type ValueKind uint8

const (
	None      ValueKind = iota // no value; null in JSON
	Text                       // a string; may be empty only in a rule
	Number                     // a finite number
	Bool                       // true or false
	Time                       // a time with microsecond precision
	Other                      // a value that equals no value in a rule, such as an object in a payload
	List                       // in a rule: alternatives; for a contact: the strings in a SetField
	Reference                  // in a rule: the name of another field
	absent                     // in a rule: the value is missing
)

// Value is a field's value or the operand of a comparison. The zero Value means no value.
type Value struct {
	kind   ValueKind
	text   string
	number float64
	micros int64
	list   []Value
}

// TextValue returns a string as a Value, or the zero Value if the string is empty.
func TextValue(text string) Value {
	if text == "" {
		return Value{}
	}
	return Value{kind: Text, text: text}
}

// NumberValue returns a number as a Value, or the zero Value for NaN.
func NumberValue(n float64) Value {
	if math.IsNaN(n) {
		return Value{}
	}
	return Value{kind: Number, number: n}
}

// BoolValue returns a boolean as a Value.
func BoolValue(b bool) Value {
	v := Value{kind: Bool}
	if b {
		v.number = 1
	}
	return v
}

// TimeValue returns a time, truncated to microseconds, as a Value. For the zero time, TimeValue returns the zero Value.
func TimeValue(t time.Time) Value {
	if t.IsZero() {
		return Value{}
	}
	return Value{kind: Time, micros: micros(t)}
}

// ListValue returns a set of strings as a Value, for a field of type SetField.
func ListValue(texts []string) Value {
	v := Value{kind: List}
	for _, t := range texts {
		v.list = append(v.list, TextValue(t))
	}
	return v
}

// OtherValue returns a Value that exists but does not equal any other value.
func OtherValue() Value { return Value{kind: Other} }

// Kind returns the kind of v.
func (v Value) Kind() ValueKind { return v.kind }

// Texts returns the strings in a List. For a Text, the result has that string as its only element.
func (v Value) Texts() []string {
	switch v.kind {
	case Text:
		return []string{v.text}
	case List:
		var all []string
		for _, item := range v.list {
			all = append(all, item.Texts()...)
		}
		return all
	}
	return nil
}

// Len returns the number of values: the length of a List, 0 for None, and 1 for all other kinds.
func (v Value) Len() int {
	switch v.kind {
	case None:
		return 0
	case List:
		return len(v.list)
	}
	return 1
}

// none reports whether v is the zero Value or the empty string.
func (v Value) none() bool { return v.kind == None || v.kind == Text && v.text == "" }

// asNumber returns the number in a Number, or in a Text that the numeral function can parse.
func (v Value) asNumber() (float64, bool) {
	switch v.kind {
	case Number:
		return v.number, true
	case Text:
		return numeral(v.text)
	}
	return 0, false
}

// asText returns the string in a Text, or the string that emails show for a Number.
func (v Value) asText() (string, bool) {
	switch v.kind {
	case Text:
		return v.text, true
	case Number:
		return jsontext.Float(v.number).String(), true
	}
	return "", false
}

// asTime returns the range of microseconds that a time or date covers; the end of the range is exclusive. A date covers
// a whole day in UTC; a time covers one microsecond. A time without a time zone is in UTC.
func (v Value) asTime() (from, after int64, ok bool) {
	switch v.kind {
	case Time:
		return v.micros, v.micros + 1, true
	case Text:
		d, ok := schedule.ParseDate(v.text)
		if !ok {
			return 0, 0, false
		}
		t := d.In(time.UTC, schedule.TimeOfDay{})
		if d.Timed() {
			return micros(t), micros(t) + 1, true
		}
		return micros(t), micros(t.AddDate(0, 0, 1)), true
	}
	return 0, 0, false
}

// equal reports whether two values are equal. A Text that contains a numeral equals a Number with the same value; two
// Texts are never compared as numbers.
func (v Value) equal(to Value) bool {
	switch {
	case v.kind == to.kind:
		return v.kind == Text && v.text == to.text || v.kind == Number && v.number == to.number ||
			v.kind == Bool && v.number == to.number || v.kind == Time && v.micros == to.micros
	case v.kind == Number || to.kind == Number:
		a, ok := v.asNumber()
		b, also := to.asNumber()
		return ok && also && a == b
	}
	return false
}

// micros returns a time in microseconds since 1970, rounded down.
func micros(t time.Time) int64 {
	return t.Unix()*1e6 + int64(t.Nanosecond()/1000)
}

// numeral parses a string as a number: an optional minus sign, digits, and optionally a point and more digits, in at
// most 16 characters. PostgreSQL and SQLite parse a string of this form as the same number. [numeralSQL] implements the
// same check in SQL.
func numeral(text string) (float64, bool) {
	if len(text) > maxNumeral {
		return 0, false
	}
	whole, fraction, point := strings.Cut(strings.TrimPrefix(text, "-"), ".")
	if !digits(whole) || point && !digits(fraction) {
		return 0, false
	}
	n, err := strconv.ParseFloat(text, 64)
	return n, err == nil
}

func digits(text string) bool {
	for i := range len(text) {
		if text[i] < '0' || text[i] > '9' {
			return false
		}
	}
	return text != ""
}
