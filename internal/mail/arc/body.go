package arc

import (
	"bufio"
	"context"
	"crypto/sha256"
	"errors"
	"hash"
	"io"

	"github.com/postrider/postrider/internal/mail/dkim"
)

func isFull(err error) bool { return errors.Is(err, bufio.ErrBufferFull) }

// bodyHash hashes a body while it is read, so that it need not be in memory. A lone LF counts as a line ending.
type bodyHash struct {
	hash    hash.Hash
	relaxed bool
	out     []byte // not yet hashed
	empty   int    // empty lines that are hashed only if another line follows
	line    bool   // whether the current line has content
	space   bool   // whether white space precedes the next byte of a relaxed line
	cr      bool   // whether the last byte was a CR
	any     bool   // whether anything was hashed
}

// hashBody returns the SHA-256 of a body in simple or relaxed form (RFC 6376 section 3.4).
func hashBody(ctx context.Context, r io.Reader, relaxed bool) ([]byte, error) {
	h := &bodyHash{hash: sha256.New(), relaxed: relaxed}
	buf := make([]byte, 32<<10)
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		n, err := r.Read(buf)
		h.write(buf[:n])
		if errors.Is(err, io.EOF) {
			return h.sum(), nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func (h *bodyHash) write(p []byte) {
	for _, c := range p {
		if h.cr {
			h.cr = false
			if c == '\n' {
				h.endLine()
				continue
			}
			h.content('\r')
		}
		switch {
		case c == '\r':
			h.cr = true
		case c == '\n':
			h.endLine()
		case h.relaxed && (c == ' ' || c == '\t'):
			h.space = true
		default:
			h.content(c)
		}
	}
	h.flush()
}

func (h *bodyHash) content(c byte) {
	for ; h.empty > 0; h.empty-- {
		h.out = append(h.out, "\r\n"...)
		if len(h.out) > 32<<10 {
			h.flush()
		}
	}
	if h.space {
		h.out = append(h.out, ' ')
		h.space = false
	}
	h.out = append(h.out, c)
	h.line, h.any = true, true
}

func (h *bodyHash) endLine() {
	h.space = false
	if !h.line {
		h.empty++
		return
	}
	h.line = false
	h.out = append(h.out, "\r\n"...)
}

func (h *bodyHash) flush() {
	h.hash.Write(h.out)
	h.out = h.out[:0]
}

func (h *bodyHash) sum() []byte {
	if h.cr {
		h.content('\r')
	}
	if h.line {
		h.endLine()
	}
	if !h.any && !h.relaxed {
		h.out = append(h.out, "\r\n"...) // an empty body is one empty line in simple form
	}
	h.flush()
	return h.hash.Sum(nil)
}

// appendField appends a field in relaxed or simple form, with CRLF at its end.
func appendField(dst, raw []byte, relaxed bool) []byte {
	if relaxed {
		return dkim.AppendRelaxed(dst, raw)
	}
	for i, c := range raw {
		if c == '\n' && (i == 0 || raw[i-1] != '\r') {
			dst = append(dst, '\r')
		}
		dst = append(dst, c)
	}
	return append(dst, "\r\n"...)
}
