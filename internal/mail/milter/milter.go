// Package milter is a client of mail filters (such as rspamd), which check received messages by the milter protocol.
//
// # Invariants
//
//   - A filter is consulted at the end of DATA, about the message as it was received. The filter may refuse or drop the
//     message, or request header fields, which Consult returns but does not insert. The filter may not change addresses
//     or content.
//   - A consultation ends within its time limit. The message is sent in chunks and never held in memory as a whole.
//
// # Failures
//
// If a filter cannot be reached or its connection breaks, Config.FailClosed decides whether the message is accepted. If
// the filter fails, Consult returns an error for the log together with a verdict that the caller can act on.
//
// # Out of scope
//
// The package does not reuse connections. Consult opens one connection for each message, so that a filter can be
// restarted at any time.
package milter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// DefaultTimeout is the default time limit of one whole consultation. DefaultTimeout must be shorter than the ten
// minutes that a client waits for the reply after the end of DATA (RFC 5321 section 4.5.3.2.6).
const DefaultTimeout = 30 * time.Second

// Action is a filter's decision about a message.
type Action int

// The actions.
const (
	Accept   Action = iota
	Reject          // answer 5xx
	TempFail        // answer 4xx
	Discard         // answer 250, but do not store the message
)

// Verdict is a filter's decision about a message, with the changes that it requests.
type Verdict struct {
	Action Action
	// Code and Text are the SMTP reply that the filter requests; 0 and "" if it leaves the reply to the server. Text has
	// no line ends and may begin with an enhanced status code (RFC 3463).
	Code int
	Text string
	// Headers are the header fields that the filter asks to add, unfolded: X-Spam-Status, X-Spamd-Result and the like.
	Headers []Field
	// Quarantine is the filter's reason for quarantining the message; empty if it gave none. The server still accepts a
	// quarantined message.
	Quarantine string
	// Refused are the recipients that the filter refused, if it accepted other recipients.
	Refused []string
}

// Field is a header field.
type Field struct{ Name, Value string }

// Message is the information that a filter receives.
type Message struct {
	ID         string // id of the message for the filter's log; may be empty
	Client     netip.AddrPort
	ClientName string // the client's name in reverse DNS; empty if unknown
	Hello      string
	MailFrom   string // empty for the null return path
	Recipients []string
	Raw        io.ReaderAt
	Size       int64 // size of Raw in bytes
}

// Config configures a Client.
type Config struct {
	// Address is unix:/path or inet:host:port.
	Address string
	// Hostname is this mail server's name, which filters use in the header fields that they add.
	Hostname string
	// Timeout is the time limit of one consultation; 0 means DefaultTimeout.
	Timeout time.Duration
	// FailClosed refuses the message with a temporary error if the filter fails. Without FailClosed, the message is
	// accepted unchecked.
	FailClosed bool
}

// Client consults one mail filter. A Client is safe for concurrent use.
type Client struct {
	config           Config
	network, address string
}

// New validates the configuration; it does not connect to the filter.
func New(c Config) (*Client, error) {
	network, address, err := ParseAddress(c.Address)
	if err != nil {
		return nil, err
	}
	if c.Timeout <= 0 {
		c.Timeout = DefaultTimeout
	}
	return &Client{config: c, network: network, address: address}, nil
}

// ParseAddress splits a filter's address into the arguments of net.Dial. The error of ParseAddress states the valid
// forms of an address.
func ParseAddress(s string) (network, address string, err error) {
	kind, rest, _ := strings.Cut(s, ":")
	switch kind {
	case "unix":
		if filepath.IsAbs(rest) {
			return "unix", rest, nil
		}
	case "inet":
		host, port, err := net.SplitHostPort(rest)
		if n, convErr := strconv.ParseUint(port, 10, 16); err == nil && convErr == nil && n > 0 && host != "" {
			return "tcp", rest, nil
		}
	}
	return "", "", fmt.Errorf("milter address %q is neither unix:/absolute/path nor inet:host:port", s)
}

// Consult asks the filter for a verdict on m. The verdict is valid even if Consult returns an error, which says why the
// filter did not decide.
func (c *Client) Consult(ctx context.Context, m Message) (Verdict, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.config.Timeout, fmt.Errorf("no answer within %v", c.config.Timeout))
	defer cancel()
	v, err := c.consult(ctx, m)
	if err == nil {
		return v, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		// The end of ctx closed the connection, so the cause of ctx is more useful than the connection's error.
		err = cause
	}
	v = Verdict{Action: Accept}
	if c.config.FailClosed {
		v = Verdict{Action: TempFail, Code: 451, Text: "4.7.1 The message cannot be checked now, please try again later"}
	}
	return v, fmt.Errorf("ask milter %s: %w", c.config.Address, err)
}

var errRead = errors.New("read the message")
