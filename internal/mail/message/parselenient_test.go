package message

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"
)

// Forms that no standard allows and readers accept, each with what a reader should show of it.

// TestDecodeWordsOfOctets has encoded words that contain unencoded octets.
func TestDecodeWordsOfOctets(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"=?iso-8859-1?Q?Gr\xfc\xdfe?=":                       "Grüße",
		"=?iso-8859-1?Q?Gr\xfc=DFe?=":                        "Grüße",
		"=?iso-8859-2?Q?\xb3\xf3d\xbc?=":                     "łódź",
		"=?koi8-r?Q?\xf0\xd2\xc9\xd7\xc5\xd4?=":              "Привет",
		"=?windows-1251?Q?\xcf\xf0\xe8\xe2\xe5\xf2_=EC=E8?=": "Привет ми",
		"=?gb2312?Q?\xc4\xe3\xba\xc3?=":                      "你好",
		"=?shift_jis?Q?\x93\xfa\x96{?=":                      "日本",
		"=?shift_jis?Q?\x93\xfa=96{?=":                       "日本",
		"=?big5?Q?\xa7A\xa6n?=":                              "你好",
		"=?utf-8?Q?Gr\xc3\xbc=C3=9Fe?=":                      "Grüße",
		"=?utf-8?Q?Gr\xfc\xdfe?=":                            "Grüße",
		"=?us-ascii?Q?Gr\xfc?=":                              "Grü",
		"=?x-nonsense?Q?Gr\xc3\xbc?=":                        "Grü",
		"=?iso-8859-1?B?R\xfcA==?=":                          "D", // no character of base64, so it is passed over
		"=?utf-8?B?R3LD\xff\xfevMOfZQ==?=":                   "Grüße",
		"=?iso-8859-2?Q?\xb3?= =?iso-8859-2?Q?\xf3d=BC?=":    "łódź",
		"=?iso-8859-2?Q?\xb3?= \xfc =?koi8-r?Q?\xf0?=":       "ł ü П", // outside of words as everywhere
		"\xfc=?iso-8859-2?Q?\xb3?=\xc3\xbc":                  "üłü",
		"\xfc =?iso-8859-2?Q?\xb3":                           "ü =?iso-8859-2?Q?³", // the word never ends
		"=?iso-8859-2\xb3?Q?\xb3?=":                          "ł",
		"=?utf-8?Q?\xe2\x82?= =?utf-8?Q?\xac?=":              "€",
		"=?gb2312?Q?\xc4?= =?gb2312?Q?\xe3?=":                "你",
		"=?utf8?Q?=E2=82?= =?UTF-8?Q?=AC?=":                  "€", // two names of one charset
		`"=?iso-8859-2?Q?\xb3?="`:                            `"\xb3"`,
		"=?iso-8859-2?Q?\xb3?=\x00":                          "ł\x00", // what a field may not have, unfold takes away
		"=?iso-8859-1?Q??=":                                  "",
		"=?iso-8859-1?Q?\xa0?=":                              "\u00a0",
		"=?iso-8859-1?Q?_\xfc_?= =?iso-8859-1?Q?\xfc?=":      " ü ü",
		"\xff=?\xff?\xff?\xff?=":                             "ÿ=?ÿ?ÿ?ÿ?=",
	} {
		if got := decodeWords(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestDecodeUTF7(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                            "",
		"plain":                       "plain",
		"Gr+APwA3w-e":                 "Grüße",
		"Hi Mom -+Jjo--!":             "Hi Mom -☺-!", // the examples of RFC 2152
		"A+ImIDkQ.":                   "A≢Α.",
		"+ZeVnLIqe-":                  "日本語",
		"Item 3 is +AKM-1.":           "Item 3 is £1.",
		"1 +- 1 = 2":                  "1 + 1 = 2",
		"+2D3cqQ-":                    "💩",
		"+APw":                        "ü", // the end of the text ends a run
		"+APw.":                       "ü.",
		"+APw--":                      "ü-",
		"+APw-+APw-":                  "üü",
		"+APw+APw-":                   "ü㸀\ufffd", // the + in a run is base64
		"+":                           "+",
		"+!":                          "+!",
		"C++":                         "C++",
		"C++ and C":                   "C++ and C",
		"+A":                          "+A", // too short for a character
		"+AP-":                        "+AP-",
		"+APwA-":                      "ü\ufffd", // cut off
		"+APx-":                       "ü\ufffd", // bits that should be zero
		"+APwAAA-":                    "ü\x00",
		"+2D0-":                       "\ufffd", // half a pair
		"+3Kk-":                       "\ufffd",
		"+2D0A/A-":                    "\ufffdü",
		"+2D3YPdyp-":                  "\ufffd💩",
		"caf\xc3\xa9 +AOk-":           "café é", // no octets like these in UTF-7
		"caf\xe9 +AOk-":               "café é",
		"~\\":                         "~\\",
		"+ADw-script+AD4-":            "<script>",
		"&Zi8-":                       "&Zi8-", // that of IMAP is another
		"+AAA-":                       "\x00",
		"++":                          "++",
		"+++++":                       "ﯯ\ufffd",
		strings.Repeat("+AOk-", 1000): strings.Repeat("é", 1000),
	} {
		if got := decodeUTF7([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func TestCharsetNames(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ names, in, want string }{
		{"utf-8 UTF8 utf_8 x-utf8 unicode-1-1-utf-8 'utf-8' \"utf-8\" utf-8*de us-ascii x-unknown unknown-8bit nonsense cp65001 windows-65001",
			"\xc3\xbc \xfc", "ü ü"},
		{"utf-7 UTF7 unicode-1-1-utf-7 x-unicode-1-1-utf-7 csUTF7 cp65000", "+APw-", "ü"},
		{"iso-8859-1 iso8859-1 iso_8859_1 8859_1 ISO-8859_1 latin1 latin-1 iso-latin-1 l1 cp819 cp1252 windows_1252 windows1252 win-1252 " +
			"1252 cp28591 ansi_x3.110-1983", "\xa3\xfc", "£ü"},
		{"iso-8859-2 ISO_8859-2 iso8859_2 latin-2 latin2 8859-2 cp28592", "\xb3", "ł"},
		{"iso-8859-15 iso8859_15 latin-9 cp28605", "\xa4", "€"},
		{"iso-8859-8-i iso-8859-8 iso-8859-8-e windows-1255 cp-1255", "\xe0", "א"},
		{"windows-1251 cp1251 cp-1251 CP_1251 x-cp1251 win1251 windows_1251 ms-1251", "\xcf", "П"},
		{"koi8-r KOI8R koi8_r cp20866", "\xf0", "П"},
		{"cp850 cp-850 ibm850 ibm-850 850 x-cp850 dos-850 CP_850", "\x81\x9b", "üø"},
		{"cp437 cp-437 ibm-437 437 dos437", "\x81", "ü"},
		{"cp866 cp-866 ibm866 dos-866", "\x8f", "П"},
		{"windows-874 tis-620 iso-8859-11 cp874", "\xa1", "ก"},
		{"shift_jis shift-jis sjis x-sjis cp932 ms932 windows-31j windows-932 cp-932", "\x93\xfa", "日"},
		{"iso-2022-jp ISO2022JP iso-2022-jp-2 iso-2022-jp-ms cp50220 csISO2022JP", "\x1b$BF|\x1b(B", "日"},
		{"iso-2022-jp", "abc \x1b$BF|K", "abc 日\ufffd"},   // cut off within a character
		{"iso-2022-jp", "\xc3\xbc \xfc\xe4\xf6", "ü üäö"}, // something else than it says
		{"euc-jp EUCJP x-euc-jp ujis cp51932", "\xc6\xfc", "日"},
		{"gb2312 GB_2312-80 gbk x-gbk cp936 ms936 windows-936 euc-cn", "\xc4\xe3", "你"},
		{"hz-gb-2312 HZ cp52936", "a ~{VPND~} b", "a 中文 b"},
		{"big5 big5-hkscs x-x-big5 cp950 cn-big5 windows-950", "\xa7A", "你"},
		{"euc-kr EUCKR ks_c_5601-1987 ksc5601 cp949 uhc windows-949 x-windows-949", "\xc0\xcc", "이"},
		{"macintosh mac x-mac-roman macroman cp10000", "\x9f", "ü"},
		{"utf-16 UTF16 utf-16be cp1201", "\x00\xfc", "ü"},
		{"utf-16le cp1200", "\xfc\x00", "ü"},
		{strings.Repeat("x", 1000) + " ??? 8859 cp iso latin", "\xfc", "ü"},
	} {
		for name := range strings.FieldsSeq(tc.names) {
			if got := decodeCharset(name, []byte(tc.in)); got != tc.want {
				t.Errorf("%.50s: %q: %q, want %q", name, tc.in, got, tc.want)
			}
		}
	}
}

func TestEncodingNames(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"base64": "base64", "BASE64": "base64", "base-64": "base64", `"base64"`: "base64", "base64;": "base64",
		"base64 (MIME)": "base64",
		"base64; x=y":   "base64", "quoted-printable": "quoted-printable", "Quoted_Printable ": "quoted-printable",
		"7bit": identity,
		"8BIT": identity, "8-bit": identity, "8bits": identity, "7 bit": identity, "binary": identity,
		"x-uuencode": uuencode, "uuencode": uuencode,
		"X-UUE": uuencode, "uue": uuencode, "x-uuencoded": uuencode, "": "", "x-yencode": "x-yencode",
		"base65": "base65", "base64 or so": "base64 or so",
	} {
		if got := encodingName(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

// uuencoded is content as programs write it.
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

func TestDecodeUU(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in, want, name string
		around, clean  bool
	}{
		{"begin 644 cat.txt\n#0V%T\n`\nend\n", "Cat", "cat.txt", false, true},
		{"begin 644 cat.txt\r\n#0V%T\r\n`\r\nend\r\n", "Cat", "cat.txt", false, true},
		{"\n\nbegin 0644 my cat.txt \n#0V%T\n \nend", "Cat", "my cat.txt", false, true},
		{"begin 644 c\n#0V%T\nend\n", "Cat", "c", false, true},    // without the line of no octets
		{"begin 644 c\n#0V%T*\n\nend\n", "Cat", "c", false, true}, // with a check sum
		{"begin 644 c\n\"0V$\n`\nend\n", "Ca", "c", false, true},  // the last group is not filled up
		{"begin 644 c\n#0P\n`\nend\n", "C\x00\x00", "c", false, true},
		{"begin 644 c\n#\n`\nend\n", "\x00\x00\x00", "c", false, true}, // spaces that a host took away
		{"begin 644 c\n#0V%T\n#0V%T\n", "CatCat", "c", false, false},   // cut off behind a line
		{"begin 644 c\n#0V%T\n#0V%", "CatCa", "c", false, false},       // and within one
		{"begin 644 c\n#0V%T\n~~~\n#0V%T\nend\n", "CatCat", "c", false, false},
		{"begin 644 c\n#0V%T\nend\nfooter\n", "Cat", "c", true, false},
		{"prose\nbegin 644 c\n#0V%T\nend\n", "Cat", "c", true, false},
		{"begin 644 c\n`\nend\n", "", "c", false, true},
		{"begin 644 \n#0V%T\n`\nend\n", "Cat", "", false, true},
		{"begin 644 c", "begin 644 c", "c", false, false},
		{"begin 64 c\n#0V%T\nend\n", "begin 64 c\n#0V%T\nend\n", "", false, false},
		{"begin 64488 c\n#0V%T\nend\n", "begin 64488 c\n#0V%T\nend\n", "", false, false},
		{"beginning\n", "beginning\n", "", false, false},
		{"#0V%T\n`\nend\n", "#0V%T\n`\nend\n", "", false, false},
		{"begin 644 " + strings.Repeat("x", 1000) + "\n#0V%T\nend\n", "begin 644 " + strings.Repeat("x", 1000) +
			"\n#0V%T\nend\n", "", false, false},
		{"begin 644 a\x00\tb\xfc\n#0V%T\nend\n", "Cat", "a bü", false, true},
		{"", "", "", false, true},
		{" \r\n", " \r\n", "", false, true},
	} {
		got, name, around, clean := decodeUU([]byte(tc.in))
		if string(got) != tc.want || name != tc.name || around != tc.around || clean != tc.clean {
			t.Errorf("%.60q: %q named %q, around %v, clean %v", tc.in, got, name, around, clean)
		}
	}
	// Lines that announce more octets than they have do not make a file larger than the message.
	long := "begin 644 c\n" + strings.Repeat("M\n", 10_000)
	if got, _, _, clean := decodeUU([]byte(long)); len(got) > len(long) || clean {
		t.Errorf("%d octets of %d, clean %v", len(got), len(long), clean)
	}
}

const uuCat = "begin 644 cat.txt\n#0V%T\n`\nend\n"

// TestParseLenient has whole messages.
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

// The number of files in plain messages is bounded too; beyond it they stay text.
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
		got, name, around, clean := decodeUU([]byte(encoded))
		if !bytes.Equal(got, content) || name != "name" || around || !clean {
			t.Errorf("%q became %q, named %q, around %v, clean %v", content, got, name, around, clean)
		}
		p := Parse([]byte("From: a@b.example\n\nHello\n" + encoded))
		if len(p.Files) != 1 || !bytes.Equal(p.Files[0].Content, content) || p.Text() != "Hello" {
			t.Errorf("%q in a text became %q with the files %q", content, p.Text(), p.Files)
		}
		if got, _, _, _ := decodeUU(text); len(got) > len(text) {
			t.Errorf("%d octets from %d", len(got), len(text))
		}
		for _, field := range []string{"", "Content-Transfer-Encoding: uuencode\n"} {
			raw := append([]byte("From: a@b.example\n"+field+"\n"), text...)
			checkParsed(t, Parse(raw), len(raw))
		}
	})
}

// toUTF7 writes all but plain characters in base64.
func toUTF7(s string) string {
	var b strings.Builder
	for _, r := range s {
		if r < utf8.RuneSelf && r != '+' {
			b.WriteRune(r)
			continue
		}
		var octets []byte
		for _, u := range utf16.Encode([]rune{r}) {
			octets = append(octets, byte(u>>8), byte(u))
		}
		fmt.Fprintf(&b, "+%s-", base64.RawStdEncoding.EncodeToString(octets))
	}
	return b.String()
}

func FuzzUTF7(f *testing.F) {
	f.Add("Grüße 💩 1+1", []byte("+APw-+2D0-+A+-+"))
	f.Add("", []byte("\xff+\xff"))
	f.Fuzz(func(t *testing.T, s string, octets []byte) {
		s = strings.ToValidUTF8(s, "?")
		if got := decodeUTF7([]byte(toUTF7(s))); got != s {
			t.Errorf("%q became %q", s, got)
		}
		got := decodeUTF7(octets)
		if !utf8.ValidString(got) || len(got) > 3*len(octets) {
			t.Errorf("%q became %q", octets, got)
		}
		raw := append([]byte("From: a@b.example\nSubject: =?utf-7?Q?"+strings.ReplaceAll(string(octets), "\n",
			"")+"?=\nContent-Type: text/html; charset=utf-7\n\n"), octets...)
		checkParsed(t, Parse(raw), len(raw))
	})
}
