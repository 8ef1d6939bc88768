package receiving_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-smtp"

	"github.com/postrider/postrider/internal/mail/smtpserver"
	"github.com/postrider/postrider/internal/outbound/receiving"
)

// Nonstandard messages that mail clients can display are accepted unchanged and shown as their senders intended.
func TestOddMessagesAreShown(t *testing.T) {
	const multipart = "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nHello\n--b\n"
	const cat = "begin 644 cat.txt\n#0V%T\n`\nend\n"
	type file struct{ name, contentType, content string }
	messages := []struct {
		name, raw, from, subject, text, html string
		files                                []file
	}{
		{"bytes in encoded words", "From: =?iso-8859-2?Q?\xb3?= <jo@sender.example>\n" +
			"Subject: =?koi8-r?Q?\xf0\xd2=C9?= \xfc\n" + multipart +
			"Content-Type: application/pdf; name=\"=?koi8-r?Q?\xf0?=.pdf\"\n\nA\n--b--\n", "ł <jo@sender.example>",
			"При ü", "Hello", "",
			[]file{{"П.pdf", "application/pdf", "A"}}},
		{"UTF-7", "From: jo@sender.example\nSubject: =?utf-7?Q?Gr+APwA3w-e?=\nContent-Type: text/html; charset=utf-7\n" +
			"\n+ADw-p+AD4-+APw-\n",
			"jo@sender.example", "Grüße", "", "<p>ü", nil},
		{"a uuencoded part", "From: jo@sender.example\nSubject: x\n" + multipart +
			"Content-Type: application/octet-stream\n" +
			"Content-Transfer-Encoding: x-uuencode\n\n" + cat + "--b--\n", "jo@sender.example", "x", "Hello", "",
			[]file{{"cat.txt", "application/octet-stream", "Cat"}}},
		{"a uuencoded file in a text", "From: jo@sender.example\nSubject: x\n\nHello\n" + cat, "jo@sender.example",
			"x", "Hello", "",
			[]file{{"cat.txt", "text/plain", "Cat"}}},
		{"a header that begins with a space", " (oops)\nFrom: jo@sender.example\nSubject: x\n" + multipart +
			"Content-Type: a/b; name=c\n\nA\n--b--\n",
			"jo@sender.example", "x", "Hello", "", []file{{"c", "a/b", "A"}}},
		{"a header that begins with a line of mbox", "From jo\n>From jo\nFrom: jo@sender.example\nSubject: x\n" + multipart +
			"Content-Type: a/b; name=c\n\nA\n--b--\n", "jo@sender.example", "x", "Hello", "", []file{{"c", "a/b", "A"}}},
		{"no header", "Hello\nSubject: x\n" + multipart + "Content-Type: a/b; name=c\n\nA\n--b--\n", "", "",
			"Hello\nSubject: x\n" + strings.TrimSuffix(multipart, "\n") + "\nContent-Type: a/b; name=c\n\nA\n--b--", "", nil},
	}
	each(t, func(t *testing.T, f *fixture) {
		c, err := smtp.Dial(f.listen(t, smtpserver.Config{MaxSize: 1 << 20}))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		for _, m := range messages {
			raw := crlf(m.raw)
			if err := c.SendMail("bounces@sender.example", []string{"a@in.acme.example"}, strings.NewReader(raw)); err != nil {
				t.Fatalf("%s: %v", m.name, err)
			}
			e, content, err := f.Get(t.Context(), f.Acme.TeamID, f.list(t, f.Acme.TeamID)[0].ID, receiving.CID)
			if err != nil {
				t.Fatal(err)
			}
			if got := field(content, "From"); e.Subject != m.subject || got != m.from || field(content, "Subject") != m.subject {
				t.Errorf("%s: from %q, subject %q, in the header %q", m.name, got, e.Subject, field(content, "Subject"))
			}
			if got := shown(content.Text); got != m.text {
				t.Errorf("%s: text %q", m.name, got)
			}
			if got := shown(content.HTML); got != m.html {
				t.Errorf("%s: HTML %q", m.name, got)
			}
			if got := field(content, "Received"); !strings.HasSuffix(got, "+0000") || strings.Count(got, ";") != 1 {
				t.Errorf("%s: our own trace field has something of the message: %q", m.name, got)
			}
			if len(e.Files) != len(m.files) {
				t.Fatalf("%s: files %+v", m.name, e.Files)
			}
			for i, one := range e.Files {
				link, _ := f.FileURL(e.TeamID, e.ID, one.ID, time.Now())
				d, err := f.OpenFile(t.Context(), token(link))
				if err != nil {
					t.Fatal(err)
				}
				got := file{one.Filename, one.ContentType, read(t, d)}
				if got != m.files[i] || one.Size != int64(len(got.content)) {
					t.Errorf("%s: file %+v of %d bytes", m.name, got, one.Size)
				}
			}
			link, _ := f.RawURL(e.TeamID, e.ID, time.Now())
			d, err := f.OpenRaw(t.Context(), token(link))
			if err != nil {
				t.Fatal(err)
			}
			if got := []byte(read(t, d)); !bytes.HasSuffix(got, []byte("\r\n"+raw)) {
				t.Errorf("%s: the raw message is %q", m.name, got)
			}
		}
	})
}

// field returns the first header field with the given name.
func field(c receiving.Content, name string) string {
	for _, f := range c.Header {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

func shown(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}
