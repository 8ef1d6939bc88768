package docsite

import (
	"path"
	"regexp"
	"strings"
)

// listed matches an item of the list of pages in docs/README.md: a link to a document, and a summary.
var listed = regexp.MustCompile(`^- \[([^\]]+)\]\(([^)#\s]+\.md)\)(?:: (.*))?$`)

// parseNavigation returns the sections of docs/README.md. A heading of the second level begins a section, and a line
// that ends with a colon begins a group. A section may be without pages: other packages may add some.
func parseNavigation(text string) (all []section) {
	inGroup := ""
	var last *page // whose summary may go on in the next line
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if title, ok := strings.CutPrefix(line, "## "); ok {
			all, inGroup, last = append(all, section{title: title}), "", nil
			continue
		}
		if len(all) == 0 {
			continue
		}
		s := &all[len(all)-1]
		m := listed.FindStringSubmatch(line)
		switch {
		case m != nil:
			source := path.Join("docs", m[2])
			last = &page{Page: Page{Path: pathOf(source), Summary: m[3]}, source: source}
			if !strings.HasSuffix(m[1], ".md") {
				last.Label = m[1]
			}
			g := s.group(inGroup)
			g.pages = append(g.pages, last)
		case last != nil && strings.HasPrefix(line, "  "):
			last.Summary = strings.TrimSpace(last.Summary + " " + strings.TrimSpace(line))
		case strings.HasSuffix(line, ":"):
			inGroup, last = strings.TrimSuffix(line, ":"), nil
		default:
			last = nil
		}
	}
	return all
}

// link is a link to a page.
type link struct {
	Label, Href string
	Current     bool
}

// navigationSection is a section of the navigation as a page shows it.
type navigationSection struct {
	Title  string
	Open   bool
	Groups []navigationGroup
}

type navigationGroup struct {
	Title string
	Links []link
}

// navigation returns the navigation beside a page. The section of the page is open, and on the home page, the first two
// sections are.
func (v *view) navigation() (all []navigationSection) {
	for i, s := range v.all.sections {
		n := navigationSection{Title: s.title, Open: s.title == v.page.Section || v.page.number == 0 && i < 2}
		for _, g := range s.groups {
			shown := navigationGroup{Title: g.title}
			for _, p := range g.pages {
				shown.Links = append(shown.Links, link{p.Label, v.href(p), p == v.page})
			}
			n.Groups = append(n.Groups, shown)
		}
		all = append(all, n)
	}
	return all
}

// neighbours returns the links to the pages before and after a page, or nil.
func (v *view) neighbours() (previous, next *link) {
	if n := v.page.number; n > 0 {
		p := v.all.pages[n-1]
		previous = &link{Label: p.Label, Href: v.href(p)}
	}
	if n := v.page.number + 1; n < len(v.all.pages) {
		p := v.all.pages[n]
		next = &link{Label: p.Label, Href: v.href(p)}
	}
	return previous, next
}
