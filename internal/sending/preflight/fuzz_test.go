package preflight

import (
	"strings"
	"testing"

	"golang.org/x/net/html"

	"github.com/postrider/postrider/internal/mail/message"
)

// FuzzHTML: for any HTML, all checks run, and the counts of images and elements match those of html.Tokenizer.
func FuzzHTML(f *testing.F) {
	for _, seed := range []string{"", `<a href="https://acme.org/x">https://bank.com</a>`, `<img src=x><IMG alt>`,
		`<script><img></script><form><input`, `<a href=//x><a href="http:\\y@z:1/">z`, "<img/><img\x00><p\xff><!--<img>-->",
		`<title><form></title><plaintext><img>`, `<td background='data:,'><link rel=stylesheet>`,
		`<a href='cid:&amp;'>&lt;`} {
		f.Add(seed, "acme.org", true)
	}
	f.Fuzz(func(t *testing.T, text, domain string, tracked bool) {
		in := Input{From: message.Address{Local: "a", Domain: domain}, HTML: text, Subject: text, Text: text,
			Headers: []message.Field{{Name: "List-Unsubscribe", Value: text}}, ReplyTo: []string{text}}
		if tracked {
			in.Sender.Tracking = Tracking{Host: "links." + domain, Clicks: true}
		}
		check(t, in)
		p := read(&in)
		images, frames := 0, 0
		for z := html.NewTokenizer(strings.NewReader(strings.ToValidUTF8(text, "\uFFFD"))); ; {
			kind := z.Next()
			if kind == html.ErrorToken {
				break
			}
			if kind != html.StartTagToken && kind != html.SelfClosingTagToken {
				continue
			}
			name, more := z.TagName()
			alt := false
			for more {
				var key []byte
				key, _, more = z.TagAttr()
				alt = alt || string(key) == "alt"
			}
			switch string(name) {
			case "img":
				if !alt {
					images++
				}
			case "iframe", "form", "object":
				frames++
			}
		}
		if p.noAlt.n != images || p.dropped.n < frames {
			t.Errorf("%d images without a text and %d elements that are dropped; want %d, and at least %d", p.noAlt.n,
				p.dropped.n, images, frames)
		}
	})
}

// FuzzTarget: different spellings of a URL give the same result.
func FuzzTarget(f *testing.F) {
	for _, seed := range []string{"https://acme.org/x", "HTTP:\\\\a@B.org:80?x", "https://[::1]:80/", "mailto:a", "//x",
		"é:",
		"https://%61.org", "https://bücher.example.", "www.bank.com", "http://a..b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		to := parseTarget(text)
		if to.host != "" {
			if again := parseTarget(to.scheme + "://" + bracketed(to.host) + "/x?y#z"); again != to {
				t.Errorf("%q is %+v, and that is %+v", text, to, again)
			}
			if strings.ContainsAny(to.host, "/\\@?# \t\r\n") || strings.ToLower(to.host) != to.host {
				t.Errorf("%q has the host %q", text, to.host)
			}
		}
		if host, _ := shownHost(text); host != "" && !strings.Contains(host, ".") && !strings.Contains(host, ":") {
			t.Errorf("%q shows the host %q", text, host)
		}
	})
}

func bracketed(host string) string {
	if strings.Contains(host, ":") {
		return "[" + host + "]"
	}
	return host
}
