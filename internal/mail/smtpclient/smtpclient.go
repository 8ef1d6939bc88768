// Package smtpclient sends email to a host by SMTP: it connects, negotiates TLS, authenticates, and sends any number of
// messages over one connection (RFC 5321, 2920, 3207, 4954, 1870, 6152, 6531).
//
// # Invariants
//
//   - A host's reply is a value (Reply, Result); a Go error (*Error) means that the SMTP session was interrupted or
//     could not begin.
//   - Values cannot inject commands: addresses that could add a second command line are refused.
//   - A message cannot end its own transfer early: lines always end in CRLF and dots are stuffed.
//   - The transcript never contains secrets or message text.
//
// # Failures
//
// An *Error states the stage at which the SMTP session ended, whether a later attempt may succeed, and whether the host
// may have accepted the message (Sent). Sent is true only if the connection broke between the final dot and the host's
// reply. A Conn that failed is not Usable, and can only be closed.
//
// # Out of scope
//
// The package does not look up hosts, pool connections, retry, or decide what a reply means for an email.
package smtpclient

import (
	"context"
	"crypto/x509"
	"net"
	"time"
)

// TLSMode is the encryption that the caller requires of the connection.
type TLSMode int

const (
	// TLSOpportunistic uses STARTTLS if the host offers it, and accepts any certificate. TLSOpportunistic protects only
	// against passive listeners (RFC 7435). If an opportunistic TLS handshake fails, Dial returns an Error with
	// RetryPlain.
	TLSOpportunistic TLSMode = iota
	// TLSNone never uses TLS.
	TLSNone
	// TLSRequired sends no message unless STARTTLS succeeds with a certificate that is valid for ServerName.
	TLSRequired
	// TLSImplicit uses TLS from the first byte (RFC 8314) and verifies the certificate; relays offer this mode on port
	// 465.
	TLSImplicit
)

// Options says how to connect to a host. The zero value of Options works for a host on this machine.
type Options struct {
	Hello      string         // the name in EHLO; empty is "localhost"
	TLS        TLSMode        //
	ServerName string         // name to verify and to send as SNI; "" means the host name of addr
	RootCAs    *x509.CertPool // nil means the system's root certificates
	Username   string         // if set, AUTH PLAIN or LOGIN must succeed, using TLS or a loopback address
	Password   string

	Dial     func(ctx context.Context, network, addr string) (net.Conn, error) // nil means a net.Dialer
	Timeouts Timeouts
	// TranscriptLimit is the maximum size of a transcript in bytes; 0 means 16 KiB. If a transcript is longer, lines in
	// its middle are omitted.
	TranscriptLimit int
}

// Timeouts limit the steps of an SMTP session; the context limits the session as a whole. A timeout of zero means the
// default, which the field's comment states. A client that retries from a queue can use shorter timeouts than RFC 5321
// section 4.5.3.2 requires. Only Final must be long enough, because a message is sent again if the reply to it comes
// too late.
type Timeouts struct {
	Connect  time.Duration // establishing the TCP connection; default 30 s
	TLS      time.Duration // the TLS handshake; default 30 s
	Greeting time.Duration // the host's greeting; default 2 min
	Command  time.Duration // a command and its reply; default 2 min
	Data     time.Duration // writing a block of 64 KiB of the message; default 2 min
	Final    time.Duration // the reply to the final dot; default 10 min
}

func (t Timeouts) withDefaults() Timeouts {
	or := func(d, fallback time.Duration) time.Duration {
		if d > 0 {
			return d
		}
		return fallback
	}
	return Timeouts{
		Connect:  or(t.Connect, 30*time.Second),
		TLS:      or(t.TLS, 30*time.Second),
		Greeting: or(t.Greeting, 2*time.Minute),
		Command:  or(t.Command, 2*time.Minute),
		Data:     or(t.Data, 2*time.Minute),
		Final:    or(t.Final, 10*time.Minute),
	}
}

// Extensions are the SMTP extensions in the host's last EHLO reply.
type Extensions struct {
	Pipelining    bool
	EightBitMIME  bool
	SMTPUTF8      bool
	EnhancedCodes bool
	StartTLS      bool
	Size          int64    // maximum message size in bytes; 0 means unknown or unlimited
	Auth          []string // SASL mechanisms in upper case
}

// TLSState describes the encryption of the connection. The zero value of TLSState means a plain connection.
type TLSState struct {
	Version  string // "TLS 1.3"
	Cipher   string
	Verified bool   // the certificate is valid for the server name
	Peer     string // the first name in the certificate
	Problem  string // why the certificate is not Verified
}

// On reports whether the connection is encrypted.
func (s TLSState) On() bool { return s.Version != "" }

// Envelope holds the parameters of MAIL and RCPT. Addresses in an Envelope have the form local@domain without angle
// brackets. An empty From is the null return path of a bounce.
type Envelope struct {
	From string
	To   []string
	// UTF8 means that the message's header needs SMTPUTF8 (RFC 6531). For addresses that need SMTPUTF8, the client
	// sends that parameter even if UTF8 is false.
	UTF8 bool
	// Require8Bit refuses to send 8-bit text to a host that does not offer 8BITMIME (RFC 6152). If Require8Bit is
	// false, 8-bit text is sent unchanged, which nearly every host accepts.
	Require8Bit bool
	// Commit, if set, is called right before the final dot is sent; after that dot the host may have the message. If
	// Commit fails, the connection is closed and the host discards the message. The *Error of Send wraps the error of
	// Commit.
	Commit func() error
}

// Result holds the host's replies about one message. A reply in Result is zero if its command was not sent or does not
// matter.
type Result struct {
	Mail  Reply
	Rcpt  []Reply // one reply for each recipient, in the order of the envelope
	Data  Reply   // the reply to the DATA command
	Final Reply   // the reply to the message; zero if no recipient was accepted
}

// Recipient returns the reply that decides about recipient i: the first refusal, or else the final reply. After an
// error of Send, Recipient returns a zero Reply if the host had not decided about the recipient yet; see Error.Sent.
func (r Result) Recipient(i int) Reply {
	switch {
	case !r.Mail.Positive():
		return r.Mail
	case !r.Rcpt[i].Positive():
		return r.Rcpt[i]
	case r.Data.Code != 354:
		return r.Data
	}
	return r.Final
}
