package render

import (
	"bytes"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"github.com/postrider/postrider/internal/mail/htmltext"
)

// Limits for the links that can be replaced with tracked links. Links that exceed the limits stay unchanged.
const (
	MaxLinks  = 1000 // of one text
	MaxTarget = 6000 // bytes
)

// noTrack is the attribute of an <a> element that excludes its link from tracking.
const noTrack = "data-postrider-no-track"

// HTML is compiled HTML with the positions of its links and of the tracking pixel. The positions are determined once,
// before placeholders are filled, so that no value can create a link. A link is the href attribute of an <a> element
// whose target is an absolute http or https URL after placeholders are filled and character references are replaced.
//
// Other targets are not links: mailto: and tel: URLs, anchors, and relative URLs. The unsubscribe URL and the href of a
// tag with the attribute data-postrider-no-track are not links either. Links in comments, including conditional
// comments, and in raw text elements such as script, style and textarea are ignored. In SVG and MathML, parsers could
// interpret raw text elements and CDATA sections differently, so all links after such an element or section are
// ignored.
type HTML struct {
	Template
	links       []link
	pixel       int // position in the source at which the tracking pixel is inserted
	targetBytes int // total size, in bytes, of the targets of all links
}

// link is an href attribute with the value source[start:end], which contains the placeholders slots[from:to]. The
// target of a link without placeholders is known before filling.
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

// LiteralHTML parses HTML in which braces are ordinary text.
func LiteralHTML(source string) *HTML {
	h := &HTML{Template: Template{source: source, form: markup}}
	h.scan()
	return h
}

// Links returns the number of possible links. Links also counts href attributes with placeholders, which may turn out
// not to be links after filling.
func (h *HTML) Links() int { return len(h.links) }

// TargetBytes returns the memory in bytes that the links' targets occupy.
func (h *HTML) TargetBytes() int { return h.targetBytes }

// Estimated number of output bytes for each replaced link and for the tracking pixel. If the output needs more bytes
// than estimated, its buffer grows.
const (
	spaceForLink  = 256
	spaceForPixel = 512
)

// Track fills the placeholders like Fill and also replaces the links. For each link, Track calls the function link,
// which appends the new href value to dst, or returns false to keep the original value. The new href value must not
// need quotes or character references, and the function link must not retain target. Before the end of the body, Track
// calls the function pixel, which appends an element. The functions link and pixel may be nil. The number of Track's
// memory allocations does not depend on the number of links.
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

// trackWriter is the state of Track after it has processed source[:at] and slots[:slot].
type trackWriter struct {
	h        *HTML
	values   Values
	out      *strings.Builder
	at, slot int
	filled   bytes.Buffer // an href
	resolved []byte       // the target URL of the filled href
	dst      []byte       // the inserted text
}

// copy writes the filled source up to the given position.
func (f *trackWriter) copy(to int) {
	f.slot = f.h.write(f.out, f.values, markup, f.at, to, f.slot)
	f.at = to
}

func (f *trackWriter) insert(at int, what func(dst []byte) []byte) {
	f.copy(at)
	f.dst = what(f.dst[:0])
	f.out.Write(f.dst)
}

// link writes the source up to a link, and then the original or the replaced link.
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

// scan finds the links and the position for the tracking pixel.
func (h *HTML) scan() {
	source := h.masked()
	var (
		z       = htmltext.NewScanner(source)
		before  = 0     // position after the previous token
		end     = 0     // last position outside comments and raw text, at which the pixel can be inserted
		body    = -1    // position of the last </body>
		root    = -1    // position of the last </html>
		foreign = false // whether an SVG or MathML element was found
		raw     = false // whether the last start tag begins a raw text element
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
				// In SVG and MathML, the text after a raw text element's tag is not raw text, and may begin a comment
				// that ends in a later token.
				if foreign && strings.Contains(token, "<") {
					break tokens
				}
				continue
			}
			end = to - len(token) + len(strings.TrimSuffix(token, "</")) // a tag that is inserted after "</" would complete it
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

// masked returns the source with each placeholder replaced by digits, so that fallbacks are not parsed as markup.
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

// addLink adds the link of an <a> tag, if the tag has one. The parameter at is the tag's position in the source.
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

// tagName returns the element name at the start of a tag without its brackets.
func tagName(tag string) string {
	if i := strings.IndexAny(tag, "/> \t\n\f\r"); i >= 0 {
		return tag[:i]
	}
	return tag
}

// hrefOf returns the position of the href value in a start tag. If the tag has no href value, or if it has the
// attribute noTrack, hrefOf returns false. If a tag has several href attributes, the first one counts (HTML standard,
// section 13.2.5.33).
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

// attribute returns the name of the attribute that starts at tag[i:], the position of its value, and the position after
// the attribute. At the end of the tag, attribute returns i as the position after the attribute. The parsing rules of
// attribute are those of html.Tokenizer.
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
