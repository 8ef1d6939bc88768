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
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/unicode"
)

// decodeCharset returns b as UTF-8. If the charset is wrong or missing, it reads as UTF-8 what is valid, and the rest
// as windows-1252, the most frequent of all others.
func decodeCharset(name string, b []byte) string {
	name = charsetName(name)
	if name == utf7 {
		return decodeUTF7(b)
	}
	enc := charsetByName(name)
	if enc == nil {
		return mixedUTF8(string(b))
	}
	decoded, err := enc.NewDecoder().Bytes(b)
	if err != nil {
		return mixedUTF8(string(b))
	}
	if bad := bytes.Count(decoded, []byte("\uFFFD")); bad > 0 && !(isShifted(enc) && isASCII(string(b))) &&
		(utf8.Valid(b) || bad*20 > utf8.RuneCount(decoded)) {
		return mixedUTF8(string(b)) // The content is in another charset than it claims.
	}
	return string(decoded)
}

// isShifted reports whether a charset writes all characters as ASCII between marks, so that ASCII octets are what the
// charset predicts.
func isShifted(enc encoding.Encoding) bool {
	return enc == japanese.ISO2022JP || enc == simplifiedchinese.HZGB2312
}

// charsetByName returns nil for what is read as UTF-8: names that mean UTF-8 or are empty, and unknown names. name is
// a result of charsetName.
func charsetByName(name string) encoding.Encoding {
	switch name {
	case "", utf7:
		return nil
	case "utf-16":
		return unicode.UTF16(unicode.BigEndian, unicode.UseBOM)
	}
	enc, err := htmlindex.Get(name)
	if err != nil || enc == encoding.Replacement { // Browsers refuse some that mail used to use a lot.
		if enc, err = ianaindex.MIME.Encoding(name); err != nil {
			return nil
		}
	}
	return enc
}

// mixedUTF8 returns s with every octet that is not part of valid UTF-8 read as windows-1252.
func mixedUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	out := make([]byte, 0, len(s)+len(s)/8+8)
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && size == 1 {
			if r = charmap.Windows1252.DecodeByte(s[0]); r == utf8.RuneError {
				r = rune(s[0])
			}
			out = utf8.AppendRune(out, r)
		} else {
			out = append(out, s[:size]...)
		}
		s = s[size:]
	}
	return string(out)
}

// decodeText returns the text of a part in UTF-8 with LF line ends, without a byte order mark and without NUL.
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
