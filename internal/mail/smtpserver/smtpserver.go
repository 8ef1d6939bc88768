// Package smtpserver is the SMTP server (RFC 5321) that receiving and submission share. The server accepts connections,
// authenticates clients if the listener offers AUTH, and passes their messages to a [Handler]. The server offers
// PIPELINING, SIZE, 8BITMIME, SMTPUTF8, CHUNKING, ENHANCEDSTATUSCODES, STARTTLS and AUTH.
//
// # Invariants
//
// Only CRLF "." CRLF ends a message that DATA began. A message with a lone CR or LF is refused: hosts disagree about
// line ends, so one host's text could be another host's commands. Data received before a TLS handshake never counts as
// received after it. A message is answered 250 only after the session's Data has returned without an error and every
// byte of it was read and found valid.
//
// One client costs one goroutine, which calls its session's methods one after another. The server limits the number of
// connections, in total and per address, the length of commands and lines, and the size and duration of a message. For
// each connection, the server limits the commands without a message, the errors and the failed passwords. Clients
// cannot keep others out by holding connections. When all slots are in use, the server first closes connections that
// make no progress, then those that have not sent a message yet (eviction.go). The server refuses a new connection only
// if it can close no other connection.
//
// # When it fails
//
// Each mistake of a client gets an error reply; too many of them end its connection with 421. A panic of a handler ends
// only that connection and is logged. When the context of Serve ends, idle clients receive 421 at once and messages in
// progress may finish within the grace period. After the grace period, all connections are closed. An interrupted
// message gets no reply, so the client sends it again.
//
// # What it does not do
//
// The package makes no decisions about senders, recipients and content, and adds no trace fields to a message. The
// server does not offer BINARYMIME, because most hosts do not accept such messages. The server parses DSN parameters
// and drops all but ENVID.
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
	Addr  netip.AddrPort // address of the client; from the PROXY header if one is configured
	Local netip.AddrPort // address of the listener
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
	// Data reads the message, with CRLF line ends and dots unstuffed, and returns once it is durable. id is shown to
	// the client. If reading fails before io.EOF, the message is incomplete or invalid and must be discarded: the
	// client gets an error whatever Data returns.
	Data(ctx context.Context, r io.Reader) (id string, err error)
	// Reset discards the current message. It is also called after each Data and before Close.
	Reset()
	// Close is called once, when the conversation has ended for any reason.
	Close()
}

// MailOptions are the parameters of MAIL.
type MailOptions struct {
	Size     int64 // the declared size in bytes, 0 if none was declared
	UTF8     bool  // SMTPUTF8
	EightBit bool  // BODY=8BITMIME
	EnvID    string
}

// Refusal is a negative reply.
type Refusal struct {
	Code     int    // 4xx or 5xx
	Enhanced string // enhanced status code, such as 5.1.1 (RFC 3463)
	Text     string // a line of text for people
	Cause    error  // the internal failure for the log, or nil
}

// Refuse returns a *Refusal.
func Refuse(code int, enhanced, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Enhanced: enhanced, Text: fmt.Sprintf(format, args...)}
}

// Error returns the reply as the client receives it.
func (r *Refusal) Error() string { return fmt.Sprintf("%d %s %s", r.Code, r.Enhanced, r.Text) }
