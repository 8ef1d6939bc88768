package docsite

import (
	"bytes"
	"fmt"
	"html/template"
	"strconv"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	extast "github.com/yuin/goldmark/extension/ast"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/text"
	"github.com/yuin/goldmark/util"
)

// document is a Markdown document as it is shown.
type document struct {
	title    string
	body     template.HTML
	headings []Heading
	parts    []part
}

// part is the text below a heading, for the search. The first part is the text below the title.
type part struct {
	Heading
	text string
}

// markdown parses documents, and renders them for a view.
func (v *view) markdown() goldmark.Markdown {
	return goldmark.New(goldmark.WithExtensions(extension.Table, extension.Strikethrough, extension.Linkify),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(&elements{view: v}, 100))))
}

// render renders a Markdown document.
func (v *view) render(source string) (document, error) {
	var d document
	raw := []byte(source)
	md := v.markdown()
	root := md.Parser().Parse(text.NewReader(raw))
	d.parts = append(d.parts, part{})
	ids := map[string]int{}
	tables := 0
	err := ast.Walk(root, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			h := Heading{Level: n.Level, Text: plainText(n, raw)}
			h.ID = anchor(h.Text, ids)
			n.SetAttributeString("id", []byte(h.ID))
			if n.Level == 1 {
				d.title, d.parts[0].Text = h.Text, h.Text
			} else {
				d.headings = append(d.headings, h)
				d.parts = append(d.parts, part{Heading: h})
			}
			return ast.WalkContinue, nil
		case *ast.Link:
			n.Destination = []byte(v.resolve(string(n.Destination)))
		case *ast.Image:
			n.Destination = []byte(v.resolve(string(n.Destination)))
		case *extast.Table:
			tables++
			n.SetAttributeString("number", []byte(strconv.Itoa(tables)))
		case *ast.Paragraph, *ast.TextBlock, *ast.FencedCodeBlock, *ast.CodeBlock, *extast.TableCell:
			last := &d.parts[len(d.parts)-1]
			last.text += plainText(n, raw) + "\n"
		}
		return ast.WalkContinue, nil
	})
	if err != nil {
		return d, fmt.Errorf("read a document: %w", err)
	}
	var b bytes.Buffer
	if err := md.Renderer().Render(&b, raw, root); err != nil {
		return d, fmt.Errorf("render a document: %w", err)
	}
	d.body = template.HTML(b.String())
	return d, nil
}

// plainText returns the text of a node without markup.
func plainText(n ast.Node, source []byte) string {
	var b strings.Builder
	if n.Type() == ast.TypeBlock && n.ChildCount() == 0 {
		for i := range n.Lines().Len() {
			line := n.Lines().At(i)
			b.Write(line.Value(source))
		}
		return b.String()
	}
	for c := n.FirstChild(); c != nil; c = c.NextSibling() {
		switch c := c.(type) {
		case *ast.Text:
			value := c.Segment.Value(source)
			if _, code := n.(*ast.CodeSpan); !code {
				value = util.UnescapePunctuations(value)
			}
			b.Write(value)
			if c.SoftLineBreak() || c.HardLineBreak() {
				b.WriteByte(' ')
			}
		case *ast.String:
			b.Write(c.Value)
		case *ast.AutoLink:
			b.Write(c.Label(source))
		default:
			b.WriteString(plainText(c, source))
		}
	}
	return b.String()
}

// anchor returns the id of a heading: that which sites that show repositories give it. The map counts the headings of
// the document with the same text.
func anchor(title string, known map[string]int) string {
	var b strings.Builder
	for _, r := range strings.ToLower(strings.TrimSpace(title)) {
		switch {
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			b.WriteRune(r)
		case r == ' ':
			b.WriteByte('-')
		}
	}
	id := b.String()
	n := known[id]
	known[id]++
	if n > 0 {
		id += "-" + strconv.Itoa(n)
	}
	return id
}

// elements renders the elements that look different from the library's.
type elements struct{ *view }

// RegisterFuncs implements [renderer.NodeRenderer].
func (e *elements) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindHeading, e.heading)
	r.Register(ast.KindFencedCodeBlock, e.code)
	r.Register(ast.KindCodeBlock, e.code)
	r.Register(extast.KindTable, e.table)
	r.Register(ast.KindImage, e.image)
	r.Register(ast.KindRawHTML, e.skip)
	r.Register(ast.KindHTMLBlock, e.skip)
}

// skip leaves out HTML in documents, which is only in comments.
func (e *elements) skip(util.BufWriter, []byte, ast.Node, bool) (ast.WalkStatus, error) {
	return ast.WalkSkipChildren, nil
}

// heading renders a heading with a link to itself.
func (e *elements) heading(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	level := n.(*ast.Heading).Level
	value, _ := n.AttributeString("id")
	id, _ := value.([]byte)
	switch {
	case entering && level == 1:
		w.WriteString("<h1>")
	case entering:
		fmt.Fprintf(w, `<h%d id="%s">`, level, template.HTMLEscapeString(string(id)))
	case level == 1:
		w.WriteString("</h1>\n")
	default:
		fmt.Fprintf(w, `<a class="anchor" href="#%s" aria-label="Link to this section">#</a></h%d>`+"\n",
			template.HTMLEscapeString(string(id)), level)
	}
	return ast.WalkContinue, nil
}

// table renders a table in a box that scrolls, because a page must not scroll sideways.
func (e *elements) table(w util.BufWriter, _ []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		number, _ := n.AttributeString("number")
		fmt.Fprintf(w, `<div class="wide-table" tabindex="0" role="region" aria-label="Table %s"><table>`+"\n", number)
	} else {
		w.WriteString("</table></div>\n")
	}
	return ast.WalkContinue, nil
}

func (e *elements) image(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if entering {
		fmt.Fprintf(w, `<img src="%s" alt="%s" loading="lazy">`,
			template.HTMLEscapeString(string(n.(*ast.Image).Destination)), template.HTMLEscapeString(plainText(n, source)))
	}
	return ast.WalkSkipChildren, nil
}

// code renders a block of code with a button that copies it.
func (e *elements) code(w util.BufWriter, source []byte, n ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	language := ""
	if f, ok := n.(*ast.FencedCodeBlock); ok {
		language = string(f.Language(source))
	}
	shown, note := e.ownValues(plainText(n, source))
	w.WriteString(string(codeBlock(language, string(shown))))
	w.WriteString(string(note))
	return ast.WalkContinue, nil
}

// codeBlock returns a block of code with a button that copies it. The code is HTML.
func codeBlock(language, code string) template.HTML {
	return template.HTML(`<div class="code"><header><span class="small quiet">` + template.HTMLEscapeString(language) +
		`</span><button type="button" class="b s" data-copies data-scripted hidden>Copy</button></header><pre><code>` +
		code + "</code></pre></div>\n")
}
