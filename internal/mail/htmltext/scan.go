package htmltext

import "golang.org/x/net/html"

// Scanner splits HTML into the same tokens as html.Tokenizer, in linear time for any input, and returns their
// positions.
type Scanner struct {
	z    tokenizer
	size int
}

// NewScanner returns a scanner of HTML.
func NewScanner(source string) *Scanner {
	return &Scanner{z: tokenizer{rest: source}, size: len(source)}
}

// Next returns the kind of the next token, and where in the source it begins and ends. At the end the kind is
// html.ErrorToken; the rest of the source is then a tag that is not closed. Next skips a start tag of more than 1 MiB,
// so there may be a gap between two tokens.
func (s *Scanner) Next() (kind html.TokenType, start, end int) {
	kind, token := s.z.next()
	end = s.size - len(s.z.rest)
	return kind, end - len(token), end
}

// IsSource reports whether the content of elements with this name, in any case, is source text, in which there are no
// tags: scripts, style sheets, titles and others.
func IsSource(name string) bool { return isSource(name) }
