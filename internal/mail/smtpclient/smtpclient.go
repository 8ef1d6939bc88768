// Package smtpclient sends email to a host over SMTP (RFC 5321, 2920, 3207, 4954, 1870, 6152, 6531,
// 9422). It connects,
// negotiates TLS, authenticates, and sends any number of messages on one connection.
//
// # Invariants
//
//   - A host's reply is a value (Reply, Result); a Go error (*Error) means that the SMTP session was interrupted or
//     could not begin.
//   - Values cannot inject commands: addresses that could add a second command line are rejected.
//   - The contents of a message cannot end its transfer early: lines always end with CRLF, and dots are stuffed.
//   - The transcript never contains secrets or message text.
//   - With a TLS mode that demands encryption, no envelope and no message is sent before the TLS handshake has
//     succeeded as the mode demands.
//   - A message that is larger than the host's SIZE, and recipients beyond its LIMITS, are not sent. Their replies are
//     Local.
//
// # Failures
//
// An *Error states the stage at which the SMTP session ended, whether a later attempt may succeed, and whether the host
// may have accepted the message (Sent). Sent is true only if no valid reply to the final dot was received. After a
// failure, the Conn is no longer usable and can only be closed.
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

	"github.com/postrider/postrider/internal/mail/dane"
)

// TLSMode is the encryption that the caller requires for the connection.
type TLSMode int

const (
	// TLSOpportunistic uses STARTTLS if the host offers it, and accepts any certificate. TLSOpportunistic protects only
	// against passive listeners (RFC 7435). If an opportunistic TLS handshake fails, Dial returns an Error with
	// RetryPlain set.
	TLSOpportunistic TLSMode = iota
	// TLSNone never uses TLS.
	TLSNone
	// TLSRequired sends no message unless STARTTLS succeeds with a certificate that is valid for ServerName.
	TLSRequired
	// TLSImplicit uses TLS from the first byte (RFC 8314) and verifies the certificate; relays offer this mode on port
	// 465.
	TLSImplicit
	// TLSEncrypted sends no message unless STARTTLS succeeds, and accepts any certificate. It is for hosts whose TLSA
	// records are all unusable (RFC 7672 section 2.2).
	TLSEncrypted
	// TLSDANE sends no message unless STARTTLS succeeds with a certificate that matches Options.DANE (RFC 7672).
	// Whether an authority issued the certificate does not matter.
	TLSDANE
)

// plainText reports whether the mode permits messages without TLS.
func (m TLSMode) plainText() bool { return m == TLSOpportunistic || m == TLSNone }

// anyCertificate reports whether the mode accepts every certificate.
func (m TLSMode) anyCertificate() bool { return m == TLSOpportunistic || m == TLSEncrypted }

// Options specifies how to connect to a host. The zero value is suitable for a host on the same machine.
type Options struct {
	Hello      string         // the name in EHLO; empty is "localhost"
	TLS        TLSMode        //
	ServerName string         // name to verify and to send as SNI; "" means the host name of addr
	RootCAs    *x509.CertPool // nil means the system's root certificates
	Username   string         // if set, AUTH PLAIN or LOGIN must succeed, over TLS or to a loopback address
	Password   string

	// DANE holds the TLSA records of the host for TLSDANE, and ServerName must be the TLSA base name. If the set has no
	// usable record, the handshake fails.
	DANE *dane.Set
	// DANENames are the names, besides ServerName, for which a certificate may be valid that an authority of the TLSA
	// records issued. These are the recipient's domain, before and after aliases.
	DANENames []string

	Dial     func(ctx context.Context, network, addr string) (net.Conn, error) // nil means a net.Dialer
	Timeouts Timeouts
	// TranscriptLimit is the maximum size of a transcript in bytes; 0 means 16 KiB. If a transcript would be longer,
	// lines in the middle are omitted.
	TranscriptLimit int
}

// Timeouts holds the time limits for the steps of an SMTP session; the context limits the session as a whole. A timeout
// of zero means the default, which is stated in the comment on the field. A client that retries from a queue can use
// shorter timeouts than those in RFC 5321 section 4.5.3.2. Only Final must be long enough, because a message is sent
// again if the reply to it comes too late.
type Timeouts struct {
	Connect  time.Duration // establishing the TCP connection; default 30 s
	TLS      time.Duration // the TLS handshake; default 30 s
	Greeting time.Duration // the host's greeting; default 2 min
	Command  time.Duration // a command and its reply; default 2 min
	Data     time.Duration // writing one 64 KiB block of the message; default 2 min
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

// Extensions holds the SMTP extensions in the host's last EHLO reply.
type Extensions struct {
	Pipelining    bool
	EightBitMIME  bool
	SMTPUTF8      bool
	EnhancedCodes bool
	StartTLS      bool
	Size          int64    // maximum message size in bytes; 0 means unknown or unlimited
	Limits        Limits   // what LIMITS announces
	Auth          []string // SASL mechanisms in upper case
}

// Limits holds the limits that a host announces for a session (RFC 9422); 0 means none.
type Limits struct {
	Messages   int // MAILMAX: transactions over one connection
	Recipients int // RCPTMAX: recipients of one transaction
	Domains    int // RCPTDOMAINMAX: different domains among these recipients
}

// TLSState describes the encryption of the connection. The zero value means that the connection is not encrypted.
type TLSState struct {
	Version  string // "TLS 1.3"
	Cipher   string
	Verified bool   // whether the certificate is valid for the server name, or matches a TLSA record under TLSDANE
	Method   Method // how the certificate was verified; "" if it was not
	Problem  string // why the certificate could not be verified
	Cause    error  // the error that Problem describes; nil if there is none
	Cert     Certificate
}

// Method says how a certificate was verified.
type Method string

// These are the methods.
const (
	MethodWebPKI Method = "webpki"  // a root certificate and ServerName
	MethodDANEEE Method = "dane-ee" // a TLSA record describes the certificate
	MethodDANETA Method = "dane-ta" // a TLSA record describes the authority that issued it
)

// Certificate describes the certificate that a host presented. The host chose all texts, so they are shortened and
// cleaned of control characters.
type Certificate struct {
	Names   []string // the first names, at most four; the common name if there is no other
	More    int      // number of further names
	Issuer  string   // the common name of the issuer, or its organization
	Expires time.Time
}

// Peer returns the first name in the certificate, or "".
func (c *Certificate) Peer() string {
	if len(c.Names) == 0 {
		return ""
	}
	return c.Names[0]
}

// Times holds how long the stages of an SMTP session took. A stage that has not taken place has the time zero.
type Times struct {
	Connect, Greeting time.Duration
	Hello             time.Duration // EHLO, TLS and authentication
	Envelope          time.Duration // MAIL, RCPT and DATA
	Body              time.Duration // sending the message
	Final             time.Duration // the reply to the message
}

// On reports whether the connection is encrypted.
func (s TLSState) On() bool { return s.Version != "" }

// Envelope holds the parameters for the MAIL and RCPT commands. Addresses in an Envelope have the form local@domain,
// without angle brackets. An empty From means the null return path, as used for bounces.
type Envelope struct {
	From string
	To   []string
	// UTF8 means that the header of the message requires SMTPUTF8 (RFC 6531). If an address requires SMTPUTF8, the
	// client sends that parameter even if UTF8 is false.
	UTF8 bool
	// Require8Bit prevents 8-bit text from being sent to a host that does not offer 8BITMIME (RFC 6152). If Require8Bit
	// is false, 8-bit text is sent unchanged, because nearly every host accepts it.
	Require8Bit bool
	// Commit, if set, is called right before the final dot is sent; after that dot the host may have the message. If
	// Commit fails, the connection is closed and the host discards the message. The *Error that Send returns then wraps
	// the error from Commit.
	Commit func() error
}

// Result holds the host's replies for one message. A reply in a Result is zero if the command was not sent or its reply
// does not matter.
type Result struct {
	Mail  Reply
	Rcpt  []Reply // one reply per recipient, in the same order as in the envelope
	Data  Reply   // the reply to the DATA command
	Final Reply   // the reply to the message; zero if no recipient was accepted
}

// Recipient returns the reply that settles the outcome for recipient i: the first refusal or, if there is none, the
// final reply. If Send returned an error and the outcome for the recipient is unknown, Recipient returns a zero
// Reply; see Error.Sent.
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
