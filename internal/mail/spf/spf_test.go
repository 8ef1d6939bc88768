package spf_test

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/spf"
)

func TestFind(t *testing.T) {
	texts := []string{"v=spf1", "V=SPF1 -all", "v=spf10 -all", "v=spf1\t-all", " v=spf1 -all", "v=spf1; -all",
		`"v=spf1 -all"`, ""}
	if d := cmp.Diff([]string{"v=spf1", "V=SPF1 -all"}, spf.Find(texts)); d != "" {
		t.Error(d)
	}
}

// Terms are parsed as RFC 7208 section 12 writes them. Invalid terms hold what could be read.
func TestParseTerm(t *testing.T) {
	mechanism := func(qualifier byte, name, spec, domain string) spf.Term {
		return spf.Term{Qualifier: qualifier, Name: name, Spec: spec, Domain: domain, Bits4: -1, Bits6: -1}
	}
	lengths := func(t spf.Term, bits4, bits6 int) spf.Term {
		t.Bits4, t.Bits6 = bits4, bits6
		return t
	}
	network := func(t spf.Term, network string) spf.Term {
		t.Network = netip.MustParsePrefix(network)
		return t
	}
	modifier := func(name, spec, domain string) spf.Term {
		return spf.Term{Modifier: true, Name: name, Spec: spec, Domain: domain, Bits4: -1, Bits6: -1}
	}
	const noDomain, noNetwork = "names no domain", "is no address or network"
	const unknown, noLength = "is a mechanism that does not exist", "has an invalid prefix length"
	samePrefix := cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })
	long := strings.Repeat("a.", 130)
	for text, want := range map[string]struct {
		spf.Term
		err string
	}{
		"all":                  {mechanism('+', "all", "", ""), ""},
		"-ALL":                 {mechanism('-', "all", "", ""), ""},
		"all:x.net":            {mechanism('+', "all", ":x.net", ""), "must be all alone"},
		"all/24":               {mechanism('+', "all", "/24", ""), "must be all alone"},
		"~Include:_Spf.X.net.": {mechanism('~', "include", ":_Spf.X.net.", "_spf.x.net"), ""},
		"include":              {mechanism('+', "include", "", ""), noDomain},
		"include:localhost":    {mechanism('+', "include", ":localhost", "localhost"), noDomain},
		"include:x..net":       {mechanism('+', "include", ":x..net", "x..net"), noDomain},
		"include:x.net/24":     {mechanism('+', "include", ":x.net/24", "x.net/24"), noDomain},
		"include:" + long:      {mechanism('+', "include", ":"+long, strings.TrimSuffix(long, ".")), noDomain},
		"exists:%{Ir}.x.net":   {mechanism('+', "exists", ":%{Ir}.x.net", "%{Ir}.x.net"), ""},
		"exists:%{i}" + long:   {mechanism('+', "exists", ":%{i}"+long, "%{i}"+long), noDomain},
		"?exists:":             {mechanism('?', "exists", ":", ""), noDomain},
		"a":                    {mechanism('+', "a", "", ""), ""},
		"a:":                   {mechanism('+', "a", ":", ""), noDomain},
		"a:/24":                {lengths(mechanism('+', "a", ":/24", ""), 24, -1), noDomain},
		"a:x.net":              {mechanism('+', "a", ":x.net", "x.net"), ""},
		"a/24":                 {lengths(mechanism('+', "a", "/24", ""), 24, -1), ""},
		"mx//64":               {lengths(mechanism('+', "mx", "//64", ""), -1, 64), ""},
		"mx:x.net/0//128":      {lengths(mechanism('+', "mx", ":x.net/0//128", "x.net"), 0, 128), ""},
		"a:%{l/}.x.net/24":     {lengths(mechanism('+', "a", ":%{l/}.x.net/24", "%{l/}.x.net"), 24, -1), ""},
		"a/x":                  {mechanism('+', "a", "/x", ""), noLength},
		"a/33//129":            {mechanism('+', "a", "/33//129", ""), noLength},
		"ptr":                  {mechanism('+', "ptr", "", ""), ""},
		"a/24:x.net":           {mechanism('+', "a", "/24:x.net", ""), noLength},
		"mx/24//":              {lengths(mechanism('+', "mx", "/24//", ""), 24, -1), noLength},
		"mx:x.net/":            {mechanism('+', "mx", ":x.net/", "x.net"), noLength},
		"ptr/24":               {lengths(mechanism('+', "ptr", "/24", ""), 24, -1), noLength},
		"ptr:x.net":            {mechanism('+', "ptr", ":x.net", "x.net"), ""},
		"ip4:192.0.2.1":        {network(mechanism('+', "ip4", ":192.0.2.1", ""), "192.0.2.1/32"), ""},
		"ip4:192.0.2.1/24":     {network(mechanism('+', "ip4", ":192.0.2.1/24", ""), "192.0.2.1/24"), ""},
		"ip4:192.0.2.0/33":     {mechanism('+', "ip4", ":192.0.2.0/33", ""), noNetwork},
		"ip4:2001:db8::1":      {network(mechanism('+', "ip4", ":2001:db8::1", ""), "2001:db8::1/128"), noNetwork},
		"ip6:2001:db8::/32":    {network(mechanism('+', "ip6", ":2001:db8::/32", ""), "2001:db8::/32"), ""},
		"ip6:192.0.2.1":        {network(mechanism('+', "ip6", ":192.0.2.1", ""), "192.0.2.1/32"), noNetwork},
		"ip4":                  {mechanism('+', "ip4", "", ""), noNetwork},
		"ipv4:192.0.2.1":       {mechanism('+', "ipv4", ":192.0.2.1", ""), unknown},
		"":                     {mechanism('+', "", "", ""), unknown},
		"++all":                {mechanism('+', "+all", "", ""), unknown},
		`all\`:                 {mechanism('+', `all\`, "", ""), unknown},
		"Redirect=X.net":       {modifier("redirect", "=X.net", "x.net"), ""},
		"redirect=":            {modifier("redirect", "=", ""), noDomain},
		"exp=%{d}.x.net":       {modifier("exp", "=%{d}.x.net", "%{d}.x.net"), ""},
		"exp=x":                {modifier("exp", "=x", "x"), noDomain},
		"ra_1-x.y=a=b:c/d":     {modifier("ra_1-x.y", "=a=b:c/d", ""), ""},
		"=x":                   {modifier("", "=x", ""), "is no term"},
		"-redirect=x.net":      {modifier("-redirect", "=x.net", ""), "is no term"},
	} {
		got, err := spf.ParseTerm(text)
		if err == nil {
			err = errors.New("")
		}
		if d := cmp.Diff(want.Term, got, samePrefix); d != "" || err.Error() != want.err {
			t.Errorf("%q: %v; want %q: %s", text, err, want.err, d)
		}
	}
}

// FuzzParseTerm parses arbitrary terms, because anyone can publish any record. The text of a valid term is parsed to
// the same term.
func FuzzParseTerm(f *testing.F) {
	for _, seed := range []string{"+include:x.net", "a/24//64", "redirect=x", "-all", "ip4:1.2.3.4/33", "=", ":",
		"exists:%{i}"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		term, err := spf.ParseTerm(text)
		if err != nil {
			return
		}
		if !term.Modifier && !strings.Contains(" all include exists a mx ptr ip4 ip6 ", " "+term.Name+" ") {
			t.Errorf("%q has the mechanism %q", text, term.Name)
		}
		again, err := spf.ParseTerm(strings.Trim(string(rune(term.Qualifier)), "\x00") + term.String())
		if err != nil || again != term {
			t.Errorf("%q is %+v, and its text %+v, %v", text, term, again, err)
		}
	})
}
