package requestlog

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// maskedValue is the JSON value that replaces a secret or a file's content.
const maskedValue = `"[redacted]"`

// secretEndings are the endings of member names, in lower case, that indicate a secret.
var secretEndings = [...]string{"token", "secret", "password", "authorization", "api_key", "apikey", "api-key",
	"private_key", "cookie",
	"credential", "credentials", "signature", "code_verifier"}

// nameMax is the maximum length of a member name that is checked, in bytes of JSON. The value of a longer name is
// masked, because the end of the name may have been cut off.
const nameMax = 500

// errTooLong means that a body is still too long after its strings were cut.
var errTooLong = errors.New("the body is too long")

// Redact returns a request or response body as the log stores it: JSON without spaces, or "" if the body is empty or
// not JSON. Redact masks the contents of attachments and the values of secret members at any depth. Redact also masks
// secrets within strings (see [MaskSecrets]) and cuts strings to the given maximum length in bytes. If more than 64 KB
// remain, Redact returns a JSON object that states that the body was omitted.
//
// A member is secret if its name is longer than 500 bytes, or if it ends like token, signing_secret or X-Api-Key, in
// upper or lower case.
func Redact(body []byte, longest int) string { return redact(body, longest, false) }

// redact is like [Redact]. With hideCredentials, redact also masks the queries of all URLs and the values of header
// fields, which are the members of objects named headers.
func redact(body []byte, longest int, hideCredentials bool) string {
	r := redactor{hideCredentials: hideCredentials}
	return r.redact(body, longest)
}

// redactEmails is like [Redact] for a successful request that created emails, and replaces the bodies of the emails by
// references. It returns the ids of these emails for the column email_ids, or "" if it replaced nothing.
func redactEmails(body []byte, all []StoredEmail) (text, ids string) {
	r := redactor{emails: all}
	text = r.redact(body, successMax)
	if !r.refers {
		return text, ""
	}
	for i := range all {
		if i > 0 {
			ids += ","
		}
		ids += all[i].ID
	}
	return text, ids
}

// redact returns a body as the log stores it.
func (r *redactor) redact(body []byte, longest int) string {
	body = bytes.TrimPrefix(body, []byte("\ufeff"))
	if len(body) == 0 {
		return ""
	}
	short, cuts := shorten(body, longest)
	r.d = jsontext.NewDecoder(bytes.NewBuffer(short), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	r.out, r.cuts = make([]byte, 0, min(len(short), bodyMax/16)+64), cuts
	if len(r.emails) > 0 && r.d.PeekKind() == '{' {
		r.email, r.emails = &r.emails[0], nil
	}
	err := r.value(false)
	if err == nil {
		err = r.end()
	}
	if err != nil {
		r.refers = false
	}
	switch {
	case errors.Is(err, errTooLong):
		return omitted(int64(len(body)))
	case err != nil:
		return ""
	case !utf8.Valid(r.out):
		return strings.ToValidUTF8(string(r.out), "\ufffd")
	}
	return string(r.out)
}

// omitted returns the JSON that replaces a body that is too long.
func omitted(size int64) string {
	return fmt.Sprintf(`{"omitted":"The body had %d bytes, which is more than the log keeps."}`, size)
}

// redactor copies and redacts one JSON text.
type redactor struct {
	d   *jsontext.Decoder
	out []byte

	hideCredentials bool // see redact

	emails   []StoredEmail // the emails that the items of the next array describe
	email    *StoredEmail  // the email that the next object describes, or nil
	cuts     []cut
	replaced int  // number of bytes by which references made the output shorter
	refers   bool // whether the output has references
}

// tooLong reports whether the output is too long for the log. References count as the strings that they replace, so
// that the log shows the same with and without them.
func (r *redactor) tooLong() bool { return len(r.out)+r.replaced > bodyMax }

// These are the members whose values are replaced by references, in JSON.
const (
	htmlMember = `"html"`
	textMember = `"text"`
)

// body copies a string that contains a body of an email. If the stored body is the same, body writes a reference to it
// instead.
func (r *redactor) body(stored *string) error {
	if stored == nil || r.d.PeekKind() != '"' || r.tooLong() {
		return r.value(false)
	}
	raw, err := r.d.ReadValue()
	if err != nil {
		return err
	}
	shown := r.masked(raw)
	before := len(r.out)
	if of, ok := newReference(raw, shown, r.cutAt(int(r.d.InputOffset())-1), *stored); ok {
		r.out = of.appendTo(r.out)
		r.replaced += len(shown) - (len(r.out) - before)
		r.refers = true
		return nil
	}
	r.out = append(r.out, shown...)
	return nil
}

// cutAt returns the number of bytes that shorten cut from the string whose closing quote is at the given position.
func (r *redactor) cutAt(quote int) int {
	for len(r.cuts) > 0 && r.cuts[0].quote < quote {
		r.cuts = r.cuts[1:]
	}
	if len(r.cuts) > 0 && r.cuts[0].quote == quote {
		return r.cuts[0].more
	}
	return 0
}

// end returns an error if more input follows the JSON value.
func (r *redactor) end() error {
	if _, err := r.d.ReadToken(); err == nil {
		return errors.New("two values")
	}
	return nil
}

// value copies the next JSON value. The parameter file is true if the value is in a list of attachments.
func (r *redactor) value(file bool) error {
	if r.tooLong() {
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
	email := r.email
	r.email = nil // objects within this one are not emails
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
		case email != nil && string(raw) == htmlMember:
			err = r.body(email.HTML)
		case email != nil && string(raw) == textMember:
			err = r.body(email.Text)
		case len(raw) > nameMax || isSecret(name) || file && name == "content":
			err = r.skip()
		case r.hideCredentials && name == "headers" && r.d.PeekKind() == '{':
			err = r.headers()
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

// headers copies an object with a mask in place of each value.
func (r *redactor) headers() error {
	if _, err := r.d.ReadToken(); err != nil {
		return err
	}
	r.out = append(r.out, '{')
	for n := 0; r.d.PeekKind() != '}'; n++ {
		if r.tooLong() {
			return errTooLong
		}
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
		if err := r.skip(); err != nil {
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
	emails := r.emails
	r.emails = nil // arrays within this one are not lists of emails
	r.out = append(r.out, '[')
	for n := 0; r.d.PeekKind() != ']'; n++ {
		if n > 0 {
			r.out = append(r.out, ',')
		}
		if r.email = nil; n < len(emails) {
			r.email = &emails[n]
		}
		if err := r.value(file); err != nil {
			return err
		}
	}
	_, err := r.d.ReadToken()
	r.out = append(r.out, ']')
	return err
}

// skip reads a value and writes the mask instead, except that it copies null, which contains no secret.
func (r *redactor) skip() error {
	if r.d.PeekKind() == 'n' {
		r.out = append(r.out, "null"...)
	} else {
		r.out = append(r.out, maskedValue...)
	}
	return r.d.SkipValue()
}

func (r *redactor) scalar(raw jsontext.Value) error {
	if raw.Kind() != '"' && len(raw) > stringMax {
		return errTooLong
	}
	if raw.Kind() == '"' {
		raw = r.masked(raw)
	}
	r.out = append(r.out, raw...)
	return nil
}

// masked returns a JSON string with its secrets masked.
func (r *redactor) masked(raw jsontext.Value) jsontext.Value {
	raw = maskSecrets(raw)
	if r.hideCredentials {
		raw = masked(raw, queries)
	}
	return raw
}

// shorten cuts the strings in a JSON text that exceed the given length in bytes, before the text is parsed. A large
// body usually consists of one long string, and skipping it is much faster than parsing it. Cutting strings never turns
// invalid JSON into valid JSON. The cuts are in the order of the strings.
func shorten(body []byte, longest int) (short []byte, cuts []cut) {
	var out []byte
	copied := 0 // bytes of body
	for at := 0; ; {
		i := bytes.IndexByte(body[at:], '"')
		if i < 0 {
			break
		}
		start := at + i + 1
		end := stringEnd(body, start)
		if end < 0 {
			break
		}
		if end-start > longest {
			kept := start + prefixLength(body[start:end], longest)
			if out == nil {
				out = make([]byte, 0, len(body)-(end-kept)+64)
			}
			out = append(append(out, body[copied:kept]...), cutMark(end-kept)...)
			cuts = append(cuts, cut{len(out), end - kept})
			copied = end
		}
		at = end + 1
	}
	if out == nil {
		return body, nil
	}
	return append(out, body[copied:]...), cuts
}

// cut is a string that shorten made shorter.
type cut struct {
	quote int // position of the string's closing quote in the result
	more  int // number of bytes that were cut off
}

// cutMark returns the text that replaces the cut end of a string.
func cutMark(more int) string { return "… [" + strconv.Itoa(more) + " more bytes]" }

// stringEnd returns the position of the closing quote of the string that starts at the given position, or -1 if the
// string is not closed.
func stringEnd(body []byte, from int) int {
	for at := from; ; {
		i := bytes.IndexByte(body[at:], '"')
		if i < 0 {
			return -1
		}
		at += i
		escapes := 0
		for at-escapes > from && body[at-escapes-1] == '\\' {
			escapes++
		}
		if escapes%2 == 0 {
			return at
		}
		at++
	}
}

// prefixLength returns how many bytes of a JSON string, up to limit, can be kept without splitting a character or an
// escape.
func prefixLength(source []byte, limit int) int {
	for n := 0; n < len(source); {
		step := 1
		switch c := source[n]; {
		case c == '\\' && n+1 < len(source) && source[n+1] == 'u':
			step = len(`\u0000`)
			if n+3 < len(source) && (source[n+2] == 'd' || source[n+2] == 'D') && strings.IndexByte("89abAB", source[n+3]) >= 0 {
				step *= 2 // a surrogate pair
			}
		case c == '\\':
			step = 2
		case c >= utf8.RuneSelf:
			_, step = utf8.DecodeRune(source[n:])
		}
		if n+step > limit {
			return n
		}
		n += step
	}
	return len(source)
}

// memberName decodes the JSON name of a member and returns it in lower case.
func memberName(raw jsontext.Value) string {
	if bytes.IndexByte(raw, '\\') >= 0 {
		if text, err := jsontext.AppendUnquote(nil, raw); err == nil {
			return strings.ToLower(string(text))
		}
	}
	return strings.ToLower(strings.Trim(string(raw), `"`))
}

func isSecret(name string) bool {
	for _, end := range secretEndings {
		if strings.HasSuffix(name, end) {
			return true
		}
	}
	return false
}
