package decode

import (
	"bytes"
	"encoding/base64"
	"strings"
)

// Identity is the name that TransferName returns for unencoded content.
const Identity = "binary"

// TransferName returns the name of a transfer encoding in lower case. TransferName accepts the forms that mail programs
// write, with quotes, comments, parameters or different punctuation, and the many names of uuencode. An unknown name is
// also returned in lower case, without quotes, comments and parameters.
func TransferName(s string) string {
	s = strings.ToLower(s)
	if end := strings.IndexAny(s, ";("); end >= 0 {
		s = s[:end]
	}
	s = strings.Trim(s, " \"'")
	switch plainName(s) {
	case "7bit", "8bit", "binary", "7bits", "8bits":
		return Identity
	case "base64":
		return "base64"
	case "quotedprintable":
		return "quoted-printable"
	case "uuencode", "uuencoded", "uue":
		return UUEncode
	}
	return s
}

// Base64 decodes as much of src as possible, and returns clean == true if src was regular base64. Base64 skips
// characters outside the alphabet and joins consecutive base64 sequences. After padding, Base64 stops at text that is
// not base64, such as the footer of a mailing list.
func Base64(src []byte) (decoded []byte, clean bool) {
	dst := make([]byte, len(src)/4*3+3)
	n, err := base64.StdEncoding.Decode(dst, src)
	if err == nil {
		return dst[:n], true
	}
	n = 0
	var quantum uint32
	bits := 0
	for i, c := range src {
		if c == '=' {
			if bits > 0 {
				quantum, bits = 0, 0
				if !moreBase64(src[i+1:]) {
					break
				}
			}
			continue
		}
		v := base64Value(c)
		if v < 0 {
			continue
		}
		quantum = quantum<<6 | uint32(v)
		if bits += 6; bits >= 8 {
			bits -= 8
			dst[n] = byte(quantum >> bits)
			n++
			quantum &= 1<<bits - 1
			if bits == 0 {
				quantum = 0
			}
		}
	}
	return dst[:n], false
}

// moreBase64 reports whether base64 continues on the next line.
func moreBase64(src []byte) bool {
	src = bytes.TrimLeft(src[:min(len(src), 200)], "= \t\r\n")
	line, _, _ := bytes.Cut(src, []byte("\n"))
	for _, c := range bytes.TrimRight(line, "= \t\r") {
		if base64Value(c) < 0 {
			return false
		}
	}
	return len(line) > 0
}

func base64Value(c byte) int {
	switch {
	case 'A' <= c && c <= 'Z':
		return int(c - 'A')
	case 'a' <= c && c <= 'z':
		return int(c-'a') + 26
	case '0' <= c && c <= '9':
		return int(c-'0') + 52
	case c == '+':
		return 62
	case c == '/':
		return 63
	}
	return -1
}

// QuotedPrintable decodes quoted-printable text and keeps invalid escapes unchanged. The clean result is true if all
// escapes were valid.
func QuotedPrintable(src []byte) (decoded []byte, clean bool) {
	dst := make([]byte, 0, len(src))
	clean = true
	for at := 0; at < len(src); {
		end, next := LineEnd(src, at)
		line, ending := bytes.TrimRight(src[at:end], " \t"), src[end:next]
		at = next
		if bytes.HasSuffix(line, []byte("=")) {
			line, ending = line[:len(line)-1], nil
		}
		for {
			escape := bytes.IndexByte(line, '=')
			if escape < 0 {
				break
			}
			dst = append(dst, line[:escape]...)
			line = line[escape:]
			if len(line) > 2 && unhex(line[1]) >= 0 && unhex(line[2]) >= 0 {
				dst = append(dst, byte(unhex(line[1])<<4|unhex(line[2])))
				line = line[3:]
				continue
			}
			dst, line, clean = append(dst, '='), line[1:], false
		}
		dst = append(append(dst, line...), ending...)
	}
	return dst, clean
}

// Percent decodes the percent-encoded bytes in s (RFC 2231 section 4) and appends the result to dst. Percent keeps
// invalid escapes unchanged.
func Percent(dst []byte, s string) []byte {
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && unhex(s[i+1]) >= 0 && unhex(s[i+2]) >= 0 {
			dst = append(dst, byte(unhex(s[i+1])<<4|unhex(s[i+2])))
			i += 2
		} else {
			dst = append(dst, s[i])
		}
	}
	return dst
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	}
	return -1
}

// LineEnd takes the index of the start of a line. LineEnd returns the index at which the line ends, not counting its LF
// or CRLF, and the index of the next line.
func LineEnd(raw []byte, from int) (end, next int) {
	n := bytes.IndexByte(raw[from:], '\n')
	if n < 0 {
		return len(raw), len(raw)
	}
	end = from + n
	if end > from && raw[end-1] == '\r' {
		return end - 1, end + 1
	}
	return end, end + 1
}
