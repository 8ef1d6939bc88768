package message

import (
	"net/mail"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseAddress(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in   string
		want Address
	}{
		{"a@b.c", Address{"", "a", "b.c"}},
		{"  a@b.c ", Address{"", "a", "b.c"}},
		{"<a@b.c>", Address{"", "a", "b.c"}},
		{"Ann <a@b.c>", Address{"Ann", "a", "b.c"}},
		{"Ann<a@b.c>", Address{"Ann", "a", "b.c"}},
		{"Ann  B. Lee < a@b.c >", Address{"Ann B. Lee", "a", "b.c"}},
		{"Ann.Lee+tag@Example.COM", Address{"", "Ann.Lee+tag", "example.com"}},
		{"!#$%&'*+-/=?^_`{|}~@b.c", Address{"", "!#$%&'*+-/=?^_`{|}~", "b.c"}},
		{`"Example, Inc" <a@b.c>`, Address{"Example, Inc", "a", "b.c"}},
		{`"Ann \"The\\Boss\" <Lee>" <a@b.c>`, Address{`Ann "The\Boss" <Lee>`, "a", "b.c"}},
		{`Ann "The Boss" Lee <a@b.c>`, Address{"Ann The Boss Lee", "a", "b.c"}},
		{`"" <a@b.c>`, Address{"", "a", "b.c"}},
		{`"  two  spaces " <a@b.c>`, Address{"  two  spaces ", "a", "b.c"}},
		{"[Acme] Support <a@b.c>", Address{"[Acme] Support", "a", "b.c"}},
		{"O'Neil & Söhne™ <a@b.c>", Address{"O'Neil & Söhne™", "a", "b.c"}},
		{"山田太郎 <a@b.c>", Address{"山田太郎", "a", "b.c"}},
		{"👩‍💻 Dev <a@b.c>", Address{"👩‍💻 Dev", "a", "b.c"}},
		{"=?UTF-8?Q?Zo=C3=AB_M?= <a@b.c>", Address{"Zoë M", "a", "b.c"}},
		{"=?utf-8?B?Wm/Dqw==?= =?iso-8859-1?q?=FC?= x <a@b.c>", Address{"Zoëü x", "a", "b.c"}},
		{`"=?UTF-8?Q?raw?=" <a@b.c>`, Address{"=?UTF-8?Q?raw?=", "a", "b.c"}},
		{"=?odd <a@b.c>", Address{"=?odd", "a", "b.c"}},
		{`"ann lee"@b.c`, Address{"", `"ann lee"`, "b.c"}},
		{`"ann@home"@b.c`, Address{"", `"ann@home"`, "b.c"}},
		{`"ann"@b.c`, Address{"", "ann", "b.c"}},
		{`"a\"b"@b.c`, Address{"", `"a\"b"`, "b.c"}},
		{`X <"a>b"@b.c>`, Address{"X", `"a>b"`, "b.c"}},
		{"josé@b.c", Address{"", "josé", "b.c"}},
		{"azAZ09@az09-az09.az", Address{"", "azAZ09", "az09-az09.az"}},
		{`"Ann" "Lee" =?utf-8?Q?x?= <a@b.c>`, Address{"Ann Lee x", "a", "b.c"}},
		{"=?utf-8?x?= <a@b.c>", Address{"=?utf-8?x?=", "a", "b.c"}},
		{"=?utf-8?Q?x?=y <a@b.c>", Address{"=?utf-8?Q?x?=y", "a", "b.c"}},
		{"Ann\u00a0Lee~ <a@b.c>", Address{"Ann\u00a0Lee~", "a", "b.c"}},
		{`"Ann\\" <a@b.c>`, Address{`Ann\`, "a", "b.c"}},
		{`Ann"a<b"c <a@b.c>`, Address{"Ann a<b c", "a", "b.c"}},
		{strings.Repeat("n ", 995) + "nn <a@b.c>", Address{strings.Repeat("n ", 995) + "nn", "a", "b.c"}}, // 2,000 bytes
		{"aaaaaaaaaa@" + strings.Repeat(strings.Repeat("d", 60)+".", 3) + strings.Repeat("e", 57) + ".cc", // 254 bytes
			Address{"", "aaaaaaaaaa", strings.Repeat(strings.Repeat("d", 60)+".", 3) + strings.Repeat("e", 57) + ".cc"}},
		{"用户@例子.广告", Address{"", "用户", "xn--fsqu00a.xn--4rr70v"}},
		{"a@bücher.de", Address{"", "a", "xn--bcher-kva.de"}},
		{"a@BÜCHER.de", Address{"", "a", "xn--bcher-kva.de"}},
		{"a@XN--BCHER-KVA.de", Address{"", "a", "xn--bcher-kva.de"}},
		{"a@例子。广告", Address{"", "a", "xn--fsqu00a.xn--4rr70v"}},
		{"a@1-2.3com.co", Address{"", "a", "1-2.3com.co"}},
		{"a@r3---sn.example.com", Address{"", "a", "r3---sn.example.com"}},
		{strings.Repeat("l", 64) + "@b.c", Address{"", strings.Repeat("l", 64), "b.c"}},
		{"a@" + strings.Repeat("d", 63) + ".c", Address{"", "a", strings.Repeat("d", 63) + ".c"}},
	} {
		got, err := ParseAddress(tc.in)
		if err != nil {
			t.Errorf("%q: %v", tc.in, err)
			continue
		}
		if diff := cmp.Diff(tc.want, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tc.in, diff)
		}
		again, err := ParseAddress(got.String())
		if err != nil || again != got {
			t.Errorf("%q is written as %q, which reads as %+v, error %v", tc.in, got.String(), again, err)
		}
	}
}

func TestParseAddressRefuses(t *testing.T) {
	t.Parallel()
	label := strings.Repeat("d", 61)
	for _, in := range []string{
		"", " ", "a", "@", "a@", "@b.c", "a@b", "a b@c.d", "a@b c.d", "a @b.c", "a@ b.c", "a@@b.c", "a@b@c.d",
		"a@b.c, c@d.e", "a@b.c,", "a@b.c;", "Ann <a@b.c>, Bob <b@b.c>", "Ann <a@b.c> Bob", "Ann <a@b.c", "Ann a@b.c>",
		"Ann a@b.c",
		"<a@b.c><d@e.f>", "<<a@b.c>>", "<>", "Ann <>", "Team: a@b.c;", "Team: Ann <a@b.c>;", "undisclosed-recipients:;",
		"<@x.y,@z.w:a@b.c>", "<@x.y:a@b.c>", "mailto:a@b.c", "a@b.c (Ann)", "Ann (home) <a@b.c>", "(x)a@b.c", "a(x)@b.c",
		"Example, Inc <a@b.c>", "x@y.z <a@b.c>", `Ann \ Lee <a@b.c>`, `"Ann <a@b.c>`, `"Ann\`, `Ann" <a@b.c>`,
		"a\r\nBcc: x@y.z@b.c", "Ann\r\nBcc: x@y.z <a@b.c>", "Ann\n <a@b.c>", "a@b.c\n", "\ta@b.c", "a\x00@b.c",
		"Ann\x7f <a@b.c>",
		"\"a\nb\"@b.c", "Ann\u0085 <a@b.c>", "Ann\u2028 <a@b.c>", "a@b.c\r\n.\r\n",
		"=?utf-8?Q?a=0D=0ABcc:_x@y.z?= <a@b.c>", "=?utf-8?Q?a=00?= <a@b.c>", "=?koi8-r?Q?=C1?= <a@b.c>",
		"=?utf-8?B?!?= <a@b.c>",
		"=?utf-8?Q?=FF=FE?= <\xff@b.c>", "\xff <a@b.c>", "\xff@b.c", "a@\xff.c",
		".a@b.c", "a.@b.c", "a..b@b.c", "a@.b.c", "a@b.c.", "a@b..c", "a@-b.c", "a@b-.c", "a@b_c.d", "a@b!.c", `"a"b@c.d`,
		`"a@b.c`, `""x@b.c`, `""@b.c`,
		"a\u00a0b@b.c", "a\u3000@b.c", "a@b\u3000c.d",
		"a@[127.0.0.1]", "a@[IPv6:::1]", "a@127.0.0.1", "a@b.123", "a@xn--a.c", "a@xn--.c",
		strings.Repeat("l", 65) + "@b.c", strings.Repeat("é", 33) + "@b.c", `"` + strings.Repeat(" ", 63) + `"@b.c`,
		"a@" + strings.Repeat("d", 64) + ".c",
		"a@" + strings.Repeat(label+".", 4) + "example",
		strings.Repeat("l", 10) + "@" + strings.Repeat(label+".", 3) + strings.Repeat("e", 58) + ".cc",
		strings.Repeat("n", 2000) + " <a@b.c>", strings.Repeat("n ", 995) + "nnn <a@b.c>",
		"aaaaaaaaaa@" + strings.Repeat(strings.Repeat("d", 60)+".", 3) + strings.Repeat("e", 58) + ".cc",
		"a@b.0", "a@b.9", "a@b.0c", "a@b`.c", "a@b{.c", "a@b/.c", "a@b:.c", "a[b@c.d", "a]b@c.d", "a:b@c.d", `a\b@c.d`,
		"Ann\x1f <a@b.c>", "Ann\u0080 <a@b.c>", "Ann\u009f <a@b.c>", "Ann\u2029 <a@b.c>",
	} {
		if got, err := ParseAddress(in); err == nil {
			t.Errorf("%q was read as %+v", in, got)
		} else if reason, ok := err.(*AddressError); !ok || !strings.HasSuffix(reason.Reason, ".") || got != (Address{}) {
			t.Errorf("%q: error %#v beside %+v", in, err, got)
		}
	}
}

// The reason in an AddressError names the first problem and not the problems that follow from it.
func TestParseAddressReasons(t *testing.T) {
	t.Parallel()
	domain := strings.Repeat(strings.Repeat("d", 61)+".", 4) + "exam" // 252 bytes
	for in, want := range map[string]string{
		strings.Repeat("n ", 995) + "nnn <a@b.c>": "longer than 2,000 octets", "a@b.c\t": "control character",
		"a\xff@b.c": "not valid UTF-8",
		" ":         "is empty", "Ann <a@b.c": "must end with `>`",
		`"Ann <a@b.c>`:     "quoted part of the address must be closed",
		`Ann "Lee <a@b.c>`: "The part before the `@` is empty, begins",
		"Ann, Lee <a@b.c>": "The display name has the character `,`", "=?utf-8?B?!?= <a@b.c>": "encoded word",
		"=?utf-8?Q?=00?= <a@b.c>": "control character", `"a"b@c.d`: "quoted part of the address must be closed",
		`""@b.c`: "quoted part of the address is empty",
		".a@b.c": "The part before the `@` is empty, begins", strings.Repeat("l", 65) + "@b.c": "longer than 64 octets",
		"a@[192.0.2.1]": "square brackets",
		"a@xn--a.c":     "international", "a@" + domain + "p": "The address is longer than 254 octets", "a@" + domain +
			"pl": "The domain is longer than 253 octets",
		"a@b_c.d": "its labels are", "a@b": "has no dot", "a@192.0.2.1": "not an IP address",
	} {
		if _, err := ParseAddress(in); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", in, err, want)
		}
	}
}

func TestAddressForms(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		in             Address
		addr, key, str string
		utf8           bool
	}{
		{Address{"", "Ann", "b.c"}, "Ann@b.c", "ann@b.c", "Ann@b.c", false},
		{Address{"Ann Lee", "a", "b.c"}, "a@b.c", "a@b.c", "Ann Lee <a@b.c>", false},
		{Address{"Lee, Ann", "a", "b.c"}, "a@b.c", "a@b.c", `"Lee, Ann" <a@b.c>`, false},
		{Address{`a"\b`, "a", "b.c"}, "a@b.c", "a@b.c", `"a\"\\b" <a@b.c>`, false},
		{Address{"Zoë", "a", "b.c"}, "a@b.c", "a@b.c", "=?UTF-8?Q?Zo=C3=AB?= <a@b.c>", false},
		{Address{"Zoë (x), \"y\"", "a", "b.c"}, "a@b.c", "a@b.c", "=?UTF-8?B?Wm/DqyAoeCksICJ5Ig==?= <a@b.c>", false},
		{Address{"山田", "a", "b.c"}, "a@b.c", "a@b.c", "=?UTF-8?B?5bGx55Sw?= <a@b.c>", false},
		{Address{"", "JOSÉ", "b.c"}, "JOSÉ@b.c", "josé@b.c", "JOSÉ@b.c", true},
		// Unicode lowercasing maps these letters to i and k, but an address that contains i or k instead belongs to a
		// different person.
		{Address{"", "İ", "b.c"}, "İ@b.c", "İ@b.c", "İ@b.c", true},
		{Address{"", "\u212aI", "b.c"}, "\u212aI@b.c", "\u212ai@b.c", "\u212aI@b.c", true},
		{Address{"a  b", "a", "b.c"}, "a@b.c", "a@b.c", `"a  b" <a@b.c>`, false},
		{Address{" a", "a", "b.c"}, "a@b.c", "a@b.c", `" a" <a@b.c>`, false},
		{Address{"a ", "a", "b.c"}, "a@b.c", "a@b.c", `"a " <a@b.c>`, false},
		{Address{"~a", "a", "b.c"}, "a@b.c", "a@b.c", "~a <a@b.c>", false},
		{Address{"a\x7f", "a", "b.c"}, "a@b.c", "a@b.c", "=?UTF-8?Q?a=7F?= <a@b.c>", false},
		{Address{strings.Repeat("n", 400), "a", "b.c"}, "a@b.c", "a@b.c", strings.Repeat("n", 400) + " <a@b.c>", false},
	} {
		if got := tc.in.Addr(); got != tc.addr {
			t.Errorf("Addr is %q, want %q", got, tc.addr)
		}
		if got := tc.in.Key(); got != tc.key {
			t.Errorf("Key is %q, want %q", got, tc.key)
		}
		if got := tc.in.String(); got != tc.str {
			t.Errorf("String is %q, want %q", got, tc.str)
		}
		if got := tc.in.NeedsUTF8(); got != tc.utf8 {
			t.Errorf("%q: NeedsUTF8 is %v", tc.addr, got)
		}
	}
}

// A long display name without spaces does not make a line too long.
func TestLongNamesAreEncoded(t *testing.T) {
	t.Parallel()
	if got := (Address{strings.Repeat("n", 401), "a", "b.c"}).String(); !strings.HasPrefix(got, "=?UTF-8?Q?nnn") {
		t.Errorf("%q", got)
	}
}

func FuzzParseAddress(f *testing.F) {
	for _, seed := range []string{
		"a@b.c", "Ann <a@b.c>", `"Lee, \"A\"" <a.b+c@x-y.co>`, "=?UTF-8?Q?Zo=C3=AB?= =?utf-8?b?Wm/Dqw==?= <a@b.c>",
		`"a b"@bücher.de`, "用户@例子.广告", "a@b.c, c@d.e", "<@x:a@b.c>", "Team: a@b.c;", "a\r\n@b.c", `x "y"z <"\""@b.c>`,
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, in string) {
		a, err := ParseAddress(in)
		if err != nil {
			return
		}
		out := a.String()
		if strings.ContainsAny(out, "\r\n\x00") {
			t.Fatalf("%q is written with a control character: %q", in, out)
		}
		again, err := ParseAddress(out)
		if err != nil {
			// The encoded form of a long display name may exceed the limit on the input.
			if len(out) > maxMailbox {
				return
			}
			t.Fatalf("%q is written as %q: %v", in, out, err)
		}
		if again != a {
			t.Fatalf("%q is %+v, written as %q, which reads as %+v", in, a, out, again)
		}
		if err := a.check("To"); err != nil {
			t.Fatalf("%q was read and is refused in a header: %v", in, err)
		}
		// Package net/mail must parse the same address, except that it removes the quotes from local parts.
		if std, err := mail.ParseAddress(out); err != nil {
			t.Fatalf("%q is written as %q, which others cannot read: %v", in, out, err)
		} else if std.Name != a.Name || !strings.HasPrefix(a.Local, `"`) && std.Address != a.Addr() {
			t.Fatalf("%q is written as %q, which others read as %q %q", in, out, std.Name, std.Address)
		}
	})
}

func TestUnquote(t *testing.T) {
	for _, c := range []struct {
		s, content, rest string
		ok               bool
	}{
		{`"a b" c`, "a b", " c", true}, {`""`, "", "", true}, {`"a\"b"`, `a"b`, "", true}, {`"a\\"x`, `a\`, "x", true},
		{`"a`, "", "", false}, {`"a\`, "", "", false}, {`"a\"`, "", "", false}, {`"`, "", "", false},
	} {
		if content, rest, ok := unquote(c.s); content != c.content || rest != c.rest || ok != c.ok {
			t.Errorf("%s: %q, %q, %v", c.s, content, rest, ok)
		}
	}
}

func TestQuoteLocal(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a.b": "a.b", "jos\u00e9": "jos\u00e9", "": `""`, "a b": `"a b"`, "a.": `"a."`, "a..b": `"a..b"`, `a"\b`: `"a\"\\b"`,
	} {
		if got := QuoteLocal(in); got != want {
			t.Errorf("%q: %s, want %s", in, got, want)
		}
	}
}
