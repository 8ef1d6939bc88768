package htmltext

import (
	"iter"
	"strings"

	"golang.org/x/net/html"
)

// Size limits for a start tag, in bytes. A tag of maxTag bytes or more is dropped. A tag longer than largeTag leaves a
// large attribute table in its html.Tokenizer, so that tokenizer is replaced afterwards.
const (
	maxTag   = 1 << 20
	largeTag = 4 << 10
)

// tokenizer splits HTML into the same tokens as html.Tokenizer, but takes linear time for any input. The memory used is
// a small multiple of the input size.
//
// As long as the markup is regular as defined by regularToken, tokenizer finds the ends of tokens itself. It is faster
// than html.Tokenizer, which inspects every byte and allocates a string for every attribute. When html.Tokenizer parsed
// all markup, it accounted for a tenth of the CPU time spent on an unsigned email. html.Tokenizer is still used for
// attributes that contain an &, and for everything from the first irregular token on. A fuzz test checks that the
// tokens are the same with and without html.Tokenizer.
type tokenizer struct {
	rest    string // the source after the current token
	start   string // the current token, if it is a start tag
	plain   string // the current token, if it is text and the markup is regular so far
	content int    // number of bytes at the beginning of rest that are raw text

	// all parses the source from the first irregular token on. The field is nil until that token is reached.
	all *html.Tokenizer
	// tag reads the attributes of one start tag at a time, and feed supplies the source of that tag.
	tag  *html.Tokenizer
	feed strings.Reader
	// crowded is set if one of the tokenizers, all or tag, has a large attribute table. html.Tokenizer allocates about
	// 30 bytes in that table for each byte of a tag. For every later tag, html.Tokenizer clears as much of the table as
	// the largest tag so far has used.
	crowded bool
}

func newTokenizer(source string) *tokenizer { return &tokenizer{rest: source} }

// next returns the kind and the source of the next token; the source of a tag runs from < to >. At the end of the
// input, the kind is html.ErrorToken. An unterminated tag at the end of the input is dropped. Tags of maxTag bytes or
// more are dropped together with the text before the next <. The kind of a declaration or comment is html.CommentToken
// or html.DoctypeToken. The kind does not say whether a start tag is self-closing, but the source of the tag does.
func (z *tokenizer) next() (kind html.TokenType, source string) {
	if z.all == nil {
		if kind, source, regular := z.nextRegular(); regular {
			return kind, source
		}
		z.renew()
	}
	if z.crowded && !beginsSource(z.start) {
		z.renew()
	}
	for {
		limit := 0
		if len(z.rest) > 1 && z.rest[0] == '<' && isLetter(z.rest[1]) && !beginsSource(z.start) {
			limit = maxTag
		}
		z.all.SetMaxBuf(limit)
		kind = z.all.Next()
		n := len(z.all.Raw())
		source, z.rest, z.start = z.rest[:n], z.rest[n:], ""
		if kind != html.ErrorToken || z.all.Err() != html.ErrBufferExceeded {
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

// nextRegular returns the kind and the source of the next token if that token is regular.
func (z *tokenizer) nextRegular() (kind html.TokenType, source string, regular bool) {
	end, content := z.content, 0
	kind = html.TextToken
	if end == 0 {
		kind, end, content = regularToken(z.rest)
	}
	if end < 0 {
		return kind, "", false
	}
	source, z.rest, z.content = z.rest[:end], z.rest[end:], content
	z.start, z.plain = "", ""
	switch kind {
	case html.TextToken:
		z.plain = source
	case html.StartTagToken:
		z.start = source
	}
	return kind, source, true
}

// renew creates an html.Tokenizer that parses the remaining source as if it were a whole document.
func (z *tokenizer) renew() {
	z.all = html.NewTokenizer(strings.NewReader(z.rest))
	z.start, z.crowded = "", false
}

var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// text returns the text of a text token. Character references are resolved, except in raw text.
func (z *tokenizer) text() string {
	if z.all != nil {
		return string(z.all.Text())
	}
	text := z.plain
	if strings.Contains(text, "\r") {
		text = newlines.Replace(text)
	}
	if strings.Contains(text, "&") { // this check is far faster than the search in UnescapeString
		text = html.UnescapeString(text)
	}
	return text
}

// attributes yields the lower-case name and the value of each attribute in the current start tag. The same name may be
// yielded more than once.
func (z *tokenizer) attributes() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		// The meaning of an & within an attribute depends on the characters after it.
		if z.all == nil && !strings.ContainsAny(z.start, "&\r\x00") {
			regularAttributes(z.start, yield)
			return
		}
		tag := z.all
		if tag == nil {
			tag = z.readTag()
		}
		for more := true; more; {
			var name, value []byte
			if name, value, more = tag.TagAttr(); !yield(string(name), string(value)) {
				return
			}
		}
	}
}

// readTag returns an html.Tokenizer that has just parsed the current token, which must be a regular start tag.
func (z *tokenizer) readTag() *html.Tokenizer {
	if z.tag == nil || z.crowded {
		z.tag = html.NewTokenizer(&z.feed)
	}
	z.crowded = len(z.start) > largeTag
	z.feed.Reset(z.start)
	z.tag.Next()
	z.tag.NextIsNotRawText()
	return z.tag
}

// beginsSource reports whether a start tag is followed by raw text, in which html.Tokenizer recognizes no tags.
func beginsSource(tag string) bool {
	if tag == "" {
		return false
	}
	name := tag[len("<"):]
	if i := strings.IndexAny(name, "/> \t\n\f\r"); i >= 0 {
		name = name[:i]
	}
	return isSource(name)
}

// isSource reports whether elements with this name, in any letter case, contain raw text.
func isSource(name string) bool {
	if len(name) < len("xmp") || len(name) > len("plaintext") || strings.IndexByte("INPSTXinpstx", name[0]) < 0 {
		return false
	}
	name = strings.ToLower(name)
	return isRaw([]byte(name)) || name == "xmp" || name == "plaintext"
}

// indexOrEnd returns the index of the first c in s, or the length of s if there is none.
func indexOrEnd(s string, c byte) int {
	if i := strings.IndexByte(s, c); i >= 0 {
		return i
	}
	return len(s)
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }
