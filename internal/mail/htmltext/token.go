package htmltext

import (
	"iter"
	"strings"

	"golang.org/x/net/html"
)

// Limits of a start tag, in bytes. A tag of maxTag bytes or more is dropped. A tag longer than largeTag leaves a large
// attribute table in its html.Tokenizer, which is replaced afterwards.
const (
	maxTag   = 1 << 20
	largeTag = 4 << 10
)

// tokenizer splits HTML into the tokens of html.Tokenizer, in linear time for any input. The memory that tokenizer uses
// is a small multiple of the input's size.
//
// While the markup is regular, as regularToken defines it, tokenizer finds the ends of tokens without html.Tokenizer,
// which inspects every single byte and allocates a string for every attribute. Using html.Tokenizer for regular markup
// took a tenth of the CPU time for an unsigned email. tokenizer uses html.Tokenizer for attributes with an &, and for
// everything from the first irregular token on. A fuzz test checks that the tokens are the same with and without
// html.Tokenizer.
type tokenizer struct {
	rest    string // the source after the current token
	start   string // the current token, if it is a start tag
	plain   string // the current token, if it is text and the markup is regular so far
	content int    // number of bytes of rest that are raw text after the start tag

	// all parses the source from the first irregular token on; nil before that token.
	all *html.Tokenizer
	// tag reads the attributes of one start tag at a time; feed supplies it with the source.
	tag  *html.Tokenizer
	feed strings.Reader
	// crowded reports that all or tag has a large attribute table. html.Tokenizer allocates some 30 bytes of that table
	// for each byte of a tag. At every later tag, html.Tokenizer clears as much of the table as the largest earlier tag
	// used.
	crowded bool
}

func newTokenizer(source string) *tokenizer { return &tokenizer{rest: source} }

// next returns the next token and its source; the source of a tag runs from < to >. At the end of the source the kind
// is html.ErrorToken. next drops a tag that is not closed before the end. next also drops a tag of maxTag bytes or
// more, with the text between that tag and the next <. Declarations and comments are html.CommentToken or
// html.DoctypeToken. next does not report whether a start tag is self-closing, which its source shows.
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

// nextRegular returns the next token, and whether it is regular.
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
	if strings.Contains(text, "&") { // the check is far faster than the search in UnescapeString
		text = html.UnescapeString(text)
	}
	return text
}

// attributes yields the attribute names, in lower case, and the attribute values of the current start tag. attributes
// may yield the same name twice.
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

// readTag returns an html.Tokenizer that has just parsed the current token, a regular start tag.
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

// beginsSource reports whether raw text follows a start tag. html.Tokenizer finds no tags in raw text.
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
