package mailparse

import (
	"regexp"
	"strings"
	"unicode/utf8"

	"golang.org/x/net/html"

	"github.com/postrider/postrider/internal/mail/htmltext"
)

const (
	maxLinks    = 500
	maxLinkURL  = 8 << 10 // bytes; longer URLs are left out
	maxLinkText = 200     // bytes
)

// Link is a link to a web page.
type Link struct {
	URL  string
	Text string // text of the link in the HTML, at most maxLinkText bytes; may be empty
}

var textLink = regexp.MustCompile(`https?://[^\s<>"\x60]+`)

// Links returns the http and https links in the HTML, and then those that occur only in the plain text. Each URL is
// returned once. Links returns at most maxLinks links.
func (p *Parsed) Links() (links []Link) {
	seen := map[string]int{} // index in links
	add := func(url string) (index int) {
		url = strings.TrimSpace(url)
		lower := strings.ToLower(url[:min(len(url), len("https://"))])
		if !strings.HasPrefix(lower, "http://") && !strings.HasPrefix(lower, "https://") || len(url) > maxLinkURL {
			return -1
		}
		if i, ok := seen[url]; ok {
			return i
		}
		if len(links) == maxLinks {
			return -1
		}
		seen[url] = len(links)
		links = append(links, Link{URL: url})
		return len(links) - 1
	}
	open := -1 // index of the link whose text is being read
	for t := range htmltext.Tokens(p.HTML()) {
		switch {
		case t.Kind == html.StartTagToken && (t.Name == "a" || t.Name == "area"):
			open = -1
			for name, value := range t.Attributes() {
				if name == "href" {
					if i := add(value); i >= 0 && t.Name == "a" && links[i].Text == "" {
						open = i
					}
					break
				}
			}
		case t.Kind == html.EndTagToken && t.Name == "a":
			open = -1
		case t.Kind == html.TextToken && open >= 0 && len(links[open].Text) < maxLinkText:
			links[open].Text = linkText(links[open].Text, t.Text())
		}
	}
	text := p.Text()
	for at := 0; len(links) < maxLinks; {
		m := textLink.FindStringIndex(text[at:])
		if m == nil {
			break
		}
		add(strings.TrimRight(text[at+m[0]:at+m[1]], ".,;:!?)]}'*_"))
		at += m[1]
	}
	return links
}

// linkText appends a piece of text to the text of a link, with single spaces between words.
func linkText(before, more string) string {
	text := strings.Join(strings.Fields(before+" "+more[:min(len(more), 4*maxLinkText)]), " ")
	if len(text) > maxLinkText {
		n := maxLinkText
		for !utf8.RuneStart(text[n]) {
			n--
		}
		text = text[:n]
	}
	return strings.ToValidUTF8(text, "")
}
