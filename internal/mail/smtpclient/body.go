package smtpclient

import (
	"bufio"
	"bytes"
	"encoding/binary"
)

// traits holds the properties of a message that must be known before the first byte is sent.
type traits struct {
	size     int64 // size in bytes, without the dots added by dot-stuffing
	eightBit bool
	bare     bool // whether the message contains a lone CR or LF
}

// inspect returns the traits of the message that consists of the given parts.
func inspect(parts [][]byte) traits {
	var t traits
	var last byte
	carriageReturns, lineFeeds := 0, 0
	for _, p := range parts {
		t.size += int64(len(p))
		t.eightBit = t.eightBit || hasEightBit(p)
		carriageReturns += bytes.Count(p, []byte{'\r'})
		for rest := p; len(rest) > 0; {
			i := bytes.IndexByte(rest, '\n')
			if i < 0 {
				last = rest[len(rest)-1]
				break
			}
			if i > 0 {
				last = rest[i-1]
			}
			t.bare = t.bare || last != '\r'
			lineFeeds++
			last = '\n'
			rest = rest[i+1:]
		}
	}
	// If every LF follows a CR and there are as many CRs as LFs, CR and LF occur only in pairs.
	t.bare = t.bare || carriageReturns != lineFeeds
	if last != '\n' {
		t.size += 2
	}
	return t
}

// hasEightBit reports whether p contains a non-ASCII byte.
func hasEightBit(p []byte) bool {
	const high = 0x8080808080808080
	for len(p) >= 32 {
		all := binary.LittleEndian.Uint64(p) | binary.LittleEndian.Uint64(p[8:]) | binary.LittleEndian.Uint64(p[16:]) |
			binary.LittleEndian.Uint64(p[24:])
		if all&high != 0 {
			return true
		}
		p = p[32:]
	}
	for len(p) >= 8 {
		if binary.LittleEndian.Uint64(p)&high != 0 {
			return true
		}
		p = p[8:]
	}
	for _, c := range p {
		if c >= 0x80 {
			return true
		}
	}
	return false
}

// writeBody writes a message in the form that DATA requires (RFC 5321 section 4.5.2). A dot at the start of a line is
// doubled, and a missing final CRLF is added. The terminating dot is not written.
//
// Every lone CR or LF is replaced first, because hosts disagree about line endings. Otherwise, some hosts would end the
// message early and execute its remaining lines as commands. Write errors are returned when the caller flushes w.
func writeBody(w *bufio.Writer, parts [][]byte, bare bool) {
	if bare {
		parts = [][]byte{pairLineEnds(bytes.Join(parts, nil))}
	}
	last := byte('\n')
	for _, p := range parts {
		if len(p) == 0 {
			continue
		}
		stuff(w, p, last == '\n')
		last = p[len(p)-1]
	}
	if last != '\n' {
		w.WriteString("\r\n")
	}
}

// stuff writes p with every dot at the start of a line doubled. Write errors are returned when the caller flushes w.
func stuff(w *bufio.Writer, p []byte, startsLine bool) {
	if startsLine && p[0] == '.' {
		w.WriteByte('.')
	}
	for {
		i := bytes.Index(p, []byte("\n."))
		if i < 0 {
			w.Write(p)
			return
		}
		w.Write(p[:i+1])
		w.WriteByte('.')
		p = p[i+1:]
	}
}

// pairLineEnds replaces each lone LF with CRLF and each lone CR with a space. A lone CR must not become a line ending,
// because broken programs write "\r\r\n", which would then produce an empty line and end the header.
func pairLineEnds(msg []byte) []byte {
	out := make([]byte, 0, len(msg)+len(msg)/32+2)
	for i, c := range msg {
		switch {
		case c == '\n' && (i == 0 || msg[i-1] != '\r'):
			out = append(out, '\r', '\n')
		case c == '\r' && (i+1 == len(msg) || msg[i+1] != '\n'):
			out = append(out, ' ')
		default:
			out = append(out, c)
		}
	}
	return out
}
