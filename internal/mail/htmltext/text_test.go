package htmltext

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"

	"github.com/postrider/postrider/internal/mail/mailtest"
)

func TestFromHTML(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, html, want string }{
		{"nothing", "", ""},
		{"plain", "Hello", "Hello"},
		{"white space", " a \n\t b <b> c </b>d ", "a b c d"},
		{"inline elements", "<b>a</b><i>b</i> <span>c</span>", "ab c"},
		{"paragraphs", "<p>a</p><p>b</p>\n<p></p><p> </p><p>c", "a\n\nb\n\nc"},
		{"blocks", "<div>a</div><div><div>b</div></div>c", "a\nb\nc"},
		{"line breaks", "a<br>b<br/>\n c<br><br><br><br>d<br>", "a\nb\nc\n\nd"},
		{"headings", "<h1>One</h1>x<h2>Two</h2><p>y</p>", "One\n\nx\n\nTwo\n\ny"},
		{"rule", "a<hr>b", "a\n\n----------\n\nb"},
		{"entities", "&lt;a&gt; &amp; &quot;b&quot; &euro;1&nbsp;000 &#x1F44B; &copy", "<a> & \"b\" €1 000 👋 ©"},
		{"head", "<!doctype html><html><head><title>T</title><meta " +
			"charset=utf-8><style>p{}</style><script>x<p>y</script></head><body>a</body></html>", "a"},
		{"comments", "a<!-- b --><!--[if mso]><p>c</p><![endif]-->d", "ad"},
		{"downlevel-revealed", "<![if !mso]>a<![endif]>", "a"},
		{"raw text", "a<noscript>b</noscript><iframe>c</iframe><textarea>d</textarea>" +
			"<template><p>e</p></template><svg><text>f</text></svg>g", "ag"},
		{"empty drawing", "a<svg/>b<svg><path/></svg>c", "abc"},
		{"unclosed drawing", "a<svg>b", "ab"},
		{"choices", "a<select><option>b<option>c</select>d", "ad"},
		{"hidden", `<div style="display:none">x<div>y</div>z</div><div style="color:red; display : none!important">` +
			`x</div>a<span hidden>x</span><p data-skip-in-text="true">x</p>`, "a"},
		{"not hidden", `<a href="https://e.c/" style="text-decoration:none">a</a><div style="display:block">none</div>`,
			"a [https://e.c/]\nnone"},
		{"hidden and never closed", `a<div style="display:none">b<p>c`, "a\nb\n\nc"},
		{"hidden image", `a<img style="display:none" alt="x">b<br hidden>c`, "ab\nc"},
		{"link", `Go <a href="https://example.com/a?b=1&amp;c=2">here</a>, now`,
			"Go here [https://example.com/a?b=1&c=2], now"},
		{"link that is its text", `<a href="https://example.com/">https://example.com</a> ` +
			`<a href="mailto:a@b.c?subject=x">a@b.c</a>`, "https://example.com a@b.c"},
		{"mail link", `<a href="MAILTO:a@b.c?subject=x">Write</a> <a href="tel:+1234">Call</a>`,
			"Write [a@b.c] Call [+1234]"},
		{"placeholder", `<a href="{{{RESEND_UNSUBSCRIBE_URL}}}">Leave</a>`, "Leave [{{{RESEND_UNSUBSCRIBE_URL}}}]"},
		{"links to nowhere", `<a href="#top">a</a> <a>b</a> ` +
			`<a href="javascript:x()">c</a> <a href="/rel">d</a> <a href="">e</a> <a href="//e.c">f</a>`,
			"a b c d e f [https://e.c]"},
		{"link with a line break in it", "<a href=\"https://e.c/\r\nx\">a</a><a href=' https://e.c '>b</a>",
			"ab [https://e.c]"},
		{"link around an image", `<a href="https://e.c"><img src=x alt="Logo"></a><br><a href="https://x.y"><img src=y></a>`,
			"Logo [https://e.c]\n[https://x.y]"},
		{"link around blocks", `<a href="https://e.c"><div>a</div><div>b</div></a>c`, "a\nb [https://e.c]\nc"},
		{"link in a link", `<a href="https://a.b">a<a href="https://c.d">b</a></a>`, "a [https://a.b]b [https://c.d]"},
		{"unclosed link", `<p><a href="https://a.b">a`, "a [https://a.b]"},
		{"image", `<img alt="A &amp; B"> <img alt=""><img>`, "A & B"},
		{"bullets", "<p>x</p><ul><li>a<li>b <b>c</b></li><li></li><li>d</ul>y", "x\n\n- a\n- b c\n- d\n\ny"},
		{"numbers", `<ol start="9"><li>a</li><li>b<br>c</li></ol>`, "9. a\n10. b\n  c"},
		{"lists in lists", "<ul><li>a<ol><li>b</li><li>c</li></ol></li><li>d</li></ul>e", "- a\n  1. b\n  2. c\n- d\n\ne"},
		{"item without list", "<li>a", "- a"},
		{"paragraph in item", "<ul><li><p>a</p></li><li><p>b</p></li></ul>", "- a\n\n- b"},
		{"table", "<table><thead><tr><th>Item</th><th>Price</th></tr></thead><tr><td>Cup</td>\n<td>$4</td></tr></table>x",
			"Item  Price\nCup  $4\n\nx"},
		{"layout tables", "<table><tr><td><table><tr><td>a</td></tr></table></td><td>" +
			"<p>b</p></td></tr><tr><td></td><td>c</td></tr></table>", "a\n\nb\n\nc"},
		{"quote", "a<blockquote>b<br>c<blockquote>d</blockquote></blockquote>e", "a\n\n> b\n> c\n\n> > d\n\ne"},
		{"preformatted", "a<pre>\n  x  y\n\n\n\tz <b>w</b>  \nv</pre>b", "a\n\n  x  y\n\n\tz w\nv\n\nb"},
		{"filler", "a\u200b&zwnj;b &zwnj;&nbsp;&#8199;&#847; \ufeff&shy;c\u00add", "a\u200cb cd"},
		{"joined emoji", "👩\u200d💻", "👩\u200d💻"},
		{"control characters", "a\x00\x01\x1b[0m\x7f&#7;&#133;b", "a[0m…b"},
		{"not UTF-8", "a\xffb", "a\uFFFDb"},
		{"upper case", "<P>a</P><BR><DIV STYLE=\"display:none\">x</DIV><A HREF=\"https://e.c\">b</A><SCRIPT>x</SCRIPT>",
			"a\n\nb [https://e.c]"},
		{"broken tags", "a < b <3 <p class=\"x>y\">c</p", "a < b <3\n\nc"},
		{"drawing that closes itself", "a<svg/>b<span hidden>x</span>c", "abc"},
		{"eight lists", strings.Repeat("<ol><li>", 8) + "a", strings.Repeat("  ", 7) + "1. a"},
		{"nine lists", strings.Repeat("<ol><li>", 9) + "a", strings.Repeat("  ", 7) + "- a"},
		{"tag names that end", "a<br\tx>b<br\nx>c<br\fx>d<br\rx>e<br/>f<p\vx>g", "a\nb\nc\nd\ne\nfg"},
		{"text behind preformatted", "<pre>a  b</pre>c  d", "a  b\n\nc d"},
		{"break that ends", "a</br>b", "a\nb"},
		{"two spaces", "a  b  c", "a b c"},
		{"white space of other kinds", "a\tb\nc&#13;d&#11;e&#12;f", "a b c d e f"},
		{"DEL", "a \x7f b", "a b"},
		{"control characters in preformatted", "<pre>\x01 a\x02b\x7fc\td</pre>", "abc\td"},
		{"elements in preformatted", "<pre>a<b>b</b> <b>c</b></pre>", "ab c"},
		{"line ends in preformatted", "<pre>a\rb\r\nc</pre>", "a\nb\nc"},
		{"attributes without quotes", "<a href=https://e.c/x>b</a>", "b [https://e.c/x]"},
		{"attributes behind an entity", `<a title="x&amp;y" href="https://e.c">b</a>`, "b [https://e.c]"},
		{"attributes behind what is irregular", `<p =x><a href=https://e.c/x title=y>b</a>`, "b [https://e.c/x]"},
		{"long address", `<a href="https://e.c/` + strings.Repeat("x", 2000-len("https://e.c/")) + `">b</a>`,
			"b [https://e.c/" + strings.Repeat("x", 2000-len("https://e.c/")) + "]"},
		{"longer address", `<a href="https://e.c/` + strings.Repeat("x", 2001-len("https://e.c/")) + `">b</a>`, "b"},
		{"spaces in addresses", `<a href="https://e.c/a b¡">c</a>`, "c [https://e.c/a b¡]"},
		{"controls in addresses", "<a href=\"https://e.c/\x7f\">a</a><a href=\"https://e.c/\u0085x\">b</a><a " +
			"href=\"https://e.c/\u00a0c\">c</a>" +
			"<a href=\"https://e.c/\u2028d\">d</a><a href=\"https://e.c/\u2029e\">e</a>", "abcde"},
		{"unknown elements", "<x-y>a</x-y><averyveryverylongelementname>b</averyveryverylongelementname>", "ab"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(tc.want, FromHTML(tc.html)); diff != "" {
				t.Errorf("text (-want +got):\n%s", diff)
			}
		})
	}
}

// TestRegularTokens checks regularToken, which finds the tokens in nearly all HTML without html.Tokenizer. The HTML
// standard, section 13.2.5, defines where tokens end.
func TestRegularTokens(t *testing.T) {
	t.Parallel()
	const text, start, end, comment = html.TextToken, html.StartTagToken, html.EndTagToken, html.CommentToken
	for _, c := range []struct {
		in      string
		kind    html.TokenType
		end     int // -1 if html.Tokenizer must parse the token
		content int
	}{
		{"", html.ErrorToken, 0, 0},
		{"a<b>", text, 1, 0}, {"a<", text, 2, 0}, {"<", text, 1, 0}, {"a < b<3<p>", text, 7, 0}, {"a</", text, 1, 0},
		{"a<!", text, 1, 0}, {"a<?", text, 1, 0},
		{"<a>b", start, 3, 0}, {"<z>", start, 3, 0}, {"<Z>", start, 3, 0}, {"<A>", start, 3, 0}, {"<@>", text, 3, 0},
		{"<[>", text, 3, 0}, {"<{>", text, 3, 0},
		{"<p", start, -1, 0}, {"<p ", start, -1, 0}, {"<p/>a", start, 4, 0}, {"<p />a", start, 5, 0}, {"<p/", start, -1, 0},
		{"<p/a>", start, -1, 0},
		{"<p \t\n\f\r>a", start, 8, 0}, {"<p\v>", start, -1, 0}, {"<p\x00>", start, -1, 0},
		{"<p a>b", start, 5, 0}, {"<p a b=c>d", start, 9, 0}, {"<p a=>", start, -1, 0}, {"<p a=", start, -1, 0},
		{"<p a", start, -1, 0}, {"<p a =b>", start, -1, 0},
		{`<p a="b>c">d`, start, 11, 0}, {`<p a='b"c'>d`, start, 11, 0}, {`<p a="b`, start, -1, 0}, {`<p a="">b`, start, 8, 0},
		{`<p a="b"c="d">`, start, -1, 0},
		{`<p a="b" c='d'>e`, start, 15, 0}, {"<p a=b/>", start, -1, 0}, {"<p a=b />c", start, 9, 0},
		{"<p a=0-_:.#%9>b", start, 14, 0}, {"<p a=b", start, -1, 0},
		{"<p a=/>", start, -1, 0}, {"<p =a>", start, -1, 0}, {"<p a=b&c>", start, -1, 0},
		{"</p>a", end, 4, 0}, {"</p \n>a", end, 6, 0}, {"</p", end, -1, 0}, {"</", end, -1, 0}, {"</>a", end, -1, 0},
		{"</ p>", end, -1, 0}, {"</p a>", end, -1, 0},
		{"</3>", end, -1, 0}, {"</h1>", end, 5, 0},
		{"<!a>b", comment, 4, 0}, {"<!>b", comment, 3, 0}, {"<!a", comment, -1, 0}, {"<?a>b", comment, 4, 0},
		{"<!--a-->b", comment, 8, 0}, {"<!---->b", comment, 7, 0},
		{"<!-->b", comment, 5, 0}, {"<!--->b", comment, 6, 0}, {"<!--a", comment, -1, 0}, {"<!--a--!>b-->", comment, 9, 0},
		{"<!----!>b-->", comment, 8, 0},
		{"<!--a>b-->c", comment, 10, 0}, {"<!--a-->b--!>", comment, 8, 0},
		{"<title>a</title>b", start, 7, 1}, {"<title>a</p></TITLE >b", start, 7, 5}, {"<title></title>", start, 7, 0},
		{"<title>a", start, 7, 1},
		{"<title>a</title", start, 7, 8}, {"<title>a</titles>b</title/>c", start, 7, 11}, {"<title>a</title\n>", start, 7, 1},
		{"<title>a</", start, 7, 3},
		{"<style>a</b></c></style>", start, 7, 9}, {"<script>a</script>b", start, 8, 1}, {"<script>a<!--</script>b", start,
			-1, -1},
		{"<style>a<!--</style>b", start, 7, 5}, {"<script>a</script><!--", start, 8, 1}, {"<xmp>a</xmp>", start, -1, -1},
		{"<PLAINTEXT>a", start, -1, -1},
		{"<noembed>a</noembed>", start, 9, 1}, {"<iframe>a</iframe>", start, 8, 1}, {"<textarea>a</textarea>", start, 10, 1},
	} {
		kind, at, content := regularToken(c.in)
		if kind != c.kind || at != c.end || at >= 0 && content != c.content {
			t.Errorf("%q: %v to %d with %d of content, want %v to %d with %d", c.in, kind, at, content, c.kind, c.end, c.content)
		}
	}
	tag := func(n int) string { return "<p " + strings.Repeat("a", n-len("<p >")) + ">" }
	if _, at, _ := regularToken(tag(maxTag - 1)); at != maxTag-1 {
		t.Errorf("a tag that is not too large ends at %d", at)
	}
	var got []string
	regularAttributes(`<p A b=c d="e f" g='h'/>`, func(name, value string) bool {
		got = append(got, name+"="+value)
		return name != "d"
	})
	if d := cmp.Diff([]string{"a=", "b=c", "d=e f"}, got); d != "" {
		t.Error(d)
	}
}

// plainPrefix never returns more than the longest plain prefix, and falls short of it by at most eight bytes.
func TestPlainPrefix(t *testing.T) {
	t.Parallel()
	for size := range 40 {
		if n := plainPrefix(strings.Repeat("~", size)); n <= size-8 || n > size {
			t.Errorf("%d of %d", n, size)
		}
		for at := range size {
			for _, odd := range []string{"\x00", "\n", "\x1f", "\x7f", "\x80", "\xff", "  ", "\t ", "é"} {
				for _, others := range []string{"!", "~", "m", "m "} {
					s := strings.Repeat(others, size)[:size]
					s = s[:at] + odd + s[at:]
					n := plainPrefix(s)
					if n > at || n < at-8 || strings.Contains(s[:n], "  ") || strings.HasSuffix(s[:n], " ") {
						t.Errorf("%d of %q", n, s)
					}
				}
			}
		}
	}
}

// TestFromHTMLBounds tests inputs that exceed the limits of FromHTML. Package linear measures how much work such inputs
// cause.
func TestFromHTMLBounds(t *testing.T) {
	t.Parallel()
	many := strings.Repeat("a=b ", maxTag/4)
	for _, tc := range []struct{ name, html, want string }{
		{"a tag that is too large", "a<p " + many + ">b<p>c", "a\n\nc"},
		{"a tag that is too large, without end", "a<p " + many, "a"},
		{"a large tag", `a<p x="` + many[:maxTag/2] + `">b`, "a\n\nb"},
		{"a large tag of an element with source text", `a<script x="` + many[:maxTag/2] + `">b<p>c</script>d`, "ad"},
		{"a large text", "<p>" + many + "x", many + "x"},
		{"a large comment", "a<!--" + many + "<p>x-->b", "ab"},
		{"a large script", "a<script><p " + many + "</p></script>b", "ab"},
	} {
		if got := FromHTML(tc.html); got != tc.want {
			t.Errorf("%s: %.60q, want %.60q", tc.name, got, tc.want)
		}
	}
}

// TestFromHTMLMemory limits the total memory allocated for 8 MiB of HTML, including memory that is freed again.
func TestFromHTMLMemory(t *testing.T) {
	const size = 8 << 20
	var names strings.Builder
	names.WriteString("<p ")
	for i := 0; names.Len() < size; i++ {
		fmt.Fprintf(&names, "%x ", i)
	}
	for _, tc := range []struct {
		name, html string
		most       float64 // maximum memory as a multiple of the HTML's size
	}{
		{"text", strings.Repeat("word ", size/5), 8},
		{"attributes of one tag", names.String() + ">x", 8},
		{"attributes of one tag, without end", names.String(), 8},
		{"newsletter", mailtest.Newsletter(size), 4},
	} {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		FromHTML(tc.html)
		runtime.ReadMemStats(&after)
		if cost := float64(after.TotalAlloc-before.TotalAlloc) / size; cost > tc.most {
			t.Errorf("%s: %.2f times its size", tc.name, cost)
		}
	}
}

func FuzzFromHTML(f *testing.F) {
	for _, seed := range []string{
		"<p>a</p><ul><li>b<ol start=3><li>c</ol></ul>", `<a href="https://e.c"><img alt=" x "></a><pre> a  b
 c </pre>`, "<table><tr><td>a<td>b</table>", `<div style="display:none">x</div><blockquote>&nbsp;&zwnj;y`,
		"<svg><title>x</svg>", "a<!--", "\u2028\u0085\xff\x00",
		"<!----!><!----!>", "<script><!--<script></script>", "<p a a=b a='", "<textarea>&amp;</text", "<![CDATA[<p>]]>",
		"<xmp>&lt;<b></xmp>", "<plaintext>a<p>",
		"<!-->a", "<!--->a", "<!---->a", "<!--a--!>b-->c", "<!DOCTYPE html>a", "<![endif]-->a", "<?x>a",
		"<title>a</titlee></TITLE >b",
		"<script><!--</script>a-->b", "<script>a</script>b", "<style></sty", `<a href="?a&copy=1&copy;">b</a>`,
		`<A HREF='https://e.c' href=x>b`,
		"<img alt=a/>b", "<img alt=a />b", "<p a=b'>c'>d", "<p a = 'b'>", "<br/>", "a <", "a </", "</>a", "</ p>",
		"</p a='>'>b", "<pre>\ra\r\nb",
		"<ol start=4 start=5><li>a", "<svg/>a", "<title/>a</title>b", "<p\x00>a", "<p hidden>a", "<p =a>b",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, html string) {
		text := FromHTML(html)
		if !utf8.ValidString(text) {
			t.Fatalf("text is not UTF-8: %q", text)
		}
		if strings.Contains(text, "\n\n\n") || strings.HasPrefix(text, "\n") || strings.HasSuffix(text, "\n") {
			t.Fatalf("text has too many line breaks: %q", text)
		}
		for line := range strings.SplitSeq(text, "\n") {
			if strings.HasSuffix(line, " ") || strings.HasSuffix(line, "\t") {
				t.Fatalf("line ends with white space: %q", line)
			}
			if strings.ContainsFunc(line, func(r rune) bool { return unicode.IsControl(r) && r != '\t' }) {
				t.Fatalf("line has a control character: %q", line)
			}
		}
		for _, hide := range []bool{true, false} {
			z := newTokenizer(strings.ToValidUTF8(html, "\uFFFD"))
			z.renew() // makes html.Tokenizer parse the whole source
			want, whole := extractText(z, hide)
			got, complete := extractText(newTokenizer(strings.ToValidUTF8(html, "\uFFFD")), hide)
			if got != want || complete != whole {
				t.Fatalf("regular markup read apart makes %q (%t), x/net's tokenizer alone %q (%t)", got, complete, want, whole)
			}
		}
		if again := FromHTML(html); again != text {
			t.Fatalf("text is %q and then %q", text, again)
		}
	})
}
