// Package milter is a client for mail filters (such as rspamd) that check received messages using the milter protocol.
//
// # Invariants
//
//   - A filter is consulted at the end of DATA and sees the message as it was received. The filter may reject or
//     discard the message, or ask for header fields to be added; Consult returns these fields but does not insert them.
//     The filter may not change addresses or content.
//   - A consultation ends within its time limit. The message is sent in chunks, and the whole message is never in
//     memory at once.
//
// # Failures
//
// If a filter cannot be reached or its connection breaks, Config.FailClosed decides whether the message is accepted. If
// the filter fails, Consult returns an error for the log and also a verdict that the caller can act on.
//
// # Out of scope
//
// The package does not reuse connections. Consult opens a connection for each message, so that a filter can be
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

// DefaultTimeout is the default time limit for an entire consultation. The limit must be shorter than the ten minutes
// that a client waits for the reply after the end of DATA (RFC 5321 section 4.5.3.2.6).
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
	// Code and Text are the SMTP reply that the filter requests, or 0 and "" if the filter leaves the reply to the
	// server. Text has no line breaks and may begin with an enhanced status code (RFC 3463).
	Code int
	Text string
	// Headers are the unfolded header fields that the filter asks to add, such as X-Spam-Status and X-Spamd-Result.
	Headers []Field
	// Quarantine is the filter's reason for quarantining the message, or empty if the filter gave none. The server
	// still accepts a quarantined message.
	Quarantine string
	// Refused lists the recipients that the filter refused, provided that it accepted at least one other recipient.
	Refused []string
}

// Field is a header field.
type Field struct{ Name, Value string }

// Message holds the information about a message that is passed to the filter.
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
	// Timeout is the time limit for one consultation; 0 means DefaultTimeout.
	Timeout time.Duration
	// FailClosed makes Consult refuse the message with a temporary error if the filter fails. If FailClosed is false,
	// the message is accepted unchecked.
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

// ParseAddress splits a filter's address into the arguments for net.Dial. If the address is invalid, the error states
// the valid forms.
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

// Consult asks the filter for a verdict on m. The verdict is valid even if Consult returns an error; the error says why
// the filter did not decide.
func (c *Client) Consult(ctx context.Context, m Message) (Verdict, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, c.config.Timeout, fmt.Errorf("no answer within %v", c.config.Timeout))
	defer cancel()
	v, err := c.consult(ctx, m)
	if err == nil {
		return v, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		// The connection was closed because ctx is done, so the cause of ctx is more useful than the connection error.
		err = cause
	}
	v = Verdict{Action: Accept}
	if c.config.FailClosed {
		v = Verdict{Action: TempFail, Code: 451, Text: "4.7.1 The message cannot be checked now, please try again later"}
	}
	return v, fmt.Errorf("ask milter %s: %w", c.config.Address, err)
}

var errRead = errors.New("read the message")
