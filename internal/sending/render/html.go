package render

import (
	"bytes"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"github.com/postrider/postrider/internal/mail/htmltext"
)

// Limits of the links that HTML can be filled with others for. What is beyond them is left as it is.
const (
	MaxLinks  = 1000 // of one text
	MaxTarget = 6000 // octets
)

// noTrack is the attribute of <a> by which an author says that a link is left as it is.
const noTrack = "data-postrider-no-track"

// HTML is compiled HTML with the places of its links, and of a tracking pixel. It is found out once, from the text
// before it is filled, so that no value can make a link out of what is none. Links are the hrefs of <a> that lead to
// absolute http and https URLs once they are filled and their character references are resolved. These are not:
//
//   - other targets: mailto:, tel:, anchors, relative URLs;
//   - tags with the attribute data-postrider-no-track, and hrefs with the address of the unsubscribe page;
//   - what is in comments (conditional ones, too) and in elements of source text such as script, style and textarea;
//   - what follows source text or a CDATA section in SVG or MathML that could be read in several ways.
type HTML struct {
	Template
	links       []link
	pixel       int // where the pixel goes
	targetBytes int // of the targets of all links
}

// link is an href with the value source[start:end], in which there are slots[from:to]. Without slots its target is
// known.
type link struct {
	start, end int
	from, to   int
	target     []byte
}

// CompileHTML parses HTML with placeholders.
func CompileHTML(source string) *HTML {
	h := &HTML{Template: compile(source, markup)}
	h.scan()
	return h
}

// LiteralHTML parses HTML in which braces are text.
func LiteralHTML(source string) *HTML {
	h := &HTML{Template: Template{source: source, form: markup}}
	h.scan()
	return h
}

// Links is how many links there are, including hrefs with placeholders, which may turn out to be none.
func (h *HTML) Links() int { return len(h.links) }

// TargetBytes is how much memory the targets of the links take.
func (h *HTML) TargetBytes() int { return h.targetBytes }

// Room that is reserved for what replaces links and for the pixel, in octets. More is possible.
const (
	spaceForLink  = 256
	spaceForPixel = 512
)

// Track is Fill with other links. For each link it calls link, which appends to dst what replaces the href, or reports
// false to leave the href as it is. What it appends must need no quotes and no character references; it must not keep
// the target. pixel appends an element that is put before the end of the body. Either may be nil. The memory is
// allocated at once, however many links there are.
func (h *HTML) Track(values Values, link func(dst, target []byte) ([]byte, bool),
	pixel func(dst []byte) []byte) string {
	if link == nil && pixel == nil {
		return h.Fill(values)
	}
	var out strings.Builder
	out.Grow(h.Len(values) + spaceForLink*len(h.links) + spaceForPixel)
	f := trackWriter{h: h, values: values, out: &out, dst: make([]byte, 0, 1024)}
	links := h.links
	if link == nil {
		links = nil
	}
	for i := range links {
		l := &links[i]
		if pixel != nil && f.at <= h.pixel && h.pixel < l.start {
			f.insert(h.pixel, pixel)
		}
		f.link(l, link)
	}
	if pixel != nil && f.at <= h.pixel {
		f.insert(h.pixel, pixel)
	}
	f.copy(len(h.source))
	return out.String()
}

// trackWriter is a Track that has come to source[at:] and slots[slot:].
type trackWriter struct {
	h        *HTML
	values   Values
	out      *strings.Builder
	at, slot int
	filled   bytes.Buffer // an href
	resolved []byte       // its target
	dst      []byte       // what is inserted
}

// copy writes the source up to an index, filled.
func (f *trackWriter) copy(to int) {
	f.slot = f.h.write(f.out, f.values, markup, f.at, to, f.slot)
	f.at = to
}

func (f *trackWriter) insert(at int, what func(dst []byte) []byte) {
	f.copy(at)
	f.dst = what(f.dst[:0])
	f.out.Write(f.dst)
}

// link writes a link and all that is before it.
func (f *trackWriter) link(l *link, replace func(dst, target []byte) ([]byte, bool)) {
	f.copy(l.start)
	to, ok := l.target, true
	if l.from < l.to {
		f.filled.Reset()
		f.h.write(&f.filled, f.values, markup, l.start, l.end, l.from)
		f.resolved = appendUnescaped(f.resolved[:0], f.filled.Bytes())
		to, ok = target(f.resolved)
	}
	if ok {
		if f.dst, ok = replace(f.dst[:0], to); ok {
			f.out.Write(f.dst)
			f.at, f.slot = l.end, l.to
			return
		}
	}
	f.copy(l.end)
}

// scan finds the links and the place for the pixel.
func (h *HTML) scan() {
	source := h.masked()
	var (
		z       = htmltext.NewScanner(source)
		before  = 0     // the end of the last token
		end     = 0     // a place for the pixel at the end that is neither within a comment nor within source text
		body    = -1    // before the last </body>
		root    = -1    // before the last </html>
		foreign = false // there was SVG or MathML
		raw     = false // the last start tag begins source text
	)
tokens:
	for {
		kind, from, to := z.Next()
		if kind == html.ErrorToken || from != before {
			break
		}
		before = to
		token := source[from:to]
		switch kind {
		case html.TextToken:
			if raw {
				// In SVG and MathML it is not source text, and may begin comments that end somewhere behind it.
				if foreign && strings.Contains(token, "<") {
					break tokens
				}
				continue
			}
			end = to - len(token) + len(strings.TrimSuffix(token, "</")) // at the end of the text a tag would complete it
		case html.CommentToken, html.DoctypeToken:
			if foreign && strings.HasPrefix(token, "<![CDATA[") {
				break tokens
			}
		case html.EndTagToken:
			raw, end = false, to
			switch name := tagName(token[len("</"):]); {
			case strings.EqualFold(name, "body"):
				body = from
			case strings.EqualFold(name, "html"):
				root = from
			}
		case html.StartTagToken, html.SelfClosingTagToken:
			name := tagName(token[len("<"):])
			if raw = htmltext.IsSource(name); raw {
				continue
			}
			end = to
			foreign = foreign || strings.EqualFold(name, "svg") || strings.EqualFold(name, "math")
			if strings.EqualFold(name, "a") && len(h.links) < MaxLinks {
				h.addLink(token, from)
			}
		}
	}
	switch {
	case body >= 0:
		h.pixel = body
	case root >= 0:
		h.pixel = root
	default:
		h.pixel = end
	}
	h.links = slices.Clip(h.links)
}

// masked returns the source with digits in place of placeholders, so that what is in a fallback is no markup.
func (h *HTML) masked() string {
	if len(h.slots) == 0 {
		return h.source
	}
	masked := []byte(h.source)
	for i := range h.slots {
		for k := h.slots[i].start; k < h.slots[i].end; k++ {
			masked[k] = '0'
		}
	}
	return string(masked)
}

// addLink adds the link of the <a> tag that is at an index of the source, if it is one.
func (h *HTML) addLink(tag string, at int) {
	start, end, ok := hrefOf(tag)
	if !ok {
		return
	}
	l := link{start: at + start, end: at + end}
	if len(h.slots) > 0 {
		l.from, _ = slices.BinarySearchFunc(h.slots, l.start, func(s slot, at int) int { return s.start - at })
		l.to = l.from
	}
	for l.to < len(h.slots) && h.slots[l.to].end <= l.end {
		if h.slots[l.to].name == UnsubscribeURL {
			return
		}
		l.to++
	}
	if l.from == l.to {
		if l.target, ok = target(appendUnescaped(nil, []byte(h.source[l.start:l.end]))); !ok {
			return
		}
		h.targetBytes += cap(l.target)
	}
	h.links = append(h.links, l)
}

// tagName is the name that a tag begins with.
func tagName(tag string) string {
	if i := strings.IndexAny(tag, "/> \t\n\f\r"); i >= 0 {
		return tag[:i]
	}
	return tag
}

// hrefOf returns where in a start tag the value of its href is. It reports false if there is none, or if the tag has
// the attribute noTrack. Of several hrefs the first counts (HTML standard, section 13.2.5.33).
func hrefOf(tag string) (start, end int, ok bool) {
	i := len("<") + len(tagName(tag[len("<"):]))
	for {
		name, from, to, next := attribute(tag, i)
		switch {
		case next == i:
			return start, end, ok && start < end
		case strings.EqualFold(name, noTrack):
			return 0, 0, false
		case strings.EqualFold(name, "href") && !ok:
			start, end, ok = from, to, true
		}
		i = next
	}
}

// attribute returns the name of the attribute at tag[i:], where its value is, and where to go on; that is i at the end
// of the tag. It reads as html.Tokenizer does.
func attribute(tag string, i int) (name string, from, to, next int) {
	at := i
	i = skipSpace(tag, i)
	if i == len(tag) || tag[i] == '>' {
		return "", 0, 0, at
	}
	begin := i
	for i < len(tag) && (tag[i] == '=' && i == begin || !isSpace(tag[i]) && strings.IndexByte("=/>", tag[i]) < 0) {
		i++
	}
	name = tag[begin:i]
	i = skipSpace(tag, i)
	switch {
	case i == len(tag):
		return name, i, i, i
	case tag[i] == '/':
		return name, i, i, i + 1
	case tag[i] != '=':
		return name, i, i, i
	}
	i = skipSpace(tag, i+1)
	switch {
	case i == len(tag), tag[i] == '>':
		return name, i, i, i
	case tag[i] == '"', tag[i] == '\'':
		n := strings.IndexByte(tag[i+1:], tag[i])
		if n < 0 {
			return name, len(tag), len(tag), len(tag)
		}
		return name, i + 1, i + 1 + n, i + 1 + n + 1
	}
	from = i
	for i < len(tag) && !isSpace(tag[i]) && tag[i] != '>' {
		i++
	}
	return name, from, i, i
}

func skipSpace(s string, i int) int {
	for i < len(s) && isSpace(s[i]) {
		i++
	}
	return i
}

func isSpace(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\f' || c == '\r' }
