package requestlog

import (
	"bytes"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/sending/emails"
)

// StoredEmail is an email that a request created, with its bodies as they were stored.
type StoredEmail struct {
	ID         string // "" if this part of the request created no email
	HTML, Text *string
}

// reference stands for the HTML or the text of an email in a logged request. In the request's JSON, a reference is an
// array in place of the string: [], or [kept,more] if the string was cut. The column email_ids contains the email's id.
// A request whose HTML or text is an array is refused, and email_ids is set only for requests that created emails.
// Therefore, a client cannot write a reference into its request.
type reference struct {
	kept int // number of bytes of the stored body that are shown; 0 if the whole body is shown
	more int // number of bytes that were cut off from the JSON source; 0 if the whole body is shown
}

// newReference returns a reference to a stored body for its JSON source in a request, from which more bytes were cut
// off. The parameter shown is the source with its secrets masked. If the log would not show the same string with the
// reference, ok is false.
func newReference(source, shown jsontext.Value, more int, stored string) (r reference, ok bool) {
	own := source
	if more > 0 {
		own = append(source[:len(source)-len(cutMark(more))-1:len(source)-len(cutMark(more))-1], '"')
	}
	start, err := jsontext.AppendUnquote(make([]byte, 0, len(own)), own)
	switch {
	case err != nil || len(start) > len(stored) || string(start) != stored[:len(start)]:
		return r, false
	case more > 0:
		r = reference{len(start), more}
	case len(start) < len(stored):
		return r, false
	}
	quoted := r.quote(stored)
	if bytes.Equal(quoted, source) {
		return r, true
	}
	// The client escaped other characters. Source and quoted are the same string, unless their secrets differ.
	masked := maskSecrets(quoted)
	return r, isUnchanged(masked, quoted) && isUnchanged(shown, source) || sameString(masked, shown)
}

// isUnchanged reports whether maskSecrets returned its argument.
func isUnchanged(masked, source []byte) bool {
	return len(masked) == len(source) && (len(source) == 0 || &masked[0] == &source[0])
}

// sameString reports whether two JSON strings have the same value.
func sameString(a, b jsontext.Value) bool {
	x, err := jsontext.AppendUnquote(nil, a)
	y, err2 := jsontext.AppendUnquote(nil, b)
	return err == nil && err2 == nil && bytes.Equal(x, y)
}

// quote returns the JSON string that the log shows for a stored body, before secrets are masked. At least the first
// successMax bytes of the body must be given.
func (r reference) quote(body string) []byte {
	if r.more > 0 {
		body = body[:min(r.kept, len(body))] + cutMark(r.more)
	}
	quoted, _ := jsontext.AppendQuote(make([]byte, 0, len(body)+len(body)/8+2), body) // stored bodies are valid UTF-8
	return quoted
}

// appendTo appends the reference's JSON.
func (r reference) appendTo(out []byte) []byte {
	out = append(out, '[')
	if r.more > 0 {
		out = strconv.AppendInt(out, int64(r.kept), 10)
		out = strconv.AppendInt(append(out, ','), int64(r.more), 10)
	}
	return append(out, ']')
}

// parseReference parses a reference's JSON.
func parseReference(source jsontext.Value) (r reference, ok bool) {
	var numbers []int
	if err := json.Unmarshal(source, &numbers); err != nil || len(numbers) != 0 && len(numbers) != 2 {
		return r, false
	}
	if len(numbers) == 2 {
		r = reference{numbers[0], numbers[1]}
	}
	return r, r.kept >= 0
}

// fill returns a request body with the stored bodies, or null for missing ones, in place of its references. The ids are
// those of the entry. If only is not nil, fill keeps the references for whose JSON it returns false.
func fill(request string, ids []string, bodies map[string]emails.BodyStart, only func(string) bool) string {
	f := filler{d: jsontext.NewDecoder(bytes.NewBufferString(request), jsontext.AllowDuplicateNames(true),
		jsontext.AllowInvalidUTF8(true)), request: request, bodies: bodies, only: only}
	var err error
	if f.d.PeekKind() == '[' {
		_, err = f.d.ReadToken()
		for i := 0; err == nil && i < len(ids) && f.d.PeekKind() != ']'; i++ {
			err = f.email(ids[i])
		}
	} else {
		err = f.email(ids[0])
	}
	if err != nil {
		return request // the log contains only valid JSON
	}
	return string(append(f.out, request[f.copied:]...))
}

// filler replaces the references in one request body.
type filler struct {
	d       *jsontext.Decoder
	request string
	bodies  map[string]emails.BodyStart
	only    func(string) bool
	out     []byte
	copied  int // length of the part of the request that is already in out
}

// email replaces the references in the next value, which describes the email with the given id.
func (f *filler) email(id string) error {
	if id == "" || f.d.PeekKind() != '{' {
		return f.d.SkipValue()
	}
	if _, err := f.d.ReadToken(); err != nil {
		return err
	}
	body := f.bodies[id]
	for f.d.PeekKind() != '}' {
		raw, err := f.d.ReadValue()
		if err != nil {
			return err
		}
		name := string(raw) // the next call of the decoder overwrites raw
		value, err := f.d.ReadValue()
		if err != nil {
			return err
		}
		switch {
		case value.Kind() != '[':
		case name == htmlMember:
			f.replace(value, body.HTML)
		case name == textMember:
			f.replace(value, body.Text)
		}
	}
	_, err := f.d.ReadToken()
	return err
}

// replace replaces the reference that the decoder has just read.
func (f *filler) replace(source jsontext.Value, body *string) {
	r, ok := parseReference(source)
	shown := "null"
	if body != nil {
		shown = string(maskSecrets(r.quote(*body)))
	}
	if !ok || f.only != nil && !f.only(shown) {
		return
	}
	end := int(f.d.InputOffset())
	f.out = append(append(f.out, f.request[f.copied:end-len(source)]...), shown...)
	f.copied = end
}
