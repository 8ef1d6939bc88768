// Package smtpserver is the SMTP server (RFC 5321) that receiving and submission share. It accepts connections from
// clients, which may authenticate where the listener offers AUTH, and passes their messages to a [Handler]. It offers
// PIPELINING, SIZE, 8BITMIME, SMTPUTF8, CHUNKING, ENHANCEDSTATUSCODES, STARTTLS and AUTH.
//
// # Invariants
//
// Only CRLF "." CRLF ends a message that DATA began, and a message with a CR or an LF that stands alone is refused:
// hosts differ in what they take for the end of a line, so one host's text could be another's commands. What was sent
// before a TLS handshake is never taken as sent after it. A message is answered 250 only when the session's Data has
// returned without an error and every octet of it was read and found valid.
//
// One client costs one goroutine, which calls its session's methods one after another. Its use of resources is
// bounded: the connections, in all and of one address; the length of commands and lines, the size and the time of a
// message; the commands without a message, the errors and the failed passwords of one connection. Clients cannot keep
// others out by holding connections: when all places are taken, those that make no progress are closed first, and then
// those that have sent no message yet (room.go). A new connection is refused only if there are no such connections.
//
// # When it fails
//
// A client's mistake is answered; too many of them end its connection with 421. A panic of a handler ends that
// connection only and is logged. When the context of Serve ends, waiting clients receive 421 at once, messages in
// progress may end within the grace period, and then all connections are closed; a message cut off was not answered,
// so the client sends it again.
//
// # What it does not do
//
// It decides nothing about senders, recipients and content, and adds no trace fields to a message. It does not offer
// BINARYMIME: such a message could not be passed on to most hosts. DSN parameters are read and, except for ENVID,
// dropped.
package smtpserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/netip"
)

// Handler accepts or refuses connections.
type Handler interface {
	// Open is called after EHLO or HELO, and again after STARTTLS. A *Refusal is sent to the client unchanged.
	Open(ctx context.Context, p Peer) (Session, error)
}

// Peer describes the client of a connection.
type Peer struct {
	Addr  netip.AddrPort // of the client; taken from the PROXY protocol when that is configured
	Local netip.AddrPort // of the listener
	Hello string         // the name that the client gave in EHLO or HELO
	TLS   *tls.ConnectionState
}

// Session is one client's conversation. Its methods are called one after another, never concurrently. An error that
// is a *Refusal is sent unchanged; any other is logged and answered 451 4.3.0.
type Session interface {
	// Auth checks a user name and a password. It is called only where the listener offers AUTH.
	Auth(ctx context.Context, username, password string) error
	// Mail begins a message. from is empty for the null return path.
	Mail(ctx context.Context, from string, o MailOptions) error
	// Rcpt adds a recipient.
	Rcpt(ctx context.Context, to string) error
	// Data reads the message, with CRLF line ends and dots unstuffed, and returns once it is durable. id is shown to the
	// client. If reading fails before io.EOF the message is not whole, or breaks a rule, and must be discarded: the
	// client gets an error whatever Data returns.
	Data(ctx context.Context, r io.Reader) (id string, err error)
	// Reset discards the current message. It is also called after each Data and before Close.
	Reset()
	// Close is called once, when the conversation has ended for any reason.
	Close()
}

// MailOptions are the parameters of MAIL.
type MailOptions struct {
	Size     int64 // as declared, 0 if it was not
	UTF8     bool  // SMTPUTF8
	EightBit bool  // BODY=8BITMIME
	EnvID    string
}

// Refusal is a negative reply.
type Refusal struct {
	Code     int    // 4xx or 5xx
	Enhanced string // such as 5.1.1 (RFC 3463)
	Text     string // one line, for people
	Cause    error  // an internal failure, which is logged; nil otherwise
}

// Refuse returns a *Refusal.
func Refuse(code int, enhanced, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Enhanced: enhanced, Text: fmt.Sprintf(format, args...)}
}

// Error returns the reply as the client receives it.
func (r *Refusal) Error() string { return fmt.Sprintf("%d %s %s", r.Code, r.Enhanced, r.Text) }
