// Package fault has the errors that users meet: a kind, the field at fault, and a sentence that says what to do.
//
// Invariants: an Error is made where the rule is broken, by a constructor of this package, and its message is
// fit to be shown to the user as it stands. Errors that are not of this type are failures of ours: a face
// answers them as internal, without their text, and logs them once.
//
// The package knows nothing of HTTP or SMTP; each face owns one table that turns a Kind into its own words.
package fault

import (
	"errors"
	"fmt"
)

// Kind says what sort of rule was broken. Faces translate it; nobody compares messages.
type Kind uint8

const (
	Internal            Kind = iota // ours; the message is not shown
	Invalid                         // a field's value breaks a rule
	Missing                         // a required field is absent
	MissingParameter                // a required query or path parameter is absent
	BadID                           // an identifier is not of the form of one
	BadAttachment                   // an attachment has no content or is of a refused type
	Malformed                       // the request cannot be read at all
	BadIdempotencyKey               // the idempotency key is not 1 to 256 characters
	NotFound                        // there is no such thing in this team
	Forbidden                       // understood, and not allowed
	NoCredential                    // no key was given
	BadCredential                   // the key is not known
	Restricted                      // the key may not do this
	OutOfScope                      // an actor that is no key does not have the scope
	Suspended                       // the team may not send at present
	IdempotencyMismatch             // the key was used with another payload
	InFlight                        // a request with the same key still runs
	Locked                          // another operation is changing this
	TooFast                         // over the rate limit
	DailyQuota                      // over the day's quota
	MonthlyQuota                    // over the month's quota
	Unavailable                     // we cannot do it now; trying later may work
)

// Error is a broken rule. Field is the wire name of the field or parameter at fault, or empty.
type Error struct {
	Kind    Kind
	Field   string
	Message string
	cause   error
}

// Error returns the message alone: it is what a user reads.
func (e *Error) Error() string { return e.Message }

// Unwrap returns what caused the fault, for logs; it is never shown to the user.
func (e *Error) Unwrap() error { return e.cause }

// Because returns a copy of e that carries cause for the log.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// New makes an error of any kind.
func New(k Kind, field, format string, args ...any) *Error {
	return &Error{Kind: k, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Invalidf reports that field's value breaks a rule; the message names the field and the rule.
func Invalidf(field, format string, args ...any) *Error {
	return New(Invalid, field, format, args...)
}

// MissingField reports that a required field is absent.
func MissingField(field string) *Error {
	return New(Missing, field, "Missing `%s` field.", field)
}

// NotFoundf reports that there is no such thing in the caller's team.
// What belongs to another team is reported in the same words as what does not exist.
func NotFoundf(format string, args ...any) *Error { return New(NotFound, "", format, args...) }

// Forbiddenf reports an operation that is understood and not allowed.
func Forbiddenf(field, format string, args ...any) *Error {
	return New(Forbidden, field, format, args...)
}

// Ours reports whether err says nothing of what was asked for: it is a failure of ours, or something passes. Whoever
// turns a broken rule into an outcome for good looks at this first.
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
