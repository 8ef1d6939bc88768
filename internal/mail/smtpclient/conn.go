package smtpclient

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

const (
	writeBuffer  = 16 << 10 // large enough to send a 10 KB message in one write
	readBuffer   = 4 << 10  // more than maxReplyLine
	writeBlock   = 64 << 10 // Timeouts.Data applies to each block of this size
	quitPatience = 5 * time.Second
)

// longAgo is a deadline in the past, which interrupts pending reads and writes.
var longAgo = time.Unix(1, 0)

// Conn is an SMTP connection to a host that has sent its greeting. A Conn is not safe for concurrent use.
type Conn struct {
	o       Options
	raw     net.Conn // the transport
	nc      net.Conn // raw, or the TLS connection on top of it
	r       *bufio.Reader
	w       *bufio.Writer
	ext     Extensions
	tls     TLSState
	log     *transcript
	scratch []byte
	pending []int

	times Times
	lapAt time.Time // the end of the stage before

	messages  int
	needReset bool // whether RSET must be sent before the next MAIL command
	broken    bool

	ctx      context.Context // the context of the current operation; used by blockWriter
	perWrite time.Duration
}

// Dial connects to addr ("host:port"), sends EHLO, sets up TLS, and authenticates, as required by o. Errors are *Error.
func Dial(ctx context.Context, addr string, o Options) (*Conn, error) {
	o.Timeouts = o.Timeouts.withDefaults()
	if o.Hello == "" {
		o.Hello = "localhost"
	}
	now := time.Now()
	c := &Conn{o: o, ctx: ctx, log: newTranscript(o.TranscriptLimit, now), lapAt: now}
	if err := c.open(ctx, addr); err != nil {
		c.log.note(err.Error())
		err.Transcript, err.Times = c.log.String(), c.times
		if c.nc != nil {
			c.hangUp()
		}
		return nil, err
	}
	c.log.endOpening()
	return c, nil
}

// open performs the opening steps of Dial, from the connection to authentication.
func (c *Conn) open(ctx context.Context, addr string) *Error {
	if !validHello(c.o.Hello) {
		return &Error{Stage: StageHello, Err: fmt.Errorf("%q is no host name to greet with", c.o.Hello)}
	}
	if c.o.ServerName == "" {
		host, _, err := net.SplitHostPort(addr)
		if err != nil {
			return &Error{Stage: StageConnect, Err: err}
		}
		c.o.ServerName = host
	}
	err := c.connect(ctx, addr)
	c.lap(&c.times.Connect)
	if err != nil {
		return err
	}
	defer c.begin(ctx)()
	if c.o.TLS == TLSImplicit {
		err := c.handshake(ctx)
		c.lap(&c.times.Hello)
		if err != nil {
			return err
		}
	}
	err = c.greeting()
	c.lap(&c.times.Greeting)
	if err != nil {
		return err
	}
	defer c.lap(&c.times.Hello)
	if err := c.hello(); err != nil {
		return err
	}
	if err := c.startTLS(ctx); err != nil {
		return err
	}
	return c.authenticate()
}

func (c *Conn) connect(ctx context.Context, addr string) *Error {
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeouts.Connect)
	defer cancel()
	dial := c.o.Dial
	if dial == nil {
		dial = new(net.Dialer).DialContext
	}
	nc, err := dial(ctx, "tcp", addr)
	if err != nil {
		return broken(StageConnect, err)
	}
	c.log.note("connected to " + addr)
	c.raw = nc
	c.use(nc)
	return nil
}

// use continues the SMTP session on the connection nc.
func (c *Conn) use(nc net.Conn) {
	c.nc = nc
	c.r = bufio.NewReaderSize(nc, readBuffer)
	c.w = bufio.NewWriterSize(blockWriter{c}, writeBuffer)
}

// greeting reads and checks the host's greeting.
func (c *Conn) greeting() *Error {
	c.arm(c.o.Timeouts.Greeting)
	r, err := c.read(StageGreeting)
	if err != nil {
		return err
	}
	if !r.Positive() {
		return refused(StageGreeting, r)
	}
	return nil
}

// hello sends EHLO, or HELO if the host does not support EHLO, and stores the extensions that the host offers.
func (c *Conn) hello() *Error {
	c.ext = Extensions{}
	r, err := c.command(StageHello, "EHLO "+c.o.Hello)
	if err != nil {
		return err
	}
	if r.Positive() {
		c.ext = parseExtensions(r.Text)
		return nil
	}
	if !r.Permanent() {
		return refused(StageHello, r)
	}
	if r, err = c.command(StageHello, "HELO "+c.o.Hello); err != nil {
		return err
	}
	if !r.Positive() {
		return refused(StageHello, r)
	}
	return nil
}

// command sends one command line and reads its reply.
func (c *Conn) command(stage Stage, line string) (Reply, *Error) {
	return c.secret(stage, line, line)
}

// secret is like command, but hides the line: the transcript contains the given replacement text instead.
func (c *Conn) secret(stage Stage, line, shown string) (Reply, *Error) {
	c.log.line('C', []byte(shown))
	c.w.WriteString(line)
	c.w.WriteString("\r\n")
	if err := c.flush(c.o.Timeouts.Command); err != nil {
		return Reply{}, c.fail(stage, err)
	}
	return c.read(stage)
}

// flush sends the buffered commands. The time limit d applies to writing each block, and then to reading the first
// reply.
func (c *Conn) flush(d time.Duration) error {
	c.perWrite = d
	err := c.w.Flush()
	c.arm(d)
	return err
}

// read reads one reply before the deadline set by arm.
func (c *Conn) read(stage Stage) (Reply, *Error) {
	r, err := readReply(c.r, func(line []byte) { c.log.line('S', line) })
	if err != nil {
		return Reply{}, c.fail(stage, err)
	}
	if r.Code == 421 { // the host closes the connection after a 421 reply (RFC 5321 section 3.8)
		c.broken = true
	}
	return r, nil
}

// fail marks the connection as broken and returns an Error for the given stage.
func (c *Conn) fail(stage Stage, err error) *Error {
	c.broken = true
	if cause := c.ctx.Err(); cause != nil {
		err = fmt.Errorf("%w: %w", cause, err)
	}
	return broken(stage, err)
}

// begin sets the context of an operation: if ctx is done before the returned function is called, reads and writes on
// the connection are interrupted.
func (c *Conn) begin(ctx context.Context) (end func()) {
	c.ctx = ctx
	if ctx.Done() == nil {
		return func() {}
	}
	raw := c.raw
	stop := context.AfterFunc(ctx, func() { raw.SetDeadline(longAgo) })
	return func() {
		if !stop() { // the deadline is now longAgo and would interrupt the next operation
			c.broken = true
		}
	}
}

// arm sets the deadline for the next reads and writes to d from now, or to the deadline of the context if that is
// sooner.
func (c *Conn) arm(d time.Duration) {
	at := time.Now().Add(d)
	if until, ok := c.ctx.Deadline(); ok && until.Before(at) {
		at = until
	}
	c.raw.SetDeadline(at)
	if c.ctx.Err() != nil { // the call above may have overwritten the deadline that begin set
		c.raw.SetDeadline(longAgo)
	}
}

// blockWriter sets a new deadline for each block of a long write.
type blockWriter struct{ c *Conn }

func (b blockWriter) Write(p []byte) (int, error) {
	written := 0
	for {
		block := p[written:min(len(p), written+writeBlock)]
		b.c.arm(b.c.perWrite)
		n, err := b.c.nc.Write(block)
		written += n
		if err != nil || written == len(p) {
			return written, err
		}
	}
}

// Extensions returns the extensions that the host offers.
func (c *Conn) Extensions() Extensions { return c.ext }

// TLSState returns the encryption state of the connection.
func (c *Conn) TLSState() TLSState { return c.tls }

// RemoteAddr returns the network address of the host.
func (c *Conn) RemoteAddr() net.Addr { return c.raw.RemoteAddr() }

// LocalAddr returns the local address of the connection.
func (c *Conn) LocalAddr() net.Addr { return c.raw.LocalAddr() }

// Messages returns the number of mail transactions completed on this connection, including those in which the host
// refused the message.
func (c *Conn) Messages() int { return c.messages }

// Usable reports whether another message may be sent on this connection. Usable returns false after as many messages as
// the host accepts over one connection (MAILMAX). Usable cannot detect that the host has closed
// an idle connection; only a later call to Send can (see Error.Stale).
func (c *Conn) Usable() bool {
	return !c.broken && (c.ext.Limits.Messages == 0 || c.messages < c.ext.Limits.Messages)
}

// Times returns how long the stages of the connection's opening and of the last message took. Usually a connection is
// opened for its first message only, so the caller must ignore the opening for later messages.
func (c *Conn) Times() Times { return c.times }

// lap adds the time since the end of the stage before to a stage.
func (c *Conn) lap(stage *time.Duration) {
	now := time.Now()
	*stage += max(now.Sub(c.lapAt), 1) // a stage that has taken place takes more than nothing
	c.lapAt = now
}

// Transcript returns a log of how the connection was opened and how the last message was sent, with one line for each
// command or reply line. Times are in milliseconds since the call to Dial or Send.
func (c *Conn) Transcript() string { return c.log.String() }

// Reset sends RSET, which makes the host discard any unfinished message and shows whether the connection still works.
func (c *Conn) Reset(ctx context.Context) error {
	if c.broken {
		return &Error{Stage: StageMail, Temporary: true, Stale: true, Err: ErrUnusable}
	}
	defer c.begin(ctx)()
	r, err := c.command(StageMail, "RSET")
	if err == nil && !r.Positive() {
		c.broken = true
		err = refused(StageMail, r)
	}
	if err != nil {
		err.Temporary, err.Stale = true, true
		return err
	}
	c.needReset = false
	return nil
}

// Close sends QUIT in the background, with a time limit of 5 s, and closes the connection. A failed connection is
// closed immediately, without QUIT.
func (c *Conn) Close() {
	if c.broken {
		c.hangUp()
		return
	}
	c.broken = true
	c.ctx = context.Background()
	go func() {
		c.w.WriteString("QUIT\r\n")
		if c.flush(quitPatience) == nil {
			readReply(c.r, func([]byte) {})
		}
		c.nc.Close()
	}()
}

// hangUp closes the TCP connection immediately, without QUIT or a TLS close.
func (c *Conn) hangUp() {
	c.broken = true
	c.raw.Close()
}

// isTimeout reports whether err was caused by a deadline, set either by this package or by the context.
func isTimeout(err error) bool {
	t, ok := errors.AsType[net.Error](err)
	return ok && t.Timeout()
}
