package dmarcrpt

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// These are the limits of a report.
const (
	maxRows  = 200_000
	maxDepth = 32
	maxText  = 1024 // bytes of a value; longer texts for people are cut
	maxList  = 100  // elements of a list; of a longer list, the first 99 and the last are kept
	lastTime = 253402300799
)

// namespaces are those of reports. RFC 7489 has none; some reporters use that of an early draft.
var namespaces = []string{"", Namespace, "http://dmarc.org/dmarc-xml/0.1"}

// ContentLimit is what the files of a message may still have together. Reading reduces it.
type ContentLimit struct {
	Bytes int64 // of unpacked content
	Rows  int64
}

// ErrBudget means that the files of a message have more content than its budget allows.
var ErrBudget = errors.New("the files of the message have too much content")

// Read is like ReadWithin with the limits of a single file only.
func Read(file io.ReaderAt, size int64, each func(Row) error) (Header, error) {
	return ReadWithin(file, size, &ContentLimit{Bytes: maxXML, Rows: maxRows}, each)
}

// ReadWithin reads a report from a file: XML, or XML that is packed by gzip or as the only file of a ZIP archive. It calls
// each with every row, in the order of the report. The header is returned in the end, because rows may come before it.
// An error of each ends ReadWithin and is returned. A file that exceeds the budget is not read to its end.
func ReadWithin(file io.ReaderAt, size int64, left *ContentLimit, each func(Row) error) (Header, error) {
	m, err := unpack(file, size, left)
	if err != nil {
		return Header{}, err
	}
	r := &reader{each: each, left: left, h: Header{Policy: Policy{Percent: 100}}}
	decoder := xml.NewDecoder(m)
	decoder.CharsetReader = m.charset
	for !r.done {
		m.tag = 0
		token, err := decoder.Token()
		if err == nil {
			err = r.token(token)
		}
		switch {
		case errors.Is(err, io.EOF):
			return Header{}, fmt.Errorf("%w: it has no element", ErrNoReport)
		case err != nil:
			return Header{}, fmt.Errorf("read the report near byte %d: %w", m.total, err)
		}
	}
	if err := m.end(); err != nil {
		return Header{}, err
	}
	return r.h, nil
}

// reader builds a report from the tokens of its XML.
type reader struct {
	each func(Row) error
	h    Header
	row  Row
	rows int
	left *ContentLimit

	open    []frame // the open elements that are known
	skipped int     // how many further open elements are not
	text    []byte  // of the innermost open element, if it has a value
	long    bool    // whether the text was cut
	done    bool
}

// frame is an open element and the values that its child elements had so far.
type frame struct {
	*element
	seen []value
}

type value struct {
	*element
	text string
}

func (r *reader) token(token xml.Token) error {
	switch t := token.(type) {
	case xml.StartElement:
		if len(r.open)+r.skipped == maxDepth {
			return fmt.Errorf("more than %d elements are nested", maxDepth)
		}
		return r.start(t.Name)
	case xml.EndElement:
		return r.end()
	case xml.CharData:
		r.append(t)
	case xml.Directive:
		return errors.New("a report must not declare a document type")
	}
	return nil
}

func (r *reader) start(name xml.Name) error {
	known := slices.Contains(namespaces, name.Space)
	if len(r.open) == 0 {
		if !known || name.Local != "feedback" {
			return fmt.Errorf("%w: its first element is %.80q of the namespace %.80q", ErrNoReport, name.Local, name.Space)
		}
		r.open = append(r.open, frame{element: feedback})
		return nil
	}
	parent := &r.open[len(r.open)-1]
	e := parent.children[name.Local]
	if e == nil || !known || r.skipped > 0 {
		r.skipped++
		return nil
	}
	if e.children != nil && !e.many {
		if slices.ContainsFunc(parent.seen, func(v value) bool { return v.element == e }) {
			return fmt.Errorf("the element %s occurs twice", name.Local)
		}
		parent.seen = append(parent.seen, value{element: e})
	}
	r.open = append(r.open, frame{element: e})
	r.text, r.long = r.text[:0], false
	if e.begin != nil {
		return e.begin(r)
	}
	return nil
}

// append adds to the text of the innermost open element. Texts outside of values are ignored.
func (r *reader) append(text []byte) {
	if r.skipped > 0 || len(r.open) == 0 || r.open[len(r.open)-1].children != nil {
		return
	}
	n := min(len(text), maxTag-len(r.text))
	r.text, r.long = append(r.text, text[:n]...), r.long || n < len(text)
}

func (r *reader) end() error {
	if r.skipped > 0 {
		r.skipped--
		return nil
	}
	last := r.open[len(r.open)-1]
	r.open = r.open[:len(r.open)-1]
	if last.children != nil {
		r.done = len(r.open) == 0
		if last.finish != nil {
			return last.finish(r)
		}
		return nil
	}
	text := strings.Join(strings.Fields(string(r.text)), " ")
	parent := &r.open[len(r.open)-1]
	if !last.many {
		for _, v := range parent.seen {
			if v.element == last.element && v.text != text {
				return fmt.Errorf("the element %s has two values", last.name)
			} else if v.element == last.element {
				return nil
			}
		}
		parent.seen = append(parent.seen, value{last.element, text})
	}
	if err := last.set(r, text); err != nil {
		return fmt.Errorf("the element %s: %w", last.name, err)
	}
	return nil
}

// finishRow checks a row and passes it on.
func (r *reader) finishRow() error {
	switch {
	case !r.row.Source.IsValid():
		return errors.New("a record has no source_ip")
	case r.row.Count < 0:
		return errors.New("a record has no count")
	case r.row.HeaderFrom == "":
		return errors.New("a record has no domain in header_from")
	case r.rows == maxRows:
		return fmt.Errorf("the report has more than %d records", maxRows)
	}
	if r.rows++; r.left.Rows == 0 {
		return ErrBudget
	}
	r.left.Rows--
	return r.each(r.row)
}

func (r *reader) finishReport() error {
	switch {
	case r.h.ID == "":
		return errors.New("the report has no report_id")
	case r.h.Begin.IsZero() || r.h.End.IsZero():
		return errors.New("the report has no date_range")
	case r.h.End.Before(r.h.Begin):
		return errors.New("the date_range of the report ends before it begins")
	case r.h.Policy.Domain == "":
		return errors.New("the report has no domain in policy_published")
	}
	return nil
}

// label cuts a text for people to its maximum size.
func label(text string) string {
	if len(text) <= maxText {
		return text
	}
	n := maxText
	for !utf8.RuneStart(text[n]) {
		n--
	}
	return text[:n]
}

// word returns a word of a vocabulary in lower case, or "" for other words.
func word(text string, vocabulary []string) string {
	text = strings.ToLower(text)
	if other, ok := synonyms[text]; ok {
		text = other
	}
	if slices.Contains(vocabulary, text) {
		return text
	}
	return ""
}

// domain returns a domain in lower case, or "" if the text is none. Some reporters give an address.
func domain(text string) string {
	text = strings.Trim(text, "<>")
	text = strings.ToLower(strings.TrimSuffix(text[strings.LastIndexByte(text, '@')+1:], "."))
	invalid := func(c rune) bool {
		return c < utf8.RuneSelf && !('a' <= c && c <= 'z' || '0' <= c && c <= '9' || strings.ContainsRune("-_.", c))
	}
	if len(text) > 253 || strings.ContainsFunc(text, invalid) {
		return ""
	}
	return text
}

// number returns a whole number between 0 and most.
func number(text string, most int64) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	if err != nil || int64(n) > most {
		return 0, fmt.Errorf("%.80q is not a whole number from 0 to %d", text, most)
	}
	return int64(n), nil
}

func moment(text string) (time.Time, error) {
	n, err := number(text, lastTime)
	return time.Unix(n, 0).UTC(), err
}

func address(text string) (netip.Addr, error) {
	a, err := netip.ParseAddr(text)
	if err != nil || a.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("%.80q is not an IP address", text)
	}
	return a.Unmap(), nil
}
