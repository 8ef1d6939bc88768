package message

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// Quoted-printable lines have at most 76 columns, including the = of a soft line break, and never end with white space
// (RFC 2045 section 6.7).
func TestQuotedPrintable(t *testing.T) {
	t.Parallel()
	a := func(n int) string { return strings.Repeat("a", n) }
	for in, want := range map[string]string{
		"": "", "a": "a", "=": "=3D", "~ \t!": "~ \t!", "\x7f\x1f\x00": "=7F=1F=00", "é": "=C3=A9", "a\rb": "a=0Db",
		"a\nb\r\n\nc": "a\r\nb\r\n\r\nc", "a ": "a=20", "a\t\nb": "a=09\r\nb", " ": "=20", "  ": " =20", "\r\n ": "\r\n=20",
		a(75): a(75), a(76): a(76), a(77): a(75) + "=\r\naa", a(151): a(75) + "=\r\n" + a(76), a(152): a(75) + "=\r\n" +
			a(75) + "=\r\naa",
		a(73) + "=": a(73) + "=3D", a(74) + "=": a(74) + "=\r\n=3D", a(75) + "=": a(75) + "=\r\n=3D",
		a(72) + "=b": a(72) + "=3Db", a(72) + "=bc": a(72) + "=3D=\r\nbc", a(73) + "=b": a(73) + "=\r\n=3Db",
		a(72) + "==": a(72) + "=3D=\r\n=3D", a(70) + "==": a(70) + "=3D=3D", a(71) + "==": a(71) + "=3D=\r\n=3D",
		a(73) + " ": a(73) + "=20", a(74) + " ": a(74) + "=\r\n=20", a(75) + " ": a(75) + "=\r\n=20", a(76) + " ": a(75) +
			"=\r\na=20",
		a(74) + " b": a(74) + " b", a(75) + " b": a(75) + "=\r\n b", a(70) + "=" + a(3) + "=": a(70) + "=3Daa=\r\na=3D",
		"From a": "=46rom a", "a\nFrom b": "a\r\n=46rom b", "From": "From", " From a": " From a",
		"From " + a(69): "=46rom " + a(69), "From " + a(70): "=46rom " + a(68) + "=\r\naa",
	} {
		if got := string(appendQuotedPrintable(nil, in)); got != want {
			t.Errorf("%q became\n%q, want\n%q", in, got, want)
		}
	}
}

// plainBytes finds a byte that must be encoded, whatever its position.
func TestPlainBytes(t *testing.T) {
	t.Parallel()
	for size := 1; size <= 17; size++ {
		for at := range size {
			for c, want := range map[byte]bool{
				' ': true, '~': true, '\t': true, '\r': true, '\n': true, '!': true, '}': true,
				0: false, 8: false, 0x0b: false, 0x0c: false, 0x0e: false, 0x1f: false, 0x7f: false, 0x80: false, 0xff: false,
			} {
				for _, others := range []string{" ", "~", "\n", "m"} {
					s := []byte(strings.Repeat(others, size))
					s[at] = c
					if got := plainBytes(string(s)); got != want {
						t.Errorf("%q: %v, want %v", s, got, want)
					}
				}
			}
		}
	}
}

// planBody chooses the shorter encoding, or one that is almost as short.
func TestBodiesTakeTheShorterEncoding(t *testing.T) {
	t.Parallel()
	// planBody uses an estimate, which is less exact for shorter lines.
	for columns, most := range map[int]float64{4: 1.14, 20: 1.07, 70: 1.025, 5000: 1.01} {
		for plain := range 12 {
			for _, end := range []string{"\n", "\r\n"} {
				unit := strings.Repeat("é"+strings.Repeat("a", plain), 5000/(plain+2))
				var text strings.Builder
				for n, r := range []rune(unit) {
					text.WriteRune(r)
					if n%columns == columns-1 {
						text.WriteString(end)
					}
				}
				b := planBody(text.String(), false)
				qp, b64 := len(appendQuotedPrintable(nil, b.text)), len(appendBase64(nil, appendCRLF(nil, b.text)))
				chosen, other := qp, b64
				if b.encoding == base64Encoded {
					chosen, other = b64, qp
				}
				if float64(chosen) > most*float64(other) {
					t.Errorf("%d plain between, lines of %d, ends %q: %s takes %d bytes, the other one %d", plain, columns, end,
						b.encoding, chosen, other)
				}
				if b.size < chosen || b.size > chosen*5/4 {
					t.Errorf("%d plain between, lines of %d, ends %q: %s takes %d bytes, not %d", plain, columns, end, b.encoding,
						chosen, b.size)
				}
			}
		}
	}
}

// The filename parameter is quoted, or percent-encoded and split (RFC 2231 sections 3 and 4).
func TestFilenameParameter(t *testing.T) {
	t.Parallel()
	n := func(n int) string { return strings.Repeat("n", n) }
	for name, want := range map[string]string{
		"": "", "a.pdf": `; filename="a.pdf"`, `a"b\c`: `; filename="a\"b\\c"`, " ~": `; filename=" ~"`,
		n(61): `; filename="` + n(61) + `"`, n(62): "; filename*0*=UTF-8''" + n(54) + "; filename*1*=" + n(8),
		n(54 + 61): "; filename*0*=UTF-8''" + n(54) + "; filename*1*=" + n(61), n(54 + 62): "; filename*0*=UTF-8''" + n(54) +
			"; filename*1*=" + n(61) + "; filename*2*=n",
		"é.pdf": "; filename*=UTF-8''%C3%A9.pdf", "azAZ09.-_é": "; filename*=UTF-8''azAZ09.-_%C3%A9",
		"é !`{@[/:+,": "; filename*=UTF-8''%C3%A9%20%21%60%7B%40%5B%2F%3A%2B%2C",
		"=?a":         "; filename*=UTF-8''%3D%3Fa", "\x7f": "; filename*=UTF-8''%7F",
		strings.Repeat("é", 9):  "; filename*=UTF-8''" + strings.Repeat("%C3%A9", 9),
		strings.Repeat("é", 10): "; filename*0*=UTF-8''" + strings.Repeat("%C3%A9", 9) + "; filename*1*=%C3%A9",
	} {
		if got := filenameParameter(name); got != want {
			t.Errorf("%q became\n%s, want\n%s", name, got, want)
		}
	}
}

// Encoded words have at most 75 bytes (RFC 2047 section 2), and the first word leaves space for the field name.
func TestEncodedWordsAreFull(t *testing.T) {
	t.Parallel()
	a := func(n int) string { return strings.Repeat("a", n) }
	for _, c := range []struct {
		s      string
		phrase bool
		used   int
		want   string
	}{
		{"é", false, 5, "=?UTF-8?B?w6k=?="},
		// Encoded words use whichever of the encodings B and Q is shorter, or Q if both are equally long.
		{a(6) + "é", false, 5, "=?UTF-8?Q?" + a(6) + "=C3=A9?="},
		{a(7) + "é", false, 5, "=?UTF-8?B?YWFhYWFhYcOp?="},
		{a(8) + "é", false, 5, "=?UTF-8?Q?" + a(8) + "=C3=A9?="},
		{a(20) + "é_=? ~!*", false, 5, "=?UTF-8?Q?" + a(20) + "=C3=A9=5F=3D=3F_~!*?="},
		{a(20) + "azAZ09é!*+-/ .~", true, 5, "=?UTF-8?Q?" + a(20) + "azAZ09=C3=A9!*+-/_=2E=7E?="},
		{a(20) + "\x7f\x1f", false, 5, "=?UTF-8?Q?" + a(20) + "=7F=1F?="},
		{a(60) + "é", false, 1, "=?UTF-8?Q?" + a(60) + "?= =?UTF-8?Q?=C3=A9?="},
		{a(58) + "é", false, 1, "=?UTF-8?Q?" + a(58) + "?= =?UTF-8?Q?=C3=A9?="},
		{a(57) + "é", false, 1, "=?UTF-8?Q?" + a(57) + "=C3=A9?="},
		{a(57) + "é", false, 2, "=?UTF-8?Q?" + a(57) + "?= =?UTF-8?Q?=C3=A9?="},
		{a(48) + "é", false, 10, "=?UTF-8?Q?" + a(48) + "=C3=A9?="},
		{a(48) + "é", false, 11, "=?UTF-8?Q?" + a(48) + "?= =?UTF-8?Q?=C3=A9?="},
		{a(100) + "é", false, 100, "=?UTF-8?Q?" + a(24) + "?= =?UTF-8?Q?" + a(63) + "?= =?UTF-8?Q?" + a(13) + "=C3=A9?="},
		{strings.Repeat("山", 16), false, 1, "=?UTF-8?B?" + strings.Repeat("5bGx", 15) + "?= =?UTF-8?B?5bGx?="},
	} {
		if got := string(appendEncodedWords(nil, c.s, c.phrase, c.used)); got != c.want {
			t.Errorf("%q behind %d bytes became\n%s, want\n%s", c.s, c.used, got, c.want)
		}
	}
}

// For every kind of message, Compose allocates a single buffer of about the right size.
func TestComposeMemory(t *testing.T) {
	many := func(n int) (list []Address) {
		for i := range n {
			list = append(list, Address{"", fmt.Sprintf("a-rather-long-local-part-of-an-address-%05d", i),
				"subdomain.example.com"})
		}
		return list
	}
	const size = 1 << 20
	file := Attachment{Filename: "a.bin", Content: make([]byte, size)}
	for name, c := range map[string]struct {
		spoil func(*Message)
		most  float64 // maximum memory as a multiple of its size
	}{
		"text":             {func(m *Message) { m.Text = strings.Repeat("a\n", size/2) }, 1.1},
		"HTML":             {func(m *Message) { m.HTML = strings.Repeat("a \n", size/2) }, 1.1},
		"both":             {func(m *Message) { m.Text = strings.Repeat("a\n", size/2); m.HTML = m.Text }, 1.1},
		"quoted-printable": {func(m *Message) { m.Text = strings.Repeat("a=b c\n", size/6) }, 1.6},
		"base64":           {func(m *Message) { m.Text = strings.Repeat("山山山山山山山山\n", size/25) }, 2},
		"files":            {func(m *Message) { m.Attachments = []Attachment{file, file, file} }, 1.1},
		"header": {func(m *Message) { m.Headers = slices.Repeat([]Field{{"X-A", strings.Repeat("v ", 8000)}}, 60) },
			2.1},
		"To":       {func(m *Message) { m.To = many(10000) }, 10},
		"Cc":       {func(m *Message) { m.Cc = many(10000) }, 10},
		"Reply-To": {func(m *Message) { m.ReplyTo = many(10000) }, 10},
	} {
		m := plainMessage()
		c.spoil(m)
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		raw, err := m.Compose()
		runtime.ReadMemStats(&after)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if cost := float64(after.TotalAlloc-before.TotalAlloc) / float64(len(raw)); cost > c.most {
			t.Errorf("%s: %.2f times its %d bytes", name, cost, len(raw))
		}
	}
}
