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

// Refusals of malformed messages.
var (
	bareEnd  = Refuse(550, "5.6.11", "The message has a CR or an LF that stands alone; lines must end with CRLF")
	longLine = Refuse(550, "5.6.0", "The message has a line that is too long")
)

// data answers DATA (RFC 5321 section 4.1.1.4).
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

// beginMessage starts the time limits of a message.
func (c *conn) beginMessage() { c.inMessage, c.received, c.bytesIn = true, time.Now(), 0 }

// patience returns when the next piece of a message must have arrived at the latest. A client may pause or may be slow,
// but not both for long.
func (c *conn) patience() time.Time {
	t := &c.s.c.Timeouts
	until := time.Now().Add(t.Block)
	whole := c.received.Add(t.Message + time.Duration(c.bytesIn/t.MinRate)*time.Second)
	if whole.Before(until) {
		until = whole
	}
	return until
}

// finish replies to a message. If reading the message failed, the reply depends on that error, not on the handler's
// result.
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

// check checks line ends, line lengths and the size of a message.
type check struct {
	left    int64 // bytes that the message may still have
	maxLine int
	line    int  // bytes of the current line so far, with its CR
	cr      bool // the previous byte was a CR
	err     *Refusal
	maxSize int64
}

func (c *conn) checker() check {
	return check{left: c.s.c.MaxSize, maxSize: c.s.c.MaxSize, maxLine: c.s.c.MaxLine}
}

// look checks the next bytes of the message.
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

// lineBytes checks bytes of one line, without its LF.
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

// last checks the end of the message.
func (k *check) last() {
	if k.cr && k.err == nil {
		k.err = bareEnd
	}
}

// dataReader reads the message after DATA up to CRLF "." CRLF, and removes the stuffed dots.
type dataReader struct {
	c         *conn
	check     check
	lineStart bool   // the next byte is the first of a line
	cr        bool   // the previous byte was a CR, in a line longer than the buffer
	rest      []byte // bytes read but not yet returned; valid until the next read
	err       error  // why reading has ended; io.EOF after the final dot
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

// next reads a line, or as much of it as the buffer holds.
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

// drain reads to the end of the message, so that the next command is found. It ends the connection if the message does
// not end soon. Otherwise err holds the fault of the message, if any.
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

// ended converts the error of a connection that broke within a message, so that the handler does not mistake it for the
// end of the message.
func ended(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return io.ErrUnexpectedEOF
	}
	return err
}
