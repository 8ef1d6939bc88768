package docsite

import (
	"fmt"
	"regexp"
	"strings"
)

// markdownLink matches the destination of a link or a picture in a Markdown document.
var markdownLink = regexp.MustCompile(`\]\(([^()\s]+)\)`)

// markdownText returns the page as a Markdown document, whose links lead to other documents.
func (v *view) markdownText() ([]byte, error) {
	content, err := v.content()
	if err != nil {
		return nil, err
	}
	return []byte(v.withLinks(content.Markdown)), nil
}

// withLinks returns a Markdown document with links that work at the address of the page. Code stays as it is.
func (v *view) withLinks(text string) string {
	var b strings.Builder
	inCode := false
	for line := range strings.Lines(text) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			inCode = !inCode
		}
		if !inCode {
			line = markdownLink.ReplaceAllStringFunc(line, func(l string) string {
				return "](" + v.resolve(l[2:len(l)-1]) + ")"
			})
		}
		b.WriteString(line)
	}
	return b.String()
}

// about introduces the documentation to programs.
const about = "Postrider is an email platform that people run themselves: one Go program that sends and receives " +
	"email, with an API that is wire-compatible with Resend's."

// forReaders reports whether a page is about using the program, not about its source or its history.
func (p *page) forReaders() bool { return p.Section != contributors && p.Section != changes }

// list returns the list of all documents for language models, in the form that llmstxt.org describes.
func (v *view) list() ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# Postrider\n\n> %s\n\nThis is the documentation of version %s. Each page is a Markdown document. "+
		"The file %s has the pages for users and operators in one.\n", about, v.d.o.Version, v.address+v.top(wholeFile))
	for _, s := range v.all.sections {
		title := s.title
		if s.title == contributors || s.title == changes {
			title = "Optional: " + s.title
		}
		fmt.Fprintf(&b, "\n## %s\n\n", title)
		for _, g := range s.groups {
			for _, p := range g.pages {
				fmt.Fprintf(&b, "- [%s](%s%s)", p.Title, v.address, v.document(p))
				if p.Summary != "" {
					b.WriteString(": " + markdownLink.ReplaceAllString(p.Summary, "]"))
				}
				b.WriteByte('\n')
			}
		}
	}
	return []byte(b.String()), nil
}

// top returns the address of a file beside the documentation.
func (v *view) top(name string) string {
	if v.static {
		return name
	}
	return "/" + name
}

// whole returns all pages for users and operators as one document.
func (v *view) whole() ([]byte, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "# Postrider %s\n\n%s\n", v.d.o.Version, about)
	for _, p := range v.all.pages {
		if !p.forReaders() {
			continue
		}
		one := *v
		one.page, one.documents, one.atTop = p, true, true
		text, err := one.markdownText()
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&b, "\n---\n\nPage: %s\n\n%s", one.document(p), text)
	}
	return []byte(b.String()), nil
}
