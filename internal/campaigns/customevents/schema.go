package customevents

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/campaigns/jsonread"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/events"
	"github.com/postrider/postrider/internal/platform/schedule"
)

// check returns an error if a schema has too many members, or a member with an invalid name or type.
func (s Schema) check() error {
	if len(s) > MaxFields {
		return fault.Invalidf("schema", "The `schema` field has %d members; the limit is %d.", len(s), MaxFields)
	}
	for _, name := range slices.Sorted(maps.Keys(s)) {
		switch {
		case name == "" || !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl) ||
			utf8.RuneCountInString(name) > maxKey:
			return fault.Invalidf("schema", "The `schema` field has the member %.50q; a name must have 1 to %d "+
				"characters, and no control characters.", name, maxKey)
		case !slices.Contains([]Type{String, Number, Boolean, Date}, s[name]):
			return fault.Invalidf("schema."+name, "The `schema.%s` field must be `string`, `number`, "+
				"`boolean` or `date`.", name)
		}
	}
	return nil
}

// checkPayload validates an event's payload against the schema, and returns the payload as compact JSON, or "" if the
// event has no payload.
func checkPayload(text []byte, event string, schema Schema) (string, error) {
	if text = bytes.TrimSpace(text); len(text) == 0 || string(text) == "null" {
		return "", nil
	}
	if len(text) > events.MaxPayload {
		return "", fault.Invalidf("payload", "The `payload` field has %d bytes; the limit is %d.", len(text),
			events.MaxPayload)
	}
	if err := checkShape(text); err != nil {
		return "", err
	}
	d := jsontext.NewDecoder(bytes.NewReader(text))
	_, err := d.ReadToken()
	for err == nil && d.PeekKind() == '"' {
		var name jsontext.Token
		if name, err = d.ReadToken(); err != nil {
			break
		}
		key := name.String()
		var value jsontext.Value
		if value, err = d.ReadValue(); err == nil {
			if err := schema.checkValue(event, key, value); err != nil {
				return "", err
			}
		}
	}
	if err != nil {
		return "", malformed(err)
	}
	v := jsontext.Value(slices.Clone(text))
	if err := v.Format(); err != nil { // Format removes unnecessary escapes, so that an erasure finds addresses
		return "", malformed(err)
	}
	return string(v), nil
}

// checkShape returns an error if a payload is not a JSON object, is nested too deeply, or contains values that cannot
// be stored.
func checkShape(text []byte) error {
	d := jsontext.NewDecoder(bytes.NewReader(text))
	if d.PeekKind() != '{' {
		return fault.Invalidf("payload", "The `payload` field must be an object.")
	}
	for {
		token, err := d.ReadToken()
		if errors.Is(err, io.EOF) {
			return jsonread.CheckNumbers("payload", text)
		}
		if err != nil {
			return malformed(err)
		}
		if token.Kind() == '"' && strings.Contains(token.String(), "\x00") {
			return fault.Invalidf("payload", "The `payload` field has a NUL character, which text cannot have.")
		}
		if d.StackDepth() > MaxDepth {
			return fault.Invalidf("payload",
				"The `payload` field has objects and lists more than %d deep within each other.", MaxDepth)
		}
	}
}

func malformed(err error) error {
	what := "is not valid JSON"
	if s, ok := errors.AsType[*jsontext.SyntacticError](err); ok && errors.Is(err, jsontext.ErrDuplicateName) {
		what = fmt.Sprintf("names %.100q twice", s.JSONPointer.LastToken())
	}
	return fault.Invalidf("payload", "The `payload` field %s.", what).Because(err)
}

// checkValue returns an error if a payload member does not have the type given in the schema.
func (s Schema) checkValue(event, name string, value jsontext.Value) error {
	want, ok := s[name]
	if !ok || value.Kind() == 'n' {
		return nil
	}
	var is bool
	what := "a " + string(want)
	switch kind := value.Kind(); want {
	case String:
		is = kind == '"'
	case Number:
		is = kind == '0'
	case Boolean:
		is = kind == 't' || kind == 'f'
		what += ", `true` or `false`"
	case Date:
		what += " such as `2026-01-31` or `2026-01-31T09:30:00Z`"
		if kind == '"' {
			text, err := jsontext.AppendUnquote(nil, value)
			_, isDate := schedule.ParseDate(string(text))
			is = err == nil && isDate
		}
	}
	if !is {
		field := "payload." + name
		return fault.Invalidf(field, "The `%s` field must be %s, as the schema of the event `%s` says.", field, what,
			event)
	}
	return nil
}
