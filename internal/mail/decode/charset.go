// Package decode decodes the encodings used in mail: transfer encodings (base64, quoted-printable and uuencode),
// charsets, and encoded words in header fields. The package accepts all forms that mail programs write, not only the
// standard ones.
//
// # Invariants
//
//   - Every function accepts any input and takes time linear in the input length.
//   - Decoded text is valid UTF-8, and its length is at most a small multiple of the length of the encoded text. A
//     decoded file is never longer than its encoded form.
//
// # Failures
//
// Decoding never fails. Base64, QuotedPrintable and UU report whether the input was irregular. Bytes that are invalid
// in their charset are read as UTF-8 or windows-1252, or become U+FFFD.
//
// # Out of scope
//
// The package does not parse messages: its callers find the header fields and MIME parts. The package does not sanitize
// text: decoded text may contain HTML tags, for example. The package removes control characters only from encoded
// words.
package decode

import (
	"bytes"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/htmlindex"
	"golang.org/x/text/encoding/ianaindex"
	"golang.org/x/text/encoding/japanese"
	"golang.org/x/text/encoding/simplifiedchinese"
	"golang.org/x/text/encoding/unicode"
)

// Charset converts b from the named charset to UTF-8. If the charset is wrong or missing, Charset keeps valid UTF-8 and
// decodes all other bytes as windows-1252, the next most common charset.
func Charset(name string, b []byte) string {
	name = charsetName(name)
	if name == utf7 {
		return decodeUTF7(b)
	}
	enc := charsetByName(name)
	if enc == nil {
		return MixedUTF8(string(b))
	}
	decoded, err := enc.NewDecoder().Bytes(b)
	if err != nil {
		return MixedUTF8(string(b))
	}
	if bad := bytes.Count(decoded, []byte("\uFFFD")); bad > 0 && !(isShifted(enc) && isASCII(b)) &&
		(utf8.Valid(b) || bad*20 > utf8.RuneCount(decoded)) {
		return MixedUTF8(string(b)) // The content is not in the declared charset.
	}
	return string(decoded)
}

// isShifted reports whether a charset encodes every character in ASCII bytes and uses escape sequences to switch
// character sets. Text in a shifted charset consists entirely of ASCII bytes.
func isShifted(enc encoding.Encoding) bool {
	return enc == japanese.ISO2022JP || enc == simplifiedchinese.HZGB2312
}

// charsetByName returns the encoding for a name that charsetName returned. The result is nil if the text is to be read
// as UTF-8, because the name means UTF-8, is empty or is unknown.
func charsetByName(name string) encoding.Encoding {
	switch name {
	case "", utf7:
		return nil
	case "utf-16":
		return unicode.UTF16(unicode.BigEndian, unicode.UseBOM)
	}
	enc, err := htmlindex.Get(name)
	if err != nil || enc == encoding.Replacement { // Browsers refuse some charsets that were common in mail.
		if enc, err = ianaindex.MIME.Encoding(name); err != nil {
			return nil
		}
	}
	return enc
}

// MixedUTF8 returns s as UTF-8: it keeps valid UTF-8 and decodes every other byte as windows-1252.
func MixedUTF8(s string) string {
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

func isASCII(b []byte) bool {
	for _, c := range b {
		if c >= utf8.RuneSelf {
			return false
		}
	}
	return true
}
