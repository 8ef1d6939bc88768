// Package fault defines the errors that users see. An error has a kind, the name of the invalid field, and a message
// that says what to do.
//
// # Invariants
//
// The code that checks a rule creates the Error with one of this package's constructors. An Error's message can be
// shown to users unchanged. Errors of other types are server failures: API, SMTP and page handlers log them once and
// report an internal error without the error text.
//
// # Out of scope
//
// Package fault does not depend on HTTP or SMTP. Each protocol package has one table that maps a Kind to a status code
// of its protocol.
package fault

import (
	"errors"
	"fmt"
)

// Kind is the kind of rule that was violated. Callers compare kinds, never messages.
type Kind uint8

const (
	Internal            Kind = iota // a server failure; the message is not shown
	Invalid                         // a field's value violates a rule
	Missing                         // a required field is absent
	MissingParameter                // a required query or path parameter is absent
	BadID                           // an identifier is malformed
	BadAttachment                   // an attachment has no content, or its type is not allowed
	Malformed                       // the request cannot be read at all
	BadIdempotencyKey               // the idempotency key does not have 1 to 256 characters
	NotFound                        // the object does not exist in the team
	Forbidden                       // the operation is valid but not permitted
	NoCredential                    // no API key was given
	BadCredential                   // the API key is unknown
	Restricted                      // the API key lacks the required permission
	OutOfScope                      // an actor other than an API key lacks the required scope
	Suspended                       // the team is currently not allowed to send
	IdempotencyMismatch             // the idempotency key was already used with another payload
	InFlight                        // a request with the same idempotency key is still running
	Locked                          // another operation is changing the object
	TooFast                         // the rate limit is exceeded
	DailyQuota                      // the daily quota is exceeded
	MonthlyQuota                    // the monthly quota is exceeded
	Unavailable                     // a temporary failure; a retry may succeed
)

// Error describes a violated rule. Field is the name of the invalid field or parameter as the client sent it, or "".
type Error struct {
	Kind    Kind
	Field   string
	Message string
	cause   error
}

// Error returns the message for the user, without the cause.
func (e *Error) Error() string { return e.Message }

// Unwrap returns the cause, which is for logs and never shown to users.
func (e *Error) Unwrap() error { return e.cause }

// Because returns a copy of e with a cause for the log.
func (e *Error) Because(cause error) *Error {
	c := *e
	c.cause = cause
	return &c
}

// New returns an error of the given kind.
func New(k Kind, field, format string, args ...any) *Error {
	return &Error{Kind: k, Field: field, Message: fmt.Sprintf(format, args...)}
}

// Invalidf returns an error for a field with an invalid value. The message must name the field and the rule.
func Invalidf(field, format string, args ...any) *Error {
	return New(Invalid, field, format, args...)
}

// MissingField returns an error for an absent required field.
func MissingField(field string) *Error {
	return New(Missing, field, "Missing `%s` field.", field)
}

// NotFoundf returns an error for an object that does not exist in the caller's team. The message for another team's
// object is the same as for a missing object.
func NotFoundf(format string, args ...any) *Error { return New(NotFound, "", format, args...) }

// Forbiddenf returns an error for a valid operation that is not permitted.
func Forbiddenf(field, format string, args ...any) *Error {
	return New(Forbidden, field, format, args...)
}

// Ours reports whether err is a server failure or a temporary failure, rather than a violated rule. Callers must check
// Ours before they treat an error as permanent.
func Ours(err error) bool {
	k := KindOf(err)
	return err != nil && (k == Internal || k == Unavailable)
}

// KindOf returns the kind of the first Error in err's chain, or Internal if the chain contains no Error.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Internal
}
