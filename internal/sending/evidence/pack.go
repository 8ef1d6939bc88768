package evidence

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"slices"
	"time"
	"unicode/utf8"
)

// MaxPacked is the maximum size of packed evidence, in bytes.
const MaxPacked = 8 << 10

// Packed evidence begins with the version and a set of the fields that follow. Numbers are varints; times are in
// milliseconds; texts follow their length.
const version = 1

// The fields, in their order. Fields with the zero value are left out.
const (
	hasProvider = 1 << iota
	hasSource
	hasHello
	hasClear
	hasCert
	hasHosts
	hasReused // no value
	hasSigning
	hasSelectors
	hasStage
	hasLocal // no value
	hasTimes
	hasEnqueued
	hasRuns
	hasOutage
	hasPause
	hasPauseReply
	hasLimits
	hasRoute // this and the following fields are those of Trouble
	hasPeer
	hasPTR
	hasSame
	hasRule // comes last, because earlier releases ignore what follows the fields that they know
)

const (
	maxText      = 255
	maxSelectors = 8
)

// usual are the selectors that most installations use; each is packed into one byte.
var usual = []string{"postrider", "postrider-ed"}

// Pack returns the evidence in its packed form, which has at most MaxPacked bytes.
func (e *Evidence) Pack() []byte {
	fields, b := uint64(0), make([]byte, 0, 64)
	number := func(field uint64, n int64) {
		if n > 0 {
			fields, b = fields|field, binary.AppendUvarint(b, uint64(n))
		}
	}
	text := func(field uint64, s string) {
		if s != "" {
			fields, b = fields|field, appendText(b, s)
		}
	}
	number(hasProvider, int64(e.Provider))
	if e.Source.IsValid() {
		fields, b = fields|hasSource, appendText(b, string(e.Source.WithZone("").AsSlice()))
	}
	text(hasHello, e.Hello)
	number(hasClear, int64(e.Clear))
	number(hasCert, int64(e.Cert))
	number(hasHosts, int64(e.Hosts))
	if e.Reused {
		fields |= hasReused
	}
	text(hasSigning, e.SigningDomain)
	if n := min(len(e.Selectors), maxSelectors); n > 0 {
		fields, b = fields|hasSelectors, append(b, byte(n))
		for _, s := range e.Selectors[:n] {
			b = appendSelector(b, s)
		}
	}
	number(hasStage, int64(e.Stage))
	if e.Local {
		fields |= hasLocal
	}
	if e.Has != 0 {
		fields, b = fields|hasTimes, binary.AppendUvarint(b, uint64(e.Has))
		for x := range stages {
			if e.Has.Contains(x) {
				b = binary.AppendUvarint(b, milliseconds(e.Times[x]))
			}
		}
	}
	number(hasEnqueued, e.Enqueued.Milliseconds())
	number(hasRuns, int64(e.Runs))
	if e.Outage != 0 {
		fields, b = fields|hasOutage, binary.AppendUvarint(append(b, byte(e.Outage)), milliseconds(e.OutageOf))
	}
	if e.PauseLength > 0 {
		fields, b = fields|hasPause, binary.AppendUvarint(b, milliseconds(e.PauseEnd))
		b = binary.AppendUvarint(b, milliseconds(e.PauseLength))
	}
	text(hasPauseReply, e.PauseReply)
	number(hasLimits, int64(e.Limits))
	if e.Trouble != nil {
		more := uint64(0)
		more, b = e.Trouble.append(b)
		fields |= more
	}
	number(hasRule, int64(e.Rule))
	return append(binary.AppendUvarint([]byte{version}, fields), b...)
}

func milliseconds(d time.Duration) uint64 { return uint64(max(d, 0).Milliseconds()) }

func appendText(b []byte, s string) []byte {
	s = cut(s, maxText)
	return append(append(b, byte(len(s))), s...)
}

// cut returns at most limit bytes of a text, without a part of a character at the end.
func cut(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	for limit > 0 && !utf8.RuneStart(s[limit]) {
		limit--
	}
	return s[:limit]
}

// appendSelector appends a selector. A usual selector is a length of 0 and its number.
func appendSelector(b []byte, s string) []byte {
	if i := slices.Index(usual, s); i >= 0 {
		return append(b, 0, byte(i))
	}
	return appendText(b, s)
}

var (
	// ErrDamaged is returned for bytes that are not packed evidence.
	ErrDamaged = errors.New("the recorded evidence of an attempt is damaged")
	// ErrNewer is returned for evidence in a format that a later release introduced.
	ErrNewer = errors.New("the recorded evidence of an attempt has the format of a later release")
)

// reader reads packed evidence. After an error, all reads return zero values.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) number() uint64 {
	n, size := binary.Uvarint(r.b)
	if size <= 0 {
		r.b, r.bad = nil, true
		return 0
	}
	r.b = r.b[size:]
	return n
}

func (r *reader) small() uint8 {
	n := r.number()
	if n > 255 {
		r.bad = true
	}
	return uint8(n)
}

// duration reads milliseconds, at most ten years.
func (r *reader) duration() time.Duration {
	n := r.number()
	if n > 10*366*24*3600*1000 {
		r.bad = true
		return 0
	}
	return time.Duration(n) * time.Millisecond
}

func (r *reader) take(n int) string {
	if n > len(r.b) {
		r.b, r.bad = nil, true
		return ""
	}
	s := string(r.b[:n])
	r.b = r.b[n:]
	return s
}

func (r *reader) byte() byte {
	s := r.take(1)
	if s == "" {
		return 0
	}
	return s[0]
}

func (r *reader) text() string { return r.take(int(r.byte())) }

func (r *reader) selector() string {
	n := int(r.byte())
	if n > 0 {
		return r.take(n)
	}
	if i := int(r.byte()); i < len(usual) {
		return usual[i]
	}
	return ""
}

// Unpack reads packed evidence. The result is nil if there are no bytes, because nothing was recorded. The error is
// ErrDamaged or ErrNewer.
func Unpack(b []byte) (*Evidence, error) {
	if len(b) == 0 {
		return nil, nil
	}
	switch {
	case b[0] > version:
		return nil, ErrNewer
	case b[0] != version:
		return nil, ErrDamaged
	}
	r := &reader{b: b[1:]}
	fields, e := r.number(), &Evidence{}
	has := func(field uint64) bool { return fields&field != 0 }
	if has(hasProvider) {
		e.Provider = Provider(r.small())
	}
	if has(hasSource) {
		e.Source, _ = netip.AddrFromSlice([]byte(r.text()))
	}
	if has(hasHello) {
		e.Hello = r.text()
	}
	if has(hasClear) {
		e.Clear = Clear(r.small())
	}
	if has(hasCert) {
		e.Cert = Cert(r.small())
	}
	if has(hasHosts) {
		e.Hosts = int(r.small())
	}
	e.Reused = has(hasReused)
	if has(hasSigning) {
		e.SigningDomain = r.text()
	}
	if has(hasSelectors) {
		for range min(int(r.byte()), maxSelectors) {
			e.Selectors = append(e.Selectors, r.selector())
		}
	}
	r.history(e, has)
	if t := r.trouble(has); !t.isZero() {
		e.Trouble = &t
	}
	if has(hasRule) {
		e.Rule = Rule(r.small())
	}
	if r.bad {
		return nil, ErrDamaged
	}
	return e, nil
}

// history reads the fields about the outcome and the times.
func (r *reader) history(e *Evidence, has func(uint64) bool) {
	if has(hasStage) {
		e.Stage = Stage(r.small())
	}
	e.Local = has(hasLocal)
	if has(hasTimes) {
		if e.Has = Stages(r.number()); e.Has >= 1<<stages {
			r.bad, e.Has = true, 0
		}
		for x := range stages {
			if e.Has.Contains(x) {
				e.Times[x] = r.duration()
			}
		}
	}
	if has(hasEnqueued) {
		e.Enqueued = r.duration()
	}
	if has(hasRuns) {
		e.Runs = r.count()
	}
	if has(hasOutage) {
		e.Outage, e.OutageOf = Outage(r.byte()), r.duration()
	}
	if has(hasPause) {
		e.PauseEnd, e.PauseLength = r.duration(), r.duration()
	}
	if has(hasPauseReply) {
		e.PauseReply = r.text()
	}
	if has(hasLimits) {
		e.Limits = Limits(r.small())
	}
}
