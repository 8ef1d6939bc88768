package message

import (
	"strings"

	"golang.org/x/net/html"
)

// Limits of a start tag, in octets: one beyond maxTag is dropped, after one beyond largeTag the tokenizer is replaced.
const (
	maxTag   = 1 << 20
	largeTag = 4 << 10
)

// tokenizer is an html.Tokenizer whose time is linear and whose memory is a small multiple of its input, whatever that
// is. html.Tokenizer alone keeps a table of the attributes of each start tag: for five octets of input it takes about
// 150, and it clears the table, which stays as large as the largest tag made it, at every tag that follows.
type tokenizer struct {
	*html.Tokenizer
	rest    string // what follows the current token
	start   string // the current token, if it is a start tag
	crowded bool   // its table of attributes is large
}

func newTokenizer(source string) *tokenizer {
	return &tokenizer{Tokenizer: html.NewTokenizer(strings.NewReader(source)), rest: source}
}

// next returns the next token and its source: of a tag all from < to >. At the end it is html.ErrorToken. A tag that
// is not closed before the end is dropped, and one of more than maxTag octets too, together with what follows it up
// to a <.
func (z *tokenizer) next() (kind html.TokenType, source string) {
	if z.crowded && !beginsSource(z.start) {
		z.renew()
	}
	for {
		limit := 0
		if len(z.rest) > 1 && z.rest[0] == '<' && isLetter(z.rest[1]) && !beginsSource(z.start) {
			limit = maxTag
		}
		z.SetMaxBuf(limit)
		kind = z.Next()
		n := len(z.Raw())
		source, z.rest, z.start = z.rest[:n], z.rest[n:], ""
		if kind != html.ErrorToken || z.Err() != html.ErrBufferExceeded {
			break
		}
		z.rest = z.rest[indexOrEnd(z.rest, '<'):]
		z.renew()
	}
	if kind == html.StartTagToken || kind == html.SelfClosingTagToken {
		z.start = source
		z.crowded = z.crowded || len(source) > largeTag
	}
	return kind, source
}

// renew goes on with another tokenizer, as if what follows were all.
func (z *tokenizer) renew() {
	z.Tokenizer = html.NewTokenizer(strings.NewReader(z.rest))
	z.crowded = false
}

// beginsSource reports whether what follows a start tag is source text, in which html.Tokenizer finds no tags.
func beginsSource(tag string) bool {
	if tag == "" {
		return false
	}
	name := tag[len("<"):]
	if i := strings.IndexAny(name, "/> \t\n\f\r"); i >= 0 {
		name = name[:i]
	}
	if len(name) > len("plaintext") {
		return false
	}
	name = strings.ToLower(name)
	return isRaw([]byte(name)) || name == "xmp" || name == "plaintext"
}

// indexOrEnd returns where c stands first in s, or the length of s.
func indexOrEnd(s string, c byte) int {
	if i := strings.IndexByte(s, c); i >= 0 {
		return i
	}
	return len(s)
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
