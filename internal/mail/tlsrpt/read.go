package tlsrpt

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

const (
	maxItems = 20_000 // elements in all lists of a report together
	maxCount = 1e15   // of sessions
)

var (
	errTooLarge = fmt.Errorf("the report has more than %d bytes", MaxSize)
	errTooMany  = fmt.Errorf("the lists of the report have more than %d elements", maxItems)
)

// ErrBudget means that the files of a message have more content than its budget allows.
var ErrBudget = errors.New("the files of the message have too much content")

// Read reads a report, which may be compressed by gzip.
func Read(file []byte) (*Report, error) {
	left := int64(MaxSize)
	return ReadWithin(file, &left)
}

// ReadWithin is like Read, and reads at most left bytes of unpacked content. It reduces left by the bytes it read.
func ReadWithin(file []byte, left *int64) (*Report, error) {
	if bytes.HasPrefix(file, []byte{0x1f, 0x8b}) {
		if len(file) > MaxPacked {
			return nil, fmt.Errorf("the compressed report has more than %d bytes", MaxPacked)
		}
		unpacked, err := gzip.NewReader(bytes.NewReader(file))
		if err != nil {
			return nil, fmt.Errorf("unpack a TLS report: %w", err)
		}
		return read(unpacked, left)
	}
	if len(file) > MaxSize {
		return nil, errTooLarge
	}
	return read(bytes.NewReader(file), left)
}

// limited returns an error after left bytes.
type limited struct {
	r    io.Reader
	left int
	err  error
}

func (l *limited) Read(p []byte) (n int, err error) {
	if len(p) > l.left+1 {
		p = p[:l.left+1]
	}
	if n, err = l.r.Read(p); n > l.left {
		n, l.left = l.left, 0
		return n, l.err
	}
	l.left -= n
	return n, err
}

func read(from io.Reader, left *int64) (*Report, error) {
	l := &limited{from, MaxSize, errTooLarge}
	if *left < MaxSize {
		l.left, l.err = int(max(*left, 0)), ErrBudget
	}
	before := l.left
	defer func() { *left -= int64(before - l.left) }()
	// The buffer serves to skip a byte order mark.
	b := bufio.NewReader(l)
	if mark, _ := b.Peek(3); string(mark) == "\ufeff" {
		b.Discard(3)
	}
	// Names are not checked for duplicates, because that needs memory for each name.
	p := parser{d: jsontext.NewDecoder(b, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true)),
		left: maxItems}
	r, err := p.report()
	if err == nil && p.d.PeekKind() != 0 {
		err = errors.New("data follows the JSON object")
	} else if err == nil {
		if _, end := p.d.ReadToken(); !errors.Is(end, io.EOF) {
			err = end
		}
	}
	if err == nil {
		err = r.check()
	}
	if err != nil {
		return nil, fmt.Errorf("read a TLS report: %w", err)
	}
	return r, nil
}

// check returns an error if a report lacks what it is useless without.
func (r *Report) check() error {
	switch {
	case r.ID == "":
		return errors.New("it has no report-id")
	case r.Begin.IsZero() || r.End.IsZero():
		return errors.New("it has no date-range")
	case r.End.Before(r.Begin):
		return errors.New("its date-range ends before it begins")
	case len(r.Policies) == 0:
		return errors.New("it has no policies")
	}
	return nil
}

// parser reads a report from a stream of JSON tokens, so that values that are not needed never are in memory.
type parser struct {
	d    *jsontext.Decoder
	left int // elements that the lists may still have
}

func (p *parser) report() (*Report, error) {
	r := new(Report)
	if p.d.PeekKind() != '{' {
		if _, err := p.d.ReadToken(); err != nil {
			return nil, err
		}
		return nil, errors.New("it is not a JSON object")
	}
	err := p.object(func(name string) error {
		switch name {
		case "organization-name":
			return p.text(&r.Organization)
		case "contact-info":
			return p.text(&r.Contact)
		case "report-id":
			return p.text(&r.ID)
		case "date-range":
			return p.object(func(name string) error {
				switch name {
				case "start-datetime":
					return p.date(&r.Begin)
				case "end-datetime":
					return p.date(&r.End)
				}
				return p.d.SkipValue()
			})
		case "policies":
			return p.list(func() error { return p.policy(r) })
		}
		return p.d.SkipValue()
	})
	return r, err
}

func (p *parser) policy(r *Report) error {
	if p.d.PeekKind() != '{' {
		return p.d.SkipValue()
	}
	r.Policies = append(r.Policies, PolicyReport{})
	to := &r.Policies[len(r.Policies)-1]
	return p.object(func(name string) error {
		switch name {
		case "policy":
			return p.object(func(name string) error {
				switch name {
				case "policy-type":
					return p.text((*string)(&to.Policy.Type))
				case "policy-domain":
					return p.text(&to.Policy.Domain)
				case "policy-string":
					return p.texts(&to.Policy.Strings)
				case "mx-host":
					return p.texts(&to.Policy.MX)
				}
				return p.d.SkipValue()
			})
		case "summary":
			return p.object(func(name string) error {
				switch name {
				case "total-successful-session-count":
					return p.count(&to.Successful)
				case "total-failure-session-count":
					return p.count(&to.Failed)
				}
				return p.d.SkipValue()
			})
		case "failure-details":
			return p.list(func() error { return p.failure(to) })
		}
		return p.d.SkipValue()
	})
}

func (p *parser) failure(to *PolicyReport) error {
	if p.d.PeekKind() != '{' {
		return p.d.SkipValue()
	}
	var f Failure
	err := p.object(func(name string) error {
		switch name {
		case "result-type":
			return p.text((*string)(&f.Result))
		case "sending-mta-ip":
			return p.text(&f.SendingIP)
		case "receiving-mx-hostname":
			return p.text(&f.Host)
		case "receiving-mx-helo":
			return p.text(&f.Hello)
		case "receiving-ip":
			return p.text(&f.ReceivingIP)
		case "failed-session-count":
			return p.count(&f.Sessions)
		case "additional-information":
			return p.text(&f.Information)
		case "failure-reason-code":
			return p.text(&f.Reason)
		}
		return p.d.SkipValue()
	})
	to.Failures = append(to.Failures, f)
	return err
}

// object calls field for each field of an object. The function must read the field's value. A value of another type is
// skipped.
func (p *parser) object(field func(name string) error) error {
	if p.d.PeekKind() != '{' {
		return p.d.SkipValue()
	}
	if _, err := p.d.ReadToken(); err != nil {
		return err
	}
	for p.d.PeekKind() != '}' {
		name, err := p.d.ReadToken()
		if err != nil {
			return err
		}
		if err := field(name.String()); err != nil {
			return err
		}
	}
	_, err := p.d.ReadToken()
	return err
}

// list calls element for each element of a list, or once for a value that is not a list.
func (p *parser) list(element func() error) error {
	if p.d.PeekKind() != '[' {
		return p.element(element)
	}
	if _, err := p.d.ReadToken(); err != nil {
		return err
	}
	for p.d.PeekKind() != ']' {
		if err := p.element(element); err != nil {
			return err
		}
	}
	_, err := p.d.ReadToken()
	return err
}

func (p *parser) element(element func() error) error {
	if p.left--; p.left < 0 {
		return errTooMany
	}
	return element()
}

// texts reads a list of strings, or a single one.
func (p *parser) texts(to *[]string) error {
	return p.list(func() error {
		if p.d.PeekKind() != '"' {
			return p.d.SkipValue()
		}
		var s string
		err := p.text(&s)
		*to = append(*to, s)
		return err
	})
}

// text reads a string or a number. Other values are skipped.
func (p *parser) text(to *string) error {
	if k := p.d.PeekKind(); k != '"' && k != '0' {
		return p.d.SkipValue()
	}
	t, err := p.d.ReadToken()
	if err == nil {
		*to = t.String()
	}
	return err
}

// count reads a number of sessions, which may be written as a string.
func (p *parser) count(to *int64) error {
	var text string
	if err := p.text(&text); err != nil || text == "" {
		return err
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || !(n >= 0 && n <= maxCount) {
		return fmt.Errorf("the number of sessions %.40q is not between 0 and %.0f", text, maxCount)
	}
	*to = int64(n)
	return nil
}

// dateLayouts are the forms of dates that reporters write. Dates without a zone are in UTC.
var dateLayouts = []string{time.RFC3339, "2006-01-02T15:04:05", "2006-01-02 15:04:05Z07:00", "2006-01-02 15:04:05",
	"2006-01-02T15:04:05Z0700", "2006-01-02T15:04Z07:00", "2006-01-02T15:04", time.DateOnly}

func (p *parser) date(to *time.Time) error {
	var text string
	if err := p.text(&text); err != nil || text == "" {
		return err
	}
	for _, layout := range dateLayouts {
		if t, err := time.Parse(layout, strings.TrimSpace(text)); err == nil {
			t = t.UTC().Truncate(time.Second)
			if t.Year() < 1970 || t.Year() > 9000 {
				break
			}
			*to = t
			return nil
		}
	}
	return fmt.Errorf("the date %.40q is invalid", text)
}
