// Package smtpsink is an SMTP server that accepts every message and stores none. The sink is the receiver in
// benchmarks, and in tests that kill the sending process. The sink implements SMTP with PIPELINING, 8BITMIME and SIZE.
// The sink takes only a few microseconds per message, so benchmarks measure mainly the sender.
//
// # Invariants
//
// The sink calls the hook and counts the message before it replies 250. Every message for which the client receives 250
// has therefore been counted.
//
// # Out of scope
//
// The sink is not hardened for public networks: it has no TLS, and only size limits and timeouts protect it.
package smtpsink

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

const (
	maxMessage  = 100 << 20 // in bytes; announced in the reply to EHLO
	maxRcpts    = 10_000
	idleTimeout = 5 * time.Minute
	readBuffer  = 64 << 10
)

// Config configures a Sink. A sink with the zero Config only counts messages.
type Config struct {
	// OnMessage is a hook that is called with each message before the message is acknowledged, in the goroutine for the
	// connection. The data does not include stuffed dots, and the hook may retain it.
	OnMessage func(from string, to []string, data []byte)
	// Latency is the delay before the sink acknowledges each message.
	Latency time.Duration
}

// Sink is a running SMTP sink.
type Sink struct {
	config      Config
	listener    net.Listener
	messages    atomic.Int64
	connections atomic.Int64
	group       sync.WaitGroup

	mu     sync.Mutex
	open   map[net.Conn]struct{}
	closed bool
}

// Start starts a sink that only counts messages. The sink listens on addr, such as "127.0.0.1:0", until Close is
// called.
func Start(addr string) (*Sink, error) { return Config{}.Start(addr) }

// Start starts a sink with this configuration. The sink listens on addr until Close is called.
func (c Config) Start(addr string) (*Sink, error) {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("start mail sink: %w", err)
	}
	s := &Sink{config: c, listener: l, open: make(map[net.Conn]struct{})}
	s.group.Go(s.accept)
	return s, nil
}

// Addr returns the address on which the sink listens.
func (s *Sink) Addr() string { return s.listener.Addr().String() }

// Count returns the number of accepted messages.
func (s *Sink) Count() int64 { return s.messages.Load() }

// Connections returns the number of accepted connections.
func (s *Sink) Connections() int64 { return s.connections.Load() }

// Close stops listening, closes the connections, and waits until all goroutines have ended.
func (s *Sink) Close() error {
	s.mu.Lock()
	s.closed = true
	err := s.listener.Close()
	for c := range s.open {
		c.Close()
	}
	s.mu.Unlock()
	s.group.Wait()
	return err
}

func (s *Sink) accept() {
	for {
		nc, err := s.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // for example, if no file descriptors are free until connections end
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if !s.track(nc) {
			nc.Close()
			return
		}
		s.connections.Add(1)
		s.group.Go(func() {
			defer s.forget(nc)
			s.serve(nc)
		})
	}
}

func (s *Sink) track(nc net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closed {
		s.open[nc] = struct{}{}
	}
	return !s.closed
}

func (s *Sink) forget(nc net.Conn) {
	nc.Close()
	s.mu.Lock()
	delete(s.open, nc)
	s.mu.Unlock()
}

// session is one connection to the sink.
type session struct {
	s    *Sink
	nc   net.Conn
	r    *bufio.Reader
	w    *bufio.Writer
	from string
	mail bool
	to   []string
	rcpt int // number of recipients of the current message
}

func (s *Sink) serve(nc net.Conn) {
	c := session{s: s, nc: nc, r: bufio.NewReaderSize(nc, readBuffer), w: bufio.NewWriter(nc)}
	c.w.WriteString("220 sink ESMTP\r\n")
	for {
		line, err := c.line()
		if err != nil || !c.command(line) {
			c.w.Flush()
			return
		}
	}
}

// line reads one command line, after sending any pending replies if it has to wait for input.
func (c *session) line() ([]byte, error) {
	if c.r.Buffered() == 0 {
		if err := c.w.Flush(); err != nil {
			return nil, err
		}
		c.nc.SetDeadline(time.Now().Add(idleTimeout))
	}
	line, err := c.r.ReadSlice('\n')
	if err != nil {
		return nil, err
	}
	return bytes.TrimRight(line, "\r\n"), nil
}

// command executes one command and reports whether the session continues.
func (c *session) command(line []byte) bool {
	verb := bytes.ToUpper(line[:min(len(line), 4)])
	switch string(verb) {
	case "EHLO":
		c.reset()
		fmt.Fprintf(c.w, "250-sink\r\n250-PIPELINING\r\n250-8BITMIME\r\n250 SIZE %d\r\n", maxMessage)
	case "HELO", "RSET":
		c.reset()
		c.reply("250 ok")
	case "NOOP":
		c.reply("250 ok")
	case "MAIL":
		c.mail = true
		if c.s.config.OnMessage != nil {
			c.from = address(line)
		}
		c.reply("250 ok")
	case "RCPT":
		if !c.mail || c.rcpt >= maxRcpts {
			c.reply("503 no")
			return true
		}
		c.rcpt++
		if c.s.config.OnMessage != nil {
			c.to = append(c.to, address(line))
		}
		c.reply("250 ok")
	case "DATA":
		return c.data()
	case "QUIT":
		c.reply("221 bye")
		return false
	default:
		c.reply("502 no")
	}
	return true
}

func (c *session) reply(text string) {
	c.w.WriteString(text)
	c.w.WriteString("\r\n")
}

func (c *session) reset() {
	c.mail, c.from, c.to, c.rcpt = false, "", nil, 0
}

// data reads a message and replies to it.
func (c *session) data() bool {
	if c.rcpt == 0 {
		c.reply("554 no recipients")
		return true
	}
	c.reply("354 go on")
	if c.w.Flush() != nil {
		return false
	}
	body, size, err := c.read()
	if err != nil {
		return false
	}
	if size > maxMessage {
		c.reset()
		c.reply("552 5.3.4 too large")
		return true
	}
	if c.s.config.OnMessage != nil {
		c.s.config.OnMessage(c.from, c.to, body)
	}
	if c.s.config.Latency > 0 {
		time.Sleep(c.s.config.Latency)
	}
	c.s.messages.Add(1)
	c.reset()
	c.reply("250 ok")
	return true
}

// read reads a message up to the final dot. If there is no hook, only the size of the message is returned.
func (c *session) read() (body []byte, size int, err error) {
	keep := c.s.config.OnMessage != nil
	startsLine := true
	for {
		chunk, err := c.r.ReadSlice('\n')
		if err != nil && err != bufio.ErrBufferFull {
			return nil, 0, err
		}
		if startsLine && len(chunk) > 0 && chunk[0] == '.' {
			if string(chunk) == ".\r\n" {
				return body, size, nil
			}
			chunk = chunk[1:]
		}
		startsLine = err == nil
		size += len(chunk)
		if keep && size <= maxMessage {
			body = append(body, chunk...)
		}
	}
}

// address returns the text between the angle brackets in a MAIL or RCPT command.
func address(line []byte) string {
	_, rest, _ := bytes.Cut(line, []byte("<"))
	// The address ends at the last angle bracket, because a quoted local part may contain one but parameters may not.
	end := bytes.LastIndexByte(rest, '>')
	return string(rest[:max(end, 0)])
}
