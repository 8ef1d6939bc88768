package dkim

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"hash"
)

// field is one header field of the message, including any folds but without the final line ending.
type field struct {
	raw []byte
	// signed is the field's index in signedFields, or -1.
	signed int
}

// splitHeader splits msg into header fields and body. If there is no empty line, the whole message is the header.
func splitHeader(msg []byte) (fields []field, body []byte) {
	fields = make([]field, 0, 32)
	start := 0
	for at := 0; at < len(msg); {
		end := bytes.IndexByte(msg[at:], '\n') + at + 1
		next := end
		if end == at {
			end, next = len(msg), len(msg)
		} else if end--; end > at && msg[end-1] == '\r' {
			end--
		}
		if end == at {
			return fields, msg[next:]
		}
		// A line that begins with white space continues the field before it (RFC 5322 section 2.2.3).
		if n := len(fields) - 1; n >= 0 && (msg[at] == ' ' || msg[at] == '\t') {
			fields[n].raw = msg[start:end]
		} else {
			start = at
			raw := msg[start:end]
			fields = append(fields, field{raw, signedIndex(raw)})
		}
		at = next
	}
	return fields, nil
}

// signedIndex returns the index of a field in signedFields, or -1 if raw is not a field or is not to be signed.
func signedIndex(raw []byte) int {
	colon := bytes.IndexByte(raw, ':')
	if colon < 0 {
		return -1
	}
	name := bytes.TrimRight(raw[:colon], " \t")
	for i := range signedFields {
		if len(name) == len(signedFields[i].name) && equalFoldASCII(name, signedFields[i].name) {
			return i
		}
	}
	return -1
}

func equalFoldASCII(a []byte, b string) bool {
	for i, c := range a {
		if lower(c) != lower(b[i]) {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + ('a' - 'A')
	}
	return c
}

// appendField appends a field in relaxed form (RFC 6376 section 3.4.2), with CRLF at its end. The field name is in
// lower case. The value is unfolded, each run of white space becomes one space, and leading and trailing white space is
// removed. As verifiers do, appendField treats a CR that does not end a line as white space.
func appendField(dst, raw []byte) []byte {
	colon := bytes.IndexByte(raw, ':')
	for _, c := range bytes.TrimRight(raw[:colon], " \t") {
		dst = append(dst, lower(c))
	}
	dst = append(dst, ':')
	empty, space := true, false
	for value := raw[colon+1:]; len(value) > 0; {
		n := 0
		for n < len(value) && !isSpace(value[n]) {
			n++
		}
		if n > 0 {
			if space && !empty {
				dst = append(dst, ' ')
			}
			dst = append(dst, value[:n]...)
			empty, space = false, false
			value = value[n:]
			continue
		}
		space = true
		value = value[1:]
	}
	return append(dst, "\r\n"...)
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\r' || c == '\n' }

// AppendRelaxed appends a header field, which may be folded, in relaxed form with CRLF at its end. The field must have
// a colon. Package arc uses it, because ARC and DKIM share this form.
func AppendRelaxed(dst, field []byte) []byte { return appendField(dst, field) }

// HashBody returns the SHA-256 of a body in relaxed form.
func HashBody(body []byte) [sha256.Size]byte { return hashBody(body) }

// hashBody returns the SHA-256 of the body in relaxed form (RFC 6376 section 3.4.4). In relaxed form, every line ends
// with CRLF, white space at line ends is removed, runs of white space become single spaces, and empty lines at the end
// of the body are removed.
func hashBody(body []byte) [sha256.Size]byte {
	h := bodyHasher{hash: sha256.New(), pending: make([]byte, 0, min(len(body)+len(crlf), 4096))}
	// Text that is already in relaxed form is hashed in the longest possible spans, where from is the start of the
	// current span. The empty counter holds the number of empty lines since the last line with content. Empty lines are
	// hashed only if another line with content follows.
	from, empty := 0, 0
	for at := 0; at < len(body); {
		line, next := body[at:], len(body)
		if i := bytes.IndexByte(line, '\n'); i >= 0 {
			line, next = line[:i], at+i+1
		}
		ended := len(line) > 0 && next > at+len(line) && line[len(line)-1] == '\r'
		if ended {
			line = line[:len(line)-1]
		}
		content := line
		for len(content) > 0 && isWSP(content[len(content)-1]) {
			content = content[:len(content)-1]
		}
		clean := ended && len(content) == len(line) && relaxedPrefix(line) == len(line)
		switch {
		case len(content) == 0:
			h.write(body[from:at])
			from = next
			empty++
		case empty > 0 || !clean:
			h.write(body[from:at])
			for ; empty > 0; empty-- {
				h.write(crlf)
			}
			from = at
			if !clean {
				h.line(content)
				h.write(crlf)
				from = next
			}
		}
		at = next
	}
	h.write(body[from:])
	h.hash.Write(h.pending)
	var sum [sha256.Size]byte
	h.hash.Sum(sum[:0])
	return sum
}

var (
	crlf  = []byte("\r\n")
	space = []byte(" ")
)

func isWSP(c byte) bool { return c == ' ' || c == '\t' }

// bodyHasher buffers small writes, because hashing a few large blocks is faster than hashing many small ones.
type bodyHasher struct {
	hash    hash.Hash
	pending []byte
}

func (h *bodyHasher) write(b []byte) {
	if len(b) > cap(h.pending)-len(h.pending) {
		h.hash.Write(h.pending)
		h.pending = h.pending[:0]
		if len(b) > cap(h.pending) {
			h.hash.Write(b)
			return
		}
	}
	h.pending = append(h.pending, b...)
}

// line hashes one line, which must not end with white space.
func (h *bodyHasher) line(line []byte) {
	for {
		n := relaxedPrefix(line)
		h.write(line[:n])
		if n == len(line) {
			return
		}
		for isWSP(line[n]) {
			n++
		}
		h.write(space)
		line = line[n:]
	}
}

// relaxedPrefix returns the length of the initial part of line that is already in relaxed form. This part ends before
// the first tab or pair of spaces. relaxedPrefix checks eight bytes at a time. Consecutive groups overlap by one byte
// so that no pair of spaces is missed.
func relaxedPrefix(line []byte) int {
	i := 0
	for ; i+8 <= len(line); i += 7 {
		word := binary.LittleEndian.Uint64(line[i:])
		spaces := zeroBytes(word ^ 0x2020202020202020)
		if spaces&(spaces>>8)|zeroBytes(word^0x0909090909090909) != 0 {
			break
		}
	}
	for ; i < len(line); i++ {
		pair := i > 0 && line[i-1] == ' '
		if line[i] == '\t' || line[i] == ' ' && pair {
			if pair {
				return i - 1
			}
			return i
		}
	}
	return len(line)
}

// zeroBytes returns a word in which the top bit of each byte is set if and only if the corresponding byte of x is zero.
func zeroBytes(x uint64) uint64 {
	const low = 0x7f7f7f7f7f7f7f7f
	return ^((x&low + low) | x | low)
}
