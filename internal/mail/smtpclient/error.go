package smtpclient

import (
	"errors"
	"fmt"
)

// Stage is a stage of an SMTP session.
type Stage string

// These are the stages of an SMTP session, in order.
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

// These are the possible causes of an Error; compare with errors.Is.
var (
	// ErrNoTLS means that TLS is required but the host does not offer STARTTLS.
	ErrNoTLS = errors.New("the host offers no TLS, and TLS is required")
	// ErrNoAuth means that the host offers no authentication mechanism that this package supports.
	ErrNoAuth = errors.New("the host offers no authentication that can be used")
	// ErrAuthPlain means that a password would have been sent over the network without TLS.
	ErrAuthPlain = errors.New("refusing to send a password over a connection without TLS")
	// ErrProtocol means that the host violated the SMTP protocol.
	ErrProtocol = errors.New("protocol error")
	// ErrEndless means that a reply from the host exceeded the length limits.
	ErrEndless = errors.New("endless reply")
	// ErrUnusable means that the connection has already failed or been closed.
	ErrUnusable = errors.New("the connection is not usable")
)

// Error reports that an SMTP session was interrupted or could not begin.
type Error struct {
	Stage     Stage
	Temporary bool // whether a later attempt may succeed

	// Sent reports that the host may have accepted the message, because the final dot was written but no reply to it
	// arrived. If Sent is false, the host has not accepted the message.
	Sent bool
	// Stale reports that a reused connection ended before the host sent any reply about this message. If Stale is true,
	// the message may be sent again immediately over a new connection.
	Stale bool
	// RetryPlain reports that an opportunistic TLS handshake failed, and that another call to Dial with TLSNone may
	// succeed. Other TLS modes never set it.
	RetryPlain bool

	Reply      *Reply // the reply that ended the SMTP session, if any
	Err        error  // the cause, or nil if the cause was a reply
	Transcript string // the SMTP session up to the error
	Times      Times  // of the stages of this session
	// TLS describes a certificate that ended the handshake because it is not valid. Its Version is empty.
	TLS TLSState
}

// Error returns an error message that names the stage and the cause.
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

// Timeout reports whether the host failed to reply in time.
func (e *Error) Timeout() bool { return e.Reply == nil && isTimeout(e.Err) }

// refused returns the Error for a stage in which the host refused a command with the reply r.
func refused(stage Stage, r Reply) *Error {
	return &Error{Stage: stage, Temporary: !r.Permanent(), Reply: &r}
}

// broken returns the Error for a stage that ended without the expected reply.
func broken(stage Stage, err error) *Error {
	return &Error{Stage: stage, Temporary: true, Err: err}
}
