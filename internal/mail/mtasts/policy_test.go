package mtasts_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts"
)

const valid = "version: STSv1\nmode: enforce\nmx: mail.example.com\nmax_age: 604800\n"

func TestParsePolicy(t *testing.T) {
	t.Parallel()
	with := func(old, replacement string) string { return strings.Replace(valid, old, replacement, 1) }
	mail, idn, wildIDN := []string{"mail.example.com"}, []string{"xn--bcher-kva.example"},
		[]string{"*.xn--bcher-kva.example"}
	spaced := strings.ReplaceAll(strings.ReplaceAll(valid, ": ", ": \t "), "\n", " \t\n")
	turned := "mx: mail.example.com\nmax_age: 604800\nmode: enforce\nversion: STSv1"
	two := []string{"mail.example.com", "*.example.net"}
	for name, c := range map[string]struct {
		body string
		mode mtasts.Mode // "" means that the policy is invalid
		mx   []string
		age  time.Duration // 0 means a week
	}{
		"LF":                  {valid, mtasts.Enforce, mail, 0},
		"CRLF":                {strings.ReplaceAll(valid, "\n", "\r\n"), mtasts.Enforce, mail, 0},
		"no end of line":      {strings.TrimSpace(valid), mtasts.Enforce, mail, 0},
		"blank lines":         {"\n" + valid + "\r\n \n", mtasts.Enforce, mail, 0},
		"no space":            {strings.ReplaceAll(valid, ": ", ":"), mtasts.Enforce, mail, 0},
		"more space":          {spaced, mtasts.Enforce, mail, 0},
		"another order":       {turned, mtasts.Enforce, mail, 0},
		"unknown fields":      {valid + "a.b-c_1: ü : x\nMode: none\n", mtasts.Enforce, mail, 0},
		"repeated fields":     {valid + "mode: none\nmax_age: 1\nversion: 2\n", mtasts.Enforce, mail, 0},
		"testing":             {with("enforce", "testing"), mtasts.Testing, mail, 0},
		"none":                {with("enforce", "none"), mtasts.None, nil, 0},
		"none without mx":     {"version: STSv1\nmode: none\nmax_age: 604800", mtasts.None, nil, 0},
		"none with a bad mx":  {"version: STSv1\nmode: none\nmax_age: 604800\nmx: *", mtasts.None, nil, 0},
		"several mx":          {valid + "mx: *.Example.NET\nmx: MAIL.example.com\n", mtasts.Enforce, two, 0},
		"U-labels":            {with("mail.example.com", "*.bücher.example"), mtasts.Enforce, wildIDN, 0},
		"upper-case U-labels": {with("mail.example.com", "BÜCHER.example"), mtasts.Enforce, idn, 0},
		"A-labels":            {with("mail.example.com", "XN--BCHER-KVA.example"), mtasts.Enforce, idn, 0},
		"one label":           {with("mail.example.com", "localhost"), mtasts.Enforce, []string{"localhost"}, 0},
		"longest max_age":     {with("604800", "31557600"), mtasts.Enforce, mail, mtasts.MaxAge},
		"leading zeros":       {with("604800", "0000000060"), mtasts.Enforce, mail, time.Minute},

		"empty":                     {},
		"HTML":                      {body: "<html><body>not found</body></html>"},
		"version STSv2":             {body: with("STSv1", "STSv2")},
		"version in lower case":     {body: with("STSv1", "stsv1")},
		"no version":                {body: with("version: STSv1\n", "")},
		"no mode":                   {body: with("mode: enforce\n", "")},
		"unknown mode":              {body: with("enforce", "strict")},
		"mode in upper case":        {body: with("enforce", "ENFORCE")},
		"no max_age":                {body: with("max_age: 604800\n", "")},
		"max_age too large":         {body: with("604800", "31557601")},
		"max_age that overflows":    {body: with("604800", "99999999999999999999")},
		"max_age of eleven digits":  {body: with("604800", "00000000060")},
		"negative max_age":          {body: with("604800", "-1")},
		"max_age with a sign":       {body: with("604800", "+60")},
		"max_age with a unit":       {body: with("604800", "7d")},
		"no mx":                     {body: with("mx: mail.example.com\n", "")},
		"mx without value":          {body: with("mail.example.com", "")},
		"mx of a star":              {body: with("mail.example.com", "*")},
		"star in the middle":        {body: with("mail.example.com", "mail.*.com")},
		"two stars":                 {body: with("mail.example.com", "*.*.com")},
		"star in a label":           {body: with("mail.example.com", "m*.example.com")},
		"dot at the end":            {body: with("mail.example.com", "mail.example.com.")},
		"dot at the beginning":      {body: with("mail.example.com", ".example.com")},
		"hyphen at the beginning":   {body: with("mail.example.com", "-a.example.com")},
		"two hosts":                 {body: with("mail.example.com", "a.example, b.example")},
		"long U-label":              {body: with("mail", strings.Repeat("ü", 20_000))},
		"long label":                {body: with("mail", strings.Repeat("a", 64))},
		"one of two mx is bad":      {body: valid + "mx: *\n"},
		"no colon":                  {body: valid + "mx mail.example.com\n"},
		"space before the colon":    {body: with("mode:", "mode :")},
		"space before the name":     {body: with("mode:", " mode:")},
		"CR alone":                  {body: strings.ReplaceAll(valid, "\n", "\r")},
		"NUL":                       {body: valid + "x: a\x00b\n"},
		"not UTF-8":                 {body: valid + "x: \xff\n"},
		"unknown field, no value":   {body: valid + "x:\n"},
		"unknown field, long name":  {body: valid + strings.Repeat("x", 33) + ": 1\n"},
		"a byte more than the most": {body: valid + "x: " + strings.Repeat("y", mtasts.MaxPolicySize-len(valid)-2)},
	} {
		p, err := mtasts.ParsePolicy(c.body)
		if c.mode == "" {
			if err == nil || !p.Equal(mtasts.Policy{}) {
				t.Errorf("%s: %+v, %v; want an error", name, p, err)
			}
			continue
		}
		if c.age == 0 {
			c.age = 7 * 24 * time.Hour
		}
		if want := (mtasts.Policy{Mode: c.mode, MaxAge: c.age, MX: c.mx}); err != nil || !p.Equal(want) {
			t.Errorf("%s: %+v, %v; want %+v", name, p, err, want)
		}
		if again, err := mtasts.ParsePolicy(p.Text()); err != nil || !again.Equal(p) {
			t.Errorf("%s: the text of the policy is read as %+v, %v", name, again, err)
		}
	}
	var long strings.Builder
	long.WriteString(valid)
	for i := 0; long.Len() < mtasts.MaxPolicySize-10; i++ {
		fmt.Fprintf(&long, "mx:%d\n", i)
	}
	if p, err := mtasts.ParsePolicy(long.String()); err == nil || !p.Equal(mtasts.Policy{}) {
		t.Errorf("a policy whose text is larger than the limit: %v", err)
	}
	if p, err := mtasts.ParsePolicy(valid + "x: " + strings.Repeat("y", mtasts.MaxPolicySize-len(valid)-3)); err != nil {
		t.Errorf("a policy of the largest size: %+v, %v", p, err)
	}
}

func TestMatches(t *testing.T) {
	t.Parallel()
	p, err := mtasts.ParsePolicy("version: STSv1\nmode: enforce\nmax_age: 1\nmx: mail.example.com\nmx: *.wild.example\n" +
		"mx: *.bücher.example\nmx: straße.example\nmx: *.a.b.example\n")
	if err != nil {
		t.Fatal(err)
	}
	for host, want := range map[string]bool{
		"mail.example.com":            true,
		"MAIL.Example.COM.":           true,
		"mail2.example.com":           false,
		"example.com":                 false,
		"a.mail.example.com":          false,
		"mx.wild.example":             true,
		"MX.WILD.EXAMPLE":             true,
		"wild.example":                false,
		"a.mx.wild.example":           false,
		"mxwild.example":              false,
		".wild.example":               false,
		"*.wild.example":              true, // a literal label, which no certificate covers
		"mx.xn--bcher-kva.example":    true,
		"mx.bücher.example":           true,
		"mx.BÜCHER.example":           true,
		"xn--bcher-kva.example":       false,
		"xn--strae-oqa.example":       true,
		"m.a.b.example":               true,
		"m.b.example":                 false,
		"":                            false,
		".":                           false,
		"mail.example.com..":          false,
		"mail.example.com.wild.other": false,
	} {
		if got := p.Matches(host); got != want {
			t.Errorf("Matches(%q) = %v, want %v", host, got, want)
		}
	}
	if (mtasts.Policy{}).Matches("mail.example.com") {
		t.Error("no policy matches a host")
	}
}

func TestLines(t *testing.T) {
	t.Parallel()
	p := mtasts.Policy{Mode: mtasts.Testing, MaxAge: time.Hour, MX: []string{"a.example", "*.b.example"}}
	want := []string{"version: STSv1", "mode: testing", "mx: a.example", "mx: *.b.example", "max_age: 3600"}
	if got := p.Lines(); !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if got := (mtasts.Policy{}); got.Lines() != nil || got.Text() != "" {
		t.Errorf("no policy has the text %q", got.Text())
	}
}

func FuzzPolicy(f *testing.F) {
	for _, body := range []string{valid, strings.ReplaceAll(valid, "\n", "\r\n"), "version: STSv1\nmode: none\nmax_age: 0",
		valid + "mx: *.bücher.example\nx: y\n", "version:STSv1\nmode:testing\nmx:a\nmax_age:1"} {
		f.Add(body, "mail.example.com")
	}
	f.Fuzz(func(t *testing.T, body, host string) {
		p, err := mtasts.ParsePolicy(body)
		if err != nil {
			if !p.Equal(mtasts.Policy{}) {
				t.Errorf("an invalid policy is %+v", p)
			}
			return
		}
		if p.MaxAge < 0 || p.MaxAge > mtasts.MaxAge || (len(p.MX) == 0) != (p.Mode == mtasts.None) {
			t.Errorf("the policy is %+v", p)
		}
		if again, err := mtasts.ParsePolicy(p.Text()); err != nil || !again.Equal(p) {
			t.Errorf("%+v is read again as %+v, %v", p, again, err)
		}
		p.Matches(host)
		for _, pattern := range p.MX {
			name, wild := strings.CutPrefix(pattern, "*.")
			if wild {
				name = "one." + name
			}
			if len(name) <= 253 && !p.Matches(strings.ToUpper(name)) {
				t.Errorf("%q does not match %q", pattern, name)
			}
			if wild && slices.Equal(p.MX, []string{pattern}) && p.Matches("two."+name) {
				t.Errorf("%q matches two labels", pattern)
			}
		}
	})
}
