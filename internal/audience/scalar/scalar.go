// Package scalar defines the values of template variables and contact properties: strings and numbers of limited size.
//
// The zero [Value] means no value. Values are immutable and can be compared with ==. A number is stored as JSON text in
// a normal form, so that 1, 1.0 and 1e0 are the same value, and so are 0 and -0.
//
// [Value.Check] returns faults that name the field in the request. Package scalar neither parses JSON nor stores
// anything. JSON is parsed by package api.
package scalar

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/lib/fault"
)

// Type is the type of a value, a variable or a property.
type Type string

const (
	String Type = "string"
	Number Type = "number"
	Other  Type = "other" // neither a string nor a number; no variable or property accepts such a value
)

// Limits on values (API reference sections 8.4 and 14).
const (
	MaxText   = 2000      // characters
	MaxNumber = 1<<53 - 1 // largest absolute value
)

// Value is a string or a number.
type Value struct {
	Type Type
	Text string // the value as it appears in emails; numbers are in JSON form
}

// OfText returns a value of type String.
func OfText(text string) Value { return Value{String, text} }

// OfNumber returns a value of type Number.
func OfNumber(n float64) Value {
	if n == 0 {
		n = 0 // replaces -0
	}
	return Value{Number, jsontext.Float(n).String()}
}

// Number returns the number in a value of type Number, or NaN for a value of any other type.
func (v Value) Number() float64 {
	if v.Type != Number {
		return math.NaN()
	}
	n, err := strconv.ParseFloat(v.Text, 64)
	if err != nil {
		return math.NaN()
	}
	return n
}

// As converts a value to the type t if the conversion is exact, and reports whether it is. A number becomes the string
// that emails show. A string becomes a number only if it is that number's string: "12345" does, but "007" and "1,5" do
// not.
func (v Value) As(t Type) (Value, bool) {
	switch {
	case v.Type == t:
		return v, true
	case v.Type == Number && t == String:
		return OfText(v.Text), true
	case v.Type == String && t == Number:
		n, err := strconv.ParseFloat(v.Text, 64)
		if err != nil || !(math.Abs(n) <= MaxNumber) {
			return v, false
		}
		if as := OfNumber(n); as.Text == v.Text {
			return as, true
		}
	}
	return v, false
}

// CheckLine returns an Invalid fault for a string that has more than limit characters or more than one line.
func CheckLine(field, text string, limit int) error {
	if !utf8.ValidString(text) || strings.ContainsAny(text, "\r\n\x00") {
		return fault.Invalidf(field, "The `%s` field must be UTF-8 text without line breaks and NUL characters.", field)
	}
	if n := utf8.RuneCountInString(text); n > limit {
		return fault.Invalidf(field, "The `%s` field has %d characters; the limit is %d.", field, n, limit)
	}
	return nil
}

// Check validates a value for a variable or property of type t. The parameter field is the value's name in the request.
// If the value is not valid, Check returns an Invalid fault.
func (v Value) Check(field string, t Type) error {
	switch {
	case v.Type != t && t == Number:
		return fault.Invalidf(field, "The `%s` field must be a number.", field)
	case v.Type != t:
		return fault.Invalidf(field, "The `%s` field must be a string.", field)
	case t == Number:
		if !(math.Abs(v.Number()) <= MaxNumber) {
			return fault.Invalidf(field, "The `%s` field must be a number from -%d to %d.", field, MaxNumber, MaxNumber)
		}
	case !utf8.ValidString(v.Text) || strings.ContainsRune(v.Text, 0):
		return fault.Invalidf(field, "The `%s` field must be UTF-8 text without NUL characters.", field)
	case utf8.RuneCountInString(v.Text) > MaxText:
		return fault.Invalidf(field, "The `%s` field has %d characters; the limit is %d.", field,
			utf8.RuneCountInString(v.Text), MaxText)
	}
	return nil
}
