package message

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

// summary returns the compared parts of a message: the files by their names, types and beginnings.
func summary(p *Parsed) string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			b.WriteString(name + ": " + strings.ReplaceAll(value, "\n", "\\n") + "\n")
		}
	}
	list := func(name string, addresses []Address) {
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

// TestParseFiles parses testdata/parse/*.eml and compares with the .want beside each. POSTRIDER_UPDATE=1 rewrites
// them.
func TestParseFiles(t *testing.T) {
	t.Parallel()
	names, err := filepath.Glob("testdata/*/*.eml")
	if err != nil || len(names) < 30 {
		t.Fatalf("%d messages, error %v", len(names), err)
	}
	for _, name := range names {
		t.Run(filepath.Base(name), func(t *testing.T) {
			t.Parallel()
			raw, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got := summary(Parse(raw))
			golden := strings.TrimSuffix(name, ".eml") + ".want"
			if os.Getenv("POSTRIDER_UPDATE") != "" {
				if err := os.WriteFile(golden, []byte(got), 0o600); err != nil {
					t.Fatal(err)
				}
				return
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
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

func TestDecodeWords(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain":                                             "plain",
		"=?UTF-8?Q?Gr=C3=BC=C3=9Fe?=":                       "Grüße",
		"=?utf-8?q?Gr=c3=bc=c3=9fe?=":                       "Grüße",
		"=?utf-8?B?R3LDvMOfZQ==?=":                          "Grüße",
		"=?utf-8?b?R3LDvMOfZQ?=":                            "Grüße",
		"=?ISO-8859-1?Q?Gr=FC=DFe?= a":                      "Grüße a",
		"=?iso-8859-15?Q?=A4?=":                             "€",
		"=?koi8-r?B?8NLJ18XU?=":                             "Привет",
		"=?ISO-2022-JP?B?GyRCRnxLXBsoQg==?=":                "日本",
		"=?gb2312?B?xOO6ww==?=":                             "你好",
		"=?shift_jis?B?k/qWew==?=":                          "日本",
		"=?cp932?B?k/qWew==?=":                              "日本",
		"=?euc-kr?B?wMw=?=":                                 "이",
		"=?big5?B?p0Gmbg==?=":                               "你好",
		"=?utf-8?Q?a?= =?utf-8?Q?b?=":                       "ab",
		"=?utf-8?Q?a?=  \t=?utf-8?Q?b?=":                    "ab",
		"=?utf-8?Q?a?= =?iso-8859-1?Q?=FC?= c":              "aü c",
		"=?utf-8?Q?a?==?utf-8?Q?b?=":                        "ab",
		"x=?utf-8?Q?a?=y":                                   "xay",
		`"=?utf-8?Q?a?="`:                                   `"a"`,
		"=?utf-8?Q?=E2=82?= =?utf-8?Q?=AC?=":                "€",
		"=?utf-8?B?4oI=?= =?utf-8?B?rA==?=":                 "€",
		"=?utf-8?B?R3LDv?= =?utf-8?B?MOfZQ==?=":             "Grüße",
		"=?utf-8?Q?a b c?=":                                 "a b c",
		"=?utf-8?B?R3LDvMOfZSBhdXMgS8?= =?utf-8?B?O2bG4=?=": "Grüße aus Köln",
		"=?utf-8?Q?abc?= =?utf-8?B?ZA==?=":                  "abcd",
		"=?utf-8?B?YWI?= =?utf-8?Q?c?=":                     "abc",
		"=?utf-8?B?YWI?= =?iso-8859-1?B?/A==?=":             "abü",
		"=?utf-8?B?AAAAY?= =?utf-8?B?WI=?=":                 "ab",
		"=?utf-8?B?YWI!x?= =?utf-8?B?YWI=?=":                "ab1ab",
		"=?x?Q?a?=":                                         "a",
		"=?utf-8?Q?a=4?=":                                   "a=4",
		"=?utf-8?Q?a=?= b":                                  "a= b",
		"=?utf-8?Q?a=09=C3=BC=c3=bc?=":                      "a üü",
		"=?utf-8?Q?why??=":                                  "why?",
		"=?utf-8?Q?a=?=":                                    "a=",
		"=?utf-8?Q?a=ZZ?=":                                  "a=ZZ",
		"=?utf-8*de?Q?a?=":                                  "a",
		"=?x-nonsense?Q?Gr=C3=BC=C3=9Fe?=":                  "Grüße",
		"=?x-nonsense?Q?Gr=FC?=":                            "Grü",
		"=?utf-8?Q?Gr=FC?=":                                 "Grü",
		"=?us-ascii?Q?Gr=FC?=":                              "Grü",
		"=?utf-8?X?abc?=":                                   "=?utf-8?X?abc?=",
		"=?utf-8?Q?abc":                                     "=?utf-8?Q?abc",
		"=?utf-8?Q?abc =?utf-8?Q?d?=":                       "=?utf-8?Q?abc d",
		"=?utf-8?":                                          "=?utf-8?",
		"=??Q?a?=":                                          "=??Q?a?=",
		"=?":                                                "=?",
		"a =? b":                                            "a =? b",
		"=?utf-8?Q??=":                                      "",
		"=?utf-8?Q?a=0D=0ABcc:_x@y.z?=":                     "a Bcc: x@y.z",
		"=?utf-8?Q?a=00b?=":                                 "ab",
		"Re: =?utf-8?Q?a?= =?utf-8?Q?_b?= [#1]":             "Re: a b [#1]",
		"=?windows-1252?Q?=93a=94?=":                        "“a”",
		"=?utf-8?Q?a?= =?utf-8?Q?b?= =?koi8-r?Q?=C1?=":      "abа",
	} {
		if got := decodeWords(in); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
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
		{`text/plain; charset="utf-8"; format=flowed`, "text/plain", map[string]string{"charset": "utf-8", "format": "flowed"}},
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
		{"attachment; filename*0*=UTF-8''%E2%82; filename*1*=%AC; filename*2=.pdf", "attachment", map[string]string{"filename": "€.pdf"}},
		{"attachment; filename*1=b; filename*0=a; filename*1=z", "attachment", map[string]string{"filename": "ab"}},
		{`attachment; filename="=?utf-8?Q?Gr=C3=BC.pdf?="`, "attachment", map[string]string{"filename": "Grü.pdf"}},
		{"attachment; filename==?utf-8?Q?Gr=C3=BC.pdf?=", "attachment", map[string]string{"filename": "Grü.pdf"}},
		{`attachment; filename*0="=?utf-8?Q?Gr=C3"; filename*1="=BC.pdf?="`, "attachment", map[string]string{"filename": "Grü.pdf"}},
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

func TestTransferDecoding(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct{ in, want string }{
		{"aGVsbG8=", "hello"}, {"aGVs\r\nbG8=\r\n", "hello"}, {"aGVsbG8", "hello"}, {"aGVs bG8=", "hello"}, {"aGVs*bG8=!", "hello"},
		{"aGVsbG8=\r\naGVsbG8=\r\n", "hellohello"}, {"aGVsbG8=\r\n_______\r\nlist footer", "hello"}, {"", ""}, {"a", ""}, {"====", ""},
		{"aGVs\x00bG8=", "hello"}, {"aGVsbG8==", "hello"},
	} {
		if got, _ := decodeBase64([]byte(tc.in)); string(got) != tc.want {
			t.Errorf("base64 %q: %q, want %q", tc.in, got, tc.want)
		}
	}
	for _, tc := range []struct{ in, want string }{
		{"a=20b", "a b"}, {"a=\r\nb", "ab"}, {"a= \t\r\nb", "ab"}, {"a  \r\nb", "a\r\nb"}, {"=c3=BC", "ü"}, {"a=b", "a=b"}, {"a=", "a"},
		{"a=\nb\n", "ab\n"}, {"=3D=", "="}, {"a==20", "a= "}, {"=ZZ", "=ZZ"}, {"", ""},
	} {
		if got, _ := decodeQuoted([]byte(tc.in)); string(got) != tc.want {
			t.Errorf("quoted-printable %q: %q, want %q", tc.in, got, tc.want)
		}
	}
}
