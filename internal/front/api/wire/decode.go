package wire

import (
	"bytes"
	"errors"
	"io"
	"mime"
	"reflect"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/lib/fault"
)

// lenient makes the decoder accept duplicate names and invalid UTF-8. With lenient, unknown fields are ignored, and a
// null value is treated as an absent field.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// decode decodes a request body. An empty request body is treated as {}.
func decode(body []byte, contentType string, in any) error {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if len(bytes.TrimLeft(body, " \t\r\n")) == 0 {
		return nil
	}
	err := json.Unmarshal(body, in, lenient)
	switch {
	case err != nil:
		return badBody(err, contentType)
	case hasNUL(body):
		return fault.Invalidf("", `The request body has the character \u0000, which text cannot have.`)
	}
	return nil
}

// hasNUL reports whether JSON contains an escaped NUL, which PostgreSQL cannot store in text columns. An unescaped NUL
// is invalid JSON. The escape ends with four zeros, so hasNUL looks only at every fourth byte. A search for the first
// byte of the escape would stop at each of the many escapes with which some libraries write HTML.
func hasNUL(body []byte) bool {
	for i := 3; i < len(body); i += 4 {
		if body[i] != '0' {
			continue
		}
		from := i // the first of the escape's zeros
		for from > i-3 && body[from-1] == '0' {
			from--
		}
		before, escaped := bytes.CutSuffix(body[:from], []byte(`\u`))
		if !escaped || !bytes.HasPrefix(body[from:], []byte("0000")) {
			continue
		}
		if slashes := len(before) - len(bytes.TrimRight(before, `\`)); slashes%2 == 0 {
			return true
		}
	}
	return false
}

// badBody returns the fault for a JSON decoder error. The fault's message names the request field.
func badBody(err error, contentType string) error {
	if e, ok := errors.AsType[*fault.Error](err); ok {
		return e
	}
	if e, ok := errors.AsType[*json.SemanticError](err); ok && e.JSONKind != 0 {
		field, want := fieldName(e.JSONPointer), typeName(e.GoType)
		if field == "" {
			return fault.Invalidf("", "The request body must be %s, not %s.", want, kindName(e.JSONKind)).Because(err)
		}
		if want == kindName(e.JSONKind) && e.GoType.Kind() == reflect.Float64 {
			return fault.Invalidf(field, "The `%s` field is too large a number.", field).Because(err)
		}
		if want == kindName(e.JSONKind) {
			return fault.Invalidf(field, "The `%s` field must be a whole number within its range.", field).Because(err)
		}
		return fault.Invalidf(field, "The `%s` field must be %s, not %s.", field, want, kindName(e.JSONKind)).Because(err)
	}
	if media, _, _ := mime.ParseMediaType(contentType); media != "" && media != "application/json" &&
		!strings.HasSuffix(media, "+json") {
		return fault.New(fault.Malformed, "",
			"The request body must be JSON, with the header `Content-Type: application/json`, not %s.",
			media).Because(err)
	}
	if e, ok := errors.AsType[*jsontext.SyntacticError](err); ok && !errors.Is(err, io.ErrUnexpectedEOF) {
		return fault.New(fault.Malformed, "", "The request body is not valid JSON: there is a mistake at byte %d.",
			e.ByteOffset).Because(err)
	}
	return fault.New(fault.Malformed, "", "The request body is not valid JSON: it ends too early.").Because(err)
}

// MaxNameBytes is the maximum length of a field's path in error messages, in bytes. Without this limit, a path could be
// as long as the body, because the client chooses the field names.
const MaxNameBytes = 300

// FieldName returns the path of the field that the decoder has just read, such as to[2].
func FieldName(d *jsontext.Decoder) string { return fieldName(d.StackPointer()) }

// fieldName converts a JSON pointer to a readable form: /to/2 becomes to[2].
func fieldName(p jsontext.Pointer) string {
	pointer := string(p)
	if len(pointer) > MaxNameBytes {
		pointer = strings.ToValidUTF8(pointer[:MaxNameBytes], "") + "…"
	}
	var b strings.Builder
	for part := range strings.SplitSeq(strings.TrimPrefix(pointer, "/"), "/") {
		if _, err := strconv.Atoi(part); err == nil {
			b.WriteString("[" + part + "]")
			continue
		}
		if b.Len() > 0 {
			b.WriteByte('.')
		}
		b.WriteString(strings.NewReplacer("~1", "/", "~0", "~").Replace(part))
	}
	return b.String()
}

func typeName(t reflect.Type) string {
	if t == nil {
		return "of another type"
	}
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	case reflect.Slice, reflect.Array:
		return "an array"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Int, reflect.Int64, reflect.Float64:
		return "a number"
	}
	return "of another type"
}

func kindName(k jsontext.Kind) string {
	switch k {
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '{':
		return "an object"
	case '[':
		return "an array"
	case 't', 'f':
		return "true or false"
	case 'n':
		return "null"
	}
	return "what was sent"
}
