package smtpserver

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"strings"
	"time"
)

// Refusals for malformed messages: those with a lone CR or LF, and those with a line that is too long.
var (
	bareEnd  = Refuse(550, "5.6.11", "The message has a CR or an LF that stands alone; lines must end with CRLF")
	longLine = Refuse(550, "5.6.0", "The message has a line that is too long")
)

// data handles the DATA command (RFC 5321 section 4.1.1.4).
func (c *conn) data(arg string) {
	switch {
	case strings.TrimSpace(arg) != "":
		c.reply(501, "5.5.4", "DATA has no parameters")
		return
	case c.mail == nil:
		c.reply(503, "5.5.1", "MAIL and RCPT come before DATA")
		return
	case c.rcpts == 0:
		c.reply(554, "5.5.1", "No recipient was taken")
		return
	}
	c.reply(354, "", "End the message with CRLF.CRLF")
	if c.flush() != nil {
		c.ended = true
		return
	}
	c.beginMessage()
	r := &dataReader{c: c, check: c.checker(), lineStart: true}
	id, err := c.session.Data(c.ctx, r)
	r.drain()
	c.finish(id, err, r.err)
}

// beginMessage starts the time limits for a message.
func (c *conn) beginMessage() { c.inMessage, c.received, c.bytesIn = true, time.Now(), 0 }

// patience returns the deadline for the next bytes of a message. A client may pause or send slowly, but the total time
// for a message is limited too.
func (c *conn) patience() time.Time {
	t := &c.s.c.Timeouts
	until := time.Now().Add(t.Block)
	whole := c.received.Add(t.Message + time.Duration(c.bytesIn/t.MinRate)*time.Second)
	if whole.Before(until) {
		until = whole
	}
	return until
}

// finish sends the reply to a message. If reading the message failed, the reply reports that error instead of the
// result from the handler.
func (c *conn) finish(id string, err, read error) {
	c.inMessage = false
	defer c.reset()
	refusal, refused := errors.AsType[*Refusal](read)
	switch {
	case refused && refusal.Code != 421:
		c.reply(refusal.Code, refusal.Enhanced, refusal.Text)
	case !errors.Is(read, io.EOF):
		c.broken(read)
	case err != nil:
		c.fail(err, 451, "4.3.0")
	default:
		c.commands, c.errors, c.accepted, c.lastMessage = 0, 0, true, time.Now()
		c.reply(250, "2.0.0", "Taken as "+id)
	}
}

// check validates the line endings, the line lengths and the size of a message.
type check struct {
	left    int64 // number of bytes left before the message is too large
	maxLine int
	line    int  // number of bytes in the current line so far, including its CR
	cr      bool // whether the previous byte was a CR
	err     *Refusal
	maxSize int64
}

func (c *conn) checker() check {
	return check{left: c.s.c.MaxSize, maxSize: c.s.c.MaxSize, maxLine: c.s.c.MaxLine}
}

// look checks the next bytes of a message.
func (k *check) look(p []byte) {
	if k.left -= int64(len(p)); k.left < 0 && k.err == nil {
		k.err = Refuse(552, "5.3.4", "The message is too large: the limit is %d octets", k.maxSize)
	}
	for len(p) > 0 && k.err == nil {
		if k.cr && p[0] != '\n' {
			k.err = bareEnd
			return
		}
		i := bytes.IndexByte(p, '\n')
		if i < 0 {
			k.lineBytes(p)
			return
		}
		k.lineBytes(p[:i])
		if !k.cr && k.err == nil {
			k.err = bareEnd
		}
		k.line, k.cr = 0, false
		p = p[i+1:]
	}
}

// lineBytes checks bytes within one line, not including the LF.
func (k *check) lineBytes(p []byte) {
	if len(p) == 0 {
		return
	}
	if i := bytes.IndexByte(p, '\r'); i >= 0 && i < len(p)-1 && k.err == nil {
		k.err = bareEnd
	}
	k.cr = p[len(p)-1] == '\r'
	if k.line += len(p); k.line > k.maxLine+1 && k.err == nil {
		k.err = longLine
	}
}

// last checks that the message does not end with a lone CR.
func (k *check) last() {
	if k.cr && k.err == nil {
		k.err = bareEnd
	}
}

// dataReader reads the message that follows DATA up to CRLF "." CRLF, and removes the stuffed dots.
type dataReader struct {
	c         *conn
	check     check
	lineStart bool   // whether the next byte is the first byte of a line
	cr        bool   // whether the last byte read was a CR
	rest      []byte // bytes that have been read but not returned yet; valid until the next read
	err       error  // the reason that reading ended; io.EOF after the final dot
}

// Read implements io.Reader.
func (r *dataReader) Read(p []byte) (int, error) {
	for len(r.rest) == 0 {
		if r.check.err != nil {
			return 0, r.check.err
		}
		if r.err != nil {
			return 0, r.err
		}
		r.next()
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// next reads a line, or the part of a long line that fits in the buffer.
func (r *dataReader) next() {
	piece, err := r.c.in.ReadSlice('\n')
	if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
		r.err = ended(err)
		return
	}
	complete := piece[len(piece)-1] == '\n' && (len(piece) > 1 && piece[len(piece)-2] == '\r' || len(piece) == 1 && r.cr)
	if r.lineStart && piece[0] == '.' {
		if string(piece) == ".\r\n" {
			r.err = io.EOF
			return
		}
		piece = piece[1:]
	}
	r.lineStart = complete
	r.cr = len(piece) > 0 && piece[len(piece)-1] == '\r'
	if r.check.look(piece); r.check.err == nil {
		r.rest = piece
	}
}

// drain reads to the end of the message, so that the next command can be read. If the message is far too large, drain
// closes the connection. If the end of the message is reached but the message is invalid, drain stores the reason in
// r.err.
func (r *dataReader) drain() {
	for r.err == nil {
		if r.c.bytesIn > 2*r.c.s.c.MaxSize+1<<20 {
			r.err = Refuse(421, "4.7.0", "The message is far too large, closing the connection")
			return
		}
		r.next()
	}
	if r.check.err != nil && errors.Is(r.err, io.EOF) {
		r.err = r.check.err
	}
}

// ended converts the error from a connection that broke in the middle of a message. The handler must not mistake io.EOF
// for the end of the message.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return io.ErrUnexpectedEOF
	}
	return err
}
