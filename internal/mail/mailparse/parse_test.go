package mailparse

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/postrider/postrider/internal/mail/mailtest"
	"github.com/postrider/postrider/internal/mail/message"
)

// summary returns the parts of a message that the tests compare, including the name, type and first bytes of each file.
func summary(p *Parsed) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			b.WriteString(name + ": " + strings.ReplaceAll(value, "\n", "\\n") + "\n")
		}
	}
	list := func(name string, addresses []message.Address) {
		for _, a := range addresses {
			line(name, strings.Trim(a.Name+" <"+a.Addr()+">", " "))
		}
	}
	list("from", p.From)
	list("to", p.To)
	list("cc", p.Cc)
	list("bcc", p.Bcc)
	list("reply-to", p.ReplyTo)
	line("subject", p.Subject)
	line("id", p.MessageID)
	line("in-reply-to", strings.Join(p.InReplyTo, " "))
	line("references", strings.Join(p.References, " "))
	if !p.Date.IsZero() {
		line("date", p.Date.UTC().Format("2006-01-02T15:04:05Z"))
	}
	if p.HasText {
		b.WriteString("text: " + strings.ReplaceAll(p.Text(), "\n", "\\n") + "\n")
	}
	if p.HasHTML {
		b.WriteString("html: " + strings.ReplaceAll(p.HTML(), "\n", "\\n") + "\n")
	}
	for _, f := range p.Files {
		content := string(f.Content[:min(len(f.Content), 60)])
		line("file", strings.Join([]string{f.Filename, f.ContentType, f.Disposition, f.ContentID, content}, " | "))
	}
	for _, d := range p.Defects {
		line("defect", d)
	}
	return b.String()
}

// TestParseFiles parses testdata/parse/*.eml and compares the results with the .want files of the same names.
// POSTRIDER_UPDATE=1 rewrites these.
func TestParseFiles(t *testing.T) {
	t.Parallel()
	mailtest.Golden(t, "testdata/*/*.eml", 30, func(_ *testing.T, raw []byte) string { return summary(Parse(raw)) })
}

func TestParseAddressList(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   string
		want string
		bad  bool
	}{
		{"a@b.c", "<a@b.c>", false},
		{"a@b.c, d@e.f", "<a@b.c>, <d@e.f>", false},
		{"a@b.c; d@e.f;", "<a@b.c>, <d@e.f>", false},
		{`"Doe, Jane" <a@b.c>`, "Doe, Jane <a@b.c>", false},
		{"Doe, Jane <a@b.c>, d@e.f", "Doe, Jane <a@b.c>, <d@e.f>", false},
		{"=?utf-8?Q?Doe=2C_Jos=C3=A9?= <a@b.c>", "Doe, José <a@b.c>", false},
		{`"=?utf-8?Q?Doe=2C_Jos=C3=A9?=" <a@b.c>`, "Doe, José <a@b.c>", false},
		{`"=?utf-8?B?5bGx?= =?utf-8?B?55Sw?=" <a@b.c>`, "山田 <a@b.c>", false},
		{"=?utf-8?Q?a=40b?= <a@b.c>", "a@b <a@b.c>", false},
		{"a@b.c (Jane)", "Jane <a@b.c>", false},
		{"Jane (home (old)) <a@b.c>", "Jane <a@b.c>", false},
		{"Jane a@b.c", "Jane <a@b.c>", false},
		{"Jane <a@b.c", "Jane <a@b.c>", false},
		{"<a@b.c> Jane", "Jane <a@b.c>", false},
		{"'a@b.c'", "<a@b.c>", false},
		{"'Jane' <a@b.c>", "Jane <a@b.c>", false},
		{`Ja"ne <a@b.c>`, "Jane <a@b.c>", false},
		{"Team: a@b.c, Bob <d@e.f>; g@h.i", "<a@b.c>, Bob <d@e.f>, <g@h.i>", false},
		{"undisclosed-recipients:;", "", false},
		{"Undisclosed recipients", "", true},
		{"<@x.y,@z.w:a@b.c>", "<a@b.c>", false},
		{"mailto:a@b.c", "<a@b.c>", false},
		{"<mailto:a@b.c>", "<a@b.c>", false},
		{"a @ b.c", "", true},
		{"<a @ b.c>", "<a@b.c>", false},
		{"<a.@b.c>", `<"a."@b.c>`, false},
		{"<a..b@b.c>", `<"a..b"@b.c>`, false},
		{`"a b"@b.c`, `<"a b"@b.c>`, false},
		{`<"a b"@b.c>`, `<"a b"@b.c>`, false},
		{`<"a>b"@b.c>`, `<"a>b"@b.c>`, false},
		{"root@localhost", "", true},
		{"root", "", true},
		{"<>", "", true},
		{"", "", false},
		{",,;,", "", false},
		{"josé@bücher.de", "<josé@xn--bcher-kva.de>", false},
		{"a@b.c, nonsense, d@e.f", "<a@b.c>, <d@e.f>", true},
		{"[Acme] Help <a@b.c>", "[Acme] Help <a@b.c>", false},
		{"Ann: Bob <a@b.c>", "Bob <a@b.c>", false},
		{"a@b.c <a@b.c>", "a@b.c <a@b.c>", false},
		{`"a@b.c" <a@b.c>`, "a@b.c <a@b.c>", false},
		{"a@b.c <d@e.f>, x", "a@b.c <d@e.f>", true},
	} {
		list, bad := parseAddressList(tc.in, 100)
		var got []string
		for _, a := range list {
			got = append(got, strings.Trim(a.Name+" <"+a.Addr()+">", " "))
		}
		if s := strings.Join(got, ", "); s != tc.want || bad != tc.bad {
			t.Errorf("%q: %q, bad %v; want %q, %v", tc.in, s, bad, tc.want, tc.bad)
		}
	}
}

func TestParseParameters(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in, value string
		want      map[string]string
	}{
		{"text/plain", "text/plain", nil},
		{"TEXT/HTML; CHARSET=UTF-8", "text/html", map[string]string{"charset": "UTF-8"}},
		{`text/plain; charset="utf-8"; format=flowed`, "text/plain", map[string]string{"charset": "utf-8",
			"format": "flowed"}},
		{"text/plain charset=utf-8", "text/plain", map[string]string{"charset": "utf-8"}},
		{"text/plain; charset=utf-8 name=x.txt", "text/plain", map[string]string{"charset": "utf-8", "name": "x.txt"}},
		{"text/plain;; ;charset=utf-8;;", "text/plain", map[string]string{"charset": "utf-8"}},
		{`text/plain; charset="utf-8`, "text/plain", map[string]string{"charset": "utf-8"}},
		{"text/plain (note); charset=utf-8 (x)", "text/plain", map[string]string{"charset": "utf-8"}},
		{"attachment; filename=my file.pdf", "attachment", map[string]string{"filename": "my file.pdf"}},
		{`attachment; filename="a\"b\\c"`, "attachment", map[string]string{"filename": `a"b\c`}},
		{`attachment; filename="C:\dir\x.pdf"`, "attachment", map[string]string{"filename": `C:\dir\x.pdf`}},
		{"attachment; filename*=UTF-8''Gr%C3%BC%C3%9Fe.pdf", "attachment", map[string]string{"filename": "Grüße.pdf"}},
		{"attachment; filename*=iso-8859-1'de'Gr%FC.pdf", "attachment", map[string]string{"filename": "Grü.pdf"}},
		{"attachment; filename=x; filename*=UTF-8''y", "attachment", map[string]string{"filename": "y"}},
		{"attachment; filename*0=a; filename*2=c; filename*1=b", "attachment", map[string]string{"filename": "abc"}},
		{"attachment; filename*0*=UTF-8''%E2%82; filename*1*=%AC; filename*2=.pdf", "attachment",
			map[string]string{"filename": "€.pdf"}},
		{"attachment; filename*1=b; filename*0=a; filename*1=z", "attachment", map[string]string{"filename": "ab"}},
		{`attachment; filename="=?utf-8?Q?Gr=C3=BC.pdf?="`, "attachment", map[string]string{"filename": "Grü.pdf"}},
		{"attachment; filename==?utf-8?Q?Gr=C3=BC.pdf?=", "attachment", map[string]string{"filename": "Grü.pdf"}},
		{`attachment; filename*0="=?utf-8?Q?Gr=C3"; filename*1="=BC.pdf?="`, "attachment",
			map[string]string{"filename": "Grü.pdf"}},
		{"attachment; filename=a; filename=b", "attachment", map[string]string{"filename": "a"}},
		{"attachment; filename*=%zz", "attachment", map[string]string{"filename": "%zz"}},
		{`attachment; filename="a;b=c.txt"; size=1`, "attachment", map[string]string{"filename": "a;b=c.txt", "size": "1"}},
		{"", "", nil},
		{";", "", nil},
		{"attachment; filename", "attachment", nil},
		{"attachment; =x; a=b", "attachment", map[string]string{"a": "b"}},
	} {
		value, parameters := parseParameters(tc.in)
		if value != tc.value {
			t.Errorf("%q: value %q, want %q", tc.in, value, tc.value)
		}
		if diff := cmp.Diff(tc.want, parameters, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tc.in, diff)
		}
	}
}
