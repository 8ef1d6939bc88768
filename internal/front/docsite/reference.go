package docsite

import (
	"fmt"
	"strings"
	"sync"
	"weak"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
)

// API describes the operations of the API. *wire.Server implements it.
type API interface {
	Sections() []wire.Section
	ReferenceGroups() ([]wire.ReferenceGroup, error)
}

// operations holds the description of the API between two requests, for as long as the garbage collector lets it. It
// takes long to make and much memory, and the index for the search needs it for each group.
type operations struct {
	api API

	mu   sync.Mutex
	kept weak.Pointer[[]wire.ReferenceGroup]
}

// group returns the group with an id.
func (o *operations) group(id string) (*wire.ReferenceGroup, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := o.kept.Value()
	if all == nil {
		groups, err := o.api.ReferenceGroups()
		if err != nil {
			return nil, err
		}
		all = &groups
		o.kept = weak.Make(all)
	}
	for i := range *all {
		if g := &(*all)[i]; g.ID == id {
			return g, nil
		}
	}
	return nil, fault.NotFoundf("The API reference has no group %s.", id)
}

// referencePath is the path of the pages of the API reference.
const referencePath = "api"

// Reference returns the pages of the API reference: one for each group of operations, and one that lists them. If tryIt
// is true, readers can send requests from the pages.
func Reference(a API, tryIt bool) []Page {
	all := []Page{{Path: referencePath, Title: "API reference", Label: "All operations", Section: apiSection,
		Summary: "all operations of the API", Content: func() (Content, error) {
			return Content{Markdown: listOfOperations(a.Sections())}, nil
		}}}
	of := &operations{api: a}
	for _, s := range a.Sections() {
		if s.Detail != "" {
			continue
		}
		path := strings.TrimPrefix(s.Path, Root+"/")
		id := strings.TrimPrefix(path, referencePath+"/")
		all = append(all, Page{Path: path, Title: s.Title, Section: apiSection,
			Summary: "the operations of the group " + s.Title + ", with examples",
			Content: func() (Content, error) { return of.content(id, tryIt) }})
	}
	return all
}

// listOfOperations returns the first page of the API reference.
func listOfOperations(sections []wire.Section) string {
	var b strings.Builder
	b.WriteString(`# API reference

Send the header ` + "`Authorization: Bearer re_…`" + ` with each request. Requests and responses are JSON. Errors have the
fields ` + "`statusCode`, `name` and `message`" + `. A team may send a limited number of requests in a second. Further
requests are refused with 429 ` + "`rate_limit_exceeded`, and the header `Retry-After`" + ` says when the client may try
again.

Most lists have 20 objects, newest first. The parameter ` + "`limit`" + ` changes the number, up to 100. If ` + "`has_more`" + ` is true,
pass the id of the last object as ` + "`after`" + ` to get the next page. Pass the id of the first object as ` + "`before`" + ` to get
the page before.

The OpenAPI document at ` + "`/openapi.json`" + ` describes the same
operations for programs.
`)
	for _, s := range sections {
		if s.Detail == "" {
			fmt.Fprintf(&b, "\n## %s\n\n| operation | what it does |\n| --- | --- |\n", s.Title)
		} else {
			fmt.Fprintf(&b, "| [`%s`](%s) | %s |\n", s.Detail, s.Path, s.Title)
		}
	}
	return b.String()
}

// content returns the page of a group of operations.
func (o *operations) content(id string, tryIt bool) (c Content, err error) {
	g, err := o.group(id)
	if err == nil {
		c.HTML, err = wire.RenderGroup(g, tryIt)
	}
	if err != nil {
		return Content{}, err
	}
	c.HTML = `<div class="reference">` + c.HTML + "</div>"
	c.Markdown = groupMarkdown(g)
	for i := range g.Operations {
		o := &g.Operations[i]
		c.Headings = append(c.Headings, Heading{Level: 2, ID: o.ID, Text: o.Summary, Words: wordsOf(o)})
	}
	return c, nil
}

// wordsOf returns the words by which a search finds an operation, besides those of its summary.
func wordsOf(o *wire.ReferenceOperation) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s %s %s", o.Method, o.Path, o.Description, o.Repeat)
	for _, list := range [][]wire.ReferenceField{o.PathParams, o.Query, o.Headers, o.Body} {
		for i := range list {
			b.WriteString(" " + list[i].Name)
		}
	}
	return b.String()
}

// groupMarkdown returns the page of a group for programs.
func groupMarkdown(g *wire.ReferenceGroup) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s\n", g.Tag)
	paragraph(&b, g.Description)
	for i := range g.Operations {
		o := &g.Operations[i]
		fmt.Fprintf(&b, "\n## %s\n\n`%s %s`\n", o.Summary, o.Method, o.Path)
		paragraph(&b, strings.TrimSpace(o.Description+" "+o.Repeat))
		if len(o.Scopes) > 0 {
			fmt.Fprintf(&b, "\nScope: `%s`. ", strings.Join(o.Scopes, "`, `"))
		} else {
			b.WriteByte('\n')
		}
		fmt.Fprintf(&b, "Permission of an API key: `%s`.", o.Permission)
		if len(o.Roles) > 0 {
			fmt.Fprintf(&b, " Roles of users: `%s`.", strings.Join(o.Roles, "`, `"))
		}
		if o.Action != "" {
			fmt.Fprintf(&b, " Action in the audit log: `%s`.", o.Action)
		}
		if o.RefusesApps {
			b.WriteString(" OAuth clients cannot use this operation.")
		}
		if o.Idempotent {
			b.WriteString(" The header `Idempotency-Key` makes repetitions safe.")
		}
		b.WriteByte('\n')
		if len(o.Examples) > 0 {
			fmt.Fprintf(&b, "\n```sh\n%s\n```\n", strings.TrimSpace(o.Examples[0].Code))
		}
		fields(&b, "Path parameters", o.PathParams)
		fields(&b, "Query parameters", o.Query)
		fields(&b, "Headers", o.Headers)
		fields(&b, "Body", o.Body)
		fields(&b, fmt.Sprintf("Response %d: %s", o.Status, o.ResponseType), o.Response)
		if o.ResponseExample != "" {
			fmt.Fprintf(&b, "\n```json\n%s\n```\n", strings.TrimSpace(o.ResponseExample))
		}
		if len(o.Errors) > 0 {
			b.WriteString("\nErrors:\n\n")
		}
		for _, e := range o.Errors {
			fmt.Fprintf(&b, "- %d `%s`: %s\n", e.Status, e.Name, e.Cause)
		}
	}
	return b.String()
}

func paragraph(b *strings.Builder, text string) {
	if text != "" {
		b.WriteString("\n" + text + "\n")
	}
}

// fields writes a list of fields, with those of objects below them.
func fields(b *strings.Builder, title string, all []wire.ReferenceField) {
	if len(all) == 0 {
		return
	}
	fmt.Fprintf(b, "\n%s:\n\n", title)
	var list func(all []wire.ReferenceField, indent string)
	list = func(all []wire.ReferenceField, indent string) {
		for i := range all {
			f := &all[i]
			kind := f.Type
			if f.Required {
				kind += ", required"
			}
			if f.Limits != "" {
				kind += ", " + f.Limits
			}
			fmt.Fprintf(b, "%s- `%s` (%s)", indent, f.Name, kind)
			if f.Description != "" {
				b.WriteString(": " + f.Description)
			}
			b.WriteByte('\n')
			list(f.Children, indent+"  ")
		}
	}
	list(all, "")
}
