package smtpclient

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// maxPipelined is the maximum number of commands sent before their replies are read. If more commands were pending, the
// buffers on both sides could fill up while neither side reads.
const maxPipelined = 100

// These are the values in Conn.pending for commands other than RCPT. For an RCPT command, the value is the index of the
// recipient.
const (
	askReset = -1 - iota
	askMail
	askData
)

// Send sends one message over the connection. The parts of the message, such as added header fields and a composed
// message, are written one after another. The returned Result holds the host's replies, including refusals. Every error
// returned by Send is an *Error; the Result then holds the replies received before the error.
func (c *Conn) Send(ctx context.Context, env Envelope, msg ...[]byte) (Result, error) {
	if len(env.To) == 0 {
		return Result{}, &Error{Stage: StageRcpt, Err: errors.New("a message without recipients")}
	}
	t := transaction{c: c, env: env, parts: msg, traits: inspect(msg)}
	t.res.Rcpt = make([]Reply, len(env.To))
	now := time.Now()
	c.log.next(now)
	c.times.Envelope, c.times.Body, c.times.Final, c.lapAt = 0, 0, 0, now
	if c.messages > 0 {
		c.log.note("message " + strconv.Itoa(c.messages+1) + " on this connection")
	}
	if !t.plan() {
		return t.res, nil
	}
	if !c.Usable() || c.r.Buffered() > 0 {
		c.broken = true
		return t.res, &Error{Stage: StageMail, Temporary: true, Stale: true, Err: ErrUnusable}
	}
	defer c.begin(ctx)()
	if err := t.run(); err != nil {
		c.log.note(err.Error())
		err.Transcript, err.Times = c.log.String(), c.times
		return t.res, err
	}
	c.messages++
	return t.res, nil
}

// transaction is the state of sending one message over a connection (RFC 5321 section 3.3).
type transaction struct {
	c      *Conn
	env    Envelope
	parts  [][]byte
	traits traits
	res    Result

	domains   []string // of recipients, in lower case, if the host limits them
	utf8      bool     // whether MAIL has the SMTPUTF8 parameter
	mailDone  bool     // whether the reply to MAIL has arrived
	accepted  int      // number of recipients that the host accepted
	unsettled int      // number of recipients without a reply, including those for which RCPT has not been sent yet
	goodbye   Reply    // a 421 reply; the host may not send any replies after it (RFC 5321 section 3.8)
}

// run sends the envelope and, if the host accepted a recipient, the message.
func (t *transaction) run() *Error {
	c := t.c
	err := t.envelope()
	c.lap(&c.times.Envelope)
	if err != nil {
		if t.settled() {
			return nil // the host refused and closed the connection; its replies remain valid
		}
		if t.goodbye.Code != 0 {
			t.fill(t.goodbye)
			return nil
		}
		err.Stale = !t.mailDone && c.messages > 0 && c.ctx.Err() == nil
		return err
	}
	switch {
	case t.res.Data.Code != 354:
		c.needReset = true
		return nil
	case t.res.Mail.Positive() && t.accepted > 0:
		return t.message()
	case t.accepted > 0:
		// The host refused the sender but accepted recipients, and now expects the message. A lone dot could cause an
		// empty message to be delivered to those recipients, so the client closes the connection.
		c.broken = true
		return nil
	}
	// RFC 2920 section 3.1 allows a host to reply to DATA with 354 even though it accepted no recipient. The host then
	// expects a message, so the client sends a lone dot.
	c.needReset = true
	c.log.line('C', []byte("."))
	c.w.WriteString(".\r\n")
	if c.flush(c.o.Timeouts.Command) == nil {
		c.read(StageFinal) // the reply does not affect any recipient, and read records a failure in c.broken
	}
	return nil
}

// settled reports whether the replies so far mean that every recipient has been refused.
func (t *transaction) settled() bool {
	if t.mailDone && !t.res.Mail.Positive() {
		return true
	}
	return t.mailDone && t.accepted == 0 && t.unsettled == 0
}

// fill stores r as the reply to every RCPT or DATA command that has no reply yet.
func (t *transaction) fill(r Reply) {
	for i := range t.res.Rcpt {
		if t.res.Rcpt[i].Code == 0 {
			t.res.Rcpt[i] = r
		}
	}
	if t.res.Data.Code == 0 {
		t.res.Data = r
	}
}

// envelope sends MAIL, RCPT and DATA, all in one write if the host supports pipelining (RFC 2920), and otherwise one at
// a time. DATA is omitted if every recipient has already been refused.
func (t *transaction) envelope() *Error {
	c := t.c
	c.pending = c.pending[:0]
	if c.needReset {
		if err := t.ask(askReset, append(c.scratch[:0], "RSET"...)); err != nil {
			return err
		}
	}
	if err := t.ask(askMail, t.mailCommand()); err != nil {
		return err
	}
	for i, to := range t.env.To {
		if t.res.Rcpt[i].Local {
			continue
		}
		if t.mailDone && !t.res.Mail.Positive() {
			return nil
		}
		line := append(append(append(c.scratch[:0], "RCPT TO:<"...), to...), '>')
		if err := t.ask(i, line); err != nil {
			return err
		}
	}
	if len(c.pending) == 0 && t.settled() {
		return nil
	}
	if err := t.ask(askData, append(c.scratch[:0], "DATA"...)); err != nil {
		return err
	}
	return t.drain()
}

// mailCommand returns the MAIL command with the parameters that the host supports.
func (t *transaction) mailCommand() []byte {
	ext := &t.c.ext
	line := append(append(append(t.c.scratch[:0], "MAIL FROM:<"...), t.env.From...), '>')
	if ext.Size > 0 {
		line = strconv.AppendInt(append(line, " SIZE="...), t.traits.size, 10)
	}
	if t.traits.eightBit && ext.EightBitMIME {
		line = append(line, " BODY=8BITMIME"...)
	}
	if t.utf8 {
		line = append(line, " SMTPUTF8"...)
	}
	return line
}

// ask sends a command and reads the reply. With pipelining, ask only buffers the command, and drain reads the reply
// later.
func (t *transaction) ask(what int, line []byte) *Error {
	c := t.c
	c.log.line('C', line)
	line = append(line, "\r\n"...)
	c.w.Write(line)
	c.scratch = line[:0]
	c.pending = append(c.pending, what)
	if !c.ext.Pipelining || len(c.pending) >= maxPipelined {
		return t.drain()
	}
	return nil
}

// drain sends the buffered commands and reads their replies. After a failed write, drain still reads the last replies
// from the host, because they may say why the host closed the connection.
func (t *transaction) drain() *Error {
	c := t.c
	if err := c.flush(c.o.Timeouts.Command); err != nil && isTimeout(err) {
		return c.fail(t.stage(c.pending[0]), err)
	}
	for _, what := range c.pending {
		if c.r.Buffered() == 0 {
			c.arm(c.o.Timeouts.Command)
		}
		r, err := c.read(t.stage(what))
		if err == nil {
			err = t.take(what, r)
		}
		if err != nil {
			return err
		}
	}
	c.pending = c.pending[:0]
	return nil
}

func (t *transaction) stage(what int) Stage {
	switch what {
	case askReset, askMail:
		return StageMail
	case askData:
		return StageData
	}
	return StageRcpt
}

// take stores r as the reply to a pending command.
func (t *transaction) take(what int, r Reply) *Error {
	c := t.c
	switch {
	case what == askReset:
		if !r.Positive() {
			return t.unexpected(what, r)
		}
		c.needReset = false
		return nil
	case what == askMail && r.Code == 421 && c.messages > 0:
		return refused(StageMail, r) // hosts close connections that are idle too long or have carried too many messages
	case r.Code/100 == 3 && what != askData, r.Positive() && what == askData, r.Code/100 == 3 && r.Code != 354:
		return t.unexpected(what, r)
	}
	if r.Code == 421 {
		t.goodbye = r
	}
	switch what {
	case askMail:
		t.res.Mail, t.mailDone = r, true
	case askData:
		t.res.Data = r
	default:
		t.res.Rcpt[what] = r
		t.unsettled--
		if r.Positive() {
			t.accepted++
		}
	}
	return nil
}

// unexpected returns the error for a reply that is not valid for the command. The connection is also marked as broken,
// because later replies could be attributed to the wrong commands.
func (t *transaction) unexpected(what int, r Reply) *Error {
	err := t.c.fail(t.stage(what), fmt.Errorf("%w: unexpected reply", ErrProtocol))
	err.Reply = &r
	return err
}

// message sends the message text and reads the final reply. If the connection breaks between the final dot and the
// reply, only the host knows whether it accepted the message.
func (t *transaction) message() *Error {
	c := t.c
	c.log.line('C', fmt.Appendf(nil, "(message of %d bytes)", t.traits.size))
	c.needReset = true
	c.perWrite = c.o.Timeouts.Data
	writeBody(c.w, t.parts, t.traits.bare)
	if t.env.Commit != nil {
		if err := t.env.Commit(); err != nil {
			return c.fail(StageBody, err)
		}
	}
	c.w.WriteString(".\r\n")
	err := c.w.Flush()
	c.lap(&c.times.Body)
	if err != nil {
		return t.cutShort(err)
	}
	c.arm(c.o.Timeouts.Final)
	r, failure := c.read(StageFinal)
	c.lap(&c.times.Final)
	if failure == nil && r.Code/100 == 3 {
		failure = c.fail(StageFinal, fmt.Errorf("%w: unexpected reply", ErrProtocol))
		failure.Reply = &r
	}
	if failure != nil {
		failure.Sent = true
		return failure
	}
	t.res.Final = r
	c.needReset = !r.Positive()
	if c.r.Buffered() > 0 { // Any extra replies would be attributed to later commands.
		c.broken = true
	}
	return nil
}

// cutShort handles the case in which the host closed the connection before the final dot was sent, and therefore does
// not have the message. Before closing the connection, the host may have sent a reason, such as that the message is too
// large.
func (t *transaction) cutShort(cause error) *Error {
	c := t.c
	failure := c.fail(StageBody, cause)
	if isTimeout(cause) {
		return failure
	}
	c.arm(min(c.o.Timeouts.Command, quitPatience))
	r, err := c.read(StageBody)
	if err != nil || !r.Temporary() && !r.Permanent() {
		return failure
	}
	t.res.Final = r
	return nil
}
