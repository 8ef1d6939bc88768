package smtpserver

import (
	"cmp"
	"crypto/tls"
	"net/netip"
	"time"
)

// AuthMode specifies when a listener offers AUTH PLAIN and LOGIN.
type AuthMode int

const (
	NoAuth      AuthMode = iota
	AuthOverTLS          // AUTH is offered only over TLS
	AuthInClear          // AUTH is always offered; intended for development on a loopback address
)

// Config configures a listener. If a field is zero, the default stated in its comment is used.
type Config struct {
	Hostname string      // host name in the greeting
	TLS      *tls.Config // nil means that STARTTLS is not offered
	Implicit bool        // TLS starts with the first byte; requires TLS to be set
	Auth     AuthMode

	MaxSize       int64 // maximum size of a message, in bytes; default 50 MiB
	MaxRecipients int   // maximum number of recipients per message; default 100 (RFC 5321 section 4.5.3.1.8)
	MaxLine       int   // maximum length of a message line, in bytes; default 256 KiB
	MaxCommands   int   // maximum number of commands on a connection since its last message; default 500
	MaxErrors     int   // maximum number of 4xx and 5xx replies on a connection since its last message; default 20

	// MaxConnections is the maximum number of connections (slots); the default is 1,000. If all slots are in use, the
	// server may close the least active connection to accept a new one.
	MaxConnections int
	MaxPerAddr     int // maximum number of connections from an IPv4 address or an IPv6 /64 network; 0 means no limit

	// ProxyFrom lists the address ranges of trusted proxies. Connections from trusted proxies begin with a PROXY
	// protocol header, version 1 or 2. Connections from other addresses have no PROXY header.
	ProxyFrom []netip.Prefix

	Timeouts Timeouts
	Grace    time.Duration // how long messages in progress may continue after Serve's context is done; default 30 s
}

// Timeouts holds limits on how long the server waits for a client. The defaults are at least as long as RFC 5321
// section 4.5.3.2 requires, except for Crowded, which applies when few slots are free.
type Timeouts struct {
	Command   time.Duration // time limit for receiving the next command; default 5 min
	Block     time.Duration // time limit for receiving more bytes of a message; default 3 min
	Message   time.Duration // time limit for a message, in addition to its size divided by MinRate; default 10 min
	MinRate   int64         // minimum average rate of a message, in bytes per second; default 4,096
	Write     time.Duration // time limit for the client to read a reply; default 1 min
	Handshake time.Duration // time limit for TLS and for the PROXY header; default 1 min
	Idle      time.Duration // time limit for a connection on which no message is sent; default 30 min
	// Crowded is the time without progress after which the server may close a connection to accept another one. While
	// at least three quarters of the slots are in use, Crowded also limits the wait for each command from a client that
	// has not sent a message. The default of Crowded is 20 s.
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
