package message

import (
	"encoding/base64"
	"encoding/binary"
	"strings"
	"unicode/utf8"
)

const upperHex = "0123456789ABCDEF"

// transfer is a Content-Transfer-Encoding (RFC 2045 section 6).
type transfer uint8

const (
	sevenBit transfer = iota
	quotedPrintable
	base64Encoded
)

func (t transfer) String() string {
	switch t {
	case sevenBit:
		return "7bit"
	case quotedPrintable:
		return "quoted-printable"
	default:
		return "base64"
	}
}

// boundaryMark begins every boundary that this package writes. Quoted-printable and base64 output never contains
// boundaryMark, and text with a boundary line is not sent as 7bit. Therefore, no content can end the part that contains
// it.
const boundaryMark = "=_"

// escapeCost is 1 for each byte that quoted-printable must escape within a line. The value of escapeCost for '\n' is
// never used, because lines are split at '\n'.
var escapeCost = func() (t [256]uint) {
	for c := range t {
		if c == '=' || c != '\t' && (c < ' ' || c > '~') {
			t[c] = 1
		}
	}
	return t
}()

// validUTF8 returns s with invalid UTF-8 replaced by U+FFFD. validUTF8 first checks whether s is already valid, because
// that check is much faster than a replacement that changes nothing.
func validUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// body is a message text together with the transfer encoding used for it.
type body struct {
	text     string
	encoding transfer
	// size is the estimated length of the encoded text in bytes; the estimate may be slightly too high.
	size int
}

// planBody chooses the transfer encoding: 7bit for ASCII in short lines that relays do not change; otherwise, the
// shorter of quoted-printable and base64. HTML in 7bit may even have white space at the end of lines, because it does
// no harm if relays remove it.
func planBody(s string, isHTML bool) body {
	if lines, ok := fitsSevenBit(s, isHTML); ok {
		return body{s, sevenBit, len(s) + lines}
	}
	s = validUTF8(s)
	cost, lines := uint(0), 0
	for rest := s; rest != ""; {
		line, after, found := strings.Cut(rest, "\n")
		rest = after
		if found {
			line = strings.TrimSuffix(line, "\r")
		}
		lines++
		for i := range len(line) {
			cost += escapeCost[line[i]]
		}
	}
	escapes := int(cost)
	// The estimate for quoted-printable assumes that every line has one escape at its end and that soft line breaks
	// take 3 of 76 bytes.
	qp := (len(s)+2*escapes)*(wrapAt+3)/(wrapAt-3) + 4*lines
	b64 := (len(s)+lines+2)/3*4*(wrapAt+2)/wrapAt + wrapAt
	if qp <= b64 {
		return body{s, quotedPrintable, qp}
	}
	return body{s, base64Encoded, b64}
}

// fitsSevenBit reports whether a string may be sent unencoded, and returns the number of its lines.
func fitsSevenBit(s string, isHTML bool) (lines int, ok bool) {
	if !plainBytes(s) {
		return 0, false
	}
	for rest := s; rest != ""; lines++ {
		line, after, found := strings.Cut(rest, "\n")
		rest = after
		if found {
			line = strings.TrimSuffix(line, "\r")
		}
		// Some mailbox formats insert > before "From " at the start of a line, and some relays remove white space at
		// the end of lines.
		if len(line) > wrapAt || strings.HasPrefix(line, "From ") || !isHTML && line != "" && isWSP(line[len(line)-1]) ||
			strings.IndexByte(line, '\r') >= 0 {
			return 0, false
		}
	}
	return lines, !strings.Contains(s, "--"+boundaryMark)
}

// plainBytes reports whether s contains only printable ASCII, tabs, CR and LF. For speed, plainBytes checks eight bytes
// at a time. The bytes are checked one by one only if one of the eight might be some other character.
func plainBytes(s string) bool {
	const ones, high = 0x0101010101010101, 0x8080808080808080
	for ; len(s) >= 8; s = s[8:] {
		w := binary.LittleEndian.Uint64([]byte(s[:8]))
		if (w|(w-ones*' ')|(w+ones))&high != 0 && !plainEach(s[:8]) {
			return false
		}
	}
	return plainEach(s)
}

func plainEach(s string) bool {
	for i := range len(s) {
		if c := s[i]; (c < ' ' || c > '~') && c != '\n' && c != '\r' && c != '\t' {
			return false
		}
	}
	return true
}

// appendTo appends the encoded text. Line endings within the text become CRLF; no line ending is added at the end.
func (b body) appendTo(dst []byte) []byte {
	switch b.encoding {
	case sevenBit:
		return appendCRLF(dst, b.text)
	case quotedPrintable:
		return appendQuotedPrintable(dst, b.text)
	default:
		return appendBase64(dst, appendCRLF(make([]byte, 0, len(b.text)+len(b.text)/16), b.text))
	}
}

// appendCRLF appends s with all line endings converted to CRLF.
func appendCRLF(dst []byte, s string) []byte {
	for {
		line, after, found := strings.Cut(s, "\n")
		if !found {
			return append(dst, line...)
		}
		dst = append(dst, strings.TrimSuffix(line, "\r")...)
		dst = append(dst, "\r\n"...)
		s = after
	}
}

// appendQuotedPrintable appends s in quoted-printable encoding (RFC 2045 section 6.7), with all line endings converted
// to CRLF.
func appendQuotedPrintable(dst []byte, s string) []byte {
	for {
		line, after, found := strings.Cut(s, "\n")
		if !found {
			return appendQuotedLine(dst, line)
		}
		dst = appendQuotedLine(dst, strings.TrimSuffix(line, "\r"))
		dst = append(dst, "\r\n"...)
		s = after
	}
}

func appendQuotedLine(dst []byte, line string) []byte {
	column := 0
	if strings.HasPrefix(line, "From ") {
		dst = append(dst, "=46"...)
		column, line = 3, line[1:]
	}
	for i := 0; i < len(line); {
		// The 76th column is reserved for the = of a soft line break, or for the last byte of the line.
		limit := min(len(line), i+wrapAt-1-column)
		if len(line)-i == wrapAt-column {
			limit = len(line)
		}
		run := i
		for run < limit && escapeCost[line[run]] == 0 {
			run++
		}
		if run == len(line) && run > i && isWSP(line[run-1]) {
			run--
		}
		dst = append(dst, line[i:run]...)
		column += run - i
		i = run
		if i == len(line) {
			break
		}
		last := i == len(line)-1
		if escapeCost[line[i]] == 0 && !(last && isWSP(line[i])) {
			dst = append(dst, "=\r\n"...)
			column = 0
			continue
		}
		if column+3 > wrapAt-1 && !(last && column+3 <= wrapAt) {
			dst = append(dst, "=\r\n"...)
			column = 0
		}
		dst = append(dst, '=', upperHex[line[i]>>4], upperHex[line[i]&15])
		column += 3
		i++
	}
	return dst
}

// appendBase64 appends src in base64 encoding (RFC 2045 section 6.8) in lines of 76 columns. The last line has no line
// ending.
func appendBase64(dst, src []byte) []byte {
	const lineBytes = wrapAt / 4 * 3
	for len(src) > lineBytes {
		dst = base64.StdEncoding.AppendEncode(dst, src[:lineBytes])
		dst = append(dst, "\r\n"...)
		src = src[lineBytes:]
	}
	return base64.StdEncoding.AppendEncode(dst, src)
}

func base64Size(n int) int { return (n+2)/3*4 + n/(wrapAt/4*3)*2 }

// Encoded words (RFC 2047 section 2) have at most 75 bytes, of which 12 are delimiters, charset and encoding.
const (
	wordStartQ = "=?UTF-8?Q?"
	wordStartB = "=?UTF-8?B?"
	wordEnd    = "?="
	wordRoom   = 75 - len(wordStartQ) - len(wordEnd)
	// leastRoom is the minimum number of bytes for text in the first encoded word, even after a long field name. Any
	// two characters fit into leastRoom bytes.
	leastRoom = 24
)

// appendEncodedWords appends s as encoded words separated by spaces, using whichever of the encodings B and Q is
// shorter. A character is never split across two encoded words. In a phrase, fewer characters are allowed to remain
// unencoded (RFC 2047 section 5). The parameter used is the number of bytes that precede the first word on its line;
// the first word is shorter by that amount.
func appendEncodedWords(dst []byte, s string, phrase bool, used int) []byte {
	s = validUTF8(s)
	escapes := 0
	for i := range len(s) {
		if !plainInWord(s[i], phrase) {
			escapes++
		}
	}
	useQ := len(s)+2*escapes <= (len(s)+2)/3*4
	room := max(wordRoom+1-used, leastRoom)
	for first := true; s != "" || first; first = false {
		if !first {
			dst = append(dst, ' ')
			room = wordRoom
		}
		n := wordLength(s, useQ, phrase, room)
		if useQ {
			dst = appendQ(append(dst, wordStartQ...), s[:n], phrase)
		} else {
			dst = base64.StdEncoding.AppendEncode(append(dst, wordStartB...), []byte(s[:n]))
		}
		dst = append(dst, wordEnd...)
		s = s[n:]
	}
	return dst
}

// wordLength returns how many bytes of s fit into an encoded word with room bytes of space. A character that fits only
// partially is not counted.
func wordLength(s string, useQ, phrase bool, room int) int {
	if !useQ {
		room = room / 4 * 3
	}
	n := 0
	for n < len(s) {
		_, size := utf8.DecodeRuneInString(s[n:])
		need := size
		if useQ && (size > 1 || !plainInWord(s[n], phrase)) && s[n] != ' ' {
			need = 3 * size
		}
		if need > room {
			break
		}
		room -= need
		n += size
	}
	return n
}

func appendQ(dst []byte, s string, phrase bool) []byte {
	for i := range len(s) {
		switch c := s[i]; {
		case c == ' ':
			dst = append(dst, '_')
		case plainInWord(c, phrase):
			dst = append(dst, c)
		default:
			dst = append(dst, '=', upperHex[c>>4], upperHex[c&15])
		}
	}
	return dst
}

// plainInWord reports whether c takes only one byte in the Q encoding. A space takes one byte, because it is written as
// an underscore.
func plainInWord(c byte, phrase bool) bool {
	switch {
	case 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == ' ':
		return true
	case phrase:
		return strings.IndexByte("!*+-/", c) >= 0
	default:
		return c > ' ' && c <= '~' && c != '=' && c != '?' && c != '_'
	}
}
