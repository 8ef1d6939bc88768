package mailparse

import (
	"slices"
	"strings"
	"testing"
	"time"
)

// TestAddressListEdges parses address lists that reach a limit or contain unclosed quotes or brackets.
func TestAddressListEdges(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("n", 4096-len(" <a@b.c>")) + " <a@b.c>"
	local := `"` + strings.Repeat("l", 60) + `>,"`
	for _, c := range []struct {
		in    string
		limit int
		want  string
		bad   bool
	}{
		{", a@b.c,, d@e.f", 9, "<a@b.c>, <d@e.f>", false},
		{"a@b.c, d@e.f", 2, "<a@b.c>, <d@e.f>", false},
		{"a@b.c, d@e.f, g@h.i", 2, "<a@b.c>, <d@e.f>", true},
		{"a@b.c, d@e.f,", 2, "<a@b.c>, <d@e.f>", false},
		{long, 9, strings.TrimSuffix(long, " <a@b.c>") + " <a@b.c>", false},
		{"n" + long, 9, "", true},
		{`"Jane \"X\", Jr" <a@b.c>`, 9, `Jane "X", Jr <a@b.c>`, false},
		{`Jane <"a>,b"@b.c>`, 9, `Jane <"a>,b"@b.c>`, false},
		{"Jane <" + local + "@b.c>", 9, "Jane <" + local + "@b.c>", false},
		{"x@y.z a@b.c", 9, "x@y.z <a@b.c>", false},
		{"' <a@b.c>", 9, "' <a@b.c>", false},
		{"'' <a@b.c>", 9, "<a@b.c>", false},
		{"Jane <a b@c.d", 9, "Jane <ab@c.d>", false},
		{`Jane\ <a@b.c>`, 9, "Jane <a@b.c>", false},
		{`Jane\<a@b.c>`, 9, `Jane\ <a@b.c>`, false},
		{`a@b.c ("Jane\" (x)")`, 9, `Jane" (x) <a@b.c>`, false},
		{"MAILTO:a@b.c, d@e.f", 9, "<a@b.c>, <d@e.f>", false},
		{"Doe; Jane <a@b.c>", 9, "Jane <a@b.c>", true},
		{"Doe, Jane, Bob <a@b.c>", 9, "Bob <a@b.c>", true},
		{"Doe, <a@b.c>", 9, "<a@b.c>", true},
		{"Doe, a@b.c", 9, "<a@b.c>", true},
	} {
		list, bad := parseAddressList(c.in, c.limit)
		var got []string
		for _, a := range list {
			got = append(got, strings.Trim(a.Name+" <"+a.Addr()+">", " "))
		}
		if s := strings.Join(got, ", "); s != c.want || bad != c.bad {
			t.Errorf("%.100q, at most %d: %.100q, bad %v; want %.100q, %v", c.in, c.limit, s, bad, c.want, c.bad)
		}
	}
	p := Parse([]byte(strings.Repeat("To: "+strings.Repeat("a@b.c,", 6000)+"\n", 2) + "\nx"))
	if len(p.To) != 10_000 || !strings.Contains(strings.Join(p.Defects, "\n"), "list of addresses") {
		t.Errorf("%d addresses, defects %q", len(p.To), p.Defects)
	}
}

// TestHeaderEdges parses headers that reach a limit or contain lines that are not fields. A line that is not a field
// either ends the header or is skipped.
func TestHeaderEdges(t *testing.T) {
	t.Parallel()
	const from = "From: a@b.example\n"
	const long, cut, nul = "The header is very long", "longer than 256 KiB", "NUL"
	quarter := "X:" + strings.Repeat("x", 256<<10-1) + "\n"
	fields := func(n int) string { return strings.Repeat("X: y\n", n) }
	for _, c := range []struct {
		name, raw string
		fields    int
		defect    string // "" if there is none
		body      string
	}{
		{"1 MiB", quarter + quarter + quarter + quarter + "\nx", 4, "no From", "x"},
		{"1 MiB and an octet", quarter + quarter + quarter + quarter + "Y:\n\nx", 4, long, "x"},
		{"2,000 fields", from + fields(1999) + "\nx", 2000, "", "x"},
		{"2,001 fields", from + fields(2000) + "\nx", 2000, long, "x"},
		{"256 KiB", from + "X:" + strings.Repeat("x", 256<<10) + "\n\nx", 2, "", "x"},
		{"256 KiB and an octet", from + "X:" + strings.Repeat("x", 256<<10+1) + "\n\nx", 2, cut, "x"},
		{"NUL", from + "X:\x00\n\nx", 2, nul, "x"},
		{"colon first", from + ": x\nX: y\n\nx", 2, "no field", "x"},
		{"white space behind a word", from + "Foo  \nX: y\n\nx", 2, "no field", "x"},
		{"white space before a colon", "  : x\n" + from + "\nx", 1, "no field", "x"},
		{"control character", from + "A\x01B: x\nX: y\n\nx", 2, "no field", "x"},
		{"8 bits", from + "Ä: x\nX: y\n\nx", 2, "no field", "x"},
		{"tilde", from + "X~: y\n\nx", 2, "", "x"},
		{"name of 257", from + strings.Repeat("n", 257) + ": y\n\nx", 2, "", "x"},
		{"name of 258", from + strings.Repeat("n", 258) + ": y\nX: y\n\nx", 2, "no field", "x"},
		{"dashes", from + "--x\nX: y\n\nx", 2, "no field", "x"},
		{"two lines", from + "Hello\nBob\n", 1, "no field", "Hello\nBob"},
		{"text before", "Hello\n" + from + "\nx", 0, "no field", "Hello\n" + from + "\nx"},
		{"CR in a text", from + "\nHi\rBob\n", 1, "", "Hi\nBob"},
		{"CR first", "\rHi", 0, "CR alone", "Hi"},
		{"LF first", "\nHi\rBob", 0, "no header", "Hi\nBob"},
	} {
		p := Parse([]byte(c.raw))
		defects := strings.Join(p.Defects, "\n")
		if len(p.Header) != c.fields || !strings.Contains(defects, c.defect) || c.defect == "" && defects != "" ||
			p.Text() != c.body {
			t.Errorf("%s: %d fields, defects %q, text %.100q", c.name, len(p.Header), defects, p.Text())
		}
		if c.name == "LF first" && strings.Contains(defects, "CR alone") {
			t.Errorf("%s: %q", c.name, defects)
		}
	}
	for in, want := range map[string]string{"a\r\n b": "a b", "a\n\tb": "a b", "a\rb": "a b", "a\x7f\x01b": "ab",
		" a ": "a", "a\r\n\r\n b": "a b"} {
		if got := unfold([]byte(in)); got != want {
			t.Errorf("%q unfolds to %q, want %q", in, got, want)
		}
	}
	id := strings.Repeat("i", maxLine-len("@b")) + "@b"
	if got := messageIDs("<a@b> <" + id + "> <i" + id + ">"); len(got) != 2 {
		t.Errorf("%d ids", len(got))
	}
	for in, want := range map[string]int64{
		"Thu, 1 Jan 1970 00:00:00 +0000": 0, "Fri, 31 Dec 9999 00:00:00 +0000": 253402214400,
		"Thu, 1 Jan 1970 00:00:07 +0000 (b)": 7,
	} {
		if got := parseDate(in); got.IsZero() || got.Unix() != want {
			t.Errorf("%s: %v", in, got)
		}
	}
	for _, in := range []string{"Wed, 31 Dec 1969 23:59:59 +0000", "0001-01-01 00:00:00", "", "today"} {
		if got := parseDate(in); got != (time.Time{}) {
			t.Errorf("%s: %v", in, got)
		}
	}
}

func TestParameterEdges(t *testing.T) {
	t.Parallel()
	junk := func(n int) string { return strings.Repeat("; x=y", n) }
	for in, want := range map[string]string{
		"a/b" + junk(99) + "; name=c": "c", "a/b" + junk(100) + "; name=c": "", "a/b; name=; x=y": "",
		`a/b; name="c" x="y"`: "c", `a/b; x="y" name="c"`: "c",
		`a/b; name="c\`: `c\`, `a/b; name="c\\"; x=y`: `c\`, `a/b; name="c\"d"`: `c"d`, `a/b; name="c\d"`: `c\d`,
		`a/b; name="c`:          "c",
		"a/b; name=c; name*x=d": "c", "a/b; name*0*=utf-8''%C3%BC": "ü", "a/b; name*0=c; name*0=d; name*1=e": "ce",
		"a/b; name*1=d; name*0=c; name=x":      "cd",
		"a/b; name*0*=utf-8''c; name*1*=d'e'f": "cd'e'f", "a/b; name*0*=utf-8''%C3; name*1*=%BC": "ü",
		"a/b; name*0*=koi8-r''%F0; name*1=%F0": "П%F0",
		"a/b; name*=utf-8''%C3%BC%4":           "ü%4", "a/b; name*=utf-8''%": "%", "a/b; name*=utf-8''c%09d": "c d",
		"a/b; name*=utf-8''%zz": "%zz", "a/b; name*=c": "c",
		"a/b; name*=utf-8'c": "utf-8'c", "a/b; name=c; name*=utf-8''d": "d", "a/b (x); name=c": "c", "a/b; (x) name=c": "c",
		"a/b; (x; name=c": "", "a/b; =; name=c": "c",
		`a/b; "name"=c`: "c", "a/b; name = c d": "c d", "a/b; name=c charset=d": "c", "a/b; name=c (x)": "c", "a/b; x": "",
		"a/b;name=c;": "c", "a/b name=c": "c",
		`a/b"; name=c`: "c",
	} {
		if _, got := parseParameters(in); got["name"] != want {
			t.Errorf("%.100s: %q, want %q", in, got["name"], want)
		}
	}
	if _, got := parseParameters("a/b; name=; charset=c"); got["charset"] != "c" {
		t.Errorf("behind an empty value: %q", got)
	}
}

func TestUUEdges(t *testing.T) {
	t.Parallel()
	const from = "From: a@b.example\n\n"
	name := strings.Repeat("n", 998-len("begin 644 "))
	for _, c := range []struct {
		text, content string // empty if the uuencoded file remains text
	}{
		{"begin 644 " + name + "\n#0V%T\n`\nend\n", "Cat"},
		{"begin 644 n" + name + "\n#0V%T\n`\nend\n", ""},
		{"begin 777 c\n#0V%T\n`\nend\n", "Cat"},
		{"begin 0644 c\n#0V%T\n`\nend\n", "Cat"},
		{"begin 788 c\n#0V%T\n`\nend\n", ""},
		{"begin 644\n#0V%T\n`\nend\n", ""},
		{"begin 644 \n#0V%T\n`\nend\n", ""},
		{"begin 644 c\n#0V%T\n#0V%T\n`\nend\n", "CatCat"},
		{"begin 644 c\n#0V T\n`\nend\n", "C`4"},
		{"begin 644 c\n#0V%TX\n`\nend\n", "Cat"},
		{"begin 644 c\n#0V%TXY\n`\nend\n", ""},
		{"begin 644 c\n#0V%T\n`\n#0V%T\nend\n", ""},
		{"begin 644 c\n#0V%T\n`\n`\nend\n", "Cat"},
		{"begin 644 c\n#0V%T\n\nend\n", "Cat"},
		{"begin 644 c\n#0V%T\n\x7f\nend\n", ""},
		{"begin 644 c\n#0V%T\n`\nend", "Cat"},
		{"begin 644 c\n#0V%T\n`\nend  \n", "Cat"},
		{"begin 644 c\n#0V%T\n`\nends\n", ""},
	} {
		p := Parse([]byte(from + c.text))
		switch {
		case c.content == "" && (len(p.Files) > 0 || p.Text() != strings.TrimSuffix(c.text, "\n")):
			t.Errorf("%.100q: %d files, text %.100q", c.text, len(p.Files), p.Text())
		case c.content != "" && (len(p.Files) != 1 || string(p.Files[0].Content) != c.content):
			t.Errorf("%.100q: %d files, text %.100q", c.text, len(p.Files), p.Text())
		}
	}
}

// Of several alternatives, Parse uses the last HTML part and the first plain text part that are not blank.
func TestAlternatives(t *testing.T) {
	t.Parallel()
	const text, html = "Content-Type: text/plain\n\n", "Content-Type: text/html\n\n"
	const div = `<div style="white-space:pre-wrap">`
	for _, c := range []struct {
		name       string
		parts      []string
		text, html string
	}{
		{"both", []string{text + "A", html + "<p>B"}, "A\nD", "<p>B\n" + div + "D</div>"},
		{"both, HTML first", []string{html + "<p>B", text + "A"}, "A\nD", "<p>B\n" + div + "D</div>"},
		{"two of HTML", []string{html + "<p>A", html + "<p>B"}, "A\nD", "<p>B\n" + div + "D</div>"},
		{"HTML, then none", []string{html + "<p>A", html + " "}, "A\nD", "<p>A\n" + div + "D</div>"},
		{"none, then HTML", []string{html + " ", html + "<p>B"}, "D", "<p>B\n" + div + "D</div>"},
		{"two texts", []string{text + "A", text + "B"}, "A\nD", div + "A</div>\n" + div + "D</div>"},
		{"no text, then one", []string{text + " ", text + "B"}, "B\nD", div + " </div>\n" + div + "D</div>"},
		{"text alone", []string{text + "A"}, "A\nD", div + "A</div>\n" + div + "D</div>"},
		{"HTML alone", []string{html + "<p>A"}, "A\nD", "<p>A\n" + div + "D</div>"},
		{"text, HTML and text", []string{text + "A", html + "<p>B", text + "C"}, "A\nD", "<p>B\n" + div + "D</div>"},
	} {
		raw := "From: a@b.example\nContent-Type: multipart/mixed; boundary=m\n\n--m\nContent-Type: multipart/alternative; " +
			"boundary=a\n\n"
		for _, part := range c.parts {
			raw += "--a\n" + part + "\n"
		}
		raw += "--a--\n--m\n" + text + "D\n--m\n" + html + "<p>E\n--m--\n"
		p := Parse([]byte(raw))
		if p.Text() != c.text+"\nE" || p.HTML() != c.html+"\n<p>E" {
			t.Errorf("%s: %q and %q, want %q and %q", c.name, p.Text(), p.HTML(), c.text+"\nE", c.html+"\n<p>E")
		}
	}
}

// Parse decides which parts are text and which are files.
func TestTextsAndFiles(t *testing.T) {
	t.Parallel()
	const from = "From: a@b.example\n"
	const mixed = from + "Content-Type: multipart/mixed; boundary=b\n\n--b\n\nHello\n--b\n"
	const related = from + "Content-Type: multipart/related; boundary=b\n\n--b\nContent-Type: text/html\n\n<p>Hello\n--b\n"
	const sender, hello = "from: <a@b.example>\n", "from: <a@b.example>\ntext: Hello\n"
	const untold = "defect: A part does not say what it is.\n"
	subject := strings.Repeat("s", 200)
	boundary := strings.Repeat("b", 998)
	const multipart = from + "Content-Type: multipart/mixed"
	const unbounded = "defect: A multipart does not name the boundary between its parts, or names a wrong one.\n"
	rfc822 := mixed + "Content-Type: message/rfc822\n\n"
	for raw, want := range map[string]string{
		multipart + "; boundary=" + boundary + "\n\n--" + boundary + "\n\nx\n--" + boundary + "--\n": sender + "text: x\n",
		multipart + "\n\nPreamble\nFoo: bar\n--\nFoo: bar\n--c\nX: y\n\nx\n--c--\n": sender + "text: x\n" +
			unbounded,
		multipart + "; boundary=b\n\n--b\nContent-Type: multipart/mixed; boundary=c\n\nx": sender + "text: x\n" +
			"defect: A multipart has no parts.\ndefect: A multipart does not end.\n",
		from + "Content-Type: text\n\nx":             sender + "text: x\n",
		from + "Content-Type: text; name=a.txt\n\nx": sender + "text: x\n",
		from + "Content-Type: foo\n\nx":              sender + "text: x\n",
		from + "Content-Type: foo; name=a\n\nx": sender +
			"file: a | application/octet-stream |  |  | x\n" + untold,
		mixed + "Content-Type: text; name=a.txt\n\nx\n--b--\n": hello +
			"file: a.txt | text/plain |  |  | x\n",
		from + "Content-Disposition: attachment\n\nx": sender +
			"file:  | text/plain | attachment |  | x\n",
		from + "Content-Disposition: inline\n\nx": sender + "text: x\n",
		mixed + "Content-Disposition: attachment\n\nx\n--b--\n": hello +
			"file:  | text/plain | attachment |  | x\n",
		mixed + "Content-Disposition: inline\n\nx\n--b--\n": sender + "text: Hello\\nx\n",
		mixed + "Content-Disposition: other\n\nx\n--b--\n": hello +
			"file:  | text/plain | attachment |  | x\n",
		related + "Content-Type: text/plain\n\nx\n--b--\n": sender +
			"html: <p>Hello\nfile:  | text/plain |  |  | x\n",
		from + "Content-Transfer-Encoding: 7bit\n\n" + uuCat: sender +
			"text: \nfile: cat.txt | text/plain | attachment |  | Cat\n",
		rfc822 + "Subject: a\nSubject: b\n\nx\n--b--\n": hello +
			"file: a.eml | message/rfc822 |  |  | Subject: a\\nSubject: b\\n\\nx\n",
		rfc822 + "Subject: \nSubject: b\n\nx\n--b--\n": hello +
			"file: b.eml | message/rfc822 |  |  | Subject: \\nSubject: b\\n\\nx\n",
		rfc822 + "X: a\n\nx\n--b--\n": hello +
			"file: message.eml | message/rfc822 |  |  | X: a\\n\\nx\n",
		rfc822 + "Subject: " + subject + "\n\nx\n--b--\n": hello + "file: " + subject +
			".eml | message/rfc822 |  |  | Subject: " + subject[:51] + "\n",
		rfc822 + "Subject: " + subject + "t\n\nx\n--b--\n": hello + "file: " + subject +
			".eml | message/rfc822 |  |  | Subject: " + subject[:51] + "\n",
		mixed + "Content-Type: application/x(y\n\nx\n--b--\n": hello +
			"file:  | application/octet-stream |  |  | x\n" + untold,
		from + "Content-Type: text/plain\nContent-Transfer-Encoding: x\n\nx\n": sender +
			"text: x\ndefect: A part has a transfer encoding that is not known.\n",
	} {
		if got := summary(Parse([]byte(raw))); got != want {
			t.Errorf("%s\nis\n%s\nwant\n%s", raw, got, want)
		}
	}
}

// messageIDs accepts Message-IDs, with and without brackets, that are short enough to fit on a line.
func TestMessageIDsAreBounded(t *testing.T) {
	longest := strings.Repeat("i", maxLine-len("@acme.example")) + "@acme.example"
	for _, form := range []string{"<", ""} {
		closing := map[string]string{"<": ">", "": ""}[form]
		if got := messageIDs(form + longest + closing); !slices.Equal(got, []string{"<" + longest + ">"}) {
			t.Errorf("%q and the longest id: %d ids", form, len(got))
		}
		if got := messageIDs(form + "i" + longest + closing); got != nil {
			t.Errorf("%q and an id that is too long: %d ids", form, len(got))
		}
	}
}
