// Package htmltext converts the HTML of received and sent mail to plain text.
//
// # Invariants
//
//   - The plain text is valid UTF-8, and its lines end with LF. No line ends with a space, and there are never two
//     consecutive empty lines.
//   - The conversion takes time linear in the length of the HTML, even if the HTML is deeply nested. The memory used is
//     at most a small multiple of the length of the HTML.
//   - The same HTML always produces the same plain text.
//
// # Failures
//
// FromHTML never fails: it treats any input as HTML. Markup that cannot be parsed, such as a start tag of 1 MiB or
// more, is omitted.
//
// # Out of scope
//
// The package does not sanitize HTML for display. FromHTML ignores style sheets, so it omits only elements that are
// hidden by their own attributes. FromHTML does not wrap lines.
package htmltext

import (
	"bytes"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/net/html"
)

// These are the limits of FromHTML. Deeper nesting is not indented any further, and link addresses longer than maxHref
// are omitted.
const (
	maxListDepth  = 8
	maxQuoteDepth = 5
	maxHref       = 2000 // bytes
)

// FromHTML converts html to plain text. Blocks and table rows become separate lines, list items start with a bullet or
// a number, links become `text [address]`, and images are replaced by their alternative text. FromHTML omits scripts,
// styles, select elements, and elements hidden by display:none, such as the preview lines of newsletters.
//
// Lines end with LF and are not wrapped; no line ends with a space and there are never two consecutive empty lines.
// FromHTML accepts any input, even if it is deeply nested, and takes time linear in its length. FromHTML skips start
// tags of 1 MiB or more.
func FromHTML(html string) string {
	if !utf8.ValidString(html) { // for valid text, this check is far faster than ToValidUTF8
		html = strings.ToValidUTF8(html, "\uFFFD")
	}
	text, complete := extractText(newTokenizer(html), true)
	if !complete {
		// A hidden element that is never closed would hide all text after it.
		text, _ = extractText(newTokenizer(html), false)
	}
	return text
}

// buffers has buffers for texts, because the text of a newsletter is much shorter than its HTML. Large buffers are not
// kept.
var buffers = sync.Pool{New: func() any { return new([]byte) }}

const maxBuffer = 64 << 10 // bytes

// extractText converts the HTML that z reads to plain text. If hide is set, extractText omits elements that are hidden
// or contain no text. The complete result is false if the last omitted element was never closed.
func extractText(z *tokenizer, hide bool) (text string, complete bool) {
	buffer := buffers.Get().(*[]byte)
	t := textWriter{out: slices.Grow((*buffer)[:0], len(z.rest)+64), lineStart: true, hide: hide}
	defer func() {
		if cap(t.out) <= maxBuffer {
			*buffer = t.out
			buffers.Put(buffer)
		}
	}()
	for {
		switch kind, source := z.next(); kind {
		case html.ErrorToken:
			t.endLink()
			return strings.TrimRight(string(t.out), " \n"), t.skipped == ""
		case html.TextToken:
			switch {
			case t.skipped != "":
			case t.pre > 0:
				t.preformatted(z.text())
			default:
				t.text(z.text())
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			t.startTag(z, source)
		case html.EndTagToken:
			t.endTag(t.tagName(source[len("</"):]))
		}
	}
}

// textWriter lays out plain text. White space is kept pending, and is written only when more text follows.
type textWriter struct {
	out []byte
	// breaks is the number of pending line breaks. space is set if a space is pending, and cell if this space separates
	// two table cells.
	breaks      int
	space, cell bool
	// lineStart is set while the current line is empty, and bullet is the bullet to write before the next text.
	lineStart bool
	bullet    string

	lists     [maxListDepth]list
	listDepth int
	quotes    int
	pre       int

	// link is the address of the open link, and linkFrom is the index in out at which its text begins.
	link     string
	linkFrom int

	// skipped is the name of the element that is being omitted, and skipDepth is the number of open elements with this
	// name.
	hide      bool
	skipped   string
	skipDepth int

	name [16]byte
}

type list struct {
	ordered bool
	next    int
}

// startTag applies a start tag to the layout.
func (t *textWriter) startTag(z *tokenizer, source string) {
	tag := t.tagName(source[len("<"):])
	// A slash at the end of a start tag closes only void elements, and the elements of SVG and MathML.
	closed := isVoid(tag) || isForeign(tag) && strings.HasSuffix(source, "/>")
	if t.skipped != "" {
		if t.skipped == string(tag) && !closed {
			t.skipDepth++
		}
		return
	}
	a := attributes{start: 1}
	if wantsAttributes(tag) || t.hide && mayHide(source) {
		a = readAttributes(z)
	}
	if isRaw(tag) || t.hide && (a.hidden || isNotText(tag)) && !isVoid(tag) {
		if !closed {
			t.skipped, t.skipDepth = string(tag), 1
		}
		return
	}
	t.open(tag, a)
}

// open applies the start tag of a displayed element to the layout.
func (t *textWriter) open(tag []byte, a attributes) {
	switch string(tag) {
	case "br":
		t.breaks = min(t.breaks+1, 2)
	case "hr":
		t.breakLine(2)
		t.write("----------")
		t.breakLine(2)
	case "img", "area":
		if !a.hidden || !t.hide {
			t.text(a.alt)
		}
	case "a":
		t.startLink(a.href)
	case "td", "th":
		t.space, t.cell = true, true
	case "ul", "ol":
		t.breakLine(t.listBreak())
		if t.listDepth < maxListDepth {
			t.lists[t.listDepth] = list{ordered: string(tag) == "ol", next: a.start}
		}
		t.listDepth++
	case "li":
		t.breakLine(1)
		t.bullet = t.nextBullet()
	case "blockquote":
		t.breakLine(2)
		t.quotes++
	case "pre", "xmp":
		t.breakLine(2)
		t.pre++
	default:
		t.breakLine(blockBreak(tag))
	}
}

// tagName returns an element's name in lower case, given the source of a tag without its opening < or </. Names longer
// than any known element name are truncated.
func (t *textWriter) tagName(source string) []byte {
	n := 0
	for n < min(len(source), len(t.name)) {
		c := source[n]
		if c == '>' || c == '/' || c == ' ' || '\t' <= c && c <= '\r' && c != '\v' {
			break
		}
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		t.name[n] = c
		n++
	}
	return t.name[:n]
}

func (t *textWriter) endTag(tag []byte) {
	if t.skipped != "" {
		if t.skipped == string(tag) {
			if t.skipDepth--; t.skipDepth == 0 {
				t.skipped = ""
			}
		}
		return
	}
	switch string(tag) {
	case "a":
		t.endLink()
	case "ul", "ol":
		t.listDepth = max(t.listDepth-1, 0)
		t.bullet = ""
		t.breakLine(t.listBreak())
	case "li":
		t.bullet = ""
		t.breakLine(1)
	case "blockquote":
		t.breakLine(2)
		t.quotes = max(t.quotes-1, 0)
	case "pre", "xmp":
		t.breakLine(2)
		t.pre = max(t.pre-1, 0)
	case "br":
		t.breaks = min(t.breaks+1, 2)
	default:
		t.breakLine(blockBreak(tag))
	}
}

// listBreak returns the number of line breaks before and after a list; nested lists are not set off by empty lines.
func (t *textWriter) listBreak() int {
	if t.listDepth > 0 {
		return 1
	}
	return 2
}

func (t *textWriter) nextBullet() string {
	if t.listDepth == 0 || t.listDepth > maxListDepth || !t.lists[t.listDepth-1].ordered {
		return "- "
	}
	l := &t.lists[t.listDepth-1]
	l.next++
	return strconv.Itoa(l.next-1) + ". "
}

// breakLine ensures that at least n line breaks are pending.
func (t *textWriter) breakLine(n int) { t.breaks = max(t.breaks, n) }

// begin writes the pending white space and, at the start of a line, the quote marks, indentation and bullet. Text must
// follow.
func (t *textWriter) begin() {
	if t.breaks > 0 {
		if len(t.out) > 0 {
			t.out = append(t.out, "\n\n"[:t.breaks]...)
		}
		t.breaks = 0
		t.lineStart = true
	}
	switch {
	case t.lineStart:
		for range min(t.quotes, maxQuoteDepth) {
			t.out = append(t.out, "> "...)
		}
		depth := min(t.listDepth, maxListDepth)
		if t.bullet != "" {
			depth = max(depth-1, 0)
		}
		for range depth {
			t.out = append(t.out, "  "...)
		}
		t.out = append(t.out, t.bullet...)
		t.bullet = ""
	case t.cell && t.space:
		t.out = append(t.out, "  "...)
	case t.space:
		t.out = append(t.out, ' ')
	}
	t.lineStart, t.space, t.cell = false, false, false
}

func (t *textWriter) write(s string) {
	t.begin()
	t.out = append(t.out, s...)
}

// text writes b with each run of white space replaced by one space. Control characters are removed, as are zero-width
// characters that only allow line breaks or act as filler.
func (t *textWriter) text(b string) {
	for i := 0; i < len(b); {
		c := b[i]
		switch {
		case ' ' < c && c < 0x7f:
			run := i + 1 + plainPrefix(b[i+1:])
			for run < len(b) && (' ' < b[run] && b[run] < 0x7f || b[run] == ' ' && run+1 < len(b) && ' ' < b[run+1] &&
				b[run+1] < 0x7f) {
				run++
			}
			t.begin()
			t.out = append(t.out, b[i:run]...)
			i = run
		case c == ' ' || '\t' <= c && c <= '\r':
			t.space = true
			i++
		case c < utf8.RuneSelf:
			i++
		default:
			r, size := utf8.DecodeRuneInString(b[i:])
			t.wide(r, b[i:i+size])
			i += size
		}
	}
}

// plainPrefix returns the length of a prefix of s that is printable ASCII without consecutive spaces and without a
// trailing space. plainPrefix checks eight bytes at a time, so the prefix may be shorter than possible.
func plainPrefix(s string) int {
	const low, high = 0x0101010101010101, 0x8080808080808080
	n := 0
	for ; n+8 <= len(s); n += 7 {
		w := uint64(s[n]) | uint64(s[n+1])<<8 | uint64(s[n+2])<<16 | uint64(s[n+3])<<24 | uint64(s[n+4])<<32 | uint64(s[n+
			5])<<40 |
			uint64(s[n+6])<<48 | uint64(s[n+7])<<56
		if w&high != 0 || (w-low*' ')&high != 0 || (w+low)&high != 0 { // a non-ASCII character, a control character, or DEL
			break
		}
		x := w ^ low*' '
		if spaces := (x - low) & ^x & high; spaces&(spaces<<8) != 0 {
			break
		}
	}
	for n > 0 && s[n-1] == ' ' {
		n--
	}
	return n
}

// wide writes a non-ASCII character.
func (t *textWriter) wide(r rune, encoded string) {
	switch r {
	case '\u0085', '\u00a0', '\u2007', '\u2028', '\u2029', '\u202f':
		t.space = true
		return
	case '\u00ad', '\u034f', '\u200b', '\u2060', '\ufeff':
		return
	case '\u200c', '\u200d':
		// U+200C and U+200D join or separate the letters of a word. Outside words, newsletters use U+200C and U+200D as
		// filler.
		if t.space || t.lineStart || t.breaks > 0 {
			return
		}
	}
	if r < '\u00a0' {
		return
	}
	t.begin()
	t.out = append(t.out, encoded...)
}

// preformatted writes b and keeps its line breaks and spaces, but drops spaces at line ends.
func (t *textWriter) preformatted(b string) {
	for len(b) > 0 {
		line, rest, found := strings.Cut(b, "\n")
		b = rest
		content := strings.TrimRight(line, " \t\f\v")
		if indent := len(content) - len(strings.TrimLeft(content, " \t")); len(content) > indent {
			written := false
			for i := range len(content) {
				c := content[i]
				if c < ' ' && c != '\t' || c == 0x7f || c == ' ' && !written && i >= indent {
					continue
				}
				if !written {
					t.begin()
					written = true
				}
				t.out = append(t.out, c)
			}
		}
		t.space = len(content) < len(line)
		if found {
			t.breaks = min(t.breaks+1, 2)
		}
	}
}

func (t *textWriter) startLink(href string) {
	t.endLink()
	t.link = linkTarget(href)
	t.linkFrom = len(t.out)
}

// endLink writes the address of the open link, unless the link's text already ends with that address.
func (t *textWriter) endLink() {
	target := t.link
	t.link = ""
	if target == "" {
		return
	}
	label := bytes.TrimRight(t.out[t.linkFrom:], "/")
	bare := strings.TrimRight(target, "/")
	switch {
	case len(label) == 0:
		t.begin()
		t.out = append(append(append(t.out, '['), target...), ']')
	case len(label) >= len(bare) && string(label[len(label)-len(bare):]) == bare:
	default:
		// The link's address belongs to the text before it, so it is written before the pending white space.
		t.out = append(append(append(t.out, " ["...), target...), ']')
	}
}
