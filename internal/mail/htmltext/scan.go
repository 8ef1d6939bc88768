package htmltext

import "golang.org/x/net/html"

// Scanner splits HTML into the same tokens as html.Tokenizer and returns their positions, in linear time for any input.
type Scanner struct {
	z    tokenizer
	size int
}

// NewScanner returns a Scanner for the HTML in source.
func NewScanner(source string) *Scanner {
	return &Scanner{z: tokenizer{rest: source}, size: len(source)}
}

// Next returns the kind of the next token, and the offsets in the source at which it begins and ends. At the end of the
// source, Next returns html.ErrorToken. If any source remains after the last token, it is an unclosed tag. Next skips
// start tags of 1 MiB or more, so there may be a gap between two tokens.
func (s *Scanner) Next() (kind html.TokenType, start, end int) {
	kind, token := s.z.next()
	end = s.size - len(s.z.rest)
	return kind, end - len(token), end
}

// IsSource reports whether elements with this name, in any letter case, contain raw text without tags: scripts, style
// sheets, titles and others.
func IsSource(name string) bool { return isSource(name) }
