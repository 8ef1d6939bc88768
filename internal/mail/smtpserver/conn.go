package smtpserver

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime/debug"
	"strings"
	"sync"
	"time"
)

const (
	maxCommand = 4096 // in bytes; RFC 5321 section 4.5.3.1.4 requires 512, but AUTH and parameters need more
	maxReply   = 480  // maximum length of a reply line in bytes, without the codes (RFC 5321 section 4.5.3.1.5)
)

// Errors that end a connection.
var (
	errEnding   = errors.New("the server is ending")
	errCrowded  = errors.New("the connection was closed for another one")
	errTooLong  = errors.New("the command is too long")
	errBareLine = errors.New("the command does not end with CRLF")
)

// waiting is what a connection is waiting for.
type waiting int

const (
	forUs        waiting = iota // the server is working and expects nothing from the client
	forHandshake                // the TLS handshake
	forCommand
	forMessage // the next bytes of a message, or the next chunk
)

// conn is one client's connection.
type conn struct {
	s       *Server
	ctx     context.Context
	raw     net.Conn   // the accepted connection; any goroutine may close it to end the session
	hasSlot bool       // whether the connection occupies a slot; guarded by s.mu
	addr    netip.Addr // the address or network by which connections are counted; guarded by s.mu

	nc  net.Conn // raw, or its wrapper for the PROXY header or TLS
	in  *bufio.Reader
	out []byte // replies that have not been sent yet
	tls *tls.ConnectionState

	peer    Peer
	session Session
	esmtp   bool // whether the client sent EHLO rather than HELO

	authenticated bool
	mail          *MailOptions // parameters of the current message, or nil
	rcpts         int

	commands, errors, failures int       // failures counts failed AUTH commands; an accepted message resets the others
	accepted                   bool      // whether a message was accepted
	lastMessage                time.Time // when the last message was accepted, or else when the connection began
	ended                      bool      // whether the server has stopped reading commands

	inMessage bool      // whether a message is in progress
	received  time.Time // time at which the current message began
	bytesIn   int64     // number of bytes of the current message received so far

	mu      sync.Mutex
	waiting waiting
	now     progress // the progress when the wait began
	ending  bool     // whether the server is shutting down
	evicted bool     // whether another connection has taken the slot
}

// progress is what the client has done so far on its connection.
type progress struct {
	accepted bool      // whether a message was accepted on this connection
	since    time.Time // when the last message was accepted, or else when the connection began
	begun    time.Time // time at which the current message began
	bytesIn  int64     // number of bytes of the current message received so far
}

func newConn(ctx context.Context, s *Server, raw net.Conn) *conn {
	return &conn{s: s, ctx: ctx, raw: raw, nc: raw}
}

// refuse sends a refusal without waiting for the client, and closes the connection.
func (c *conn) refuse(r *Refusal) {
	if !c.s.c.Implicit { // A client that expects TLS cannot read a reply before the handshake.
		c.raw.SetWriteDeadline(time.Now().Add(time.Second))
		io.WriteString(c.raw, r.Error()+"\r\n")
	}
	c.raw.Close()
}

// serve runs the SMTP session until either side ends it.
func (c *conn) serve() {
	ctx, cancel := context.WithCancel(c.ctx)
	c.ctx = ctx
	defer cancel()
	defer c.raw.Close()
	defer c.closeSession()
	defer func() {
		if p := recover(); p != nil {
			c.s.log.Error("a panic ended an SMTP connection", "client", c.peer.Addr, "panic", p, "stack", string(debug.Stack()))
			c.reply(421, "4.3.0", "Internal error, closing the connection")
			c.flush()
		}
	}()
	if !c.open() {
		return
	}
	c.reply(220, "", c.s.c.Hostname+" ESMTP")
	for !c.ended {
		line, err := c.readCommand()
		if err != nil {
			c.broken(err)
			break
		}
		c.command(line)
	}
	c.flush()
}

// open determines the client's address, acquires a slot and, for implicit TLS, performs the handshake.
func (c *conn) open() bool {
	c.lastMessage = time.Now()
	c.nc = c.s.unwrap(c.raw)
	c.peer.Addr, c.peer.Local = addrPort(c.nc.RemoteAddr()), addrPort(c.raw.LocalAddr())
	if r := c.s.admit(c, c.peer.Addr.Addr()); r != nil {
		c.refuse(r)
		return false
	}
	if c.s.c.Implicit {
		return c.handshake()
	}
	c.in = bufio.NewReaderSize((*source)(c), maxCommand)
	return true
}

// handshake starts TLS on the connection. Any plain-text data already in the read buffer is discarded.
func (c *conn) handshake() bool {
	t := tls.Server(c.nc, c.s.c.TLS)
	limited, cancel := context.WithTimeout(c.ctx, c.s.c.Timeouts.Handshake)
	defer cancel()
	c.nc.SetWriteDeadline(time.Time{})
	if c.wait(forHandshake, time.Time{}) != nil {
		return false
	}
	err := t.HandshakeContext(limited)
	if c.waited() != nil || err != nil {
		c.s.log.Debug("TLS handshake with an SMTP client failed", "client", c.peer.Addr, "error", err)
		return false
	}
	state := t.ConnectionState()
	c.nc, c.tls, c.peer.TLS = t, &state, &state
	c.in = bufio.NewReaderSize((*source)(c), maxCommand)
	return true
}

// source is the underlying reader of conn.in, and sends pending replies before it waits for input.
type source conn

func (s *source) Read(p []byte) (int, error) {
	c := (*conn)(s)
	if c.inMessage {
		if err := c.wait(forMessage, c.patience()); err != nil {
			return 0, err
		}
	}
	err := c.flush()
	n := 0
	if err == nil {
		n, err = c.nc.Read(p)
	}
	c.bytesIn += int64(n)
	if c.inMessage {
		if crowded := c.waited(); crowded != nil {
			return 0, crowded
		}
	}
	return n, err
}

// readCommand returns the next command without its line ending. The time limits apply to the whole command.
func (c *conn) readCommand() (string, error) {
	until := time.Now().Add(c.s.c.Timeouts.Command)
	if !c.accepted && c.s.crowded() {
		until = time.Now().Add(min(c.s.c.Timeouts.Command, c.s.c.Timeouts.Crowded))
	}
	if idle := c.lastMessage.Add(c.s.c.Timeouts.Idle); idle.Before(until) {
		until = idle
	}
	waiting := forCommand
	if c.inMessage { // Between two chunks.
		waiting = forMessage
	}
	if err := c.wait(waiting, until); err != nil {
		return "", err
	}
	line, err := c.in.ReadSlice('\n')
	stopped := c.waited()
	switch {
	case errors.Is(stopped, errCrowded), err != nil && stopped != nil:
		return "", stopped
	case errors.Is(err, bufio.ErrBufferFull):
		return "", errTooLong
	case err != nil:
		return "", err
	case !bytes.HasSuffix(line, []byte("\r\n")):
		return "", errBareLine
	}
	return string(line[:len(line)-2]), nil
}

// wait records what the connection is about to wait for, and sets the deadline. The server uses this record to choose a
// connection to close when it needs a free slot. If wait returns an error, the connection must end instead of waiting.
func (c *conn) wait(w waiting, until time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.stopped(w); err != nil {
		return err
	}
	c.waiting = w
	c.now = progress{accepted: c.accepted, since: c.lastMessage, begun: c.received, bytesIn: c.bytesIn}
	c.nc.SetReadDeadline(until)
	return nil
}

// waited records that a wait is over. If waited returns an error, the connection must end.
func (c *conn) waited() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.waiting
	c.waiting = forUs
	return c.stopped(w)
}

// stopped returns the reason that a connection in the given state must end, or nil. The caller must hold c.mu.
func (c *conn) stopped(w waiting) error {
	switch {
	case c.evicted:
		return errCrowded
	case c.ending && w == forCommand:
		return errEnding
	}
	return nil
}

// end makes the connection end when it next waits for a command. A wait in progress is not interrupted; wakeToEnd does
// that.
func (c *conn) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ending = true
}

// wakeToEnd interrupts a connection that is waiting for a command, so that the connection ends.
func (c *conn) wakeToEnd() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.waiting == forCommand {
		c.raw.SetReadDeadline(past)
	}
}

// past is a deadline in the past, which interrupts pending reads and writes.
var past = time.Unix(1, 0)

// state returns what the connection is waiting for, and the client's progress.
func (c *conn) state() (waiting, progress) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.evicted {
		return forUs, c.now
	}
	return c.waiting, c.now
}

// evict ends the connection to free its slot, provided that the connection is still in the state in which it was
// selected.
func (c *conn) evict(selected waiting) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.evicted || c.waiting != selected || selected == forUs {
		return false
	}
	c.evicted = true
	c.raw.SetDeadline(past)
	return true
}

// broken ends the connection. For most errors, the client first receives a reply that describes the error.
func (c *conn) broken(err error) {
	c.ended = true
	var timeout net.Error
	var refusal *Refusal
	switch {
	case errors.As(err, &refusal):
		c.reply(refusal.Code, refusal.Enhanced, refusal.Text)
	case errors.Is(err, errEnding):
		c.reply(421, "4.3.2", c.s.c.Hostname+" is shutting down, try again later")
	case errors.Is(err, errCrowded):
		c.reply(421, "4.3.2", "Too many connections, and this one got nothing done for longest; try again later")
	case errors.Is(err, errTooLong):
		c.reply(500, "5.5.6", "The line is too long, closing the connection")
	case errors.Is(err, errBareLine):
		c.reply(500, "5.5.2", "Lines must end with CRLF, closing the connection")
	case errors.As(err, &timeout) && timeout.Timeout():
		c.reply(421, "4.4.2", "Nothing was heard for too long, closing the connection")
	}
}

// reply adds a reply to the pending replies. The text may contain line breaks. If enhanced is empty, the reply has no
// enhanced status code.
func (c *conn) reply(code int, enhanced, text string) {
	if code >= 400 {
		c.errors++
	}
	lines := wrap(text)
	for i, line := range lines {
		c.out = append(c.out, byte('0'+code/100), byte('0'+code/10%10), byte('0'+code%10))
		if i < len(lines)-1 {
			c.out = append(c.out, '-')
		} else {
			c.out = append(c.out, ' ')
		}
		if enhanced != "" {
			c.out = append(append(c.out, enhanced...), ' ')
		}
		c.out = append(append(c.out, line...), "\r\n"...)
	}
	if len(c.out) > 64<<10 { // If a client sends commands without reading the replies, its connection blocks here.
		c.flush()
	}
}

// wrap splits text into printable lines that are short enough for a reply.
func wrap(text string) []string {
	var lines []string
	for line := range strings.SplitSeq(text, "\n") {
		line = strings.Map(func(r rune) rune {
			if r < ' ' || r > '~' {
				return '?'
			}
			return r
		}, strings.TrimSuffix(line, "\r"))
		for len(line) > maxReply {
			at := strings.LastIndexByte(line[:maxReply], ' ')
			if at <= 0 {
				at = maxReply
			}
			lines = append(lines, line[:at])
			line = strings.TrimPrefix(line[at:], " ")
		}
		lines = append(lines, line)
	}
	return lines
}

// flush sends the pending replies.
func (c *conn) flush() error {
	if len(c.out) == 0 {
		return nil
	}
	c.mu.Lock()
	patience := c.s.c.Timeouts.Write
	if c.evicted {
		patience = min(patience, time.Second) // the slot of this connection is already in use by another one
	}
	c.nc.SetWriteDeadline(time.Now().Add(patience))
	c.mu.Unlock()
	_, err := c.nc.Write(c.out)
	if c.out = c.out[:0]; cap(c.out) > 4096 {
		c.out = nil
	}
	return err
}

func (c *conn) closeSession() {
	session := c.session
	if c.session = nil; session == nil {
		return
	}
	defer func() {
		if p := recover(); p != nil {
			c.s.log.Error("a panic while an SMTP session was closed", "client", c.peer.Addr, "panic", p, "stack",
				string(debug.Stack()))
		}
	}()
	session.Reset()
	session.Close()
}
