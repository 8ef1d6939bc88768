package message

import (
	"bytes"
	"strings"
	"unicode/utf8"

	htmlcharset "golang.org/x/net/html/charset"
	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/unicode"
)

// decodeCharset returns b as UTF-8. What is named wrongly or not at all is read as UTF-8 as far as it is that, and the rest as
// windows-1252, the most frequent of all others.
func decodeCharset(name string, b []byte) string {
	enc := charsetByName(name)
	if enc == nil {
		return mixedUTF8(b)
	}
	decoded, err := enc.NewDecoder().Bytes(b)
	if err != nil {
		return mixedUTF8(b)
	}
	if bad := bytes.Count(decoded, []byte("\uFFFD")); bad > 0 && (utf8.Valid(b) || bad*20 > utf8.RuneCount(decoded)) {
		return mixedUTF8(b) // It is something else than it says.
	}
	return string(decoded)
}

// charsetByName returns nil for UTF-8, for ASCII, which often is not, and for what is not known.
func charsetByName(name string) encoding.Encoding {
	name, _, _ = strings.Cut(strings.ToLower(strings.Trim(name, " \t\"'")), "*")
	switch name {
	case "", "utf-8", "utf8", "us-ascii", "ascii", "unknown-8bit", "x-unknown", "unicode-1-1-utf-8":
		return nil
	case "utf-16":
		return unicode.UTF16(unicode.BigEndian, unicode.UseBOM)
	case "cp932", "ms932", "x-ms-cp932":
		name = "shift_jis"
	case "cp936", "ms936":
		name = "gbk"
	case "cp949", "ms949":
		name = "euc-kr"
	case "cp950", "ms950":
		name = "big5"
	}
	enc, err := htmlindex.Get(name)
	if err != nil {
		enc, err = ianaindex.MIME.Encoding(name)
	}
	if err != nil || enc == encoding.Replacement {
		return nil
	}
	return enc
}

// mixedUTF8 returns b with every octet that is no part of UTF-8 read as windows-1252.
func mixedUTF8(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	out := make([]byte, 0, len(b)+len(b)/8+8)
	for len(b) > 0 {
		r, size := utf8.DecodeRune(b)
		if r == utf8.RuneError && size == 1 {
			if r = charmap.Windows1252.DecodeByte(b[0]); r == utf8.RuneError {
				r = rune(b[0])
			}
			out = utf8.AppendRune(out, r)
		} else {
			out = append(out, b[:size]...)
		}
		b = b[size:]
	}
	return string(out)
}

// decodeText returns the text of a part in UTF-8 with LF line ends, without a byte order mark and NUL.
func decodeText(b []byte, charset string, isHTML bool) string {
	if charset == "" && isHTML && !utf8.Valid(b) {
		_, charset, _ = htmlcharset.DetermineEncoding(b[:min(len(b), 1024)], "")
	}
	s := strings.TrimPrefix(decodeCharset(charset, b), "\uFEFF")
	if strings.IndexByte(s, 0) >= 0 {
		s = strings.ReplaceAll(s, "\x00", "")
	}
	if strings.IndexByte(s, '\r') < 0 {
		return s
	}
	var out strings.Builder
	out.Grow(len(s))
	for {
		i := strings.IndexByte(s, '\r')
		if i < 0 {
			out.WriteString(s)
			return out.String()
		}
		out.WriteString(s[:i])
		out.WriteByte('\n')
		s = strings.TrimPrefix(s[i+1:], "\n")
	}
}
