package htmltext

import (
	"slices"
	"strconv"
	"strings"
)

// linkTarget returns the part of an href to show in plain text: a web address, an email address, a telephone number, or
// a template placeholder. The result is "" for all other links, such as links within the page.
func linkTarget(href string) string {
	href = strings.TrimSpace(href)
	if len(href) > maxHref || strings.ContainsFunc(href, func(r rune) bool {
		return r < ' ' || r >= 0x7f && r <= 0xa0 || r == '\u2028' || r == '\u2029'
	}) {
		return ""
	}
	scheme, rest, _ := strings.Cut(href, ":")
	switch {
	case strings.HasPrefix(href, "{{"):
		return href
	case strings.HasPrefix(href, "//"):
		return "https:" + href
	case strings.EqualFold(scheme, "http"), strings.EqualFold(scheme, "https"):
		return href
	case strings.EqualFold(scheme, "mailto"):
		address, _, _ := strings.Cut(rest, "?")
		return strings.TrimSpace(address)
	case strings.EqualFold(scheme, "tel"), strings.EqualFold(scheme, "sms"):
		return strings.TrimSpace(rest)
	}
	return ""
}

// attributes holds the attributes that affect the plain text: those shown in it, and those that hide an element.
type attributes struct {
	href   string
	alt    string
	start  int
	hidden bool
}

// readAttributes reads the attributes of the tokenizer's current start tag. If an attribute is repeated, readAttributes
// uses the first value.
func readAttributes(z *tokenizer) attributes {
	a := attributes{start: 1}
	var seen [len(textAttributes)]bool
	for name, value := range z.attributes() {
		i := slices.Index(textAttributes[:], name)
		if i < 0 || seen[i] {
			continue
		}
		seen[i] = true
		switch name {
		case "href":
			a.href = value
		case "alt":
			a.alt = value
		case "start":
			if n, err := strconv.ParseInt(value, 10, 32); err == nil {
				a.start = int(n)
			}
		case "style":
			a.hidden = a.hidden || displaysNone(value)
		case "hidden":
			a.hidden = true
		case "data-skip-in-text":
			a.hidden = a.hidden || value != "false"
		}
	}
	return a
}

var textAttributes = [...]string{"href", "alt", "start", "style", "hidden", "data-skip-in-text"}

// wantsAttributes reports whether the element has attributes that are shown as text.
func wantsAttributes(tag []byte) bool {
	switch string(tag) {
	case "a", "img", "area", "ol":
		return true
	}
	return false
}

// mayHide quickly checks whether a start tag may contain an attribute that hides its element.
func mayHide(source string) bool {
	return strings.Contains(source, "none") || strings.Contains(source, "hidden") ||
		strings.Contains(source, "skip-in-text")
}

// displaysNone reports whether a style attribute declares display:none.
func displaysNone(style string) bool {
	for declaration := range strings.SplitSeq(style, ";") {
		name, value, _ := strings.Cut(declaration, ":")
		if strings.TrimSpace(name) == "display" && strings.HasPrefix(strings.TrimSpace(value), "none") {
			return true
		}
	}
	return false
}

// isRaw reports whether an element contains raw text that is not displayed, such as a script.
func isRaw(tag []byte) bool {
	switch string(tag) {
	case "script", "style", "title", "noscript", "iframe", "noembed", "noframes", "textarea":
		return true
	}
	return false
}

// isNotText reports whether an element, such as a video, may contain other elements but no text to be read.
func isNotText(tag []byte) bool {
	switch string(tag) {
	case "template", "object", "select", "audio", "video", "canvas":
		return true
	}
	return isForeign(tag)
}

func isForeign(tag []byte) bool { return string(tag) == "svg" || string(tag) == "math" }

// isVoid reports whether an element has neither content nor an end tag.
func isVoid(tag []byte) bool {
	switch string(tag) {
	case "area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr":
		return true
	}
	return false
}

// blockBreak returns the number of line breaks to write before and after a block element, or 0 for an inline element.
func blockBreak(tag []byte) int {
	switch string(tag) {
	case "p", "h1", "h2", "h3", "h4", "h5", "h6", "table", "dl", "figure":
		return 2
	case "div", "tr", "section", "article", "header", "footer", "nav", "main", "aside", "address", "fieldset", "form",
		"figcaption", "dt", "dd", "center", "thead", "tbody", "tfoot", "caption", "body", "details", "summary", "legend",
		"option", "optgroup", "head", "html", "hgroup", "search", "menu", "dir", "plaintext", "marquee":
		return 1
	}
	return 0
}
