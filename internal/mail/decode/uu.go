package decode

import (
	"bytes"
	"strings"
)

// UUEncode is a transfer encoding that is older than MIME. A file begins with a line such as "begin 644 name" and ends
// with the line "end". The first character of each line in between encodes the number of bytes on that line. The other
// characters of such a line encode three bytes per group of four characters. A space or "`" encodes the value 0, and
// "_" encodes 63. A line that encodes zero bytes precedes the line "end".
const UUEncode = "uuencode"

// maxLine is the maximum length of a "begin" line, in bytes (RFC 5322 section 2.1.1).
const maxLine = 998

// UUFile is a uuencoded file found in text.
type UUFile struct {
	Name  string // the sender's file name, which may look like a path
	lines []byte // from the line after "begin" to the end of the file
	size  int    // in bytes, decoded
}

// uuBegin returns the file name in a "begin" line.
func uuBegin(line []byte) (name string, ok bool) {
	rest, ok := bytes.CutPrefix(line, []byte("begin "))
	if !ok || len(line) > maxLine {
		return "", false
	}
	digits := 0
	for digits < len(rest) && '0' <= rest[digits] && rest[digits] <= '7' {
		digits++
	}
	if digits < 3 || digits > 4 || digits == len(rest) || rest[digits] != ' ' {
		return "", false
	}
	return strings.Trim(WithoutControls(MixedUTF8(string(rest[digits:]))), " "), true
}

func isUUEnd(line []byte) bool { return string(bytes.TrimRight(line, " \t")) == "end" }

// uuLength returns the number of bytes that a line encodes. The ok result is false if the line contains a character
// outside the alphabet, not counting white space at its end.
func uuLength(line []byte) (n int, ok bool) {
	line = bytes.TrimRight(line, " \t")
	for _, c := range line {
		if c < ' ' || c > '`' {
			return 0, false
		}
	}
	if len(line) == 0 {
		return 0, true
	}
	return int(line[0]-' ') & 63, true
}

// uuChars returns the minimum number of characters needed to encode n bytes. Most programs pad the last group to four
// characters.
func uuChars(n int) int { return (n*8 + 5) / 6 }

// isWhole reports whether a line has enough characters to encode n bytes, and at most one extra character, which may be
// a checksum.
func isWhole(line []byte, n int) bool {
	chars := line[min(len(line), 1):]
	return len(chars) >= uuChars(n) && len(bytes.TrimRight(chars, " \t")) <= (n+2)/3*4+1
}

// FindUU reads the uuencoded file whose "begin" line starts at text[from]. The next result is the index of the first
// line after the file. If the file is incomplete or invalid, it is the index of the first line that is not part of the
// file. No line within a file can begin another file, so a caller that continues at next reads no line twice.
func FindUU(text []byte, from int) (f UUFile, next int, ok bool) {
	end, next := LineEnd(text, from)
	f.Name, ok = uuBegin(text[from:end])
	if !ok || f.Name == "" {
		return f, next, false
	}
	start, lines, last := next, 0, false
	for at := start; at < len(text); at = next {
		end, next = LineEnd(text, at)
		line := text[at:end]
		if lines > 0 && isUUEnd(line) {
			f.lines = text[start:at]
			return f, next, true
		}
		n, valid := uuLength(line)
		if !valid || last && n > 0 || !isWhole(line, n) {
			return f, at, false
		}
		f.size += n
		last = n == 0
		lines++
	}
	return f, len(text), false
}

// Content returns the decoded file.
func (f *UUFile) Content() []byte {
	content := make([]byte, 0, f.size)
	for at := 0; at < len(f.lines); {
		end, next := LineEnd(f.lines, at)
		if n, _ := uuLength(f.lines[at:end]); n > 0 {
			content = appendUU(content, f.lines[at+1:end], n)
		}
		at = next
	}
	return content
}

// UU decodes the first file in src, even if it is incomplete. If src has no uuencoded file, UU returns src unchanged.
// The around result reports whether src has other text before or after the file. The clean result reports whether the
// encoding had no errors and src has no other text.
//
// A space encodes a zero, but some mail hosts remove spaces at the ends of lines. A line may therefore be shorter than
// its length character says. UU adds the missing spaces unless they would make the decoded file longer than src.
func UU(src []byte) (decoded []byte, name string, around, clean bool) {
	at, end, next := 0, 0, 0
	for found := false; !found; at = next {
		if at == len(src) {
			return src, "", false, len(bytes.TrimSpace(src)) == 0
		}
		end, next = LineEnd(src, at)
		if name, found = uuBegin(src[at:end]); !found {
			around = around || len(bytes.TrimSpace(src[at:end])) > 0
		}
	}
	clean = true
	dst := make([]byte, 0, len(src[at:])/4*3)
	for ; at < len(src); at = next {
		end, next = LineEnd(src, at)
		line := src[at:end]
		if isUUEnd(line) {
			around = around || len(bytes.TrimSpace(src[next:])) > 0
			return dst, name, around, clean && !around
		}
		n, valid := uuLength(line)
		if !valid {
			clean = false
			continue
		}
		if n == 0 {
			continue
		}
		chars := line[1:]
		if there := min(len(chars)*6/8, n); there < n && (end == len(src) || len(dst)+n > next) {
			n, clean = there, false
		}
		dst = appendUU(dst, chars, n)
	}
	if len(dst) == 0 {
		return src, name, false, false
	}
	return dst, name, around, false
}

// appendUU decodes n bytes from the characters of a line and appends them to dst. Missing characters are treated as
// spaces.
func appendUU(dst, chars []byte, n int) []byte {
	for ; n > 0; n -= 3 {
		group := [4]byte{' ', ' ', ' ', ' '}
		chars = chars[copy(group[:], chars):]
		bits := 0
		for _, c := range group {
			bits = bits<<6 | int(c-' ')&63
		}
		dst = append(dst, []byte{byte(bits >> 16), byte(bits >> 8), byte(bits)}[:min(n, 3)]...)
	}
	return dst
}
