// Package smtpserver is the listener that receiving and submission share: it speaks SMTP (RFC 5321) with strangers
// and hands what they want to a [Handler]. It offers PIPELINING, SIZE, 8BITMIME, SMTPUTF8, CHUNKING,
// ENHANCEDSTATUSCODES, STARTTLS and AUTH.
//
// # Invariants
//
// Only CRLF "." CRLF ends a message that DATA began, and a message with a CR or an LF that stands alone is refused:
// hosts differ in what they take for the end of a line, and what one takes for text another would take for commands.
// What was sent before a TLS handshake is never taken as sent after it. A message is answered 250 only when the
// session's Data has returned without an error and every octet of it was read and found good.
//
// One client costs one goroutine, and its session's methods run there one after another. What it may use is bounded:
// the connections, in all and of one address; the length of commands and lines, the size and the time of a message;
// the commands without a message, the errors and the failed passwords of one connection. Strangers cannot keep others
// out by holding connections: when all places are taken, those that get nothing done go first (room.go says which).
//
// # Failure
//
// What a client does wrong is answered and, when it goes on, ends its connection with 421. A panic of a handler ends
// that connection alone and is logged. When the context of Serve ends, clients that wait hear 421 at once, messages
// under way may end within the grace, and then all connections are cut; a message cut off was not answered and is
// sent again.
//
// # What it does not do
//
// It decides nothing about senders, recipients and content, and adds no trace to a message. It does not offer
// BINARYMIME: such a message could not be passed on to most hosts. DSN parameters are read and, but for ENVID,
// dropped.
package smtpserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/netip"
)

// Handler decides what becomes of connections.
type Handler interface {
	// Open is asked once EHLO or HELO has been heard, and again after STARTTLS. A *Refusal is answered as it is.
	Open(ctx context.Context, p Peer) (Session, error)
}

// Peer is who is at the other end.
type Peer struct {
	Addr  netip.AddrPort // of the client; what the PROXY protocol says when that is configured
	Local netip.AddrPort // of the listener
	Hello string         // what the client calls itself
	TLS   *tls.ConnectionState
}

// Session is one client's conversation. Its methods are called one after another, never at once. An error that is a
// *Refusal is answered as it is; any other is logged and answered 451 4.3.0.
type Session interface {
	// Auth checks a user name and a password. It is called only where the listener offers AUTH.
	Auth(ctx context.Context, username, password string) error
	// Mail begins a message. from is empty for the null return path.
	Mail(ctx context.Context, from string, o MailOptions) error
	// Rcpt adds a recipient.
	Rcpt(ctx context.Context, to string) error
	// Data reads the message, with CRLF line ends and dots unstuffed, and returns once it is durable. id is shown to
	// the client. When reading fails before io.EOF the message is not whole, or breaks a rule, and must be forgotten:
	// the client is told so whatever Data returns.
	Data(ctx context.Context, r io.Reader) (id string, err error)
	// Reset forgets the message begun. It is called after each Data too, and before Close.
	Reset()
	// Close is called once, when the conversation has ended for whatever reason.
	Close()
}

// MailOptions are the parameters of MAIL.
type MailOptions struct {
	Size     int64 // as declared, 0 when it was not
	UTF8     bool  // SMTPUTF8
	EightBit bool  // BODY=8BITMIME
	EnvID    string
}

// Refusal is an answer that says no.
type Refusal struct {
	Code     int    // 4xx or 5xx
	Enhanced string // such as 5.1.1 (RFC 3463)
	Text     string // one line, for people
	Cause    error  // a failure of ours, which is logged; nil otherwise
}

// Refuse returns a *Refusal.
func Refuse(code int, enhanced, format string, args ...any) *Refusal {
	return &Refusal{Code: code, Enhanced: enhanced, Text: fmt.Sprintf(format, args...)}
}

// Error returns the answer as the client sees it.
func (r *Refusal) Error() string { return fmt.Sprintf("%d %s %s", r.Code, r.Enhanced, r.Text) }
