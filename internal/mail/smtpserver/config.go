package smtpserver

import (
	"cmp"
	"crypto/tls"
	"net/netip"
	"time"
)

// AuthMode says when a listener offers AUTH PLAIN and LOGIN.
type AuthMode int

const (
	NoAuth      AuthMode = iota
	AuthOverTLS          // only once TLS is on
	AuthInClear          // always: for loopback, in development
)

// Config configures a listener. Zero fields take the defaults, given with each field.
type Config struct {
	Hostname string      // in the greeting
	TLS      *tls.Config // nil offers no STARTTLS
	Implicit bool        // TLS from the first octet; needs TLS
	Auth     AuthMode

	MaxSize       int64 // octets of a message; 50 MiB
	MaxRecipients int   // of one message; 100 (RFC 5321 section 4.5.3.1.8)
	MaxLine       int   // octets of a line of a message; 256 KiB
	MaxCommands   int   // of a connection since its last message; 500
	MaxErrors     int   // replies 4xx and 5xx of a connection since its last message; 20

	MaxConnections int // in all; 1,000. When all places are taken, the least active connection may be closed for a new one
	MaxPerAddr     int // of one IPv4 address or one IPv6 network of 64 bits; 0 sets no limit

	// ProxyFrom are the addresses of proxies, whose connections begin with a PROXY header, version 1 or 2. Other
	// connections have none.
	ProxyFrom []netip.Prefix

	Timeouts Timeouts
	Grace    time.Duration // for messages in progress when Serve ends; 30 s
}

// Timeouts bound how long a client may take. The defaults are no less than RFC 5321 section 4.5.3.2 requires; Crowded
// applies when few places are left.
type Timeouts struct {
	Command   time.Duration // to the end of the next command; 5 min
	Block     time.Duration // to the next piece of a message; 3 min
	Message   time.Duration // for a whole message, in addition to what MinRate gives; 10 min
	MinRate   int64         // octets of a message a second, on average; 4,096
	Write     time.Duration // to take a reply; 1 min
	Handshake time.Duration // TLS, and the PROXY header; 1 min
	Idle      time.Duration // without a message; 30 min
	// Crowded is how long a client may make no progress before its connection may be closed for another one. While three
	// of four places are taken, it is also how long a client that has not yet sent a message may take for a command; 20
	// s.
	Crowded time.Duration
}

func (c Config) withDefaults() Config {
	c.Hostname = cmp.Or(c.Hostname, "localhost")
	c.MaxSize = cmp.Or(c.MaxSize, 50<<20)
	c.MaxRecipients = cmp.Or(c.MaxRecipients, 100)
	c.MaxLine = cmp.Or(c.MaxLine, 256<<10)
	c.MaxCommands = cmp.Or(c.MaxCommands, 500)
	c.MaxErrors = cmp.Or(c.MaxErrors, 20)
	c.MaxConnections = cmp.Or(c.MaxConnections, 1000)
	c.Grace = cmp.Or(c.Grace, 30*time.Second)
	t := &c.Timeouts
	t.Command = cmp.Or(t.Command, 5*time.Minute)
	t.Block = cmp.Or(t.Block, 3*time.Minute)
	t.Message = cmp.Or(t.Message, 10*time.Minute)
	t.MinRate = cmp.Or(t.MinRate, 4096)
	t.Write = cmp.Or(t.Write, time.Minute)
	t.Handshake = cmp.Or(t.Handshake, time.Minute)
	t.Idle = cmp.Or(t.Idle, 30*time.Minute)
	t.Crowded = cmp.Or(t.Crowded, 20*time.Second)
	return c
}
