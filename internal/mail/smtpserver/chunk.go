package smtpserver

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// bdat handles the first BDAT command of a message (RFC 3030). The reader that the handler receives processes the later
// BDAT commands. Every byte of a chunk is read, even if the message is refused, so that no part of a chunk is ever
// executed as a command.
func (c *conn) bdat(arg string) {
	size, last, ok := parseChunk(arg)
	if !ok {
		c.hangUp("4.7.0", "BDAT needs a number of octets; what follows cannot be told from commands")
		return
	}
	r := &chunkReader{c: c, check: c.checker(), left: size, last: last}
	c.beginMessage()
	if c.mail == nil || c.rcpts == 0 {
		r.discard()
		if c.inMessage = false; r.err != nil {
			c.broken(r.err)
			return
		}
		c.reply(503, "5.5.1", "MAIL and RCPT come before BDAT")
		return
	}
	id, err := c.session.Data(c.ctx, r)
	// If the handler stops reading early, the rest of the message must still be read and checked.
	for r.err == nil && err == nil {
		r.advance()
	}
	if r.err == nil {
		r.discard()
	}
	if errors.Is(r.err, errAborted) {
		c.inMessage = false
		c.reset()
		if r.then != nil {
			r.then()
		}
		return
	}
	if r.err == nil {
		r.err = io.EOF // finish reports that the handler refused the message
	}
	c.finish(id, err, r.err)
}

// parseChunk parses the argument of a BDAT command.
func parseChunk(arg string) (size int64, last, ok bool) {
	f := strings.Fields(arg)
	if len(f) == 0 || len(f) > 2 || len(f) == 2 && !strings.EqualFold(f[1], "LAST") {
		return 0, false, false
	}
	n, err := strconv.ParseUint(f[0], 10, 62)
	return int64(n), len(f) == 2, err == nil
}

// errAborted means that the client aborted the message before its last chunk.
var errAborted = errors.New("the client has given up the message")

// chunkReader reads a message that a client sends in chunks with BDAT. Between two chunks, chunkReader reads commands
// and replies to them.
type chunkReader struct {
	c     *conn
	check check
	left  int64 // number of bytes of the chunk that have not been read yet
	last  bool  // whether the chunk is the last one in the message
	size  int64 // number of bytes of the chunk that have been read
	err   error // the reason that reading ended; io.EOF after the last chunk
	then  func()
	buf   []byte
}

// Read implements io.Reader.
func (r *chunkReader) Read(p []byte) (int, error) {
	for r.left == 0 && r.err == nil {
		r.advance()
	}
	if r.err != nil {
		return 0, r.err
	}
	if len(p) == 0 {
		return 0, nil
	}
	n, err := r.c.in.Read(p[:min(int64(len(p)), r.left)])
	r.left -= int64(n)
	r.size += int64(n)
	if err != nil {
		r.err = ended(err)
		return 0, r.err
	}
	if r.check.look(p[:n]); r.check.err != nil {
		if r.discard(); r.err == nil {
			r.err = r.check.err
		}
		return 0, r.err
	}
	return n, nil
}

// advance reads more bytes of the chunk or, if none are left, waits for the next chunk.
func (r *chunkReader) advance() {
	if r.left > 0 {
		if r.buf == nil {
			r.buf = make([]byte, 32<<10)
		}
		r.Read(r.buf)
		return
	}
	if r.last {
		if r.check.last(); r.check.err != nil {
			r.err = r.check.err
			return
		}
		r.err = io.EOF
		return
	}
	r.c.reply(250, "2.0.0", fmt.Sprintf("%d octets taken", r.size))
	for r.left == 0 && r.err == nil && !r.last {
		r.command()
	}
}

// command reads a command that the client sends between two chunks, and replies to it.
func (r *chunkReader) command() {
	c := r.c
	line, err := c.readCommand()
	if err != nil {
		r.err = ended(err)
		return
	}
	verb, arg, _ := strings.Cut(line, " ")
	c.commands++
	switch strings.ToUpper(verb) {
	case "BDAT":
		size, last, ok := parseChunk(arg)
		if !ok {
			r.err = Refuse(421, "4.7.0", "BDAT needs a number of octets; what follows cannot be told from commands")
			return
		}
		r.left, r.last, r.size = size, last, 0
		if size == 0 && !last {
			c.reply(250, "2.0.0", "0 octets taken")
		}
	case "NOOP":
		c.reply(250, "2.0.0", "Nothing done")
	case "RSET", "QUIT":
		r.err, r.then = errAborted, func() { c.command(line) }
	default:
		c.reply(503, "5.5.1", "The message goes on: BDAT, or RSET to forget it")
	}
	if c.errors >= c.s.c.MaxErrors || c.commands >= c.s.c.MaxCommands {
		r.err = Refuse(421, "4.7.0", "Too many errors or commands without a message, closing the connection")
	}
}

// discard reads and discards the remaining bytes of a chunk. If the chunk is far too large, the connection is closed
// instead.
func (r *chunkReader) discard() {
	if r.left > 2*r.c.s.c.MaxSize+1<<20 {
		r.err = Refuse(421, "4.7.0", "The chunk is far too large, closing the connection")
		return
	}
	for r.left > 0 && r.err == nil {
		n, err := r.c.in.Discard(int(min(r.left, 32<<10)))
		r.left -= int64(n)
		if err != nil {
			r.err = ended(err)
		}
	}
}
