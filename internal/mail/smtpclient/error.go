package smtpclient

import (
	"errors"
	"fmt"
)

// Stage is a stage of a conversation.
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

// Causes of an Error; compare with errors.Is.
var (
	// ErrNoTLS means that TLS is required and the host does not offer STARTTLS.
	ErrNoTLS = errors.New("the host offers no TLS, and TLS is required")
	// ErrNoAuth means that the host offers no authentication mechanism that this package supports.
	ErrNoAuth = errors.New("the host offers no authentication that can be used")
	// ErrAuthPlain means that a password would cross a network in the clear.
	ErrAuthPlain = errors.New("refusing to send a password over a connection without TLS")
	// ErrProtocol means that the host violates the SMTP protocol.
	ErrProtocol = errors.New("protocol error")
	// ErrEndless means that a reply of the host is too long.
	ErrEndless = errors.New("endless reply")
	// ErrUnusable means that the connection already failed or was closed.
	ErrUnusable = errors.New("the connection is not usable")
)

// Error reports a conversation that broke off or could not begin.
type Error struct {
	Stage     Stage
	Temporary bool // a later attempt may succeed

	// Sent reports that the host may have accepted the message: the final dot was written, but no reply to it arrived.
	// If Sent is false, the host has not accepted the message.
	Sent bool
	// Stale reports that a reused connection ended before the host answered anything about this message. The message
	// may be sent at once over a new connection.
	Stale bool
	// RetryPlain reports that an opportunistic TLS handshake failed: dialling again with TLSNone may succeed.
	RetryPlain bool

	Reply      *Reply // the reply that ended the conversation, if any
	Err        error  // the cause, unless it was the reply
	Transcript string // the conversation up to the error
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

// refused returns the Error for a stage that the host's reply ended.
func refused(stage Stage, r Reply) *Error {
	return &Error{Stage: stage, Temporary: !r.Permanent(), Reply: &r}
}

// broken returns the Error for a stage that ended without the reply it needed.
func broken(stage Stage, err error) *Error {
	return &Error{Stage: stage, Temporary: true, Err: err}
}
