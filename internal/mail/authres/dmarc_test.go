package authres_test

import (
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/authres"
)

func TestDMARC(t *testing.T) {
	t.Parallel()
	from := func(value string) string { return strings.Replace(plain, "Alice <alice@example.com>", value, 1) }
	stranger := origin("203.0.113.1", "out.example", "a@soft.example")
	for name, test := range map[string]struct {
		o            authres.Origin
		raw          string
		want, policy string
	}{
		"by SPF": {origin("192.0.2.1", "x.example", "a@example.com"), plain, "pass example.com", "reject"},
		"by SPF, relaxed": {origin("192.0.2.1", "x.example", "a@bounce.example.com"), plain, "pass example.com",
			"reject"},
		"by SPF, not strictly": {origin("192.0.2.1", "x.example", "a@sub.strict.example"), from("a@strict.example"),
			"fail strict.example", "quarantine"},
		"by SPF, strictly": {origin("192.0.2.1", "x.example", "a@strict.example"), from("a@strict.example"),
			"pass strict.example", "quarantine"},
		"by DKIM": {stranger, signed(t, plain, "example.com", "rsa", keys().rsa), "pass example.com", "reject"},
		"by DKIM, relaxed": {stranger, signed(t, plain, "mail.example.com", "ed", keys().ed), "pass example.com",
			"reject"},
		"by DKIM, not strictly": {stranger, signed(t, from("a@strict.example"), "sub.strict.example", "ed", keys().ed),
			"fail strict.example", "quarantine"},
		"another signs":   {stranger, foreign(t, plain), "fail example.com", "reject"},
		"nobody":          {stranger, plain, "fail example.com", "reject"},
		"subdomain":       {stranger, from("a@news.example.com"), "fail news.example.com", "quarantine"},
		"no policy":       {stranger, from("a@unknown.example"), "none unknown.example", ""},
		"two policies":    {stranger, from("a@twice.example"), "none twice.example", ""},
		"a public suffix": {stranger, from("a@co.uk"), "none co.uk", ""},
		"key unavailable": {stranger, strings.Replace(signed(t, plain, "example.com", "rsa", keys().rsa), "s=rsa",
			"s=lost", 1), "temperror example.com", "reject"},
		"policy unavailable":   {stranger, from("a@nodns.example"), "temperror nodns.example", ""},
		"no From":              {stranger, strings.Replace(plain, "From:", "X-From:", 1), "permerror", ""},
		"two From fields":      {stranger, "From: eve@evil.example\r\n" + plain, "permerror", ""},
		"two domains":          {stranger, from("a@example.com, b@example.net"), "permerror", ""},
		"one domain twice":     {stranger, from("a@example.com, b@EXAMPLE.com"), "fail example.com", "reject"},
		"broken display name":  {stranger, from("Foo, Inc. [x] <a@example.com>"), "fail example.com", "reject"},
		"8-bit display name":   {stranger, from("M\xfcller <a@example.com>"), "fail example.com", "reject"},
		"two addresses":        {stranger, from("[<a@example.com> <b@example.net>"), "permerror", ""},
		"folded":               {stranger, from("\"a@evil.example\"\r\n <a@example.com>"), "fail example.com", "reject"},
		"no address":           {stranger, from("undisclosed:;"), "permerror", ""},
		"a literal":            {stranger, from("a@[192.0.2.1]"), "permerror", ""},
		"a policy of its own":  {stranger, from("a@own.example.com"), "fail own.example.com", "none"},
		"other versions":       {stranger, from("a@version.example"), "none version.example", ""},
		"beside other records": {stranger, from("a@beside.example"), "fail beside.example", "reject"},
		"one tag twice":        {stranger, from("a@tags.example"), "fail tags.example", "reject"},
		// The walk through the tree (RFC 9989 section 4.10).
		"many labels below": {stranger, from("a@a.b.c.d.e.f.g.h.example.com"),
			"fail a.b.c.d.e.f.g.h.example.com", "quarantine"},
		"record halfway": {stranger, from("a@a.halfway.example.com"), "fail a.halfway.example.com", "quarantine"},
		"relaxed from halfway": {origin("192.0.2.1", "x.example", "a@example.com"), from("a@halfway.example.com"),
			"pass halfway.example.com", "none"},
		"below a suffix": {stranger, from("a@shop.suffix"), "fail shop.suffix", "quarantine"},
		"a suffix":       {stranger, from("a@sub.suffix"), "fail sub.suffix", "quarantine"},
		"below the same": {origin("192.0.2.1", "x.example", "a@shop.suffix"), from("a@mail.shop.suffix"),
			"pass mail.shop.suffix", "quarantine"},
		"below another": {origin("192.0.2.1", "x.example", "a@store.suffix"), from("a@shop.suffix"),
			"fail shop.suffix", "quarantine"},
		"test mode":       {stranger, from("a@trial.example"), "fail trial.example", "quarantine"},
		"test mode below": {stranger, from("a@live.trial.example"), "fail live.trial.example", "none"},
		"no such domain":  {stranger, from("a@dead.trial.example"), "fail dead.trial.example", "quarantine"},
		"own record suffices": {origin("192.0.2.1", "x.example", "a@halfway.nodns.example"), from("a@halfway.nodns.example"),
			"pass halfway.nodns.example", "none"},
		"organization unavailable": {origin("192.0.2.1", "x.example", "a@a.halfway.nodns.example"),
			from("a@halfway.nodns.example"), "temperror halfway.nodns.example", "none"},
		// RFC 9989 section 4.10.1: a DMARC record without a valid policy is used only if it requests reports.
		"no valid policy":              {stranger, from("a@invalid.example"), "none invalid.example", ""},
		"no valid policy, but reports": {stranger, from("a@reports.example"), "fail reports.example", "none"},
		"no valid subdomain policy":    {stranger, from("a@invalidsub.example"), "none invalidsub.example", ""},
		"no valid policy, valid below": {stranger, from("a@validsub.example"), "none validsub.example", ""},
		"dots in a row":                {stranger, from("<a..b@example.com>"), "fail example.com", "reject"},
		"an opening bracket more":      {stranger, from("[<x<a@example.com>"), "permerror", ""},
		"no closing bracket":           {stranger, from("[<a@example.comm"), "permerror", ""},
		"a space in the address":       {stranger, from("[<a b@example.com>"), "permerror", ""},
		"text behind the bracket":      {stranger, from("[<a@example.com>x"), "permerror", ""},
		"two signs in the address":     {stranger, from("[<a@example.net@example.com>"), "permerror", ""},
		// If the first line begins with a space, some mail readers still show it as a field, so Check treats it as a
		// field.
		"behind a space": {stranger, " From: eve@evil.example\r\n" + plain, "permerror", ""},
		"before a space": {stranger, "From   " + strings.Repeat(" ", 40) + ": eve@evil.example\r\n" + plain, "permerror", ""},
	} {
		r := check(t, test.o, test.raw)
		if word(r.DMARC) != test.want || r.Policy != test.policy {
			t.Errorf("%s: %q, policy %q (%s), want %q, %q", name, word(r.DMARC), r.Policy, r.DMARC.Detail, test.want,
				test.policy)
		}
	}
}
