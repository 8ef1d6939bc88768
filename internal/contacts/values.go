package contacts

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/fault"
)

// Type is the type of a property, or of a value.
type Type string

const (
	String Type = "string"
	Number Type = "number"
	Other  Type = "other" // of values only: neither, so no property takes it
)

// Limits of values (API reference section 14).
const (
	MaxValue  = 2000      // characters of a string
	MaxNumber = 1<<53 - 1 // the largest amount of a number
)

// Value is what a contact has of a property. The zero Value is none.
type Value struct {
	Type Type
	Text string // as it is put into emails; a number is written as in JSON
}

// TextValue returns a value of type String.
func TextValue(text string) Value { return Value{String, text} }

// NumberValue returns a value of type Number.
func NumberValue(n float64) Value {
	if n == 0 {
		n = 0 // and not -0
	}
	return Value{Number, jsontext.Float(n).String()}
}

// Number returns the number of a value of type Number, and NaN for others.
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

// check applies the rules of a value for a property of type t. field is the name of the value in the request.
func (v Value) check(field string, t Type) error {
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
	case utf8.RuneCountInString(v.Text) > MaxValue:
		return fault.Invalidf(field, "The `%s` field has %d characters; the limit is %d.", field,
			utf8.RuneCountInString(v.Text), MaxValue)
	}
	return nil
}
