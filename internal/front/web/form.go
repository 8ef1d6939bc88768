package web

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
)

// formMax is the largest form that is read, in octets.
const formMax = 64 << 10

// Form reads the form of a request, which must be encoded as browsers do it by default.
func (s *Site) Form(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		kind != "application/x-www-form-urlencoded" {
		return nil, fault.New(fault.Malformed, "", "This page takes forms only.")
	}
	body, err := read(w, r)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err == nil && !storable(form) {
		err = errors.New("a value is not UTF-8, or has a NUL")
	}
	if err != nil {
		return nil, fault.New(fault.Malformed, "", "The form cannot be read. Go back and send it again.").Because(err)
	}
	return form, nil
}

// storable reports whether the database can store every value.
func storable(form url.Values) bool {
	for _, values := range form {
		for _, v := range values {
			if !utf8.ValidString(v) || strings.Contains(v, "\x00") {
				return false
			}
		}
	}
	return true
}

// JSON reads the body of a request that a page's script sends.
func (s *Site) JSON(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := read(w, r)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fault.New(fault.Malformed, "", "The request cannot be read. Reload the page and try again.").Because(err)
	}
	return nil
}

func read(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, formMax))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, errLarge.Because(err)
	}
	if err != nil {
		return nil, fault.New(fault.Malformed, "", "The request broke off. Send it again.").Because(err)
	}
	return body, nil
}

// nextMax is the longest address that a visitor is led back to, in octets: that of an authorization with the longest
// state and redirection address has less.
const nextMax = 16 << 10

// Local returns the text if it is a path of this site, with or without a query, and "" otherwise. What browsers read as
// the name of another host is none: two slashes, backslashes, and either with characters between them that browsers
// leave out (WHATWG URL, section 4.4).
func Local(text string) string { return local(text, nextMax) }

// Next is [Local], but for a text that is too long, which is a fault: what a visitor wants to come back to is not lost
// on the way.
func Next(text string) (string, error) {
	if len(text) > nextMax {
		return "", errLong
	}
	return Local(text), nil
}

// local is Local for addresses of at most so many octets.
func local(text string, most int) string {
	if len(text) > most || !strings.HasPrefix(text, "/") || strings.HasPrefix(text, "//") {
		return ""
	}
	if strings.ContainsFunc(text, func(c rune) bool { return c <= ' ' || c == 0x7f || c == '\\' }) {
		return ""
	}
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil {
		return ""
	}
	return text
}

// Field is an input of a form with its label.
type Field struct {
	Name         string
	Label        string
	Type         string // of the input; "" means text
	Value        string
	Autocomplete string // what browsers and password managers may fill in (HTML section 4.10.18.7)
	Hint         string // shown below the label
	Error        string // what is wrong with the value
	Optional     bool
	Options      []Choice // makes it a choice of these
	Max          int      // characters; 0 means 500
}

// Choice is a value that a field can have.
type Choice struct{ Value, Label string }

// Secret reports whether the value is never sent back to the browser.
func (f *Field) Secret() bool { return f.Type == "password" }

// Describes returns the ids of what describes the input.
func (f *Field) Describes() string {
	var ids []string
	if f.Hint != "" {
		ids = append(ids, f.Name+"-hint")
	}
	if f.Error != "" {
		ids = append(ids, f.Name+"-error")
	}
	return strings.Join(ids, " ")
}

// Form is the inputs of a form, with what was typed and what is wrong with it.
type Form struct {
	Fields  []*Field
	Problem string // what is wrong with the whole
}

// NewForm returns a form with the fields.
func NewForm(fields ...*Field) *Form { return &Form{Fields: fields} }

// Fill keeps what was typed, except secrets.
func (f *Form) Fill(typed url.Values) *Form {
	for _, x := range f.Fields {
		if !x.Secret() && typed.Has(x.Name) {
			x.Value = typed.Get(x.Name)
		}
	}
	return f
}

// Blame says in the form what is wrong: beside the field that a fault names, or above all. It returns the status to
// answer with, or the error if it is none that the visitor can do anything about in this form.
func (f *Form) Blame(err error) (status int, ours error) {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Kind == fault.Internal {
		return 0, err
	}
	status = statusOf(e.Kind)
	for _, x := range f.Fields {
		if e.Field == x.Name {
			x.Error = e.Message
			return status, nil
		}
	}
	f.Problem = e.Message
	return status, nil
}
