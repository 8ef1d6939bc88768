// Package tracing sends traces to an OpenTelemetry collector, as OTLP over HTTP in JSON (OpenTelemetry Protocol 1.x).
// The official exporters would add gRPC and its dependencies to the program.
//
// # Invariants
//
// The trace of an email has the email's id as its trace id. Any node can therefore add a span to the trace without
// storing anything, and a person who knows the id of an email finds its trace. The first span of that trace has an id
// that [EmailSpan] derives from the same id. Whether a trace is sampled depends on its id only, so all nodes with the
// same ratio agree.
//
// Add never blocks. A full buffer drops spans.
//
// # Failures
//
// A batch that the receiver cannot take at present is sent again a few times, and then dropped. Other refusals drop the
// batch immediately. Dropped spans are counted, and logged at a limited rate.
//
// # Out of scope
//
// The package decides neither what is traced nor what spans contain.
package tracing

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/google/uuid"
)

// TraceID identifies a trace. The zero value is invalid.
type TraceID [16]byte

// SpanID identifies a span within its trace. The zero value means that there is no span.
type SpanID [8]byte

// String returns the id in hexadecimal digits.
func (t TraceID) String() string { return hex.EncodeToString(t[:]) }

// String returns the id in hexadecimal digits, or "" for the zero value.
func (s SpanID) String() string {
	if s == (SpanID{}) {
		return ""
	}
	return hex.EncodeToString(s[:])
}

// Kind is the role of a span, with the numbers of OTLP.
type Kind int

// The kinds of spans.
const (
	Internal Kind = 1
	Server   Kind = 2
	Client   Kind = 3
	Producer Kind = 4
)

// Span is a finished operation.
type Span struct {
	Trace      TraceID
	ID, Parent SpanID
	Name       string
	Kind       Kind
	Start, End time.Time
	Attributes []Attribute
	Links      []Link
	Error      string // what failed; "" if nothing did
}

// Attribute describes a span. The value is a string, an int or a bool.
type Attribute struct {
	Key   string
	Value any
}

// Link names a related span of another trace.
type Link struct {
	Trace TraceID
	Span  SpanID
}

// EmailTrace returns the id of an email's trace. It returns false if the text is not the id of an email.
func EmailTrace(emailID string) (TraceID, bool) {
	u, err := uuid.Parse(emailID)
	return TraceID(u), err == nil && u != uuid.Nil
}

// EmailSpan returns the id of the first span of an email's trace.
func EmailSpan(t TraceID) (s SpanID) {
	copy(s[:], t[8:])
	return s
}

// NewTrace returns a random trace id.
func NewTrace() (t TraceID) {
	binary.BigEndian.PutUint64(t[:8], rand.Uint64()|1) // not zero
	binary.BigEndian.PutUint64(t[8:], rand.Uint64())
	return t
}

// NewSpan returns a random span id.
func NewSpan() (s SpanID) {
	binary.BigEndian.PutUint64(s[:], rand.Uint64()|1) // not zero
	return s
}

// sampled reports whether a trace is among the given part of all traces. The decision uses the last 62 bits, because
// these are random in the ids of emails too (RFC 9562 section 5.7).
func sampled(t TraceID, ratio float64) bool {
	const random = 1<<62 - 1
	return float64(binary.BigEndian.Uint64(t[8:])&random) < ratio*random || ratio >= 1
}

// Parent is the span of a client that caused a request.
type Parent struct {
	Link
	Sampled bool
}

// ParseTraceparent reads the header traceparent (W3C Trace Context, section 3.2). It returns false if the header is
// missing or invalid; the request then begins a trace of its own.
func ParseTraceparent(header string) (p Parent, ok bool) {
	parts := strings.Split(header, "-")
	// A later version may add parts. Version 255 is invalid.
	if len(parts) < 4 || len(parts[0]) != 2 || len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 ||
		parts[0] == "00" && len(parts) != 4 || parts[0] == "ff" || strings.ToLower(header) != header {
		return p, false
	}
	var version, flags [1]byte
	for _, x := range []struct {
		to   []byte
		text string
	}{{version[:], parts[0]}, {p.Trace[:], parts[1]}, {p.Span[:], parts[2]}, {flags[:], parts[3]}} {
		if _, err := hex.Decode(x.to, []byte(x.text)); err != nil {
			return Parent{}, false
		}
	}
	p.Sampled = flags[0]&1 != 0
	return p, p.Trace != TraceID{} && p.Span != SpanID{}
}

// checkRatio reports whether a number is a part of all traces.
func checkRatio(ratio float64) bool { return !math.IsNaN(ratio) && ratio >= 0 && ratio <= 1 }
