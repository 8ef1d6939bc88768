package decode

import "strings"

// Words decodes the value of a header field to UTF-8. Encoded words (RFC 2047) are decoded in any position, even within
// quotes and next to other text, because many programs write them there. Unencoded non-ASCII bytes within an encoded
// word are decoded in the charset of that word. A character or a base64 group may be split between two encoded words.
// Text that cannot be decoded is kept unchanged. Words runs in linear time.
func Words(s string) string {
	if !strings.Contains(s, "=?") {
		return MixedUTF8(s)
	}
	var out strings.Builder
	for {
		start := strings.Index(s, "=?")
		if start < 0 {
			out.WriteString(MixedUTF8(s))
			return out.String()
		}
		w, rest, ok := cutWord(s[start:])
		if !ok {
			out.WriteString(MixedUTF8(s[:start+2]))
			s = s[start+2:]
			continue
		}
		out.WriteString(MixedUTF8(s[:start]))
		s = writeWords(&out, w, rest)
	}
}

// writeWords writes the encoded word w and the encoded words that follow it, and returns the text after them. White
// space between encoded words is dropped (RFC 2047 section 6.2).
func writeWords(out *strings.Builder, w word, rest string) string {
	var content []byte
	for {
		next, after, more := cutWord(strings.TrimLeft(rest, " \t"))
		same := more && w.joins(next)
		if same && w.b64 && next.b64 && len(w.text)%4 != 0 && isBase64(w.text) {
			whole := len(w.text) / 4 * 4
			next.text = w.text[whole:] + next.text
			w.text = w.text[:whole]
		}
		content = w.content(content)
		if !same {
			out.WriteString(WithoutControls(Charset(w.charset, content)))
			content = content[:0]
		}
		if !more {
			return rest
		}
		w, rest = next, after
	}
}

// word is an encoded word that has not been decoded yet.
type word struct {
	charset, text string
	b64           bool
}

// joins reports whether a character may be split between w and next. In UTF-7 a character cannot be split between
// encoded words. Each UTF-7 word is decoded separately, because an unterminated base64 run would otherwise continue in
// the next word.
func (w word) joins(next word) bool {
	name := charsetName(w.charset)
	return name != utf7 && (strings.EqualFold(w.charset, next.charset) || name == charsetName(next.charset))
}

// cutWord reads the encoded word at the beginning of s.
func cutWord(s string) (w word, rest string, ok bool) {
	after, ok := strings.CutPrefix(s, "=?")
	if !ok {
		return word{}, "", false
	}
	mark := strings.IndexByte(after[:min(len(after), 64)], '?')
	if mark < 1 || len(after) < mark+3 || after[mark+2] != '?' {
		return word{}, "", false
	}
	charset, kind := after[:mark], after[mark+1]|0x20
	if kind != 'q' && kind != 'b' || strings.ContainsAny(charset, " ()<>@,;:\"[]=") {
		return word{}, "", false
	}
	text := after[mark+3:]
	for end := 0; ; end++ {
		n := strings.IndexByte(text[end:], '?')
		if n < 0 {
			return word{}, "", false
		}
		end += n
		switch {
		case end+1 < len(text) && text[end+1] == '=':
			charset, _, _ = strings.Cut(charset, "*") // RFC 2231 section 5 allows a language after the charset.
			return word{charset, text[:end], kind == 'b'}, text[end+len("?="):], true
		case end > 0 && text[end-1] == '=' || kind == 'b':
			return word{}, "", false // Another encoded word begins inside this one.
		}
	}
}

// content appends the bytes that the word encodes to dst.
func (w word) content(dst []byte) []byte {
	if w.b64 {
		decoded, _ := Base64([]byte(w.text))
		return append(dst, decoded...)
	}
	for i := 0; i < len(w.text); i++ {
		c := w.text[i]
		switch {
		case c == '_':
			dst = append(dst, ' ')
		case c == '=' && i+2 < len(w.text) && unhex(w.text[i+1]) >= 0 && unhex(w.text[i+2]) >= 0:
			dst = append(dst, byte(unhex(w.text[i+1])<<4|unhex(w.text[i+2])))
			i += 2
		default:
			dst = append(dst, c)
		}
	}
	return dst
}

func isBase64(s string) bool {
	for i := range len(s) {
		if base64Value(s[i]) < 0 {
			return false
		}
	}
	return true
}

// WithoutControls returns s without control characters; tabs and line feeds become spaces.
func WithoutControls(s string) string {
	if !strings.ContainsFunc(s, isControl) {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t' || r == '\n':
			return ' '
		case isControl(r):
			return -1
		}
		return r
	}, s)
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }
