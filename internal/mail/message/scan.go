package message

import (
	"strings"

	"golang.org/x/net/html"
)

// token is what a scanner finds in HTML.
type token int

const (
	tokenEnd   token = iota
	tokenText        // source, with its character references
	tokenOpen        // the source of a start tag
	tokenClose       // the source of an end tag
)

// scanner splits HTML into text and tags as the tokenizer of the HTML standard does, comments and declarations left out.
// It stands in for html.Tokenizer, which copies its input, allocates for each tag and attribute, and took most of the
// time that making text from HTML takes. References are left to the html package.
type scanner struct {
	source string
	at     int
	raw    string // the element whose content is source text, empty outside of one
}

// next returns the next token and its source: of a tag all from < to >.
func (s *scanner) next() (token, string) {
	for s.at < len(s.source) {
		if s.raw != "" {
			if text := s.rawText(); text != "" {
				return tokenText, text
			}
			continue
		}
		rest := s.source[s.at:]
		n := textLength(rest)
		if n > 0 {
			s.at += n
			return tokenText, rest[:n]
		}
		switch c := rest[1]; {
		case c == '!':
			s.at += declarationLength(rest)
		case c == '?', c == '/' && !isLetter(rest[2]):
			s.at += through(rest, ">")
		default:
			n := tagLength(rest)
			if n == 0 { // the tag is not closed before the end, which drops it
				s.at = len(s.source)
				return tokenEnd, ""
			}
			s.at += n
			if c == '/' {
				return tokenClose, rest[:n]
			}
			return tokenOpen, rest[:n]
		}
	}
	return tokenEnd, ""
}

// rawText returns what stands before the end tag of a raw element, and ends the element.
func (s *scanner) rawText() string {
	rest := s.source[s.at:]
	name := s.raw
	s.raw = ""
	for from := 0; ; {
		i := strings.Index(rest[from:], "</")
		if i < 0 {
			s.at = len(s.source)
			return rest
		}
		i += from
		from = i + 2
		after := rest[from:]
		if len(after) > len(name) && strings.EqualFold(after[:len(name)], name) && endsName(after[len(name)]) {
			s.at += i
			return rest[:i]
		}
	}
}

// textLength is how much of s is text: up to a < that begins a tag, a comment or a declaration.
func textLength(s string) int {
	for from := 0; ; {
		i := strings.IndexByte(s[from:], '<')
		if i < 0 || from+i+1 >= len(s) {
			return len(s)
		}
		i += from
		switch c := s[i+1]; {
		case isLetter(c), c == '!', c == '?', c == '/' && i+2 < len(s):
			return i
		}
		from = i + 1
	}
}

// declarationLength is the length of a comment or of another <!...>.
func declarationLength(s string) int {
	body, ok := strings.CutPrefix(s, "<!--")
	if !ok {
		return through(s, ">")
	}
	if strings.HasPrefix(body, ">") {
		return len("<!-->")
	}
	if strings.HasPrefix(body, "->") {
		return len("<!--->")
	}
	n := through(body, "-->")
	if bang := strings.Index(body[:n], "--!>"); bang >= 0 {
		n = bang + len("--!>")
	}
	return len("<!--") + n
}

// through is the length of s up to and with its first mark, or all of it.
func through(s, mark string) int {
	i := strings.Index(s, mark)
	if i < 0 {
		return len(s)
	}
	return i + len(mark)
}

// tagLength is the length of the tag that s begins with, whose attributes' values may hold >. It is 0 when the tag has no
// end.
func tagLength(s string) int {
	end := strings.IndexByte(s, '>')
	if end < 0 {
		return 0
	}
	if strings.IndexByte(s[:end], '=') < 0 {
		return end + 1
	}
	p := attributeParser{s: s, at: nameLength(s[1:]) + 1}
	for {
		if _, _, ok := p.next(); !ok {
			break
		}
	}
	if p.at >= len(s) {
		return 0
	}
	return p.at + 1
}

// nameLength is the length of an element's name behind <.
func nameLength(s string) int {
	n := 0
	if strings.HasPrefix(s, "/") {
		n = 1
	}
	for n < len(s) && !endsName(s[n]) {
		n++
	}
	return n
}

// attributeParser reads the attributes of a tag by the rules of the HTML standard for broken ones too.
type attributeParser struct {
	s  string
	at int
}

// next returns the next attribute, its value with references as they stand. At the end of the tag at is at its >, or at
// the end of s when there is none.
func (p *attributeParser) next() (name, value string, ok bool) {
	for p.at < len(p.s) && (isSpace(p.s[p.at]) || p.s[p.at] == '/') {
		p.at++
	}
	if p.at >= len(p.s) || p.s[p.at] == '>' {
		return "", "", false
	}
	from := p.at
	for p.at++; p.at < len(p.s) && p.s[p.at] != '=' && !endsName(p.s[p.at]); p.at++ {
	}
	name = p.s[from:p.at]
	p.spaces()
	if p.at >= len(p.s) || p.s[p.at] != '=' {
		return name, "", true
	}
	p.at++
	p.spaces()
	if p.at >= len(p.s) {
		return name, "", true
	}
	if quote := p.s[p.at]; quote == '"' || quote == '\'' {
		p.at++
		from = p.at
		i := strings.IndexByte(p.s[from:], quote)
		if i < 0 {
			p.at = len(p.s)
			return name, p.s[from:], true
		}
		p.at = from + i + 1
		return name, p.s[from : from+i], true
	}
	from = p.at
	for p.at < len(p.s) && p.s[p.at] != '>' && !isSpace(p.s[p.at]) {
		p.at++
	}
	return name, p.s[from:p.at], true
}

func (p *attributeParser) spaces() {
	for p.at < len(p.s) && isSpace(p.s[p.at]) {
		p.at++
	}
}

// unescapeAttribute resolves the references of an attribute's value. Their rule is not that of text: in ?a=1&copy=2 there
// is none.
func unescapeAttribute(value string) string {
	if strings.IndexByte(value, '&') < 0 {
		return value
	}
	z := html.NewTokenizerFragment(strings.NewReader(`<a b="`+strings.ReplaceAll(value, `"`, "&quot;")+`">`), "")
	z.Next()
	if _, more := z.TagName(); !more {
		return value
	}
	_, resolved, _ := z.TagAttr()
	return string(resolved)
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

func isSpace(c byte) bool { return c == ' ' || '\t' <= c && c <= '\r' && c != '\v' }

func endsName(c byte) bool { return c == '>' || c == '/' || isSpace(c) }
