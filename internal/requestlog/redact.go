package requestlog

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// removed stands where a secret or a file was.
const removed = `"[redacted]"`

// secretEndings are what the names of secrets end with, in lower case.
var secretEndings = [...]string{"token", "secret", "password", "authorization", "api_key", "apikey", "api-key", "private_key", "cookie",
	"credential", "credentials", "signature", "code_verifier"}

// errTooLong says that even without long strings a body is beyond its bound.
var errTooLong = errors.New("the body is too long")

// Redact returns a body as the log keeps it: JSON without spaces, with the contents of attachments and the values of members whose
// names are those of secrets replaced, at any depth, and long strings cut. What is longer than 64 KB even so becomes an object that
// says so. longest is how many octets of a string are kept. It returns "" for a body that is empty or is not JSON.
//
// The names of secrets are judged by how they end (token, signing_secret, X-Api-Key), in either case.
func Redact(body []byte, longest int) string {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if len(body) == 0 {
		return ""
	}
	r := redactor{d: jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
		longest: longest, out: make([]byte, 0, min(len(body), bodyMax/16)+64)}
	err := r.value(false)
	if err == nil {
		err = r.end()
	}
	switch {
	case errors.Is(err, errTooLong):
		return fmt.Sprintf(`{"omitted":"The body had %d bytes, which is more than the log keeps."}`, len(body))
	case err != nil:
		return ""
	case !utf8.Valid(r.out):
		return strings.ToValidUTF8(string(r.out), "\ufffd")
	}
	return string(r.out)
}

// redactor copies one JSON text.
type redactor struct {
	d       *jsontext.Decoder
	longest int // octets of a string
	out     []byte
}

// end reports what stands behind the value.
func (r *redactor) end() error {
	if _, err := r.d.ReadToken(); err == nil {
		return errors.New("two values")
	}
	return nil
}

// value copies the next value. file says whether it is one of a list of attachments.
func (r *redactor) value(file bool) error {
	if len(r.out) > bodyMax {
		return errTooLong
	}
	switch r.d.PeekKind() {
	case '{':
		return r.object(file)
	case '[':
		return r.array(file)
	}
	raw, err := r.d.ReadValue()
	if err != nil {
		return err
	}
	return r.scalar(raw)
}

func (r *redactor) object(file bool) error {
	if _, err := r.d.ReadToken(); err != nil {
		return err
	}
	r.out = append(r.out, '{')
	for n := 0; r.d.PeekKind() != '}'; n++ {
		raw, err := r.d.ReadValue()
		if err != nil {
			return err
		}
		if n > 0 {
			r.out = append(r.out, ',')
		}
		if err := r.scalar(raw); err != nil {
			return err
		}
		r.out = append(r.out, ':')
		name := memberName(raw)
		switch {
		case secret(name) || file && name == "content":
			err = r.skip()
		default:
			err = r.value(name == "attachments" || name == "attachment")
		}
		if err != nil {
			return err
		}
	}
	_, err := r.d.ReadToken()
	r.out = append(r.out, '}')
	return err
}

func (r *redactor) array(file bool) error {
	if _, err := r.d.ReadToken(); err != nil {
		return err
	}
	r.out = append(r.out, '[')
	for n := 0; r.d.PeekKind() != ']'; n++ {
		if n > 0 {
			r.out = append(r.out, ',')
		}
		if err := r.value(file); err != nil {
			return err
		}
	}
	_, err := r.d.ReadToken()
	r.out = append(r.out, ']')
	return err
}

// skip reads a value that is not shown. Null tells nothing and stays.
func (r *redactor) skip() error {
	if r.d.PeekKind() == 'n' {
		r.out = append(r.out, "null"...)
	} else {
		r.out = append(r.out, removed...)
	}
	return r.d.SkipValue()
}

func (r *redactor) scalar(raw jsontext.Value) (err error) {
	if len(raw) <= r.longest {
		r.out = append(r.out, raw...)
		return nil
	}
	if raw.Kind() != '"' {
		return errTooLong
	}
	text, used := r.beginning(raw)
	short := fmt.Appendf(text, "… [%d more bytes]", len(raw)-len(`""`)-used)
	r.out, err = jsontext.AppendQuote(r.out, bytes.ToValidUTF8(short, []byte("\ufffd")))
	return err
}

// longestEscape is a pair of surrogates: \ud83d\ude00.
const longestEscape = 12

// beginning returns as much of a string as is kept, and how many octets of its source that was. It does not end within a
// character or an escape.
func (r *redactor) beginning(raw jsontext.Value) (text []byte, used int) {
	source := bytes.Clone(raw[:1+r.longest])
	for range longestEscape + 1 {
		n := len(source)
		if utf8.RuneStart(raw[n]) {
			var err error
			if text, err = jsontext.AppendUnquote(nil, append(source, '"')); err == nil {
				return text, n - 1
			}
		}
		source = source[:n-1]
	}
	return text, len(source) - 1 // what is not UTF-8 is replaced in the end
}

// memberName is the name of a member in lower case; raw is the name as it stands in the text.
func memberName(raw jsontext.Value) string {
	if len(raw) > 200 {
		raw = raw[len(raw)-200:] // an ending is all that is looked at
	} else if bytes.IndexByte(raw, '\\') >= 0 {
		if text, err := jsontext.AppendUnquote(nil, raw); err == nil {
			return strings.ToLower(string(text))
		}
	}
	return strings.ToLower(strings.Trim(string(raw), `"`))
}

func secret(name string) bool {
	for _, end := range secretEndings {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}
