// Package decode decodes the encodings of mail: transfer encodings (base64, quoted-printable, uuencode) into files and
// texts, charsets into UTF-8, and the encoded words of header fields into text. The package accepts all forms that
// programs write, not only the standard ones.
//
// # Invariants
//
//   - Any input is accepted, and takes time linear in its length.
//   - Text is valid UTF-8. The length of text is at most a small multiple of its source's length. A decoded file is
//     not longer than its source.
//
// # When it fails
//
// Decoding never fails. Base64, QuotedPrintable and UU report whether something was irregular. Bytes that are invalid
// in their charset are read as UTF-8 or windows-1252, or become U+FFFD.
//
// # What it does not do
//
// The package does not know messages: it does not find header fields or parts. The package does not clean text: it
// returns what was encoded, such as HTML tags. Only control characters of encoded words are removed.
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

// Charset returns b as UTF-8. If the charset is wrong or missing, it keeps valid UTF-8 and decodes the rest as
// windows-1252, the most frequent other charset.
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

// isShifted reports whether a charset writes all characters as ASCII between marks. ASCII bytes do not contradict such
// a charset.
func isShifted(enc encoding.Encoding) bool {
	return enc == japanese.ISO2022JP || enc == simplifiedchinese.HZGB2312
}

// charsetByName returns nil for charsets that are read as UTF-8: names that mean UTF-8 or are empty, and unknown names.
// name is a result of charsetName.
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

// MixedUTF8 returns s with every byte that is not part of valid UTF-8 read as windows-1252.
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
