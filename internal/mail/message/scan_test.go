package message

import (
	"strings"
	"testing"

	"golang.org/x/net/html"
)

// FuzzScanner compares the scanner with the tokenizer of the html package: same texts, same tags.
func FuzzScanner(f *testing.F) {
	for _, seed := range []string{
		"a<p class=\"x>y\">b</p>", "<!-- a -->b<!-->c<!--->d<!---!>e", "<!doctype html>a<?x y>b</>c</ d>e", "a<b", "a<", "a</", "a</b", "<a b=c/>d<a b='>'>e",
		"<a/b/c>d", "<style>a</styl>b</style >c", "<textarea>&amp;</textarea>", "<a =b>c", "<a b = c d>e", "<!--a--!>b-->c", "<p a=\"b>c", "<xmp><b></xmp>",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, source string) {
		source = validUTF8(source)
		lower := strings.ToLower(source)
		// The tokenizer normalizes line ends and, in scripts, knows scripts within comments; nobody reads them in mail.
		if strings.ContainsAny(source, "\r\x00") || strings.Contains(lower, "<script") || strings.Contains(lower, "<noscript") || strings.Contains(lower, "<plaintext") {
			return
		}
		if got, want := scanned(source), tokenized(source); got != want {
			t.Fatalf("%q\n got %s\nwant %s", source, got, want)
		}
	})
}

func scanned(source string) string {
	var all, text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			all.WriteString("[" + html.UnescapeString(text.String()) + "]")
			text.Reset()
		}
	}
	z := scanner{source: source}
	w := textWriter{}
	for {
		kind, s := z.next()
		if kind != tokenText {
			flush()
		}
		switch kind {
		case tokenEnd:
			return all.String()
		case tokenText:
			text.WriteString(s)
		case tokenOpen:
			name := string(w.tagName(s[1:]))
			all.WriteString("<" + name)
			p := attributeParser{s: s, at: 1 + nameLength(s[1:])}
			seen := map[string]bool{}
			for {
				name, value, ok := p.next()
				if !ok {
					break
				}
				if name = lowerASCII(name); !seen[name] {
					all.WriteString(" " + name + "=" + unescapeAttribute(value))
				}
				seen[name] = true
			}
			all.WriteString(">")
			if isRaw([]byte(name)) || name == "xmp" {
				z.raw = name
			}
		case tokenClose:
			all.WriteString("</" + string(w.tagName(s[2:])) + ">")
		}
	}
}

func lowerASCII(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			r += 'a' - 'A'
		}
		return r
	}, s)
}

func tokenized(source string) string {
	var all, text strings.Builder
	flush := func() {
		if text.Len() > 0 {
			all.WriteString("[" + html.UnescapeString(text.String()) + "]")
			text.Reset()
		}
	}
	w := textWriter{}
	z := html.NewTokenizer(strings.NewReader(source))
	for {
		kind := z.Next()
		if kind == html.TextToken {
			text.Write(z.Raw())
			continue
		}
		if kind != html.CommentToken && kind != html.DoctypeToken {
			flush()
		}
		switch kind {
		case html.ErrorToken:
			return all.String()
		case html.StartTagToken, html.SelfClosingTagToken:
			all.WriteString("<" + string(w.tagName(string(z.Raw()[1:]))))
			for _, more := z.TagName(); more; {
				var key, value []byte
				key, value, more = z.TagAttr()
				all.WriteString(" " + string(key) + "=" + string(value))
			}
			all.WriteString(">")
		case html.EndTagToken:
			all.WriteString("</" + string(w.tagName(string(z.Raw()[2:]))) + ">")
		}
	}
}
