package message

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"mime"
	"net/textproto"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	gomessage "github.com/emersion/go-message"
	"github.com/emersion/go-message/mail"
	"github.com/google/go-cmp/cmp"
)

var composedAt = time.Date(2026, 3, 4, 6, 6, 7, 0, time.FixedZone("", 3600))

// plainMessage is a minimal message with a body.
func plainMessage() *Message {
	return &Message{
		ID: "<1@example.com>", Date: composedAt, From: Address{"Ann", "ann", "example.com"},
		To: []Address{{"", "bob", "example.net"}}, Subject: "Hello", Text: "Hi Bob.\n", Seed: "seed",
	}
}

func compose(t *testing.T, m *Message) []byte {
	t.Helper()
	raw, err := m.Compose()
	if err != nil {
		t.Fatalf("Compose: %v", err)
	}
	checkLines(t, raw)
	return raw
}

// checkLines checks that a message is 7-bit, has only CRLF line endings and lines of at most 998 bytes, and ends with
// CRLF.
func checkLines(t *testing.T, raw []byte) {
	t.Helper()
	if !bytes.HasSuffix(raw, []byte("\r\n")) {
		t.Errorf("message does not end with CRLF")
	}
	for line := range bytes.SplitSeq(bytes.TrimSuffix(raw, []byte("\r\n")), []byte("\r\n")) {
		if bytes.ContainsAny(line, "\r\n\x00") {
			t.Fatalf("line has a CR, LF or NUL: %q", line)
		}
		if i := bytes.IndexFunc(line, func(r rune) bool { return r >= utf8.RuneSelf }); i >= 0 {
			t.Fatalf("line has 8 bits: %q", line)
		}
		if len(line) > maxLine {
			t.Fatalf("line has %d bytes: %.60q", len(line), line)
		}
	}
}

func countFields(t *testing.T, raw []byte) int {
	t.Helper()
	head, _, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
	n := 0
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		if line[0] != ' ' && line[0] != '\t' {
			n++
		}
	}
	return n
}

// part is a MIME part as parsed by another library.
type part struct {
	Path, Type, Disposition, Filename, ContentID, Encoding string
	Body                                                   string
}

// parse parses a message with another library and returns its leaf parts. The field Path names the multiparts that
// enclose a leaf.
func parse(t *testing.T, raw []byte) (mail.Header, []part) {
	t.Helper()
	entity, err := gomessage.Read(bytes.NewReader(raw))
	if err != nil {
		t.Fatalf("read: %v\n%s", err, raw)
	}
	var parts []part
	var walk func(e *gomessage.Entity, path string)
	walk = func(e *gomessage.Entity, path string) {
		mediaType, _, err := e.Header.ContentType()
		if err != nil {
			t.Fatalf("content type: %v\n%s", err, raw)
		}
		if r := e.MultipartReader(); r != nil {
			for {
				child, err := r.NextPart()
				if err == io.EOF {
					return
				}
				if err != nil {
					t.Fatalf("next part of %s: %v\n%s", mediaType, err, raw)
				}
				walk(child, path+strings.TrimPrefix(mediaType, "multipart/")+"/")
			}
		}
		body, err := io.ReadAll(e.Body)
		if err != nil {
			t.Fatalf("body: %v\n%s", err, raw)
		}
		// The parameters are parsed with package mime, because the other library decodes encoded words even where RFC
		// 2047 does not allow them.
		disposition, parameters, _ := mime.ParseMediaType(e.Header.Get("Content-Disposition"))
		parts = append(parts, part{
			Path: path, Type: mediaType, Disposition: disposition, Filename: parameters["filename"],
			ContentID: e.Header.Get("Content-Id"), Encoding: e.Header.Get("Content-Transfer-Encoding"), Body: string(body),
		})
	}
	walk(entity, "")
	return mail.Header{Header: entity.Header}, parts
}

func TestComposeHeader(t *testing.T) {
	t.Parallel()
	m := plainMessage()
	m.From = Address{"Zoë Müller-Lüdenscheidt, Geschäftsführerin der Gesellschaft", "zoe", "example.com"}
	m.To = []Address{{"山田太郎", "yamada", "example.jp"}, {`Lee, "Ann"`, "ann", "example.net"}, {"", `"a b"`, "example.net"},
		{"Петр Ильич", "petr", "xn--e1afmkfd.xn--p1ai"}}
	m.Cc = []Address{{"مرحبا بالعالم", "m", "example.org"}}
	m.ReplyTo = []Address{{"", "r", "example.com"}, {"नमस्ते", "n", "example.com"}}
	m.Subject = "Grüße aus Köln: " + strings.Repeat("日本語のとても長い件名 👋 ", 12)
	m.Headers = []Field{
		{"X-Entity-Ref-ID", "0195b2c4"}, {"References", strings.Repeat("<0123456789@example.com> ", 30)},
		{"X-Note", "größer"}, {"message-id", "<other@example.com>"}, {"X-Empty", ""},
	}
	raw := compose(t, m)
	header, _ := parse(t, raw)
	for name, want := range map[string][]Address{"From": {m.From}, "To": m.To, "Cc": m.Cc, "Reply-To": m.ReplyTo} {
		list, err := header.AddressList(name)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		var got []Address
		for _, a := range list {
			at := strings.LastIndex(a.Address, "@")
			got = append(got, Address{a.Name, a.Address[:at], a.Address[at+1:]})
		}
		// The other library's parser removes the quotes from a local part.
		for i := range want {
			want[i].Local = strings.Trim(want[i].Local, `"`)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if got, err := header.Subject(); err != nil || got != m.Subject {
		t.Errorf("subject is %q, error %v", got, err)
	}
	if got, err := header.Date(); err != nil || !got.Equal(composedAt) {
		t.Errorf("date is %s, error %v", got, err)
	}
	if got, err := header.MessageID(); err != nil || got != "1@example.com" {
		t.Errorf("id is %q, error %v", got, err)
	}
	if got, err := header.Text("X-Note"); err != nil || got != "größer" {
		t.Errorf("X-Note is %q, error %v", got, err)
	}
	if got, want := header.Get("References"), strings.TrimSpace(m.Headers[1].Value); got != want {
		t.Errorf("References is %q", got)
	}
	if !header.Has("X-Empty") || header.Get("X-Entity-Ref-ID") != "0195b2c4" || header.Get("MIME-Version") != "1.0" {
		t.Errorf("fields are missing:\n%s", raw)
	}
	if n := bytes.Count(bytes.ToLower(raw), []byte("message-id:")); n != 1 {
		t.Errorf("there are %d Message-ID fields", n)
	}
	head, _, _ := bytes.Cut(raw, []byte("\r\n\r\n"))
	for line := range bytes.SplitSeq(head, []byte("\r\n")) {
		if len(line) > 78 {
			t.Errorf("line of the header has %d bytes: %q", len(line), line)
		}
	}
}

// Header fields are accepted as long as they fit on a line.
func TestComposeLongFields(t *testing.T) {
	t.Parallel()
	a := func(n int) string { return strings.Repeat("a", n) }
	for id, taken := range map[string]bool{
		"<x@y>": true, "<@y>": false, "<x@>": false, "x@y": false, "<x@y": false, "x@y>": false, "<xyz>": false,
		"<x@y>z>": false, "<é@y>": false,
		"<" + a(998-len("Message-ID: <@y>")) + "@y>": true, "<" + a(999-len("Message-ID: <@y>")) + "@y>": false,
	} {
		m := plainMessage()
		m.ID = id
		if raw, err := m.Compose(); (err == nil) != taken {
			t.Errorf("id of %d bytes: %v", len(id), err)
		} else if err == nil {
			checkLines(t, raw)
		}
	}
	for subject, want := range map[string]string{
		a(998 - len("Subject: ")): a(998 - len("Subject: ")), a(999 - len("Subject: ")): "=?UTF-8?Q?" + a(55) + "?=",
		a(100) + "é": "=?UTF-8?Q?" + a(55) + "?=", " a": "=?UTF-8?Q?_a?=", "a ": "=?UTF-8?Q?a_?=", "=?": "=?UTF-8?B?PT8=?=",
		"~": "~",
	} {
		m := plainMessage()
		m.Subject = subject
		raw := compose(t, m)
		if !bytes.Contains(raw, []byte("\r\nSubject: "+want+"\r\n")) {
			t.Errorf("subject of %d bytes: %s", len(subject), raw)
		}
	}
	m := plainMessage()
	m.Headers = []Field{{"X-A", a(100) + "é"}}
	if raw := compose(t, m); !bytes.Contains(raw, []byte("\r\nX-A: =?UTF-8?Q?"+a(59)+"?=\r\n")) {
		t.Errorf("%s", raw)
	}
}

func TestComposeBytes(t *testing.T) {
	t.Parallel()
	m := plainMessage()
	m.HTML = "<p>Hi <b>Bob</b>.</p>"
	want := strings.ReplaceAll(`Date: Wed, 04 Mar 2026 05:06:07 +0000
From: Ann <ann@example.com>
To: bob@example.net
Subject: Hello
Message-ID: <1@example.com>
MIME-Version: 1.0
Content-Type: multipart/alternative;
 boundary="=_a19b25856e1c150ca834cffc8"

--=_a19b25856e1c150ca834cffc8
Content-Type: text/plain; charset=utf-8
Content-Transfer-Encoding: 7bit

Hi Bob.

--=_a19b25856e1c150ca834cffc8
Content-Type: text/html; charset=utf-8
Content-Transfer-Encoding: 7bit

<p>Hi <b>Bob</b>.</p>
--=_a19b25856e1c150ca834cffc8--
`, "\n", "\r\n")
	if diff := cmp.Diff(want, string(compose(t, m))); diff != "" {
		t.Errorf("message (-want +got):\n%s", diff)
	}
	if !bytes.Equal(compose(t, m), compose(t, m)) {
		t.Error("the same message has other bytes the second time")
	}
	m.To = nil
	if raw := compose(t, m); !bytes.Contains(raw, []byte("\r\nTo: undisclosed-recipients:;\r\n")) {
		t.Errorf("message without visible recipients:\n%s", raw)
	}
	m.Subject, m.Cc = "", []Address{{"", "c", "example.net"}}
	if raw := compose(t, m); bytes.Contains(raw, []byte("\r\nTo:")) || bytes.Contains(raw, []byte("Subject:")) {
		t.Errorf("message with Cc alone and without subject:\n%s", raw)
	}
}

func TestComposeStructure(t *testing.T) {
	t.Parallel()
	binary := make([]byte, 10_000)
	for i := range binary {
		binary[i] = byte(i * 7)
	}
	pdf := Attachment{Filename: "Rechnung März.pdf", Content: binary}
	logo := Attachment{Filename: "logo.png", ContentID: "logo", Content: []byte("\x89PNG\r\n")}
	eml := Attachment{Filename: "old.eml", Content: []byte("From: a@b.c\r\n\r\nHi\r\n")}
	textPart := func(path string) part {
		return part{Path: path, Type: "text/plain", Encoding: "7bit", Body: "text"}
	}
	htmlPart := func(path string) part {
		return part{Path: path, Type: "text/html", Encoding: "7bit", Body: "<p>html"}
	}
	pdfPart := part{"mixed/", "application/pdf", "attachment", "Rechnung März.pdf", "", "base64", string(binary)}
	logoPart := func(path, disposition string) part {
		return part{path, "image/png", disposition, "logo.png", "<logo>", "base64", "\x89PNG\r\n"}
	}
	for _, tc := range []struct {
		name, html, text string
		attachments      []Attachment
		want             []part
	}{
		{"text", "", "text", nil, []part{{Type: "text/plain", Encoding: "7bit", Body: "text\r\n"}}},
		{"html", "<p>html", "", nil, []part{{Type: "text/html", Encoding: "7bit", Body: "<p>html\r\n"}}},
		{"neither", "", "", nil, []part{{Type: "text/plain", Encoding: "7bit", Body: "\r\n"}}},
		{"both", "<p>html", "text", nil, []part{textPart("alternative/"), htmlPart("alternative/")}},
		{"text, file", "", "text", []Attachment{pdf}, []part{textPart("mixed/"), pdfPart}},
		{"file alone", "", "", []Attachment{pdf}, []part{{Path: "mixed/", Type: "text/plain", Encoding: "7bit"}, pdfPart}},
		{"html, image", "<p>html", "", []Attachment{logo}, []part{htmlPart("related/"), logoPart("related/", "inline")}},
		{"text, image", "", "text", []Attachment{logo}, []part{textPart("mixed/"), logoPart("mixed/", "attachment")}},
		{"all", "<p>html", "text", []Attachment{pdf, logo, logo}, []part{
			textPart("mixed/alternative/"), htmlPart("mixed/alternative/related/"),
			logoPart("mixed/alternative/related/", "inline"), logoPart("mixed/alternative/related/", "inline"), pdfPart,
		}},
		{"empty file", "", "text", []Attachment{{}}, []part{textPart("mixed/"), {"mixed/", octetStream, "attachment", "", "",
			"base64", ""}}},
		{"message", "", "text", []Attachment{eml}, []part{textPart("mixed/"), {"mixed/", "message/rfc822", "attachment",
			"old.eml", "", "7bit", string(eml.Content)}}},
		{"message in 8-bit", "", "text", []Attachment{{Filename: "old.eml", Content: []byte("From: \xe4\r\n")}}, []part{
			textPart("mixed/"), {"mixed/", octetStream, "attachment", "old.eml", "", "base64", "From: \xe4\r\n"}}},
		{"multipart", "", "text", []Attachment{{ContentType: `multipart/mixed; boundary="x"`, Content: []byte("--x--")}},
			[]part{
				textPart("mixed/"), {"mixed/", octetStream, "attachment", "", "", "base64", "--x--"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := plainMessage()
			m.HTML, m.Text, m.Attachments = tc.html, tc.text, tc.attachments
			_, parts := parse(t, compose(t, m))
			if diff := cmp.Diff(tc.want, parts); diff != "" {
				t.Errorf("parts (-want +got):\n%s", diff)
			}
		})
	}
}

// White space at the end of a line of HTML has no meaning and needs no encoding. Apart from that, HTML is encoded like
// plain text.
func TestComposeHTML(t *testing.T) {
	t.Parallel()
	for html, want := range map[string]string{"<p>a \n\t\n<p>b  ": "7bit", "<p>" +
		strings.Repeat("a ", 40): "quoted-printable", "From a": "quoted-printable",
		"a\rb": "quoted-printable", "<p>ü": "quoted-printable", "--=_x": "quoted-printable"} {
		m := plainMessage()
		m.Text, m.HTML = "x", html
		_, parts := parse(t, compose(t, m))
		if len(parts) != 2 || parts[1].Encoding != want {
			t.Errorf("%q was sent in %s, want %s", html, parts[1].Encoding, want)
		}
	}
}

func TestComposeBodies(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ name, text, encoding string }{
		{"ASCII", "Hi\nBob\n", "7bit"},
		{"CR at the beginning of a line", "a good deal of plain text\n\rb", "quoted-printable"},
		{"CRLF already", "Hi\r\nBob\r\n", "7bit"},
		{"long line", strings.Repeat("word ", 400) + "end", "quoted-printable"},
		{"long word", strings.Repeat("w", 5000), "quoted-printable"},
		{"few accents", "Grüße aus Köln, und alles Gute für das neue Jahr.", "quoted-printable"},
		{"Japanese", strings.Repeat("こんにちは。\n", 20), "base64"},
		{"emoji", strings.Repeat("👩‍💻", 50), "base64"},
		{"white space at the ends of lines", "a \nb\t\n \n", "quoted-printable"},
		{"From at the beginning of lines", "From here\n\nFrom there\n>From\n", "quoted-printable"},
		{"dots", ".\n..\n.a\n", "7bit"},
		{"equals signs", strings.Repeat("a=b&c=3D\n", 9), "7bit"},
		{"control characters", "a plain enough line of text\x00\x1b\x7f\rb", "quoted-printable"},
		{"something like our boundary", "--=_a19b25856e1c150ca834cffc8--\n", "quoted-printable"},
		{"76 columns", strings.Repeat("w", 76) + "\n" + strings.Repeat("x", 76), "7bit"},
		{"77 columns", strings.Repeat("w", 77) + "\n" + strings.Repeat("x", 75) + " \n" + strings.Repeat("x", 74) + "=",
			"quoted-printable"},
		{"not UTF-8", "a good deal of plain text and then \xff\xfe", "quoted-printable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			m := plainMessage()
			m.Text, m.HTML = tc.text, "<p>x"
			raw := compose(t, m)
			_, parts := parse(t, raw)
			if len(parts) != 2 {
				t.Fatalf("%d parts:\n%s", len(parts), raw)
			}
			want := wireText(tc.text)
			if parts[0].Body != want || parts[0].Encoding != tc.encoding {
				t.Errorf("text came back in %s as %q, want %s and %q", parts[0].Encoding, parts[0].Body, tc.encoding, want)
			}
			for line := range bytes.SplitSeq(raw, []byte("\r\n")) {
				if len(line) > 78 || bytes.HasPrefix(line, []byte("From ")) {
					t.Errorf("line is %q", line)
				}
			}
		})
	}
}

// wireText returns the form that a string should have after transmission: valid UTF-8 with CRLF line endings.
func wireText(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	return strings.ReplaceAll(strings.ReplaceAll(s, "\r\n", "\n"), "\n", "\r\n")
}

func TestComposeFilenames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"a.pdf", `with "quotes" and \ slash.txt`, "semi;colon=.txt", strings.Repeat("long ", 40) + ".pdf", "Übersicht.xlsx",
		strings.Repeat("とても長い名前", 12) + ".pdf", "100% (final) 'x'.txt", "tab\t.txt", "a\\", "=?utf-8?q?x?=.txt", "..",
		" lead.txt ",
	} {
		m := plainMessage()
		m.Attachments = []Attachment{{Filename: name, Content: []byte("x")}}
		raw := compose(t, m)
		_, parts := parse(t, raw)
		if parts[1].Filename != name {
			t.Errorf("%q came back as %q:\n%s", name, parts[1].Filename, raw)
		}
		for line := range bytes.SplitSeq(raw, []byte("\r\n")) {
			if len(line) > 78 && bytes.Count(line, []byte(" ")) > 1 {
				t.Errorf("%q makes a line of %d bytes: %q", name, len(line), line)
			}
		}
	}
}

func TestComposeRefuses(t *testing.T) {
	t.Parallel()
	for _, evil := range []string{"\r\nBcc: x@y.z", "\nX: y", "\r", "\x00", "\n\nbody"} {
		for where, spoil := range map[string]func(*Message){
			"From name":         func(m *Message) { m.From.Name += evil },
			"From local":        func(m *Message) { m.From.Local += evil },
			"From domain":       func(m *Message) { m.From.Domain += evil },
			"quoted local":      func(m *Message) { m.From.Local = `"a` + evil + `"` },
			"To name":           func(m *Message) { m.To[0].Name += evil },
			"To local":          func(m *Message) { m.To[0].Local += evil },
			"Cc domain":         func(m *Message) { m.Cc = []Address{{"", "a", "b.c" + evil}} },
			"Reply-To name":     func(m *Message) { m.ReplyTo = []Address{{evil, "a", "b.c"}} },
			"Subject":           func(m *Message) { m.Subject += evil },
			"ID":                func(m *Message) { m.ID = "<1" + evil + "@b.c>" },
			"header name":       func(m *Message) { m.Headers = []Field{{"X" + evil, "y"}} },
			"header value":      func(m *Message) { m.Headers = []Field{{"X", "y" + evil}} },
			"Message-ID header": func(m *Message) { m.Headers = []Field{{"Message-ID", "y" + evil}} },
			"file name":         func(m *Message) { m.Attachments = []Attachment{{Filename: "a" + evil}} },
			"content type":      func(m *Message) { m.Attachments = []Attachment{{ContentType: "text/plain; x=y" + evil}} },
			"quoted parameter": func(m *Message) {
				m.Attachments = []Attachment{{ContentType: `text/plain; x="y` + evil +
					`"`}}
			},
			"content id": func(m *Message) { m.HTML, m.Attachments = "x", []Attachment{{ContentID: "a" + evil}} },
		} {
			m := plainMessage()
			spoil(m)
			if raw, err := m.Compose(); err == nil && (strings.TrimSpace(evil) != "" || countFields(t, raw) != 8) {
				t.Errorf("%q in %s was composed:\n%s", evil, where, raw)
			} else if err != nil && raw != nil {
				t.Errorf("%q in %s: bytes beside an error", evil, where)
			}
		}
	}
	for name, spoil := range map[string]func(*Message){
		"no date":               func(m *Message) { m.Date = time.Time{} },
		"no id":                 func(m *Message) { m.ID = "" },
		"id without brackets":   func(m *Message) { m.ID = "1@example.com" },
		"id with a space":       func(m *Message) { m.ID = "<1 @example.com>" },
		"no sender":             func(m *Message) { m.From = Address{} },
		"two addresses in one":  func(m *Message) { m.To[0].Local = "a@b.c, d" },
		"an address in a name":  func(m *Message) { m.To[0].Domain = "b.c> <d@e.f" },
		"domain in upper case":  func(m *Message) { m.To[0].Domain = "B.C" },
		"domain in U-labels":    func(m *Message) { m.To[0].Domain = "bücher.de" },
		"Bcc as a header":       func(m *Message) { m.Headers = []Field{{"Bcc", "x@y.z"}} },
		"type without a slash":  func(m *Message) { m.Attachments = []Attachment{{ContentType: "pdf"}} },
		"content id in <>":      func(m *Message) { m.Attachments = []Attachment{{ContentID: "<a>"}} },
		"content id with space": func(m *Message) { m.Attachments = []Attachment{{ContentID: "a b"}} },
	} {
		m := plainMessage()
		spoil(m)
		if raw, err := m.Compose(); err == nil {
			t.Errorf("%s was composed:\n%s", name, raw)
		}
	}
	m := plainMessage()
	m.Attachments = []Attachment{{Filename: "a\nb"}}
	_, err := m.Compose()
	if got, ok := errors.AsType[*AttachmentError](err); !ok || got.Filename != "a\nb" {
		t.Errorf("error is %#v", err)
	}
}

func TestEncodedWords(t *testing.T) {
	t.Parallel()
	var dec mime.WordDecoder
	for _, s := range []string{"", "é", "a = b ? c_d é", strings.Repeat("é ", 100), strings.Repeat("山", 100), "é\t\x01",
		"(\"é\")", strings.Repeat("a", 200) + "é"} {
		for _, phrase := range []bool{false, true} {
			encoded := string(appendEncodedWords(nil, s, phrase, 9))
			for word := range strings.SplitSeq(encoded, " ") {
				if len(word) > 75 {
					t.Errorf("word has %d bytes: %s", len(word), word)
				}
				if one, err := dec.Decode(word); err != nil || !utf8.ValidString(one) {
					t.Errorf("word %s is %q, error %v", word, one, err)
				}
			}
			if got, err := dec.DecodeHeader(encoded); err != nil || got != s {
				t.Errorf("%q came back as %q, error %v: %s", s, got, err, encoded)
			}
		}
	}
}

func FuzzCompose(f *testing.F) {
	f.Add("Hello", "Hi Bob.\n", "<p>Hi</p>", "Ann", "a.pdf", []byte("x"))
	f.Add("Grüße  👋 =?utf-8?q?x?=", "a \n\nFrom b\n.\n", "", "Lee, \"Ann\"", "März.pdf", []byte("\x00\xff\r\n--=_m"))
	f.Add(" x ", "--=_a1\n\r\r\n", strings.Repeat("<td style=\"a:b\">", 30), "=?utf-8?q?x?=", "a\"\\b.eml",
		[]byte("From: a\r\n\r\n"))
	f.Add(strings.Repeat("w", 1200), "", "", "山田", "", []byte(nil))
	f.Add("x", "", "", strings.Repeat("-", 1900), "", []byte("x"))
	f.Fuzz(func(t *testing.T, subject, text, html, name, filename string, content []byte) {
		m := plainMessage()
		m.Subject, m.Text, m.HTML, m.From.Name = subject, text, html, name
		m.Attachments = []Attachment{{Filename: filename, Content: content}}
		raw, err := m.Compose()
		if err != nil {
			if !strings.ContainsAny(subject+filename, "\r\n\x00") && unprintable(name) == "" && utf8.ValidString(filename) &&
				len(filename) <= maxFilename {
				t.Fatalf("refused: %v", err)
			}
			return
		}
		checkLines(t, raw)
		if _, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(raw))).ReadMIMEHeader(); err != nil {
			t.Fatalf("header: %v\n%s", err, raw)
		}
		header, parts := parse(t, raw)
		if got, err := header.Subject(); err != nil || got != strings.ToValidUTF8(subject, "\uFFFD") {
			t.Fatalf("subject %q came back as %q, error %v\n%s", subject, got, err, raw)
		}
		from, err := header.AddressList("From")
		if err != nil || len(from) != 1 || from[0].Name != name || from[0].Address != "ann@example.com" {
			t.Fatalf("sender %q came back as %+v, error %v\n%s", name, from, err, raw)
		}
		want := []part{}
		if text != "" || html == "" {
			want = append(want, part{Type: "text/plain", Body: wireText(text)})
		}
		if html != "" {
			want = append(want, part{Type: "text/html", Body: wireText(html)})
		}
		if len(parts) != len(want)+1 {
			t.Fatalf("%d parts, want %d\n%s", len(parts), len(want)+1, raw)
		}
		for i, w := range want {
			if parts[i].Type != w.Type || parts[i].Body != w.Body {
				t.Fatalf("%s %q came back as %s %q\n%s", w.Type, w.Body, parts[i].Type, parts[i].Body, raw)
			}
		}
		file := parts[len(want)]
		if file.Body != string(content) || file.Filename != filename {
			t.Fatalf("file %q came back as %q, its content as %q, want %q\n%s", filename, file.Filename, file.Body, content, raw)
		}
	})
}

// A report is a multipart/report whose first part is its text.
func TestComposeReport(t *testing.T) {
	t.Parallel()
	m := plainMessage()
	m.ReportType, m.Attachments = "tlsrpt", []Attachment{{Filename: "a!b.json.gz", ContentType: "application/tlsrpt+gzip",
		Content: []byte{0x1f, 0x8b}}}
	r, err := gomessage.Read(bytes.NewReader(compose(t, m)))
	if err != nil {
		t.Fatal(err)
	}
	if kind, params, err := r.Header.ContentType(); err != nil || kind != "multipart/report" ||
		params["report-type"] != "tlsrpt" {
		t.Errorf("%s, %v, %v", kind, params, err)
	}
	parts := r.MultipartReader()
	for _, want := range []string{"text/plain", "application/tlsrpt+gzip"} {
		part, err := parts.NextPart()
		if err != nil {
			t.Fatal(err)
		}
		if kind, _, err := part.Header.ContentType(); err != nil || kind != want {
			t.Errorf("%s, %v; want %s", kind, err, want)
		}
	}
	for _, kind := range []string{"a b", "a\r\nb", "a;b", `"`} {
		m.ReportType = kind
		if _, err := m.Compose(); err == nil {
			t.Errorf("the report type %q", kind)
		}
	}
}
