package mailparse

import (
	"bytes"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/decode"
)

// The tests in this file parse syntax that no standard allows but that mail readers accept. The expected results are
// what a mail reader should show.

// uuencoded encodes content with uuencode as common programs do.
func uuencoded(name string, content []byte) string {
	var b strings.Builder
	char := func(v byte) {
		if v &= 63; v == 0 {
			v = '`' - ' '
		}
		b.WriteByte(v + ' ')
	}
	b.WriteString("begin 644 " + name + "\n")
	for len(content) > 0 {
		line := content[:min(len(content), 45)]
		content = content[len(line):]
		char(byte(len(line)))
		for i := 0; i < len(line); i += 3 {
			var g [3]byte
			copy(g[:], line[i:])
			char(g[0] >> 2)
			char(g[0]<<4 | g[1]>>4)
			char(g[1]<<2 | g[2]>>6)
			char(g[2])
		}
		b.WriteByte('\n')
	}
	b.WriteString("`\nend\n")
	return b.String()
}

const uuCat = "begin 644 cat.txt\n#0V%T\n`\nend\n"

// TestParseLenient parses whole messages.
func TestParseLenient(t *testing.T) {
	t.Parallel()
	const from = "From: a@b.example\n"
	const part = from + "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=b\n\n--b\n\nHello\n--b\n"
	const odd = "defect: A part is not encoded as it says; what can be read of it was kept.\n"
	const notField = "defect: The header has a line that is no field.\n"
	const sender = "from: <a@b.example>\n"
	jpeg := []byte("\xff\xd8\xff\xe0\x00\x10JFIF")
	for _, tc := range []struct{ name, raw, want string }{
		{"octets in names", "From: =?iso-8859-2?Q?\xb3\xf3d=BC?= <a@b.example>\n" +
			"To: \"=?koi8-r?Q?\xf0\xd2?=\" <c@d.example>, \xfc <e@f.example>, g@h.example (=?koi8-r?Q?\xf0?=)\n\nx",
			"from: łódź <a@b.example>\nto: Пр <c@d.example>\nto: ü <e@f.example>\nto: П <g@h.example>\ntext: x\n"},
		{"octets in a folded subject", from +
			"Subject: =?windows-1251?Q?\xcf\xf0\xe8?=\n =?windows-1251?Q?\xe2\xe5\xf2?= \xc3\xbc\n\nx",
			sender + "subject: Привет ü\ntext: x\n"},
		{"a word that is folded within", from + "Subject: =?iso-8859-1?B?R/xy\n bA==?= =?iso-8859-1?Q?\xfc\n b?=\n\n" +
			"x", sender + "subject: Gürlü b\ntext: x\n"},
		{"octets in file names", part + "Content-Type: application/pdf; name=\"=?koi8-r?Q?\xf0?=.pdf\"\n\nA\n--b\n" +
			"Content-Type: application/pdf\nContent-Disposition: attachment; filename*=iso-8859-2''\xb3%F3d.pdf\n\nB\n--b\n" +
			"Content-Type: application/pdf\n" +
			"Content-Disposition: attachment; filename*0*=koi8-r''%F0; filename*1*=\xd2; filename*2=.pdf\n\nC\n--b\n" +
			"Content-Type: application/pdf\n" +
			"Content-Disposition: attachment; filename=\"=?koi8-r?Q?\xf0?= =?koi8-r?Q?\xd2?=\"\n\nD\n--b\n" +
			"Content-Type: application/pdf; name=\xfc.pdf\n\nE\n--b--\n",
			sender + "text: Hello\nfile: П.pdf | application/pdf |  |  | A\n" +
				"file: łód.pdf | application/pdf | attachment |  | B\n" +
				"file: Пр.pdf | application/pdf | attachment |  | C\nfile: Пр | application/pdf | attachment |  | D\n" +
				"file: ü.pdf | application/pdf |  |  | E\n"},
		{"octets in a boundary", from + "Content-Type: multipart/mixed; boundary=\"b\xb5\"\n\n--b\xb5\n\nHello\n" +
			"--b\xb5\nContent-Type: a/b\n\nA\n--b\xb5--\n",
			sender + "text: Hello\nfile:  | a/b |  |  | A\n"},
		{"a boundary like a word", from + "Content-Type: multipart/mixed; boundary=\"=?x?Q?y?=\"\n\n--=?x?Q?y?=\n\n" +
			"Hello\n--=?x?Q?y?=--\n", sender + "text: Hello\n"},
		{"octets in a media type", from + "Content-Type: text\xfc/plain\n\nx", sender + "file:  | textü/plain |  |  | x\n"},
		{"UTF-7 in words",
			from + "Subject: =?utf-7?Q?Gr+APwA3w-e?= =?UTF-7?Q?+APw?= =?unicode-1-1-utf-7?Q?+APw-?= =?utf-7?B?K0FQdy0=?=\n\nx",
			sender + "subject: Grüßeüüü\ntext: x\n"},
		{"UTF-7 with a line break in a word", from + "Subject: =?utf-7?Q?a+AA0ACg-Bcc:_x?=\n\nx", sender +
			"subject: a Bcc: x\ntext: x\n"},
		{"UTF-7 in a file name", part + "Content-Type: a/b; name*=utf-7''+APw-.b\n\nA\n--b--\n", sender +
			"text: Hello\nfile: ü.b | a/b |  |  | A\n"},
		{"UTF-7 in a name", "From: =?utf-7?Q?+APw-?= <a@b.example>\n\nx", "from: ü <a@b.example>\ntext: x\n"},
		{"UTF-7 as text", from + "Content-Type: text/plain; charset=utf-7\n\nHi Mom -+Jjo--!+AAA-\n", sender +
			"text: Hi Mom -☺-!\n"},
		{"UTF-7 in quoted-printable", from + "Content-Type: text/plain; charset=\"UNICODE-1-1-UTF-7\"\n" +
			"Content-Transfer-Encoding: quoted-printable\n\n=2BAPw-\n", sender + "text: ü\n"},
		{"UTF-7 that is cut off", from + "Content-Type: text/plain; charset=utf-7\n\nGr+APwA", sender + "text: Grü\ufffd\n"},
		{"UTF-7 that is not", from + "Content-Type: text/plain; charset=utf-7\n\nGr\xfc\xdfe C++ 1+1\n", sender +
			"text: Grüße C++ 1+1\n"},
		{"UTF-7 as HTML", from + "Content-Type: text/html; charset=utf-7\n\n" +
			"<p>+APw- +ADw-script+AD4-alert(1)+ADw-/script+AD4-</p>\n",
			sender + "html: <p>ü <script>alert(1)</script></p>\n"},
		{"HTML that only claims to be UTF-7", from +
			"Content-Type: text/html\n\n<meta charset=utf-7><p>+ADw-script+AD4-\n", sender +
			"html: <meta charset=utf-7><p>+ADw-script+AD4-\n"},
		{"UTF-7 as text beside HTML", from + "Content-Type: multipart/mixed; boundary=b\n\n--b\n" +
			"Content-Type: text/html\n\n<p>\n--b\nContent-Type: text/plain; charset=utf-7\n\n+ADw-script+AD4-\n--b--\n",
			sender + "text: <script>\nhtml: <p>\\n<div style=\"white-space:pre-wrap\">&lt;script&gt;</div>\n"},
		{"uuencoded part", part + "Content-Type: application/octet-stream; name=c\n" +
			"Content-Transfer-Encoding: x-uuencode\n\n" + uuCat + "--b--\n",
			sender + "text: Hello\nfile: c | application/octet-stream |  |  | Cat\n"},
		{"uuencoded part without a name", part +
			"Content-Type: application/octet-stream\nContent-Disposition: attachment\n" +
			"Content-Transfer-Encoding: uuencode\n\n" + uuCat + "--b--\n",
			sender + "text: Hello\nfile: cat.txt | application/octet-stream | attachment |  | Cat\n"},
		{"uuencoded part without a type", part + "Content-Transfer-Encoding: X-UUE\n\nbegin 644 cat.pdf\n#0V%T\n`\n" +
			"end\n--b--\n",
			sender + "text: Hello\nfile: cat.pdf | application/pdf |  |  | Cat\n"},
		{"uuencoded part that is empty", part + "Content-Type: application/msword; name=c.doc\n" +
			"Content-Transfer-Encoding: x-uuencode\n\n\n--b--\n",
			sender + "text: Hello\nfile: c.doc | application/msword |  |  | \n"},
		{"uuencoded part that is cut off", part + "Content-Type: application/msword; name=c.doc\n" +
			"Content-Transfer-Encoding: x-uuencode\n\nbegin 644 c\n#0V%T\n#0V",
			sender + "text: Hello\nfile: c.doc | application/msword |  |  | CatC\n" + odd +
				"defect: A multipart does not end.\n"},
		{"uuencoded part that is none", part + "Content-Type: application/msword; name=c.doc\n" +
			"Content-Transfer-Encoding: x-uuencode\n\nCat\n--b--\n",
			sender + "text: Hello\nfile: c.doc | application/msword |  |  | Cat\n" + odd},
		{"uuencoded text", from + "Content-Type: text/plain; charset=koi8-r\nContent-Transfer-Encoding: x-uuencode\n" +
			"\n" + uuencoded("x", []byte("\xf0\xd2")), sender + "text: Пр\n"},
		{"uuencoded HTML", from + "Content-Type: text/html\nContent-Transfer-Encoding: x-uuencode\n\n" +
			uuencoded("x", []byte("<p>Cat")), sender + "html: <p>Cat\n"},
		{"uuencoded message without a type", from + "Content-Transfer-Encoding: x-uuencode\n\n" + uuencoded("a.jpg", jpeg),
			sender + "file: a.jpg | image/jpeg |  |  | " + string(jpeg) + "\n"},
		{"uuencoded file below prose", from + "Content-Type: text/plain\nContent-Transfer-Encoding: x-uuencode\n\n" +
			"See here:\n" + uuCat + "Bye\n",
			sender + "text: See here:\\nBye\nfile: cat.txt | text/plain | attachment |  | Cat\n" + odd},
		{"uuencoded file in a plain message", from + "\nSee here:\n\n" + uuCat + "\nBye\n", sender +
			"text: See here:\\n\\n\\nBye\nfile: cat.txt | text/plain | attachment |  | Cat\n"},
		{"uuencoded files in a plain message", from + "\n" + uuCat + "and\n" + strings.ReplaceAll(uuCat, "\n",
			"\r\n") + "bye",
			sender + "text: and\\nbye\nfile: cat.txt | text/plain | attachment |  | Cat\n" +
				"file: cat.txt | text/plain | attachment |  | Cat\n"},
		{"uuencoded file in a MIME message", from + "MIME-Version: 1.0\n\n" + uuCat, sender +
			"text: begin 644 cat.txt\\n#0V%T\\n`\\nend\n"},
		{"uuencoded file in a typed message", from + "Content-Type: text/plain\n\n" + uuCat, sender +
			"text: begin 644 cat.txt\\n#0V%T\\n`\\nend\n"},
		{"uuencoded file that is cut off in a plain message", from + "\nbegin 644 cat.txt\n#0V%T\n", sender +
			"text: begin 644 cat.txt\\n#0V%T\n"},
		{"uuencoded file that is not valid in a plain message", from + "\nbegin 644 cat.txt\n#0v%t\n`\nend\n",
			sender + "text: begin 644 cat.txt\\n#0v%t\\n`\\nend\n"},
		{"uuencoded file with a short line in a plain message", from + "\nbegin 644 cat.txt\n#0V%\n`\nend\n",
			sender + "text: begin 644 cat.txt\\n#0V%\\n`\\nend\n"},
		{"uuencoded file with a long line in a plain message", from + "\nbegin 644 cat.txt\n#0V%T0V%T\n`\nend\n",
			sender + "text: begin 644 cat.txt\\n#0V%T0V%T\\n`\\nend\n"},
		{"uuencoded file that begins anew", from + "\nbegin 644 a\n#0V%T\n" + uuCat, sender +
			"text: begin 644 a\\n#0V%T\nfile: cat.txt | text/plain | attachment |  | Cat\n"},
		{"prose that begins", from + "\nbegin 644 times\nTHE WORK\nend\n", sender +
			"text: begin 644 times\\nTHE WORK\\nend\n"},
		{"quoted file", from + "\n> begin 644 cat.txt\n> #0V%T\n> `\n> end\n", sender +
			"text: > begin 644 cat.txt\\n> #0V%T\\n> `\\n> end\n"},
		{"file without content or end", from + "\nbegin 644 cat.txt\nend\n", sender + "text: begin 644 cat.txt\\nend\n"},
		{"header that begins with a space", " continues nothing\n" + from + "Subject: x\n\nHello", sender +
			"subject: x\ntext: Hello\n" + notField},
		{"header that begins with a tab and a field", "\tSubject: y\n\tz\n" + from + "Subject: x\n\nHello", sender +
			"subject: x\ntext: Hello\n" + notField},
		{"header that begins with blanks", " \n" + from + "\nHello", sender + "text: Hello\n" + notField},
		{"header that begins with a space after mbox", "From x\n y\n" + from + "\nHello", sender + "text: Hello\n" +
			notField},
		{"part header that begins with a space", part + " x\nContent-Type: a/b\n\nA\n--b--\n", sender +
			"text: Hello\nfile:  | a/b |  |  | A\ndefect: The header of a part has a line that is no field.\n"},
		{"text that begins with a space", " Dear all,\n this is it.\nBye\n",
			"text:  Dear all,\\n this is it.\\nBye\n" + notField + "defect: The message has no header.\n"},
		{"nothing but folds", " a\n b\n", "text:  a\\n b\n" + notField + "defect: The message has no header.\n"},
		{"base64 with all sorts of things between", from +
			"Content-Type: a/b\nContent-Transfer-Encoding: base-64 (x)\n\n*Q2\n F0\xff\n=\n", sender +
			"file:  | a/b |  |  | Cat\n" + odd},
		{"quoted-printable with bad escapes", from + "Content-Transfer-Encoding: Quoted_Printable;\n\na=b =ZZ =4 =\n" +
			"=41=\n", sender + "text: a=b =ZZ =4 A\n" + odd},
		{"HZ", from + "Content-Type: text/plain; charset=hz-gb-2312\n\n~{VPND~}\n", sender + "text: 中文\n"},
		{"charset of nobody", from + "Content-Type: text/plain; charset=x-unknown\n\nGr\xfc\xdfe \xc3\xbc\n",
			sender + "text: Grüße ü\n"},
	} {
		p := Parse([]byte(tc.raw))
		if got := summary(p); got != tc.want {
			t.Errorf("%s:\n%s\nwant\n%s", tc.name, got, tc.want)
		}
		checkParsed(t, p, len(tc.raw))
	}
}

// The limit on the number of files also applies to a message without MIME: additional uuencoded files remain text.
func TestFilesInTextAreBounded(t *testing.T) {
	t.Parallel()
	p := Parse([]byte("From: a@b.example\n\n" + strings.Repeat(uuCat, 2000)))
	if len(p.Files) != maxParts-1 || strings.Count(p.Text(), "begin 644") != 2000-len(p.Files) {
		t.Errorf("%d files, %d in the text", len(p.Files), strings.Count(p.Text(), "begin 644"))
	}
}

func FuzzUU(f *testing.F) {
	f.Add([]byte("Cat"), []byte(uuCat))
	f.Add([]byte(""), []byte("begin 644 a\nM\nend\nbegin 644 b\n`\nend\n"))
	f.Add([]byte{0, 0xff}, []byte("begin 644 a\n#0V%T\n\xff\nbegin"))
	f.Fuzz(func(t *testing.T, content, text []byte) {
		encoded := uuencoded("name", content)
		got, name, around, clean := decode.UU([]byte(encoded))
		if !bytes.Equal(got, content) || name != "name" || around || !clean {
			t.Errorf("%q became %q, named %q, around %v, clean %v", content, got, name, around, clean)
		}
		p := Parse([]byte("From: a@b.example\n\nHello\n" + encoded))
		if len(p.Files) != 1 || !bytes.Equal(p.Files[0].Content, content) || p.Text() != "Hello" {
			t.Errorf("%q in a text became %q with the files %q", content, p.Text(), p.Files)
		}
		if got, _, _, _ := decode.UU(text); len(got) > len(text) {
			t.Errorf("%d bytes from %d", len(got), len(text))
		}
		for _, field := range []string{"", "Content-Transfer-Encoding: uuencode\n"} {
			raw := append([]byte("From: a@b.example\n"+field+"\n"), text...)
			checkParsed(t, Parse(raw), len(raw))
		}
	})
}

func FuzzUTF7(f *testing.F) {
	f.Add([]byte("+APw-+2D0-+A+-+"))
	f.Add([]byte("\xff+\xff"))
	f.Fuzz(func(t *testing.T, content []byte) {
		raw := append([]byte("From: a@b.example\nSubject: =?utf-7?Q?"+strings.ReplaceAll(string(content), "\n",
			"")+"?=\nContent-Type: text/html; charset=utf-7\n\n"), content...)
		checkParsed(t, Parse(raw), len(raw))
	})
}
