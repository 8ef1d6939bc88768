// Package milter asks a mail filter (rspamd and the like) what it thinks of a received message.
//
// Invariants:
//   - A filter is asked about the message as it arrived, at the end of DATA; it may refuse it, drop it, or add header
//     fields, which are returned and not inserted. It is not allowed to change addresses or content.
//   - A consultation ends within its time limit. The message is read in place and sent in pieces.
//
// Failure: a filter that cannot be reached, or that breaks off, leaves the decision to Config.FailClosed. Consult
// then returns an error for the log together with a verdict that can be acted on.
//
// The package keeps no connections: one is made for each message, so that a restarted filter is never noticed.
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

// DefaultTimeout is for one whole consultation. It must be shorter than the ten minutes that a client waits after the
// end of DATA (RFC 5321 section 4.5.3.2.6).
const DefaultTimeout = 30 * time.Second

// Action is what a filter wants done with a message.
type Action int

// The actions.
const (
	Accept   Action = iota
	Reject          // answer 5xx
	TempFail        // answer 4xx
	Discard         // answer 250 and keep nothing
)

// Verdict is a filter's answer.
type Verdict struct {
	Action Action
	// Code and Text are the SMTP reply that the filter asks for; 0 and empty when it leaves the words to the server.
	// Text has no line ends and may begin with an enhanced status code (RFC 3463).
	Code int
	Text string
	// Headers are the fields that the filter would add, unfolded: X-Spam-Status, X-Spamd-Result and the like.
	Headers []Field
	// Quarantine is the filter's reason to hold the message; empty without one. The message is accepted.
	Quarantine string
	// Refused are recipients that the filter does not want the message to reach while others remain.
	Refused []string
}

// Field is a header field.
type Field struct{ Name, Value string }

// Message is what a filter is told.
type Message struct {
	ID         string // for the filter's log; empty is allowed
	Client     netip.AddrPort
	ClientName string // as the reverse zone says; empty when unknown
	Hello      string
	MailFrom   string // empty for the null return path
	Recipients []string
	Raw        io.ReaderAt
	Size       int64 // of Raw, in octets
}

// Config says which filter is asked, and how.
type Config struct {
	// Address is unix:/path or inet:host:port.
	Address string
	// Hostname is the name of this mail server, which filters show in what they add.
	Hostname string
	// Timeout is for one consultation; 0 is DefaultTimeout.
	Timeout time.Duration
	// FailClosed asks for a later try when the filter fails; otherwise the message is accepted unseen.
	FailClosed bool
}

// Client asks one filter. It is safe for concurrent use.
type Client struct {
	config           Config
	network, address string
}

// New checks the address; the filter need not run yet.
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

// ParseAddress cuts a filter's address into what net.Dial wants. An error says what the address must look like.
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

// Consult asks the filter about m. The verdict can be acted on even when there is an error, which says why the
// filter did not decide.
func (c *Client) Consult(ctx context.Context, m Message) (Verdict, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.config.Timeout, fmt.Errorf("no answer within %v", c.config.Timeout))
	defer cancel()
	v, err := c.consult(ctx, m)
	if err == nil {
		return v, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		// The connection was closed under the conversation; that says less than why.
		err = cause
	}
	v = Verdict{Action: Accept}
	if c.config.FailClosed {
		v = Verdict{Action: TempFail, Code: 451, Text: "4.7.1 The message cannot be checked now, please try again later"}
	}
	return v, fmt.Errorf("ask milter %s: %w", c.config.Address, err)
}

var errRead = errors.New("read the message")
