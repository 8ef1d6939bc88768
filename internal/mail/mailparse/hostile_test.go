package mailparse

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/postrider/postrider/internal/mail/decode"
	"github.com/postrider/postrider/internal/mail/message"
)

// hostileMessages are messages that are too large for testdata files.
func hostileMessages() map[string]string {
	const head = "From: a@b.example\r\nSubject: x\r\n"
	var parts, nested, encoded strings.Builder
	parts.WriteString(head + "Content-Type: multipart/mixed; boundary=b\r\n\r\n")
	for i := range 10000 {
		fmt.Fprintf(&parts, "--b\r\nContent-Type: application/pdf; name=f%d\r\n\r\n%d\r\n", i, i)
	}
	parts.WriteString("--b--\r\n")
	nested.WriteString(head)
	for i := range 200 {
		fmt.Fprintf(&nested, "Content-Type: multipart/mixed; boundary=b%d\r\n\r\n--b%d\r\n", i, i)
	}
	nested.WriteString("Content-Type: text/plain\r\n\r\ndeep\r\n")
	for i := range 200 {
		fmt.Fprintf(&nested, "--b%d--\r\n", 199-i)
	}
	encoded.WriteString(head)
	for range 20 {
		encoded.WriteString("X: " + strings.Repeat("=?utf-8?Q?=C3?= ", 16000) + "\r\n")
	}
	long := func(s string) string { return strings.Repeat(s, 1<<20/len(s)) }
	return map[string]string{
		"parts":               parts.String(),
		"nested":              nested.String(),
		"fields":              strings.Repeat("A: b\r\n", 200000) + head + "\r\nbody",
		"tiny fields":         strings.Repeat("A:\n", 400000) + "\nbody",
		"long field":          head + "X: " + strings.Repeat(long("x"), 4) + "\r\n\r\nbody",
		"folds":               head + "X: " + long("a\r\n ") + "\r\n\r\nbody",
		"lines without colon": head + long("nothing\r\n"),
		"encoded words":       encoded.String() + "\r\nbody",
		"open words":          head + "X: " + long("=?a?q?") + "\r\n\r\nbody",
		"open base64 words":   head + "X: " + long("=?a?b?x") + "\r\n\r\nbody",
		"question marks":      head + "X: =?a?q?" + long("?") + "\r\n\r\nbody",
		"open quotes":         "From: " + long("\"a@b") + "\r\n\r\nbody",
		"open brackets":       "To: " + long("<") + "\r\n\r\nbody",
		"open comments":       "To: " + long("(,") + "\r\n\r\nbody",
		"colons":              "To: a@" + long(":") + "\r\n\r\nbody",
		"commas":              "To: " + long(",;") + "\r\n\r\nbody",
		"addresses":           "To: " + long("a@b.c,") + "\r\n\r\nbody",
		"references":          "References: " + long("<a@b> ") + "\r\n\r\nbody",
		"open references":     "References: " + long("<") + "\r\n\r\nbody",
		"parameters":          head + "Content-Type: text/plain" + long("; a=b") + "\r\n\r\nbody",
		"sections":            head + "Content-Type: text/plain" + long("; name*1=b") + "\r\n\r\nbody",
		"parts of parameters": head + "Content-Type: multipart/mixed; boundary=b\r\n\r\n" +
			strings.Repeat("--b\r\nContent-Type: a/b"+strings.Repeat(" x=y", 3000)+"\r\n\r\n", 80),
		"dashes":             head + "Content-Type: multipart/mixed; boundary=b\r\n\r\n" + long("--\n"),
		"dashes without end": head + "Content-Type: multipart/mixed; boundary=b\r\n\r\n" + long("--"),
		"delimiters":         head + "Content-Type: multipart/mixed; boundary=b\r\n\r\n" + long("--b\n"),
		"closing delimiters": head + "Content-Type: multipart/mixed; boundary=b\r\n\r\n" + long("--b--\n"),
		"boundaries of others": head + "Content-Type: multipart/mixed; boundary=b\r\n\r\n" +
			strings.Repeat("--b\r\nContent-Type: multipart/mixed\r\n\r\n"+strings.Repeat("-- \r\n", 100), 900),
		"equals":           head + "Content-Transfer-Encoding: quoted-printable\r\n\r\n" + long("="),
		"padding":          head + "Content-Transfer-Encoding: base64\r\n\r\n" + long("AA=!"),
		"carriage returns": long("\r"),
		"newlines":         long("\n"),
		"spaces":           head + long(" \r\n"),
		"nul":              long("\x00"),
		"long line":        head + "\r\n" + strings.Repeat(long("x"), 4),
		"uuencoded lines":  head + "\r\nbegin 644 x\r\n" + long("M\n"),
		"uuencoded files":  head + "\r\n" + long("begin 644 x\n#0V%T\n`\nend\n"),
		"files that begin": head + "\r\n" + long("begin 644 x\n#0V%T\n"),
		"short uuencoded part": head + "Content-Type: a/b\r\nContent-Transfer-Encoding: x-uuencode\r\n\r\n" +
			"begin 644 x\r\n" + long("_\n"),
		"open UTF-7":       head + "Content-Type: text/html; charset=utf-7\r\n\r\n" + long("+"),
		"halves in UTF-7":  head + "Content-Type: text/html; charset=utf-7\r\n\r\n" + long("+2D0-"),
		"folds of nothing": long(" \r\n") + head + "\r\nbody",
		"html without end": head + "Content-Type: multipart/mixed; " +
			"boundary=b\r\n\r\n--b\r\n\r\ntext\r\n--b\r\nContent-Type: text/html\r\n\r\n" + long("<div>"),
	}
}

func TestParseHostile(t *testing.T) {
	t.Parallel()
	for name, raw := range hostileMessages() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			checkParsed(t, Parse([]byte(raw)), len(raw))
		})
	}
}

// checkParsed checks properties that every parsed message must have.
func checkParsed(t *testing.T, p *Parsed, size int) {
	t.Helper()
	texts := []string{p.Subject, p.MessageID, p.HTML(), p.Text()}
	content := 0
	for _, f := range p.Files {
		texts = append(texts, f.Filename, f.ContentType, f.ContentID, f.Disposition)
		content += len(f.Content)
		if f.ContentType == "" {
			t.Error("a file without a type")
		}
	}
	for _, f := range p.Header {
		texts = append(texts, f.Name, f.Value)
		if strings.ContainsAny(f.Value, "\r\n") {
			t.Errorf("a line break in %q", f)
		}
	}
	for _, list := range [][]message.Address{p.From, p.To, p.Cc, p.Bcc, p.ReplyTo} {
		for _, a := range list {
			if _, err := message.ParseAddress(a.Addr()); err != nil {
				t.Errorf("%+v: %v", a, err)
			}
			texts = append(texts, a.Name)
		}
	}
	for _, s := range slices.Concat(texts, p.InReplyTo, p.References) {
		if !utf8.ValidString(s) || strings.IndexByte(s, 0) >= 0 {
			t.Errorf("%.100q is not UTF-8 without NUL", s)
		}
	}
	if strings.ContainsAny(p.Subject+p.MessageID, "\r\n") || strings.Contains(p.Text()+p.HTML(), "\r") {
		t.Error("a line break where none may be")
	}
	if !p.HasHTML && p.HTML() != "" || !p.HasText && p.Text() != "" {
		t.Error("a text that is not there")
	}
	if content > size {
		t.Errorf("%d bytes of files from %d", content, size)
	}
	if len(p.Files) > maxParts+1 || len(p.Header) > maxHeaderFields || len(p.Defects) > maxDefects ||
		len(p.To) > maxAddresses {
		t.Errorf("%d files, %d fields, %d defects, %d addresses", len(p.Files), len(p.Header), len(p.Defects), len(p.To))
	}
}

func TestParseKeepsWhatIsBeyondLimits(t *testing.T) {
	t.Parallel()
	messages := hostileMessages()
	p := Parse([]byte(messages["parts"]))
	last := p.Files[len(p.Files)-1]
	if len(p.Files) != maxParts+1 || !bytes.Contains(last.Content, []byte("name=f9999")) || len(p.Defects) != 1 {
		t.Errorf("%d files, the last of %d bytes, defects %q", len(p.Files), len(last.Content), p.Defects)
	}
	p = Parse([]byte(messages["nested"]))
	if len(p.Files) != 1 || !bytes.Contains(p.Files[0].Content, []byte("deep")) ||
		p.Files[0].ContentType != "multipart/mixed" || len(p.Defects) == 0 {
		t.Errorf("files %+v, defects %q", p.Files, p.Defects)
	}
	p = Parse([]byte(messages["fields"]))
	if p.Subject != "x" && len(p.Header) != maxHeaderFields || p.Text() != "body" {
		t.Errorf("%d fields, text %q", len(p.Header), p.Text())
	}
}

// TestParseMemory limits the total memory allocated for a 30 MB message, including memory that is freed again.
func TestParseMemory(t *testing.T) {
	const head = "From: a@b.example\r\nSubject: x\r\n"
	line := strings.Repeat("QUJD", 19) + "\r\n"
	words := strings.Repeat("word ", 15) + "\r\n"
	uuLine := "M" + strings.Repeat("0V%T", 15) + "\r\n"
	utf7Line := strings.Repeat("+APw-word ", 7) + "\r\n"
	const size = 30 << 20
	for _, tc := range []struct {
		name, raw string
		most      float64 // maximum memory as a multiple of the size
	}{
		{"file in base64", head + "Content-Type: application/pdf\r\nContent-Transfer-Encoding: base64\r\n\r\n" +
			strings.Repeat(line, size/len(line)), 1},
		{"file in 8bit", head + "Content-Type: application/pdf\r\n\r\n" + strings.Repeat(words, size/len(words)), 0.1},
		{"text", head + "\r\n" + strings.Repeat(words, size/len(words)), 2.1},
		{"HTML below plain text", head +
			"Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\n\r\nx\r\n--b\r\nContent-Type: text/html\r\n\r\n" +
			strings.Repeat(words, size/len(words)) + "--b--\r\n", 2.1},
		{"text in base64", head + "Content-Transfer-Encoding: base64\r\n\r\n" + strings.Repeat(line, size/len(line)), 2},
		{"uuencoded file", head + "Content-Type: application/pdf\r\nContent-Transfer-Encoding: x-uuencode\r\n\r\n" +
			"begin 644 x\r\n" +
			strings.Repeat(uuLine, size/len(uuLine)) + "end\r\n", 1},
		{"uuencoded file in a text", head + "\r\nbegin 644 x\r\n" + strings.Repeat(uuLine, size/len(uuLine)) + "end\r\n", 1},
		{"text in UTF-7", head + "Content-Type: text/html; charset=utf-7\r\n\r\n" + strings.Repeat(utf7Line,
			size/len(utf7Line)), 4},
		{"text in latin-1", head + "Content-Type: text/html; charset=latin1\r\nContent-Transfer-Encoding: " +
			"quoted-printable\r\n\r\n" +
			strings.Repeat(words, size/len(words)), 6},
	} {
		raw := []byte(tc.raw)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		p := Parse(raw)
		runtime.ReadMemStats(&after)
		if cost := float64(after.TotalAlloc-before.TotalAlloc) / size; cost > tc.most {
			t.Errorf("%s: %.2f times its size", tc.name, cost)
		}
		checkParsed(t, p, len(raw))
	}
}

// sameMessage checks that a parsed message equals the composed one.
func sameMessage(t *testing.T, m *message.Message) {
	t.Helper()
	raw, err := m.Compose()
	if err != nil {
		return
	}
	p := Parse(raw)
	if len(p.Defects) > 0 {
		t.Errorf("defects %q of\n%s", p.Defects, raw)
	}
	if want := strings.ToValidUTF8(m.Subject, "\uFFFD"); decode.WithoutControls(want) == want && p.Subject != want {
		t.Errorf("subject %q, want %q", p.Subject, want)
	}
	if p.MessageID != m.ID || !p.Date.Equal(m.Date) || len(p.From) != 1 || p.From[0].Addr() != m.From.Addr() {
		t.Errorf("id %s, date %s, from %v", p.MessageID, p.Date, p.From)
	}
	// Some mail readers treat a lone carriage return as a line ending, but others do not.
	plain := func(s string) string {
		s = strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\r\n", "\n"), "\r",
			"\n"), "\x00", "")
		return strings.TrimPrefix(s, "\uFEFF")
	}
	if p.HTML() != plain(m.HTML) || p.Text() != plain(m.Text) || p.HasHTML != (m.HTML != "") ||
		p.HasText != (m.Text != "" || m.HTML == "") {
		t.Errorf("html %q, text %q; want %q, %q\n%s", p.HTML(), p.Text(), m.HTML, m.Text, raw)
	}
	if len(p.Files) != len(m.Attachments) {
		t.Fatalf("%d files, want %d\n%s", len(p.Files), len(m.Attachments), raw)
	}
	// In a composed message, inline parts come before other attachments.
	inline := func(a message.Attachment) bool { return a.ContentID != "" && m.HTML != "" }
	want := slices.Clone(m.Attachments)
	slices.SortStableFunc(want, func(a, b message.Attachment) int {
		switch {
		case inline(a) == inline(b):
			return 0
		case inline(a):
			return -1
		}
		return 1
	})
	for i, a := range want {
		f := p.Files[i]
		if a.Filename != "" && decode.WithoutControls(a.Filename) == a.Filename && f.Filename != a.Filename ||
			f.ContentID != a.ContentID || !bytes.Equal(f.Content, a.Content) {
			t.Errorf("file %+v, want %+v\n%s", f, a, raw)
		}
	}
}

func FuzzParseComposed(f *testing.F) {
	f.Add("Grüße", "text\n\nend\n", "<p>x</p>", "a b.pdf", "logo", "application/pdf", []byte("content"))
	f.Add(" =?utf-8?Q?a?= ", "From a\n.\r\n--x", "", "=?utf-8?Q?=C3?=.txt", "", "text/plain", []byte("--b\r\n"))
	f.Add("", "", "\n<p>\xff", strings.Repeat("ü", 90), "", "message/rfc822", []byte("Subject: x\r\n\r\n"))
	f.Fuzz(func(t *testing.T, subject, text, html, filename, contentID, contentType string, content []byte) {
		sameMessage(t, &message.Message{
			ID: "<1@example.com>", Date: time.Unix(1772600000, 0), From: message.Address{Local: "a", Domain: "b.example"},
			Subject: subject, Text: text, HTML: html,
			Attachments: []message.Attachment{
				{Filename: filename, ContentType: contentType, Content: content},
				{Filename: filename, ContentID: contentID, Content: content},
			},
		})
	})
}

func FuzzParse(f *testing.F) {
	names, err := filepath.Glob("testdata/*/*.eml")
	if err != nil {
		f.Fatal(err)
	}
	for _, name := range names {
		raw, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(raw)
	}
	const part = "Content-Type: multipart/mixed; boundary=b\n\n--b\n"
	for _, seed := range []string{
		"To: <<<<((((\"\"\"\"a@b a@b a@b,(,<(", "Subject: =?a?q?=?a?b?x=?a?q??", "References: <<<a@b><a@b><",
		"Content-Type: a/b; a*0=b;a*1*=%41; a=(;=",
		part + "Content-Type: multipart/mixed; boundary=b\n\n--b\n--b--\n--b--\n", part +
			"Content-Type: text/html\n\n<!----!><!----!>\n--b\n\nx\n",
		" x\nSubject: =?iso-8859-2?Q?\xb3?= \xb3 =?utf-7?Q?+APw?=\nContent-Type: a/b; name*=koi8-r''\xf0; charset=utf-7\n\nx",
		"begin 644 a\n#0V%T\nend\n", "From: a@b.c\n\nbegin 644 a\n#0V%T\nend\n",
		"Content-Transfer-Encoding: uue\n\nbegin 644 a\n#0V%T\nend\n",
		"Content-Transfer-Encoding: base64\n\nAA=!QQ==\n", "Content-Transfer-Encoding: quoted-printable\n\n==\n=4=41= \n",
		"Content-Type: text/plain; charset=iso-2022-jp\n\n\x1b$B",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		checkParsed(t, Parse(raw), len(raw))
	})
}
