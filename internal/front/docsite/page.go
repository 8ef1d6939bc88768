package docsite

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"sync"
)

//go:embed page.html
var pageHTML string

var pageTemplate = sync.OnceValues(func() (*template.Template, error) {
	return template.New("page").Parse(pageHTML)
})

// pageData is what the template shows.
type pageData struct {
	*view
	Title, Version string
	Home           bool
	Body           template.HTML
	Contents       []Heading
	Navigation     []navigationSection
	Previous, Next *link
}

// html returns a page.
func (v *view) html() ([]byte, error) {
	doc, err := v.rendered()
	if err != nil {
		return nil, err
	}
	data := pageData{view: v, Title: doc.title, Version: v.d.o.Version, Home: v.page.number == 0, Body: doc.body,
		Navigation: v.navigation()}
	data.Previous, data.Next = v.neighbours()
	for _, h := range doc.headings {
		if h.Level <= 3 {
			data.Contents = append(data.Contents, h)
		}
	}
	t, err := pageTemplate()
	if err != nil {
		return nil, fmt.Errorf("parse the template of the documentation: %w", err)
	}
	var b bytes.Buffer
	if err := t.Execute(&b, data); err != nil {
		return nil, fmt.Errorf("render the page %s of the documentation: %w", v.page.Path, err)
	}
	return b.Bytes(), nil
}

// content returns the content of the page.
func (v *view) content() (Content, error) {
	if v.page.source == "" {
		return v.page.Content()
	}
	text, err := read(v.page.source)
	return Content{Markdown: text}, err
}

// rendered returns the page's document.
func (v *view) rendered() (document, error) {
	content, err := v.content()
	if err != nil {
		return document{}, err
	}
	doc, err := v.render(content.Markdown)
	if err != nil {
		return doc, err
	}
	if doc.title == "" {
		doc.title = v.page.Title
	}
	if content.HTML != "" {
		doc.headings, doc.parts = content.Headings, doc.parts[:1]
		for _, h := range content.Headings {
			doc.parts = append(doc.parts, part{Heading: h, text: h.Words})
		}
		doc.body = "<h1>" + template.HTML(template.HTMLEscapeString(doc.title)) + "</h1>\n" + content.HTML
	}
	return doc, nil
}

// Icon returns an icon, which screen readers skip.
func (v *view) Icon(name string) template.HTML {
	return template.HTML(`<svg class="i" aria-hidden="true"><use href="` + v.Asset("icons.svg") + "#" +
		template.HTMLEscapeString(name) + `"/></svg>`)
}

// Theme returns the visitor's choice, light or dark, or "" for that of the system.
func (v *view) Theme() string { return v.theme }

// Static reports whether the page is a file of a site without a node.
func (v *view) Static() bool { return v.static }

// SignedIn reports whether the visitor is signed in.
func (v *view) SignedIn() bool { return v.signedIn }

// Here is the address of the page, Start that of the first page, and Base that of the folder with all pages.
func (v *view) Here() string  { return v.href(v.page) }
func (v *view) Start() string { return v.href(v.all.pages[0]) }
func (v *view) Base() string  { return v.file("") }

// Ending is the end of the addresses of pages.
func (v *view) Ending() string {
	if v.static {
		return ".html"
	}
	return ""
}

// Index is the address of the index for the search.
func (v *view) Index() string { return v.file(indexFile) }

// Document is the address of the page as a Markdown document.
func (v *view) Document() string { return v.document(v.page) }

// Edit is the address at which the source of the page can be changed, or "".
func (v *view) Edit() string {
	if v.page.source == "" {
		return ""
	}
	return v.d.inRepository("edit", v.page.source)
}

// Section is the section of the page, or "".
func (v *view) Section() string { return v.page.Section }

// Label is the page's name in the navigation.
func (v *view) Label() string { return v.page.Label }
