package mailparse

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLinks(t *testing.T) {
	t.Parallel()
	p := Parse([]byte("MIME-Version: 1.0\r\nContent-Type: multipart/alternative; boundary=b\r\n\r\n" +
		"--b\r\nContent-Type: text/plain\r\n\r\nSee https://a.example/x?b=1&c=2, (http://t.example/p). mailto:a@b.example\r\n" +
		"--b\r\nContent-Type: text/html\r\n\r\n" + `<a href="https://a.example/x?b=1&amp;c=2">Confirm <b>your&nbsp;
		address</b></a> <a href=" HTTP://b.example ">b</a><a href="javascript:alert(1)">j</a><a>none</a>
		<a href="mailto:x@y.example">m</a><area href="https://area.example"> text
		<a href="http://b.example">again</a><a href="/relative">r</a><a href="https://open.example">open` +
		"\r\n--b--\r\n"))
	want := []Link{{"https://a.example/x?b=1&c=2", "Confirm your address"}, {"HTTP://b.example", "b"},
		{"https://area.example", ""}, {"http://b.example", "again"}, {"https://open.example", "open"},
		{"http://t.example/p", ""}}
	if diff := cmp.Diff(want, p.Links()); diff != "" {
		t.Error(diff)
	}
}

func TestLinksAreBounded(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	b.WriteString("Content-Type: text/html; charset=utf-8\r\n\r\n<a href=\"https://" + strings.Repeat("x", maxLinkURL) + "\">")
	for i := range 2 * maxLinks {
		fmt.Fprintf(&b, "<a href=\"https://%d.example\">%s</a>\r\n", i, strings.Repeat("ä ", maxLinkText))
	}
	links := Parse([]byte(b.String())).Links()
	if len(links) != maxLinks || links[0].URL != "https://0.example" {
		t.Fatalf("%d links, %+v", len(links), links[0])
	}
	if n := len(links[1].Text); n > maxLinkText || n < maxLinkText-3 {
		t.Errorf("the text has %d bytes: %q", n, links[1].Text)
	}
	if links := Parse([]byte("Subject: x\r\n\r\n")).Links(); len(links) != 0 {
		t.Error(links)
	}
}
