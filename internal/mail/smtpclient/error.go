package smtpclient

import (
	"errors"
	"fmt"
)

// Stage is how far a conversation came.
type Stage string

// The stages of a conversation, in order.
const (
	StageConnect  Stage = "connect"
	StageGreeting Stage = "greeting"
	StageHello    Stage = "hello"
	StageTLS      Stage = "tls"
	StageAuth     Stage = "auth"
	StageMail     Stage = "mail"
	StageRcpt     Stage = "rcpt"
	StageData     Stage = "data"
	StageBody     Stage = "body"
	StageFinal    Stage = "final"
)

// Causes that callers may want to tell apart; compare with errors.Is.
var (
	// ErrNoTLS is a host without STARTTLS where TLS is required.
	ErrNoTLS = errors.New("the host offers no TLS, and TLS is required")
	// ErrNoAuth is a host that offers no way to authenticate that we may use.
	ErrNoAuth = errors.New("the host offers no authentication that can be used")
	// ErrAuthPlain is a password that would cross a network in the clear.
	ErrAuthPlain = errors.New("refusing to send a password over a connection without TLS")
	// ErrProtocol is a host that does not speak SMTP as it must.
	ErrProtocol = errors.New("protocol error")
	// ErrEndless is a host that does not stop replying.
	ErrEndless = errors.New("endless reply")
	// ErrUnusable is a connection that already failed or was closed.
	ErrUnusable = errors.New("the connection is not usable")
)

// Error is a conversation that broke off or could not begin.
type Error struct {
	Stage     Stage
	Temporary bool // a later try may succeed

	// Sent says that the host may have accepted the message: the final dot was written and the reply to it did
	// not arrive. In every other case the host has not taken the message.
	Sent bool
	// Stale says that a kept connection ended before the host answered anything to this message: the same
	// message may be sent at once over a fresh connection.
	Stale bool
	// RetryPlain says that an opportunistic TLS handshake failed: dialling again with TLSNone may succeed.
	RetryPlain bool

	Reply      *Reply // the answer that ended it, if there was one
	Err        error  // the cause, if it was not the reply
	Transcript string // the conversation as far as it went
}

// Error names the stage and the cause.
func (e *Error) Error() string {
	switch {
	case e.Err != nil && e.Reply != nil:
		return fmt.Sprintf("smtp %s: %v: %s", e.Stage, e.Err, e.Reply)
	case e.Err != nil:
		return fmt.Sprintf("smtp %s: %v", e.Stage, e.Err)
	case e.Reply != nil:
		return fmt.Sprintf("smtp %s: %s", e.Stage, e.Reply)
	}
	return "smtp " + string(e.Stage)
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// Timeout reports whether the host did not answer in time.
func (e *Error) Timeout() bool { return e.Reply == nil && isTimeout(e.Err) }

// refused is a stage that the host's reply ended.
func refused(stage Stage, r Reply) *Error {
	return &Error{Stage: stage, Temporary: !r.Permanent(), Reply: &r}
}

// broken is a stage that ended without the reply it needed.
func broken(stage Stage, err error) *Error {
	return &Error{Stage: stage, Temporary: true, Err: err}
}
