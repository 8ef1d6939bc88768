// Package docsite serves the documentation of the program's own version at /docs, and writes it as static files.
//
// # Invariants
//
// The pages are the Markdown files that the program contains (packages docs and postrider), and pages that other
// packages pass in, such as the API reference and the commands. The list of pages in docs/README.md is the navigation.
// A heading has the same anchor as on sites that show repositories, so that a link in a document works there, too.
// Links to other documents become links to their pages; links to other files of the repository lead to the repository.
//
// Pages need no session and load nothing from elsewhere. A page is rendered when it is first requested. Only compressed
// responses are kept, up to a limit, so that the documentation takes no memory before somebody reads it.
//
// # Failures
//
// A document that the navigation names but the program lacks is a mistake in the source, which a test finds: the first
// request fails with an error. Without the database, pages are served as to guests.
//
// # Out of scope
//
// The package knows no operation of the API and no command. Package wire describes the operations and renders them.
package docsite

import (
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"slices"
	"strings"
	"sync"

	"github.com/postrider/postrider"
	"github.com/postrider/postrider/docs"
	"github.com/postrider/postrider/internal/front/web"
)

// Options describe a site.
type Options struct {
	Version string // of the program

	// Extra returns the pages that are no Markdown files of the repository. A page is shown in the section of the
	// navigation that it names, after the Markdown files of the section. Extra is called once, at the first request.
	Extra func() []Page

	// The other fields are for a site that a node serves.

	Site *web.Site

	// Address returns the base URL that the client of a request should use for the API.
	Address func(r *http.Request) string

	// DevelopmentKey returns the API key of a node for development, or "". Developer reports whether a visitor may see it in
	// examples. Both may be nil.
	DevelopmentKey func() string
	Developer      func(v *web.Visitor) bool
}

// Page is a page that is no Markdown file of the repository.
type Page struct {
	Path    string // below /docs/, such as "cli/serve"
	Title   string
	Label   string // in the navigation; Title if it is ""
	Section string // heading in docs/README.md, such as "Command line"
	Group   string // heading of a group within the section, or ""
	Summary string // one sentence

	// Content returns the page's content. It is called each time that the page is rendered.
	Content func() (Content, error)
}

// Content is the content of a page.
type Content struct {
	// Markdown is the page as a Markdown document that begins with its title. Links are relative to the page's path.
	Markdown string

	// HTML is shown instead of the Markdown if it is not "". Then, Headings are its headings in their order, and a search
	// finds only these. HTML does not contain the page's title.
	HTML     template.HTML
	Headings []Heading
}

// Heading is a heading of a page.
type Heading struct {
	Level int // from 2
	ID    string
	Text  string

	// Words are further words by which a search finds the heading of a page in HTML.
	Words string
}

// page is a page of the site.
type page struct {
	Page
	source string // path in the repository, or "" for a page that has none
	number int    // in the order of the navigation
}

// section is a section of the navigation.
type section struct {
	title  string
	groups []group
}

type group struct {
	title string
	pages []*page
}

// contents are all pages in their order.
type contents struct {
	sections []section
	pages    []*page // the first one is the home page
	byPath   map[string]*page
	bySource map[string]*page
}

// Docs is the documentation of one version of the program.
type Docs struct {
	o        Options
	contents func() (*contents, error)
	kept     cache
}

// New returns the documentation.
func New(o Options) *Docs {
	d := &Docs{o: o}
	d.contents = sync.OnceValues(d.arrange)
	return d
}

// Titles returns the pages of the site, except for those of the API reference and about the source. Their paths are the
// addresses at which a node serves them.
func (d *Docs) Titles() (all []Page, err error) {
	c, err := d.contents()
	if err != nil {
		return nil, err
	}
	for _, p := range c.pages {
		if p.number > 0 && p.forReaders() && p.Section != apiSection {
			all = append(all, Page{Title: p.Title, Section: p.Section, Path: Root + "/" + p.Path})
		}
	}
	return all, nil
}

// read returns a document of the repository.
func read(source string) (string, error) {
	var files fs.FS = postrider.Files
	name := source
	if below, ok := strings.CutPrefix(source, "docs/"); ok {
		files, name = docs.Files, below
	}
	text, err := fs.ReadFile(files, name)
	if err != nil {
		return "", fmt.Errorf("read the document %s: %w", source, err)
	}
	return string(text), nil
}

// home is the document with the list of all pages.
const home = "docs/README.md"

// pathOf returns the path of the page that is made of a document.
func pathOf(source string) string {
	switch source {
	case home:
		return ""
	case "README.md":
		return "introduction"
	}
	name := strings.TrimPrefix(source, "docs/")
	if dir, ok := strings.CutSuffix(name, "/README.md"); ok {
		return dir
	}
	return strings.ToLower(strings.TrimSuffix(name, ".md"))
}

// Sections of the navigation that the program treats differently from others.
const (
	guides       = "Guides"
	apiSection   = "API reference"
	cliSection   = "Command line"
	operators    = "Operator's handbook"
	contributors = "Contributing"
	changes      = "Changelog"
)

// arrange puts all pages in the order of docs/README.md.
func (d *Docs) arrange() (*contents, error) {
	list, err := read(home)
	if err != nil {
		return nil, err
	}
	c := &contents{byPath: map[string]*page{}, bySource: map[string]*page{}}
	first := &page{Page: Page{Title: "Documentation", Label: "Overview"}, source: home}
	if err := c.add(first, nil); err != nil {
		return nil, err
	}
	c.sections = parseNavigation(list)
	unlisted, err := c.unlisted()
	if err != nil {
		return nil, err
	}
	extra := d.o.Extra()
	for i := range c.sections {
		s := &c.sections[i]
		if s.title == guides {
			s.group("").pages = append(s.group("").pages, unlisted...)
		}
		for _, e := range extra {
			if e.Section == s.title {
				s.group(e.Group).pages = append(s.group(e.Group).pages, &page{Page: e})
			}
		}
		for j := range s.groups {
			for _, p := range s.groups[j].pages {
				if err := c.add(p, s); err != nil {
					return nil, err
				}
			}
		}
	}
	c.sections = slices.DeleteFunc(c.sections, func(s section) bool { return len(s.groups) == 0 })
	for _, e := range extra {
		if c.byPath[e.Path] == nil {
			return nil, fmt.Errorf("%s lacks the section %q of the page %s", home, e.Section, e.Path)
		}
	}
	return c, nil
}

// add adds a page of a section. The titles of Markdown documents are read from them.
func (c *contents) add(p *page, s *section) error {
	if c.byPath[p.Path] != nil {
		return fmt.Errorf("two pages of the documentation have the path %q", p.Path)
	}
	if p.source != "" && p.Title == "" {
		text, err := read(p.source)
		if err != nil {
			return err
		}
		p.Title = titleOf(text)
	}
	if p.Label == "" {
		p.Label = p.Title
	}
	if s != nil {
		p.Section = s.title
	}
	p.number = len(c.pages)
	c.pages = append(c.pages, p)
	c.byPath[p.Path] = p
	if p.source != "" {
		c.bySource[p.source] = p
	}
	return nil
}

// unlisted returns pages for guides that docs/README.md does not name. A test demands that it names all documents, but
// a reader should not miss one.
func (c *contents) unlisted() (all []*page, err error) {
	named := map[string]bool{}
	for _, s := range c.sections {
		for _, g := range s.groups {
			for _, p := range g.pages {
				named[p.source] = true
			}
		}
	}
	files, err := fs.ReadDir(docs.Files, "guides")
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list the guides: %w", err)
	}
	for _, f := range files {
		if source := "docs/guides/" + f.Name(); path.Ext(source) == ".md" && !named[source] {
			all = append(all, &page{Page: Page{Path: pathOf(source)}, source: source})
		}
	}
	return all, nil
}

// group returns the group with a title, which it adds if there is none.
func (s *section) group(title string) *group {
	for i := range s.groups {
		if s.groups[i].title == title {
			return &s.groups[i]
		}
	}
	s.groups = append(s.groups, group{title: title})
	return &s.groups[len(s.groups)-1]
}

// titleOf returns the title of a Markdown document.
func titleOf(text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return strings.TrimPrefix(first, "# ")
}
