// Package fault defines the errors that users see: a kind, the field at fault, and a sentence that says what to do.
//
// # Invariants
//
// An Error is made where a rule is checked, by a constructor of this package, and its message can be shown to the
// user unchanged. Errors of other types are failures of the server: the packages that answer users report them as
// internal, without their text, and log them once.
//
// # What it does not do
//
// It knows nothing of HTTP or SMTP. Each package that answers users has one table that maps a Kind to its protocol.
package fault

import (
	"errors"
	"fmt"
)

// Kind is the kind of rule that was broken. Callers compare kinds, never messages.
type Kind uint8

const (
	Internal            Kind = iota // a failure of the server; the message is not shown
	Invalid                         // a field's value breaks a rule
	Missing                         // a required field is absent
	MissingParameter                // a required query or path parameter is absent
	BadID                           // an identifier is malformed
	BadAttachment                   // an attachment has no content or a refused type
	Malformed                       // the request cannot be read at all
	BadIdempotencyKey               // the idempotency key is not 1 to 256 characters
	NotFound                        // there is no such thing in this team
	Forbidden                       // understood, but not allowed
	NoCredential                    // no key was given
	BadCredential                   // the key is not known
	Restricted                      // the key may not do this
	OutOfScope                      // an actor other than a key lacks the scope
	Suspended                       // the team may not send at present
	IdempotencyMismatch             // the key was used with another payload
	InFlight                        // a request with the same key still runs
	Locked                          // another operation is changing this
	TooFast                         // over the rate limit
	DailyQuota                      // over the day's quota
	MonthlyQuota                    // over the month's quota
	Unavailable                     // not possible now; trying later may work
)

// Error is a broken rule. Field is the name of the field or parameter at fault as the client sent it, or empty.
type Error struct {
	Kind    Kind
	Field   string
	Message string
	cause   error
}

// Error returns the message only, which is what a user reads.
func (e *Error) Error() string { return e.Message }

// Unwrap returns what caused the fault, for logs; it is never shown to the user.
func (e *Error) Unwrap() error { return e.cause }

// Because returns a copy of e with a cause for the log.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// New returns an error of any kind.
func New(k Kind, field, format string, args ...any) *Error {
	return &Error{Kind: k, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Invalidf returns an error for a field whose value breaks a rule. The message must name the field and the rule.
func Invalidf(field, format string, args ...any) *Error {
	return New(Invalid, field, format, args...)
}

// MissingField returns an error for a required field that is absent.
func MissingField(field string) *Error {
	return New(Missing, field, "Missing `%s` field.", field)
}

// NotFoundf returns an error for something that does not exist in the caller's team. What belongs to another team is
// reported in the same words as what does not exist.
func NotFoundf(format string, args ...any) *Error { return New(NotFound, "", format, args...) }

// Forbiddenf returns an error for an operation that is understood but not allowed.
func Forbiddenf(field, format string, args ...any) *Error {
	return New(Forbidden, field, format, args...)
}

// Ours reports whether err is a failure of the server or may pass, rather than a broken rule. Check it before turning
// an error into a permanent outcome.
func Ours(err error) bool {
	k := KindOf(err)
	return err != nil && (k == Internal || k == Unavailable)
}

// KindOf returns the kind of the first Error in err's chain, or Internal when there is none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}
