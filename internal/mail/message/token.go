package message

import (
	"iter"
	"strings"

	"golang.org/x/net/html"
)

// Limits of a start tag, in octets: one of maxTag or more is dropped, after one beyond largeTag the html.Tokenizer that
// read it is replaced.
const (
	maxTag   = 1 << 20
	largeTag = 4 << 10
)

// tokenizer cuts HTML into the tokens of html.Tokenizer, in time that is linear and with memory that is a small
// multiple of its input, whatever that is.
//
// As long as the markup is regular, as regularToken means it, its ends are found without html.Tokenizer, which looks at
// each octet by itself and makes a string of every attribute: it took a tenth of the CPU of an unsigned email. It is
// asked for attributes that have an & in them, and it reads all the rest from where the markup is irregular for the
// first time. A fuzz test holds that no difference can be seen.
type tokenizer struct {
	rest    string // what follows the current token
	start   string // the current token, if it is a start tag
	plain   string // the current token, if it is text and the markup is regular so far
	content int    // how many octets of rest are the source text of the start tag before

	// all reads the rest once something irregular was met; nil before.
	all *html.Tokenizer
	// tag reads the attributes of one start tag at a time, of which feed gives it the source.
	tag  *html.Tokenizer
	feed strings.Reader
	// crowded says that the table of attributes of all or of tag is large. html.Tokenizer takes some 30 octets of it for
	// each octet of a tag, and clears it, as large as the largest tag made it, at every tag that follows.
	crowded bool
}

func newTokenizer(source string) *tokenizer { return &tokenizer{rest: source} }

// next returns the next token and its source: of a tag all from < to >. At the end it is html.ErrorToken. A tag that
// is not closed before the end is dropped, and one of maxTag octets or more too, together with what follows it up
// to a <. Declarations and comments are html.CommentToken or html.DoctypeToken. Whether a start tag closes itself is
// for its reader to see.
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

// nextRegular returns the next token if it is regular.
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

// renew lets an html.Tokenizer read what follows, as if that were all.
func (z *tokenizer) renew() {
	z.all = html.NewTokenizer(strings.NewReader(z.rest))
	z.start, z.crowded = "", false
}

var newlines = strings.NewReplacer("\r\n", "\n", "\r", "\n")

// text returns the text of a text token, its character references resolved unless it is source text.
func (z *tokenizer) text() string {
	if z.all != nil {
		return string(z.all.Text())
	}
	text := z.plain
	if strings.Contains(text, "\r") {
		text = newlines.Replace(text)
	}
	if strings.Contains(text, "&") { // far faster than how UnescapeString looks for it
		text = html.UnescapeString(text)
	}
	return text
}

// attributes gives the names, in lower case, and the values of the current token, a start tag. It may give one name
// twice.
func (z *tokenizer) attributes() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		// How an & reads within an attribute depends on what follows it.
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

// readTag returns an html.Tokenizer that has just read the current token, a regular start tag.
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

// beginsSource reports whether what follows a start tag is source text, in which html.Tokenizer finds no tags.
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

// isSource reports whether the content of elements of a name, in whatever case, is source text.
func isSource(name string) bool {
	if len(name) < len("xmp") || len(name) > len("plaintext") || strings.IndexByte("INPSTXinpstx", name[0]) < 0 {
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
