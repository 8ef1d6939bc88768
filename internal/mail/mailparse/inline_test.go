package mailparse

import (
	"strings"
	"testing"
)

const most = 25 << 20

func withImages(html string, files []File) string {
	var b strings.Builder
	WriteWithImages(&b, html, files, most) // writing to a Builder never fails
	return b.String()
}

func TestWithImages(t *testing.T) {
	files := []File{{ContentID: "a@x", ContentType: "image/png", Content: []byte("A")},
		{ContentID: "b c", ContentType: `text/html" onload="x`, Content: []byte("B")},
		{ContentID: "a@x", Content: []byte("second")}, {Content: []byte("none")}}
	for html, want := range map[string]string{
		`<img src="cid:a@x">`: `<img src="data:image/png;base64,QQ==">`,
		`<img src=CID:a@x><img src='cid:a%40x'>`: `<img src=data:image/png;base64,QQ==>` +
			`<img src='data:image/png;base64,QQ=='>`,
		`url(cid:b%20c)`:               `url(data:application/octet-stream;base64,Qg==)`,
		`cid:a@x`:                      `data:image/png;base64,QQ==`,
		`cid: acid:a@x cid:other cid:`: `cid: acid:a@x cid:other cid:`,
		`a:b cid`:                      `a:b cid`,
		``:                             ``,
	} {
		if got := withImages(html, files); got != want {
			t.Errorf("%s: %s, want %s", html, got, want)
		}
	}
}

// An image that the HTML refers to ten thousand times does not produce gigabytes of output.
func TestImagesAreBounded(t *testing.T) {
	files := []File{{ContentID: "a", ContentType: "image/png", Content: make([]byte, 1<<20)}}
	html := strings.Repeat(`<img src="cid:a">`, 10_000)
	got := withImages(html, files)
	if len(got) > most+len(html) || strings.Count(got, "data:") != most/(1<<20)*3/4 {
		t.Errorf("%d bytes with %d images", len(got), strings.Count(got, "data:"))
	}
}

func FuzzWithImages(f *testing.F) {
	f.Add(`<img src="cid:a">`, "a")
	f.Add(`cid:cid:%zz`, "%zz")
	f.Fuzz(func(t *testing.T, html, cid string) {
		without := withImages(html, []File{{ContentID: "\x00", Content: []byte("x")}})
		if !strings.Contains(html, "%00") && !strings.Contains(html, "\x00") && without != html {
			t.Errorf("%q became %q with no image in it", html, without)
		}
		withImages(html, []File{{ContentID: cid, ContentType: cid, Content: []byte("x")}})
	})
}

// Only images that run nothing are safe. SVG files may have scripts.
func TestSafeImages(t *testing.T) {
	var got []string
	for _, f := range SafeImages([]File{{ContentID: "a", ContentType: "image/png"}, {ContentType: "image/png"},
		{ContentID: "b", ContentType: "image/svg+xml"}, {ContentID: "c", ContentType: "text/html"},
		{ContentID: "d", ContentType: "image/webp"}}) {
		got = append(got, f.ContentID)
	}
	if strings.Join(got, "") != "ad" {
		t.Errorf("safe are %v", got)
	}
}
