package receiving

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/mail/mailparse"
	"github.com/postrider/postrider/internal/mail/report"
)

func TestWithImages(t *testing.T) {
	files := []mailparse.File{{ContentID: "a@x", ContentType: "image/png", Content: []byte("A")},
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
	files := []mailparse.File{{ContentID: "a", ContentType: "image/png", Content: make([]byte, 1<<20)}}
	html := strings.Repeat(`<img src="cid:a">`, 10_000)
	got := withImages(html, files)
	if len(got) > inlineMax+len(html) || strings.Count(got, "data:") != inlineMax/(1<<20)*3/4 {
		t.Errorf("%d bytes with %d images", len(got), strings.Count(got, "data:"))
	}
}

func FuzzWithImages(f *testing.F) {
	f.Add(`<img src="cid:a">`, "a")
	f.Add(`cid:cid:%zz`, "%zz")
	f.Fuzz(func(t *testing.T, html, cid string) {
		without := withImages(html, []mailparse.File{{ContentID: "\x00", Content: []byte("x")}})
		if !strings.Contains(html, "%00") && !strings.Contains(html, "\x00") && without != html {
			t.Errorf("%q became %q with no image in it", html, without)
		}
		withImages(html, []mailparse.File{{ContentID: cid, ContentType: cid, Content: []byte("x")}})
	})
}

func TestBounceClasses(t *testing.T) {
	for _, c := range []struct {
		status, said, typ, sub string
		suppress               bool
	}{
		{"5.1.1", "550 5.1.1 <a@x>: Recipient address rejected: User unknown", report.Permanent, report.General, true},
		{"5.0.0", "550-5.1.1 The email account that you tried to reach does not exist.", report.Permanent, report.General,
			true},
		{"5.1.1", "", report.Permanent, report.General, true},
		{"5.2.2", "552 5.2.2 Mailbox full", report.Transient, report.MailboxFull, false},
		{"4.4.7", "451 4.1.1 try later", report.Transient, report.General, false},
		{"5.7.1", "554 5.7.1 Blocked by spamhaus", report.Transient, report.General, false},
		{"", "", report.Undetermined, report.Undetermined, false},
		{"5", "host said no", report.Undetermined, report.Undetermined, false},
	} {
		b := bounce(&report.Recipient{Status: c.status, Diagnostic: c.said, Action: report.Failed})
		if b.Type != c.typ || b.SubType != c.sub || b.Suppress != c.suppress || b.Message == "" ||
			len(b.DiagnosticCode) != 1 {
			t.Errorf("%q, %q: %+v", c.status, c.said, b)
		}
	}
}

func FuzzBounce(f *testing.F) {
	f.Add("5.1.1", "550 5.1.1 no such user")
	f.Add("", "\xff\x00")
	f.Fuzz(func(t *testing.T, status, said string) {
		b := bounce(&report.Recipient{Status: status, Diagnostic: said})
		if b.Type == "" || b.SubType == "" || len(b.DiagnosticCode[0]) > 2100 && len(status) < 2000 ||
			!utf8.ValidString(said) && said == b.DiagnosticCode[0] {
			t.Errorf("%+v", b)
		}
	})
}

func FuzzSplit(f *testing.F) {
	f.Add("a@b.example")
	f.Add(`"a@b"@[127.0.0.1]`)
	f.Add("postmaster")
	f.Fuzz(func(t *testing.T, to string) {
		local, host, err := split(to)
		if err == nil && (local == "" || host == "" && local != "postmaster" || strings.ContainsAny(local+host, "\r\n\x00")) {
			t.Errorf("%q: %q at %q", to, local, host)
		}
	})
}
