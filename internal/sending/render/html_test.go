package render_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/postrider/postrider/internal/mail/mailtest"
	"github.com/postrider/postrider/internal/sending/render"
)

const (
	tracked = "https://t.example/c/"
	pixel   = `<img src="https://t.example/o/x">`
)

// track fills HTML with tracked links and returns the result with the links' targets.
func track(h *render.HTML, values render.Values) (text string, targets []string) {
	text = h.Track(values, func(dst, target []byte) ([]byte, bool) {
		targets = append(targets, string(target))
		return fmt.Appendf(dst, "%s%d", tracked, len(targets)), true
	}, func(dst []byte) []byte { return append(dst, pixel...) })
	return text, targets
}

func TestLinks(t *testing.T) {
	for _, c := range []struct {
		html string
		want []string
	}{
		{`<a href="https://a.example/">a</a>`, []string{"https://a.example/"}},
		{`<A HREF='HTTP://a.example/'>a</A>`, []string{"HTTP://a.example/"}},
		{`<a href=https://a.example/x/>a</a>`, []string{"https://a.example/x/"}},
		{`<a/href=https://a.example/x>a</a>`, []string{"https://a.example/x"}},
		{`<a class="b" href = "https://a.example/" href="https://b.example/" id=x>`, []string{"https://a.example/"}},
		{"<a\nhref\t=\n\"\n https://a.exa\nmple/\t?x=y \">", []string{"https://a.example/?x=y"}},
		{`<a title="a > b" href="https://a.example/">`, []string{"https://a.example/"}},
		{`<a title='<a href="https://b.example/">' href="https://a.example/">`, []string{"https://a.example/"}},
		{`<a href="https://a.example/?a=1&amp;b=2&#38;c=3&#x26;d=4&e=5">`,
			[]string{"https://a.example/?a=1&b=2&c=3&d=4&e=5"}},
		{`<a href="https://a.example/?a=1&copy=2&region=3&reg&para;&notit;&semi;&fjlig;&nLt;">`,
			[]string{"https://a.example/?a=1&copy=2&region=3®¶&notit;;fj≪⃒"}},
		{`<a href="&#104;ttps&colon;//a.example">`, []string{"https://a.example"}},
		{`<a href="https://ä.example/ü ö">`, []string{"https://ä.example/ü ö"}},
		{`<svg><a href="https://a.example/"><text>a</text></a></svg><a href="https://b.example/">`,
			[]string{"https://a.example/", "https://b.example/"}},
		{`<svg><title>Logo</title><style>a{}</style></svg><a href="https://b.example/">`, []string{"https://b.example/"}},
		{`<!--[if !mso]><!--><a href="https://a.example/">a</a><!--<![endif]-->`, []string{"https://a.example/"}},

		{`<a href="mailto:a@b.example">`, nil},
		{`<a href="tel:+1">`, nil},
		{`<a href="#top">`, nil},
		{`<a href="/path">`, nil},
		{`<a href="//a.example">`, nil},
		{`<a href="javascript:location='http://a.example'">`, nil},
		{`<a href="ftp://a.example">`, nil},
		{`<a href="https:a.example">`, nil},
		{`<a href="https:\\a.example">`, nil},
		{`<a href="https:///a.example">`, nil},
		{`<a href="https://">`, nil},
		{`<a href="https://a.example/&#1;x">`, nil},
		{`<a href="">`, nil},
		{`<a href>`, nil},
		{`<a name="x">`, nil},
		{`<a href="https://a.example/" data-postrider-no-track>`, nil},
		{`<a DATA-Postrider-No-Track="" href="https://a.example/">`, nil},
		{`<link href="https://a.example/"><area href="https://a.example/"><abbr href="https://a.example/">`, nil},
		{`<!-- <a href="https://a.example/"> -->`, nil},
		{`<!--[if mso]><a href="https://a.example/"><![endif]-->`, nil},
		{`<script>"<a href='https://a.example/'>"</script><style><a href="https://a.example/"></style>`, nil},
		{`<textarea><a href="https://a.example/"></textarea><title><a href="https://a.example/"></title>`, nil},
		{`<noscript><a href="https://a.example/"></noscript><xmp><a href="https://a.example/"></xmp>`, nil},
		{`<plaintext><a href="https://a.example/">`, nil},
		{`<a href="https://a.example/`, nil},
		{`<a href="https://a.example/"`, nil},
		{`<svg><title><!-- </title><a href="https://a.example/"> --></title></svg>`, nil},
		{`<svg><![CDATA[ > <a href="https://a.example/"> ]]></svg>`, nil},
		{`<a href="https://a.example/` + strings.Repeat("x", render.MaxTarget) + `">`, nil},
		{`<a href="{{{URL}}}">`, nil},
	} {
		h := render.LiteralHTML(c.html)
		text, targets := track(h, nil)
		if !slices.Equal(targets, c.want) {
			t.Errorf("%.100s\nhas the links %q, want %q", c.html, targets, c.want)
		}
		if h.Links() != len(c.want) {
			t.Errorf("%.100s\nhas %d links, want %d", c.html, h.Links(), len(c.want))
		}
		if len(c.want) > 0 && !strings.Contains(text, tracked+"1") {
			t.Errorf("%.100s\nbecomes %s", c.html, text)
		}
		if got := h.Fill(render.Values{"URL": "https://v.example"}); got != c.html {
			t.Errorf("%.100s\nis filled as %s", c.html, got)
		}
		sameTree(t, c.html, h)
	}
}

func TestPixel(t *testing.T) {
	for _, c := range []struct{ html, want string }{
		{`<html><body><p>a</p></body></html>`, `<html><body><p>a</p>|</body></html>`},
		{`<p>a</p></BODY ></html>`, `<p>a</p>|</BODY ></html>`},
		{`</body><p>a</p></body>b`, `</body><p>a</p>|</body>b`},
		{`<p>a</p></html><!-- </body> -->`, `<p>a</p>|</html><!-- </body> -->`},
		{`<p>a</p>`, `<p>a</p>|`},
		{`a`, `a|`},
		{`a<`, `a<|`},
		{`a</`, `a|</`},
		{`a<!-- b -->`, `a|<!-- b -->`},
		{`a<!-- </body>`, `a|<!-- </body>`},
		{`a<p title="</body>`, `a|<p title="</body>`},
		{`a<textarea>b</body>`, `a|<textarea>b</body>`},
		{`a<style>b</style>`, `a<style>b</style>|`},
		{`a<script>"</body>"</script><plaintext>b</body>`, `a<script>"</body>"</script>|<plaintext>b</body>`},
		{`<body>a</body><a href="https://a.example">b</a>`, `<body>a|</body><a href="https://t.example/c/1">b</a>`},
	} {
		if text, _ := track(render.LiteralHTML(c.html), nil); text != strings.Replace(c.want, "|", pixel, 1) {
			t.Errorf("%s\nbecomes %s\nwant    %s", c.html, text, c.want)
		}
	}
}

// A link with placeholders is tracked only if its target after filling is an http or https URL.
func TestFilledLinks(t *testing.T) {
	values := render.Values{"URL": "https://v.example/?a=1&amp;b=2", "MAIL": "mailto:a@b.example", "QUOTE": `"><script>`,
		"SPACE": "a b", "REST": "p;x", "EMPTY": "", "AMP": "1&2", render.UnsubscribeURL: "https://u.example"}
	for _, c := range []struct {
		html   string
		want   []string
		filled string
	}{
		{`<a href="{{{URL}}}">{{{URL}}}</a>`, []string{"https://v.example/?a=1&b=2"}, `<a href="|">{{{URL}}}</a>`},
		{`<a href={{{URL}}}>`, []string{"https://v.example/?a=1&b=2"}, `<a href=|>`},
		{`<a href="{{{MAIL}}}">`, nil, `<a href="{{{MAIL}}}">`},
		{`<a href="{{{NONE|https://f.example/?q="a" b>c}}}">`, []string{`https://f.example/?q="a" b>c`}, `<a href="|">`},
		{`<a href='https://a.example/?q={{{QUOTE}}}&amp;b={{{SPACE}}}'>{{{SPACE}}}`,
			[]string{`https://a.example/?q="><script>&b=a b`}, `<a href='|'>{{{SPACE}}}`},
		{`<a href=https://a.example/?q={{{QUOTE}}}>`, []string{`https://a.example/?q="><script>`}, `<a href=|>`},
		{`<a href="https://a.example/?q={{{escape QUOTE}}}">`, []string{`https://a.example/?q="><script>`},
			`<a href="|">`},
		{`<a href="https://a.example/?a=1&am{{{REST}}}">`, []string{`https://a.example/?a=1&x`}, `<a href="|">`},
		{`<a href="https://a.example/?a={{{AMP}}}&copy={{{AMP}}}">`, []string{`https://a.example/?a=1&2&copy=1&2`},
			`<a href="|">`},
		{`<a href="{{{EMPTY}}}">`, nil, `<a href="{{{EMPTY}}}">`},
		{`<a href="{{{UNSUBSCRIBE_URL}}}">`, nil, `<a href="{{{UNSUBSCRIBE_URL}}}">`},
		{`<a href="{{RESEND_UNSUBSCRIBE_URL}}">`, nil, `<a href="{{RESEND_UNSUBSCRIBE_URL}}">`},
		{`<a href='https://a.example/{{UNSUBSCRIBE_URL}}'>`, nil, `<a href='https://a.example/{{UNSUBSCRIBE_URL}}'>`},
		{`<a title="{{{QUOTE}}}" href="https://a.example">`, []string{"https://a.example"},
			`<a title="{{{QUOTE}}}" href="|">`},
		{`{{{NONE|<a href="https://f.example">}}}`, nil, `{{{NONE|<a href="https://f.example">}}}`},
		{`<{{{SPACE}}} it's <a href="https://a.example">`, []string{"https://a.example"},
			`<{{{SPACE}}} it's <a href="|">`},
	} {
		h := render.CompileHTML(c.html)
		text, targets := track(h, values)
		if !slices.Equal(targets, c.want) {
			t.Errorf("%s\nhas the links %q, want %q", c.html, targets, c.want)
		}
		want := render.CompileHTML(c.filled)
		if want := strings.Replace(want.Fill(values), "|", tracked+"1", 1); strings.Replace(text, pixel, "", 1) != want {
			t.Errorf("%s\nbecomes %s\nwant    %s", c.html, text, want)
		}
	}
}

// Links that are excluded from tracking stay unchanged, with and without a tracking pixel.
func TestLeftAlone(t *testing.T) {
	text := `<p>{{{NAME}}} <a href="https://a.example/?a&amp;b">a</a> <a href="{{{URL}}}">b</a></body>`
	h := render.CompileHTML(text)
	values := render.Values{"NAME": "Ann", "URL": "https://b.example/?a&amp;b"}
	decline := func(dst, target []byte) ([]byte, bool) { return append(dst, "dropped"...), false }
	if got := h.Track(values, decline, nil); got != h.Fill(values) {
		t.Errorf("it becomes %s", got)
	}
	if got := h.Track(values, nil, nil); got != h.Fill(values) {
		t.Errorf("it becomes %s", got)
	}
	want := strings.Replace(h.Fill(values), "</body>", pixel+"</body>", 1)
	for name, link := range map[string]func(dst, target []byte) ([]byte, bool){"none": nil, "kept": decline} {
		if got := h.Track(values, link, func(dst []byte) []byte { return append(dst, pixel...) }); got != want {
			t.Errorf("links %s: it becomes %s, want %s", name, got, want)
		}
	}
}

// The number of tracked links is limited. Links beyond the limit keep their original targets.
func TestManyLinks(t *testing.T) {
	text := strings.Repeat(`<a href="https://a.example/">a</a>`, render.MaxLinks+5)
	got, targets := track(render.LiteralHTML(text), nil)
	if len(targets) != render.MaxLinks || strings.Count(got, `"https://a.example/"`) != 5 {
		t.Errorf("%d are tracked and %d are not", len(targets), strings.Count(got, `"https://a.example/"`))
	}
}

// tree lists the nodes that a browser parses from HTML, without the href values of links.
func tree(t testing.TB, text string) string {
	t.Helper()
	doc, err := html.Parse(strings.NewReader(text))
	if err != nil {
		return "nested too deep: " + err.Error()
	}
	var b strings.Builder
	depth := 0
	for n := doc; n != nil; {
		fmt.Fprintf(&b, "%d %d %s %q", depth, n.Type, n.Namespace, n.Data)
		for _, a := range n.Attr {
			if n.Data == "a" && a.Key == "href" && a.Namespace == "" {
				a.Val = ""
			}
			fmt.Fprintf(&b, " %s %q=%q", a.Namespace, a.Key, a.Val)
		}
		b.WriteByte('\n')
		if n.FirstChild != nil {
			n, depth = n.FirstChild, depth+1
			continue
		}
		for n != nil && n.NextSibling == nil {
			n, depth = n.Parent, depth-1
		}
		if n != nil {
			n = n.NextSibling
		}
	}
	return b.String()
}

// sameTree fails the test if tracking changes anything in the parsed HTML except href values, or if the pixel adds more
// than one tag.
func sameTree(t testing.TB, text string, h *render.HTML) {
	t.Helper()
	links := h.Track(nil, func(dst, target []byte) ([]byte, bool) { return append(dst, tracked+"x"...), true }, nil)
	if was, is := tree(t, text), tree(t, links); was != is {
		t.Errorf("%q\nbecomes %q\nfrom %s\nto %s", text, links, was, is)
	}
	with := h.Track(nil, nil, func(dst []byte) []byte { return append(dst, pixel...) })
	if strings.Replace(with, pixel, "", 1) != text {
		t.Errorf("%q\nbecomes %q", text, with)
	}
	was, is := tokens(text), tokens(with)
	i := slices.Index(is, pixel)
	if i < 0 {
		t.Fatalf("%q\nbecomes %q: there is no pixel", text, with)
	}
	if is = slices.Delete(is, i, i+1); strings.Join(was, "\x00") != strings.Join(is, "\x00") &&
		strings.Join(was, "") != strings.Join(is, "") {
		t.Errorf("%q\nbecomes %q\nthe tokens were %q\nand are        %q", text, with, was, is)
	}
}

// tokens returns the source text of each token of HTML.
func tokens(text string) (all []string) {
	for z := html.NewTokenizer(strings.NewReader(text)); z.Next() != html.ErrorToken; {
		all = append(all, string(z.Raw()))
	}
	return all
}

// FuzzTrack checks that browsers parse tracked HTML like the original HTML, except for the link targets.
func FuzzTrack(f *testing.F) {
	for _, text := range []string{`<a href="https://a.example/">a</a>`, `<p><a href='http://a.example/?a&amp;b'>`,
		`<svg><title><!-- </title><a href="https://a.example/"> -->`, `<svg><![CDATA[ > <a href="https://a.example/"> ]]>`,
		`<table><a href=http://a.example/><tr></body>`, `<select><a href="http://a.example/"></select></html>`,
		`<math><style><a href="http://a.example"></style><a href="http://b.example">`,
		"<a\x00 href=\"http://a.example\x00\">",
		`<a href="http://a.example"`, `<!--><a href="http://a.example">-->`, `<!--a--!><a href="http://a.example">`,
		`<script><!--<script></script><a href="http://a.example">--></script>`, `</`, `<a =href="http://a.example">`,
		`<template><a href="http://a.example/"></template>`, `<noscript><p title="</noscript><a href=http://a.example/>">`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		sameTree(t, text, render.LiteralHTML(text))
	})
}

// pieces are fragments of HTML that different parsers interpret differently.
var pieces = []string{"<a href=", `"http://a.example/"`, "'http://b.example/&amp;'", "http://c.example/", "<a ", ">",
	"/>", " ", "</a>", "<svg>", "</svg>", "<math>", "</math>", "<title>", "</title>", "<style>", "</style>", "<script>",
	"</script>", "<!--", "-->", "--!>", "<![CDATA[", "]]>", "<!", "<?", "</", "<", "'", `"`, "=", "&", "x", "<p>", "</p>",
	"<table>", "<tr>", "</table>", "<select>", "</select>", "<textarea>", "</textarea>", "<noscript>", "</noscript>",
	"<desc>", "<foreignObject>", "</foreignObject>", "<template>", "</template>", "<body>", "</body>", "</html>",
	"<head>", "</head>", "<frameset>", "<iframe>", "</iframe>", "<plaintext>", "<xmp>", "</xmp>", "<mi>",
	"<annotation-xml encoding=text/html>", "\x00", "\n", "data-postrider-no-track ", "href ",
	"<br>", "<img>", "<b>", "</b>", "<noembed>", "<noframes>", "<option>", "</tr>"}

// FuzzTrackPieces is like FuzzTrack, but combines the fragments in pieces in any order.
func FuzzTrackPieces(f *testing.F) {
	all := make([]byte, len(pieces))
	for i := range all {
		all[i] = byte(i)
	}
	f.Add(all)
	f.Add([]byte{9, 13, 19, 14, 0, 1, 5, 20})
	f.Fuzz(func(t *testing.T, order []byte) {
		if len(order) > 300 {
			return
		}
		var b strings.Builder
		for _, i := range order {
			b.WriteString(pieces[int(i)%len(pieces)])
		}
		sameTree(t, b.String(), render.LiteralHTML(b.String()))
	})
}

// FuzzTrackFilled checks that plain values produce the same links whether they replace placeholders or are part of the
// source.
func FuzzTrackFilled(f *testing.F) {
	f.Add(`<a href="{{{A}}}">{{{B|<}}}</a>`)
	f.Add(`<a href='https://a.example/{{{escape A}}}&amp;{{{B}}}'>`)
	f.Fuzz(func(t *testing.T, text string) {
		h := render.CompileHTML(text)
		values := render.Values{}
		for i, name := range h.Names() {
			values[name] = fmt.Sprint(i)
		}
		got, targets := track(h, values)
		want, wanted := track(render.LiteralHTML(h.Fill(values)), nil)
		if strings.Contains(text, "UNSUBSCRIBE_URL") {
			return // unsubscribe links are excluded from tracking only if they are placeholders
		}
		if got != want || !slices.Equal(targets, wanted) {
			t.Errorf("%q\nbecomes %q with %q\nand when it is filled before %q with %q", text, got, targets, want, wanted)
		}
	})
}

// FuzzTargets checks that character references are replaced as html.Tokenizer replaces them.
func FuzzTargets(f *testing.F) {
	f.Add("a=1&amp;b=2&copy=3&reg;&#38;&#x26&#1234567;&nLt;&fjlig;&semi;&notin&not;")
	f.Add("&#&#x&;&&amp&lt=&gtx&#5")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.ContainsAny(text, "\"\x00") {
			return
		}
		tag := `<a href="https://a.example/` + text + `z">`
		z := html.NewTokenizer(strings.NewReader(tag))
		z.Next()
		_, value, _ := z.TagAttr()
		want := strings.NewReplacer("\n", "", "\t", "", "\r", "").Replace(string(value))
		_, targets := track(render.LiteralHTML(tag), nil)
		if len(targets) > 0 && targets[0] != want {
			t.Errorf("%q leads to %q, want %q", tag, targets[0], want)
		}
	})
}

// TestHostileHTML: processing hostile HTML takes linear time and memory. The test counts the processed bytes, which
// would be gigabytes with a quadratic algorithm.
func TestHostileHTML(t *testing.T) {
	for _, piece := range []string{"<", "<a ", "<a href=", `<a href="`, "<!--", "<!", "</", "\x00", "<a\x00",
		"<svg><title>", "<script>", "<a href='http://a.example/'>", "&", "<a href=http://a.example/&amp;>", "<![CDATA[",
		"{{{", "}}}", "{{", "}}", "<a {{{A}}} href={{{B}}}>", "<p a=b c=d e=f>",
		"<x a b c d e f g h i j k l m n o p q r s t u v w x y z>"} {
		text := strings.Repeat(piece, 100_000/len(piece))
		h := render.CompileHTML(text)
		got, _ := track(h, nil)
		if len(got) > 3*len(text)+1000*100 {
			t.Errorf("%q: %d bytes become %d", piece, len(text), len(got))
		}
		if n := testing.AllocsPerRun(1, func() { track(h, nil) }); n > 5000 {
			t.Errorf("%q: filling takes %v allocations", piece, n)
		}
	}
}

// Filling needs the same small number of memory allocations for any number of links.
func TestTrackAllocations(t *testing.T) {
	took := func(links int) float64 {
		text, values := mailtest.Template(links)
		h := render.CompileHTML(text)
		return testing.AllocsPerRun(20, func() {
			h.Track(values, func(dst, target []byte) ([]byte, bool) { return append(append(dst, tracked...), target...), true },
				func(dst []byte) []byte { return append(dst, pixel...) })
		})
	}
	if few, many := took(10), took(40); few != many {
		t.Errorf("10 links take %v allocations and 40 take %v", few, many)
	}
}

func BenchmarkCompileHTML(b *testing.B) {
	text, _ := mailtest.Template(40)
	b.SetBytes(int64(len(text)))
	b.ReportAllocs()
	for b.Loop() {
		render.CompileHTML(text)
	}
}
