package htmltext

import (
	"iter"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"
)

// Token is a tag or a run of text in HTML. The methods of a Token are valid only until Tokens yields the next token.
type Token struct {
	// Kind is html.StartTagToken (also for self-closing tags), html.EndTagToken or html.TextToken.
	Kind html.TokenType
	// Name is the element's name in lower case, truncated to 16 bytes; "" for text.
	Name string

	z *tokenizer
}

// Attributes yields the lower-case name and the value of each attribute in a start tag. Other tokens have no
// attributes. If an attribute name is repeated, only the first attribute is valid (HTML standard section 13.2.5.33);
// the caller must ignore the others.
func (t Token) Attributes() iter.Seq2[string, string] {
	return func(yield func(name, value string) bool) {
		if t.Kind != html.StartTagToken {
			return
		}
		for name, value := range t.z.attributes() {
			// For a tag without attributes, the tokenizer yields one attribute with an empty name.
			if name != "" && !yield(name, value) {
				return
			}
		}
	}
}

// Text returns the text of a text token, with character references resolved.
func (t Token) Text() string { return t.z.text() }

// Tokens yields the tags and the text of an HTML document in order. Tokens omits comments, declarations, and the
// content of raw text elements such as scripts, styles and titles. Like FromHTML, Tokens accepts any input, takes time
// linear in its length, and skips start tags of 1 MiB or more.
func Tokens(source string) iter.Seq[Token] {
	return func(yield func(Token) bool) {
		if !utf8.ValidString(source) {
			source = strings.ToValidUTF8(source, "\uFFFD")
		}
		var names textWriter // its buffer is reused for names
		z, unseen := newTokenizer(source), false
		for {
			kind, text := z.next()
			t := Token{Kind: kind, z: z}
			switch kind {
			case html.ErrorToken:
				return
			case html.TextToken:
				if unseen {
					continue
				}
			case html.StartTagToken, html.SelfClosingTagToken:
				t.Kind, t.Name = html.StartTagToken, string(names.tagName(text[len("<"):]))
			case html.EndTagToken:
				t.Name = string(names.tagName(text[len("</"):]))
			default:
				continue
			}
			unseen = t.Kind == html.StartTagToken && beginsSource(text)
			if !yield(t) {
				return
			}
		}
	}
}
