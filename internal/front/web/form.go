package web

import (
	"errors"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"golang.org/x/text/unicode/norm"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/visible"
)

// These are the maximum sizes of a submitted form in bytes. Each character of a text may take nine bytes in a form.
const (
	formMax      = 64 << 10
	largeFormMax = 1 << 20
)

// Form reads a request's form, which must be encoded as application/x-www-form-urlencoded. It has at most 64 KB.
func (s *Site) Form(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	return readForm(w, r, formMax)
}

// LargeForm is like [Site.Form], but reads up to 1 MB. It is for forms with long texts of visitors who have signed in.
func (s *Site) LargeForm(w http.ResponseWriter, r *http.Request) (url.Values, error) {
	return readForm(w, r, largeFormMax)
}

func readForm(w http.ResponseWriter, r *http.Request, most int64) (url.Values, error) {
	if kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil ||
		kind != "application/x-www-form-urlencoded" {
		return nil, fault.New(fault.Malformed, "", "This page accepts only forms.")
	}
	body, err := read(w, r, most)
	if err != nil {
		return nil, err
	}
	form, err := url.ParseQuery(string(body))
	if err == nil && !Storable(form) {
		err = errors.New("a value is not UTF-8, or has a NUL")
	}
	if err != nil {
		return nil, fault.New(fault.Malformed, "", "The form cannot be read. Go back and submit it again.").Because(err)
	}
	if v, _ := r.Context().Value(visitKey{}).(*visit); v != nil {
		v.form = form
	}
	return form, nil
}

// Storable reports whether the database can store every value of a form or a query, and compare it with what it has
// stored: PostgreSQL refuses a text with a NUL, or one that is not UTF-8.
func Storable(values url.Values) bool {
	for _, all := range values {
		for _, v := range all {
			if !utf8.ValidString(v) || strings.Contains(v, "\x00") {
				return false
			}
		}
	}
	return true
}

// JSON reads the body of a request sent by a page's script.
func (s *Site) JSON(w http.ResponseWriter, r *http.Request, into any) error {
	body, err := read(w, r, formMax)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fault.New(fault.Malformed, "", "The request cannot be read. Reload the page and try again.").Because(err)
	}
	return nil
}

func read(w http.ResponseWriter, r *http.Request, most int64) ([]byte, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, most))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, errLarge.Because(err)
	}
	if err != nil {
		return nil, fault.New(fault.Malformed, "", "The request was incomplete. Send it again.").Because(err)
	}
	return body, nil
}

// nextMaxBytes is the maximum length, in bytes, of the address that a visitor returns to after a sign-in. The limit is
// large enough for an authorization request with the longest state and redirect URI.
const nextMaxBytes = 16 << 10

// Local returns the text if it is a path on this site, with or without a query, and "" otherwise. Local rejects
// anything that browsers interpret as another host: two slashes, backslashes, and either of these with ignored
// characters in between (WHATWG URL, section 4.4).
func Local(text string) string { return local(text, nextMaxBytes) }

// Next is like [Local], but returns a fault if the text is too long.
func Next(text string) (string, error) {
	if len(text) > nextMaxBytes {
		return "", errLong
	}
	return Local(text), nil
}

// local is like Local, but the caller chooses the maximum length in bytes.
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

// Field is a form input with its label.
type Field struct {
	Name         string
	Label        string
	Type         string // of the input element; "" means text
	Value        string
	Autocomplete string // autocomplete attribute (HTML section 4.10.18.7)
	Hint         string // shown below the label
	Error        string // why the value was rejected
	Optional     bool
	Options      []Choice // if set, the visitor selects one of these options
	Max          int      // maximum number of characters; 0 means 500
	Link         Crumb    // link beside the label, if its Href is set
}

// Choice is one of a field's options.
type Choice struct{ Value, Label string }

// Secret reports whether the value must not be included in a response.
func (f *Field) Secret() bool { return f.Type == "password" }

// Describes returns the ids of the elements that describe the input.
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

// Form holds a form's fields, with their values and errors.
type Form struct {
	Fields  []*Field
	Problem string // error that does not concern a single field
}

// NewForm returns a form with the given fields.
func NewForm(fields ...*Field) *Form { return &Form{Fields: fields} }

// Fill sets all fields except secrets to the values that the visitor has entered.
func (f *Form) Fill(typed url.Values) *Form {
	for _, x := range f.Fields {
		if !x.Secret() && typed.Has(x.Name) {
			x.Value = typed.Get(x.Name)
		}
	}
	return f
}

// SetError shows an error next to the field that the fault names, or above the form. SetError returns the HTTP status
// if the visitor can correct the error in this form, and the error itself if not.
func (f *Form) SetError(err error) (status int, ours error) {
	e, ok := errors.AsType[*fault.Error](err)
	if !ok || e.Kind == fault.Internal {
		return 0, err
	}
	status = statusOf(e.Kind)
	for _, x := range f.Fields {
		if e.Field == x.Name {
			x.Error = InWords(x.Name, e.Message, f.labels())
			return status, nil
		}
	}
	f.Problem = InWords("", e.Message, f.labels())
	return status, nil
}

// Confirmation returns the text that a visitor types to confirm what is done to an object with a name: the name without
// invisible characters and with single spaces, because a person cannot type what is not visible. If nothing else is
// left of the name, the text is "confirm".
func Confirmation(name string) string {
	name = strings.Map(func(r rune) rune {
		if visible.Hidden(r) {
			return -1
		}
		return r
	}, strings.ToValidUTF8(name, ""))
	if name = strings.Join(strings.Fields(norm.NFC.String(name)), " "); name == "" {
		return "confirm"
	}
	return name
}

// Confirms reports whether a visitor typed the text that [Confirmation] returns for a name. Spaces do not matter, and
// neither do joiners and variation selectors, which keyboards add to emoji and to words of some scripts.
func Confirms(typed, name string) bool {
	typed = strings.Map(func(r rune) rune {
		if visible.Joiner(r) || unicode.Is(unicode.Variation_Selector, r) {
			return -1
		}
		return r
	}, typed)
	return strings.Join(strings.Fields(norm.NFC.String(typed)), " ") == Confirmation(name)
}
