// Package smtpserver is the SMTP server (RFC 5321) for both receiving and submission. The server accepts connections,
// authenticates clients if the listener offers AUTH, and passes their messages to a [Handler]. The server offers the
// extensions PIPELINING, SIZE, 8BITMIME, SMTPUTF8, CHUNKING, ENHANCEDSTATUSCODES, STARTTLS and AUTH.
//
// # Invariants
//
// Only CRLF "." CRLF ends a message sent with DATA. A message that contains a lone CR or LF is refused. Servers
// disagree about line endings, so one server could execute as commands what another server regards as text. Data
// received before a TLS handshake is never treated as received over TLS. The server replies 250 to a message only if
// the session's Data returned no error and every byte of the message was read and valid.
//
// Each connection has one goroutine, which calls the methods of its session one after another. The server limits the
// number of connections, both in total and per address, the length of commands and lines, and the size and duration of
// a message. For each connection, the server also limits the number of commands without a message, the number of
// errors, and the number of failed passwords. Clients cannot keep other clients out by holding connections open. When
// all slots are in use, the server first closes connections that make no progress, and then connections on which no
// message has been sent yet (eviction.go). The server refuses a new connection only if it cannot close any other
// connection.
//
// # Failures
//
// The server replies to each client error with an error reply, and closes the connection with 421 after too many
// errors. A panic in a handler is logged, and ends only the connection on which it occurs. When the context passed to
// Serve is done, idle clients receive 421 immediately, and messages in progress may finish within the grace period.
// After the grace period, all connections are closed. The client receives no reply to an interrupted message, so the
// client sends it again later.
//
// # Out of scope
//
// The package makes no decisions about senders, recipients or content, and adds no trace fields (such as Received) to
// messages. The server does not offer BINARYMIME, because most servers do not accept such messages. The server parses
// DSN parameters, but ignores all of them except ENVID.
package smtpserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/netip"
)

// Handler decides whether to accept a client's session.
type Handler interface {
	// Open is called for the first EHLO or HELO command, and again for the first one after STARTTLS. If Open returns a
	// *Refusal, the server sends it to the client unchanged.
	Open(ctx context.Context, p Peer) (Session, error)
}

// Peer describes the client of a connection.
type Peer struct {
	Addr  netip.AddrPort // the client's address, from the PROXY header if there is one
	Local netip.AddrPort // the listener's address
	Hello string         // the name that the client gave in EHLO or HELO
	TLS   *tls.ConnectionState
}

// Session is one client's SMTP session. The methods of a Session are called one after another, never concurrently. If a
// method returns a *Refusal, the server sends it unchanged. The server logs any other error and replies 451 4.3.0, or
// 454 4.7.0 for AUTH.
type Session interface {
	// Auth checks a user name and a password. Auth is called only if the listener offers AUTH.
	Auth(ctx context.Context, username, password string) error
	// Mail begins a message. The from argument is the return path, or empty for the null return path.
	Mail(ctx context.Context, from string, o MailOptions) error
	// Rcpt adds a recipient to the message.
	Rcpt(ctx context.Context, to string) error
	// Data reads the message, with CRLF line endings and without stuffed dots, and returns after the message has been
	// stored durably. The reply to the client contains the returned id. If reading fails before io.EOF, the message is
	// incomplete or invalid and must be discarded. After such a failure, the client receives an error even if Data
	// returns nil.
	Data(ctx context.Context, r io.Reader) (id string, err error)
	// Reset discards the current message. Reset is also called after each call to Data, and before Close.
	Reset()
	// Close is called once, when the SMTP session has ended for any reason.
	Close()
}

// MailOptions holds the parameters of the MAIL command.
type MailOptions struct {
	Size     int64 // declared size in bytes; 0 if none was declared
	UTF8     bool  // SMTPUTF8
	EightBit bool  // BODY=8BITMIME
	EnvID    string
}

// Refusal is a negative SMTP reply.
type Refusal struct {
	Code     int    // 4xx or 5xx
	Enhanced string // enhanced status code, such as 5.1.1 (RFC 3463)
	Text     string // one line of human-readable text
	Cause    error  // the internal failure to be logged, or nil
}

// Refuse returns a *Refusal.
func Refuse(code int, enhanced, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Enhanced: enhanced, Text: fmt.Sprintf(format, args...)}
}

// Error returns the reply line that the client receives.
func (r *Refusal) Error() string { return fmt.Sprintf("%d %s %s", r.Code, r.Enhanced, r.Text) }
