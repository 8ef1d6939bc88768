package htmltext

import (
	"strings"

	"golang.org/x/net/html"
)

// regularToken returns the kind of the first HTML token in s and the index at which it ends. The kind is
// html.ErrorToken if s is empty. If the token is the start tag of a raw text element, such as a script, the content
// result is the length of the raw text after the tag. If the token is irregular, the end is -1 and html.Tokenizer must
// parse the token.
//
// Nearly all HTML is regular markup, which has only one possible parse. Text, raw text, closed comments, closed
// declarations and most tags are regular tokens. A tag is regular if its attribute values are quoted or consist of
// plain characters. Finding a regular token takes time linear in the length of the token. Detecting an irregular token
// takes time linear in the length of s, but happens only once per document.
func regularToken(s string) (kind html.TokenType, end, content int) {
	if s == "" {
		return html.ErrorToken, 0, 0
	}
	if end = markup(s); end > 0 {
		return html.TextToken, end, 0
	}
	switch s[1] {
	case '/':
		return html.EndTagToken, endTagEnd(s), 0
	case '!', '?':
		return html.CommentToken, declarationEnd(s), 0
	}
	name, end := tagEnd(s)
	if end >= 0 && isSource(name) {
		if content = sourceEnd(s[end:], name); content < 0 {
			end = -1
		}
	}
	return html.StartTagToken, end, content
}

// markup returns the index at which the first tag, comment or declaration begins, or the length of s if there is none.
// A < that does not begin a tag, comment or declaration is text.
func markup(s string) int {
	for i := 0; ; i++ {
		n := strings.IndexByte(s[i:], '<')
		if n < 0 || i+n+1 == len(s) {
			return len(s)
		}
		i += n
		if c := s[i+1]; isLetter(c) || c == '/' || c == '!' || c == '?' {
			return i
		}
	}
}

// tagEnd returns the name of the start tag at the beginning of s and the index at which the tag ends, or -1 if the tag
// is irregular.
func tagEnd(s string) (name string, end int) {
	i := skipName(s, len("<"))
	name = s[len("<"):i]
	for i < len(s) && i < maxTag-1 {
		from := i
		i = skipHTMLSpace(s, i)
		switch {
		case i == len(s):
			return name, -1
		case s[i] == '>':
			return name, i + 1
		case s[i] == '/':
			if i+1 == len(s) || s[i+1] != '>' {
				return name, -1
			}
			return name, i + 2
		case i == from:
			return name, -1
		}
		if _, _, i = attribute(s, i); i < 0 {
			return name, -1
		}
	}
	return name, -1
}

// regularAttributes yields the lower-case name and the value of each attribute in a regular start tag.
func regularAttributes(tag string, yield func(name, value string) bool) {
	for i := skipName(tag, len("<")); ; {
		name, value, end := attribute(tag, skipHTMLSpace(tag, i))
		if end < 0 || !yield(strings.ToLower(name), value) {
			return
		}
		i = end
	}
}

// attribute returns the name and the value of the attribute that begins at s[i], and the index at which it ends. The
// end is -1 if no regular attribute begins at s[i].
func attribute(s string, i int) (name, value string, end int) {
	from := i
	i = skipName(s, i)
	name = s[from:i]
	switch {
	case name == "":
		return "", "", -1
	case i == len(s) || s[i] != '=':
		return name, "", i
	case i+1 == len(s):
		return "", "", -1
	}
	i++
	if q := s[i]; q == '"' || q == '\'' {
		n := strings.IndexByte(s[i+1:], q)
		if n < 0 {
			return "", "", -1
		}
		return name, s[i+1 : i+1+n], i + 1 + n + 1
	}
	from = i
	if i = skipName(s, i); i == from || i < len(s) && s[i] == '/' { // the slash is part of the value
		return "", "", -1
	}
	return name, s[from:i], i
}

// skipName returns the index at which a name or a plain unquoted value that begins at s[i] ends.
func skipName(s string, i int) int {
	for i < len(s) && (isLetter(s[i]) || '0' <= s[i] && s[i] <= '9' || strings.IndexByte("-_:.#%", s[i]) >= 0) {
		i++
	}
	return i
}

// endTagEnd returns the index after the end tag at the beginning of s, or -1 if the tag is irregular.
func endTagEnd(s string) int {
	if len(s) < len("</p>") || !isLetter(s[2]) {
		return -1
	}
	i := skipHTMLSpace(s, skipName(s, len("</")))
	if i == len(s) || s[i] != '>' {
		return -1
	}
	return i + 1
}

// declarationEnd returns the index after the comment or declaration at the beginning of s, or -1 if it is not closed.
// As the HTML standard requires, --!> also ends a comment.
func declarationEnd(s string) int {
	const opening = "<!--"
	if !strings.HasPrefix(s, opening) {
		if end := strings.IndexByte(s, '>'); end >= 0 {
			return end + 1
		}
		return -1
	}
	s = s[len(opening):]
	for _, whole := range []string{">", "->"} {
		if strings.HasPrefix(s, whole) {
			return len(opening) + len(whole)
		}
	}
	end := strings.Index(s, "-->")
	if end < 0 {
		return -1
	}
	if i := strings.Index(s[:end], "--!>"); i >= 0 {
		return len(opening) + i + len("--!>")
	}
	return len(opening) + end + len("-->")
}

// sourceEnd returns the index at which the end tag of a raw text element begins, or the length of s if there is no end
// tag. The result is -1 for scripts that contain a comment, because special rules apply to them. The result is also -1
// for <plaintext>, which has no end tag, and for <xmp>, whose raw text is displayed.
func sourceEnd(s, name string) int {
	if strings.EqualFold(name, "plaintext") || strings.EqualFold(name, "xmp") {
		return -1
	}
	end := len(s)
	for i := 0; ; i += len("</") {
		n := strings.Index(s[i:], "</")
		if n < 0 {
			break
		}
		i += n
		after := i + len("</") + len(name)
		if after >= len(s) {
			break
		}
		if strings.EqualFold(s[i+len("</"):after], name) &&
			(isHTMLSpace(s[after]) || s[after] == '/' || s[after] == '>') {
			end = i
			break
		}
	}
	if strings.EqualFold(name, "script") && strings.Contains(s[:end], "<!--") {
		return -1
	}
	return end
}

func skipHTMLSpace(s string, i int) int {
	for i < len(s) && isHTMLSpace(s[i]) {
		i++
	}
	return i
}

func isHTMLSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r' }
