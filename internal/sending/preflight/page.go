package preflight

import (
	"fmt"
	"net/url"
	"slices"
	"strings"

	"golang.org/x/net/html"

	"github.com/postrider/postrider/internal/lib/registrable"
	"github.com/postrider/postrider/internal/mail/htmltext"
)

const (
	// clipped is the HTML size in bytes beyond which Gmail displays only the beginning.
	clipped = 102 << 10
	// maxHTML is the maximum amount of HTML, in bytes, that is checked.
	maxHTML = 2 << 20
	// maxLinkText is the maximum amount of a link's text, in bytes, that is kept.
	maxLinkText = 2 * maxURL
)

// occurrences counts the findings of a check and holds the first distinct examples, at most maxDetails of them.
type occurrences struct {
	n    int
	some []string
}

func (f *occurrences) add(format string, args ...any) {
	f.n++
	if len(f.some) == maxDetails {
		return
	}
	text := printable(fmt.Sprintf(format, args...))
	if text != "" && !slices.Contains(f.some, text) {
		f.some = append(f.some, text)
	}
}

// page holds the findings of all checks that read an email's HTML.
type page struct {
	tracked int // estimated number of bytes that tracking adds to the HTML

	foreignLinks, foreignImages      occurrences
	misleadingTexts, maybeMisleading occurrences
	trackedTexts                     occurrences
	insecure, shortened, nowhere     occurrences
	noAlt, data, missingFiles        occurrences
	dataSize                         int
	dropped                          occurrences

	link          string // the URL of the open link; "" outside of links
	linkHost      string
	linkText      []byte
	linkUntracked bool // whether the open link has the attribute that prevents tracking
}

// read checks an email's HTML, at most its first 2 MiB.
func read(in *Input) *page {
	p := &page{}
	for t := range htmltext.Tokens(in.HTML[:min(len(in.HTML), maxHTML)]) {
		switch t.Kind {
		case html.TextToken:
			if p.link != "" && len(p.linkText) < maxLinkText {
				text := t.Text()
				p.linkText = append(p.linkText, text[:min(len(text), maxLinkText-len(p.linkText))]...)
			}
		case html.StartTagToken:
			p.startTag(in, t)
		case html.EndTagToken:
			if t.Name == "a" {
				p.endLink(in)
			}
		}
	}
	p.endLink(in)
	return p
}

// attributes holds those attributes of a tag that the checks use.
type attributes struct {
	href, src, background, rel, equiv string
	hasHref, hasAlt, noTrack          bool
}

func readAttributes(t htmltext.Token) (a attributes) {
	var seen [7]bool
	first := func(i int) bool {
		before := seen[i]
		seen[i] = true
		return !before
	}
	for name, value := range t.Attributes() {
		switch {
		case name == "href" && first(0):
			a.href, a.hasHref = value, true
		case name == "src" && first(1):
			a.src = value
		case name == "background" && first(2):
			a.background = value
		case name == "rel" && first(3):
			a.rel = value
		case name == "http-equiv" && first(4):
			a.equiv = value
		case name == "alt" && first(5):
			a.hasAlt = true
		case name == "data-postrider-no-track" && first(6):
			a.noTrack = true
		}
	}
	return a
}

func (p *page) startTag(in *Input, t htmltext.Token) {
	switch t.Name {
	case "script", "form", "input", "button", "select", "textarea", "iframe", "frame", "frameset", "object", "embed",
		"applet":
		p.dropped.add("<%s>", t.Name)
	case "a", "area":
		a := readAttributes(t)
		p.endLink(in) // a new link ends the open link, because links cannot be nested
		if a.hasHref {
			p.startLink(in, t.Name, a)
		}
	case "img":
		a := readAttributes(t)
		if !a.hasAlt {
			p.noAlt.add("%s", a.src)
		}
		p.image(in, a.src)
	case "body", "table", "tr", "td", "th":
		if a := readAttributes(t); a.background != "" {
			p.image(in, a.background)
		}
	case "link":
		if a := readAttributes(t); slices.Contains(strings.Fields(strings.ToLower(a.rel)), "stylesheet") {
			p.dropped.add("<link rel=stylesheet> %s", a.href)
		}
	case "meta":
		if a := readAttributes(t); strings.EqualFold(strings.TrimSpace(a.equiv), "refresh") {
			p.dropped.add("<meta http-equiv=refresh>")
		}
	}
}

func (p *page) startLink(in *Input, tag string, a attributes) {
	href := strings.TrimSpace(a.href)
	to := parseTarget(href)
	switch {
	case to.scheme == "javascript":
		p.dropped.add("a link to javascript:")
		return
	case href == "" || href == "#":
		p.nowhere.add("a link with an empty address")
		return
	case strings.HasPrefix(href, "#"):
		return // an anchor within the email
	case to.scheme == "":
		p.nowhere.add("%s", href)
		return
	case to.scheme != "http" && to.scheme != "https":
		return
	case to.host == "" || isLocal(to.host):
		p.nowhere.add("%s", href)
		return
	}
	if to.scheme == "http" {
		p.insecure.add("%s", href)
	}
	org := registrable.Domain(to.host)
	if org != registrable.Domain(in.From.Domain) {
		p.foreignLinks.add("%s", to.host)
		if shorteners[to.host] || shorteners[org] {
			p.shortened.add("%s", href)
		}
	}
	if in.Sender.Tracking.Clicks && !a.noTrack {
		p.tracked += tokenSize(in.Sender.Tracking.Host, len(href))
	}
	if tag == "a" {
		p.link, p.linkHost, p.linkText, p.linkUntracked = href, to.host, p.linkText[:0], a.noTrack
	}
}

// tokenSize estimates the number of bytes that tracking adds to a link. The token of a tracked link contains the URL
// and about 40 more bytes, in base64.
func tokenSize(host string, href int) int {
	return len("https://") + len(host) + len("/c/") + (href+40)*4/3 - href
}

// endLink checks the text of the open link, if a link is open.
func (p *page) endLink(in *Input) {
	if p.link == "" {
		return
	}
	link, host, untouched := p.link, p.linkHost, p.linkUntracked
	p.link = ""
	text, bare := shownHost(string(p.linkText))
	if text == "" {
		return
	}
	shownOrg := registrable.Domain(text)
	switch {
	case shownOrg != registrable.Domain(host):
		found := &p.misleadingTexts
		if bare {
			found = &p.maybeMisleading
		}
		found.add("%s leads to %s", strings.TrimSpace(string(p.linkText)), link)
	case in.Sender.Tracking.Clicks && !untouched && shownOrg != registrable.Domain(in.Sender.Tracking.Host):
		p.trackedTexts.add("%s", strings.TrimSpace(string(p.linkText)))
	}
}

func (p *page) image(in *Input, src string) {
	src = strings.TrimSpace(src)
	from := parseTarget(src)
	switch {
	case from.scheme == "data":
		p.dataSize += len(src)
		p.data.add("%s", src[:min(len(src), 40)])
	case from.scheme == "cid":
		name := strings.Trim(src[len("cid:"):], " <>")
		decoded, err := url.PathUnescape(name) // content ids, RFC 2392 section 2
		if !slices.Contains(in.ContentIDs, name) && (err != nil || !slices.Contains(in.ContentIDs, decoded)) {
			p.missingFiles.add("%s", src)
		}
	case from.scheme == "http" || from.scheme == "https":
		switch {
		case from.host == "" || isLocal(from.host):
			p.nowhere.add("%s", src)
			return
		case from.scheme == "http":
			p.insecure.add("%s", src)
		}
		if registrable.Domain(from.host) != registrable.Domain(in.From.Domain) {
			p.foreignImages.add("%s", from.host)
		}
	case from.scheme == "":
		if src == "" {
			src = "an image with an empty address"
		}
		p.nowhere.add("%s", src)
	}
}

// size compares the HTML size with Gmail's limit.
func (p *page) size(in *Input) Result {
	const id = "html_size"
	n := len(in.HTML)
	switch {
	case n == 0:
		return result(id, Pass, "The email has no HTML.")
	case n > maxHTML:
		return result(id, Warning, "The HTML has %s, and Gmail shows only the first 102 KB. Only the first 2 MB were "+
			"checked. Shorten it, and link to the rest.", kilobytes(n))
	case n > clipped:
		return result(id, Warning, "The HTML has %s, and Gmail shows only the first 102 KB: the end, often the link to "+
			"unsubscribe, is cut off. Shorten it, by moving styles out of attributes for example.", kilobytes(n))
	case n+p.tracked > clipped:
		return result(id, Warning, "The HTML has %s, and about %s with its tracked links, of which Gmail shows only the "+
			"first 102 KB. Shorten it, or track fewer links.", kilobytes(n), kilobytes(n+p.tracked))
	}
	return result(id, Pass, "The HTML has %s; Gmail shows all of it.", kilobytes(n+p.tracked))
}

// results returns the results of the checks that read HTML tags.
func (p *page) results(in *Input) []Result {
	org := registrable.Domain(in.From.Domain)
	return []Result{
		p.dropped.result("html_tags", Warning, "Mail programs drop %s that the HTML has. Leave out scripts, forms, frames "+
			"and external style sheets; write styles into the email, and link to a page for the rest.",
			"%d element", "The HTML has no elements that mail programs drop."),
		p.texts(),
		p.foreignLinks.result("link_hosts", Warning, "The HTML has %s to hosts outside of "+org+". Filters trust links to "+
			"the sender's own domain more: link to pages there where you can.", "%d link",
			"All links lead to "+org+" or below it."),
		p.insecure.result("link_http", Warning,
			"The HTML has %s with http:, which browsers warn of and mail programs do not "+
				"load. Write https:.", "%d address", "No link or image begins with http:."),
		p.shortened.result("link_shortener", Problem,
			"The HTML has %s through public link shorteners, which filters block "+
				"because they hide the target. Link to the page itself.", "%d link", "No link goes through a link shortener."),
		p.nowhere.result("link_target", Problem,
			"The HTML has %s leading nowhere outside of your own network. An email has "+
				"no address of its own: write whole addresses that begin with https:.", "%d address",
			"All links and images have whole addresses."),
		p.noAlt.result("image_alt", Warning,
			"The HTML has %s without a text for readers who do not see them. Give each an "+
				`alt attribute; alt="" for decoration.`, "%d image", "All images have an alternative text."),
		p.foreignImages.result("image_hosts", Info,
			"The HTML loads %s from hosts outside of "+org+". Serve them from a host "+
				"of your own, whose reputation is yours.", "%d image", "All images come from "+org+" or with the email."),
		p.inline(),
	}
}

// result returns the result of a check, which passes if it has no findings. The parameter things is a format for the
// number of findings and a singular noun, such as "%d image". The formatted string, in the plural if necessary, is
// inserted into the parameter format.
func (f *occurrences) result(id string, level Level, format, things, pass string) Result {
	if f.n == 0 {
		return result(id, Pass, "%s", pass)
	}
	things = fmt.Sprintf(things, f.n)
	if f.n > 1 {
		things += plural(things)
	}
	return result(id, level, format, things).with(f.some...)
}

func plural(noun string) string {
	if strings.HasSuffix(noun, "s") {
		return "es"
	}
	return "s"
}

// texts checks whether links lead to the hosts that their texts show.
func (p *page) texts() Result {
	const id = "link_text"
	switch {
	case p.misleadingTexts.n > 0:
		return result(id, Problem,
			"The text of a link shows the address of another site than the one that it leads to, as "+
				"in fraud. Write words, or the address that the link has.").
			with(append(p.misleadingTexts.some, p.maybeMisleading.some...)...)
	case p.maybeMisleading.n > 0:
		return result(id, Warning,
			"The text of a link is the name of another site than the one that it leads to. If it is "+
				"meant as an address, link there; otherwise write more words.").with(p.maybeMisleading.some...)
	case p.trackedTexts.n > 0:
		return result(id, Warning,
			"The text of a link shows an address, and the link will lead through the host of tracked "+
				"links, as in fraud. Write words, or give the link the attribute data-postrider-no-track.").
			with(p.trackedTexts.some...)
	}
	return result(id, Pass, "No link shows the address of another site than its own.")
}

// inline checks whether the images that are attached to the email can be displayed.
func (p *page) inline() Result {
	const id = "image_inline"
	switch {
	case p.missingFiles.n > 0:
		return result(id, Problem,
			"The HTML shows images by cid: that are not attached. Attach them with that `content_id`.").
			with(p.missingFiles.some...)
	case p.data.n > 0:
		return result(id, Warning,
			"The HTML has %s of images in data: addresses, which Gmail and others do not show. Attach "+
				"them with a `content_id` and show them as cid:, or serve them over https:.", kilobytes(p.dataSize)).
			with(p.data.some...)
	}
	return result(id, Pass, "No image is in a data: address.")
}
