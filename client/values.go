package client

import (
	"encoding/json"
	"fmt"
	"reflect"
	"time"
)

// Field is an optional field of a change. The zero value leaves the field out, so that the resource keeps its value.
// [Set] and [Null] return other values.
type Field[T any] struct {
	value *T
	given bool
}

// Set returns a field that changes the value of the resource.
func Set[T any](value T) Field[T] { return Field[T]{&value, true} }

// Null returns a field that removes the value of the resource.
func Null[T any]() Field[T] { return Field[T]{nil, true} }

// IsZero reports whether the field is left out.
func (f Field[T]) IsZero() bool { return !f.given }

// Value returns the value that the field sets. If the field is left out or removes the value, ok is false.
func (f Field[T]) Value() (value T, ok bool) {
	if f.value == nil {
		return value, false
	}
	return *f.value, true
}

// MarshalJSON writes the value or null. A nil slice is an empty list.
func (f Field[T]) MarshalJSON() ([]byte, error) {
	if f.value == nil {
		return []byte("null"), nil
	}
	if v := reflect.ValueOf(*f.value); v.Kind() == reflect.Slice && v.IsNil() && v.Type().Elem().Kind() != reflect.Uint8 {
		return []byte("[]"), nil
	}
	return json.Marshal(*f.value)
}

// Time is a time in a response. It is the zero time if the response has null.
type Time struct{ time.Time }

// timeLayouts are the formats of times in responses: the public API uses both.
var timeLayouts = []string{time.RFC3339Nano, "2006-01-02 15:04:05-07"}

// UnmarshalJSON reads a time or null.
func (t *Time) UnmarshalJSON(text []byte) error {
	var s *string
	if err := json.Unmarshal(text, &s); err != nil {
		return err
	}
	t.Time = time.Time{}
	if s == nil || *s == "" {
		return nil
	}
	for _, layout := range timeLayouts {
		if at, err := time.Parse(layout, *s); err == nil {
			t.Time = at.UTC()
			return nil
		}
	}
	return fmt.Errorf("the time %q has an unknown format", *s)
}

// MarshalJSON writes the time in RFC 3339, or null for the zero time.
func (t Time) MarshalJSON() ([]byte, error) {
	if t.IsZero() {
		return []byte("null"), nil
	}
	return t.Time.MarshalJSON()
}
