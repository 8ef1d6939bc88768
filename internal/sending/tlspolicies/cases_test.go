package tlspolicies_test

import (
	"context"
	"crypto/tls"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/mtasts"
	"github.com/postrider/postrider/internal/mail/mtasts/ststest"
	"github.com/postrider/postrider/internal/sending/tlspolicies"
)

// policyCase is a domain, and the verdict about its policy if the cache has none.
type policyCase struct {
	name string
	site ststest.Site
	mode mtasts.Mode   // "" means that no policy applies
	fail mtasts.Result // what a TLS report mentions
	mx   string        // patterns of the policy, separated by spaces
	// differs says why the verdict of postfix-mta-sts-resolver differs; "" means that it agrees.
	differs string
	slow    bool // the web server never completes its answer
}

const week = 604800

// body is a policy that is valid, or becomes invalid by a replacement.
func body(replacements ...string) string {
	return strings.NewReplacer(replacements...).Replace(ststest.Policy("enforce", week, "mail.lab.example"))
}

// drip writes a byte now and then until the client gives up.
func drip(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-tick.C:
			io.WriteString(w, "x")
			w.(http.Flusher).Flush()
		}
	}
}

func redirect(code int, to string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, to, code) }
}

func answer(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain")
		w.WriteHeader(code)
		if code != http.StatusNoContent {
			io.WriteString(w, body())
		}
	}
}

// breakOff answers with less than it announces.
func breakOff(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/plain")
	w.Header().Set("Content-Length", "1000")
	io.WriteString(w, body())
	panic(http.ErrAbortHandler)
}

// cases returns the cases. The name of a case's domain is that of domainOf.
func cases(l *ststest.Lab) []policyCase {
	return append(recordCases(), append(fetchCases(l), policyCases()...)...)
}

func recordCases() (all []policyCase) {
	good := func(name string, records ...string) policyCase {
		return policyCase{name: name, site: ststest.Site{TXT: records, Policy: body()}, mode: "enforce",
			mx: "mail.lab.example"}
	}
	bad := func(name, differs string, records ...string) policyCase {
		return policyCase{name: name, site: ststest.Site{TXT: records, Policy: body()}, differs: differs}
	}
	alias := good("alias", "v=STSv1; id=1;")
	alias.site.Alias = "records.provider.example"
	fails := bad("record fails", "", "v=STSv1; id=1;")
	fails.site.RecordFails = true
	tolerant := "it accepts any id"
	repeated := good("other version beside", "v=STSv10; id=2;", "v=STSv1; id=1;")
	repeated.mode, repeated.mx, repeated.differs = "enforce", "mail.lab.example", "it counts v=STSv10 as v=STSv1"
	return []policyCase{
		good("record", "v=STSv1; id=20260101T000000;"), good("record without space", "v=STSv1;id=1"),
		good("record with space", "v=STSv1 ; id=1 ; "), good("record with extensions", "v=STSv1; x=y; id=1; a.b=c"),
		good("other records", "v=spf1 -all", "v=STSv1; id=1;"), good("record in strings", "v=STS\nv1; i\nd=1;"),
		good("id twice", "v=STSv1; id=1; id=2;"), repeated, alias, fails,
		bad("no record", ""), bad("only others", "", "v=spf1 -all"),
		bad("two records", "", "v=STSv1; id=1;", "v=STSv1; id=1;"), bad("no id", "", "v=STSv1;"),
		bad("version last", "", "id=1; v=STSv1"), bad("version 2", "", "v=STSv2; id=1;"),
		bad("version in lower case", "", "v=stsv1; id=1;"), bad("space first", "", " v=STSv1; id=1;"),
		bad("empty id", tolerant, "v=STSv1; id=;"), bad("id with hyphens", tolerant, "v=STSv1; id=2026-01-01;"),
		bad("long id", tolerant, "v=STSv1; id="+strings.Repeat("a", 33)),
		bad("field without value", "it accepts any field", "v=STSv1; id=1; x"),
	}
}

func fetchCases(l *ststest.Lab) []policyCase {
	site := func(name string, fail mtasts.Result, s ststest.Site) policyCase {
		s.TXT = ststest.Record("1")
		if s.Policy == "" {
			s.Policy = body()
		}
		c := policyCase{name: name, site: s, fail: fail}
		if fail == "" {
			c.mode, c.mx = "enforce", "mail.lab.example"
		}
		return c
	}
	answers := func(name string, h http.HandlerFunc) policyCase {
		return site(name, mtasts.FetchError, ststest.Site{Handler: h})
	}
	slow := func(name string, h http.HandlerFunc) policyCase {
		c := answers(name, h)
		c.slow = true
		return c
	}
	cert := func(name string, fail mtasts.Result, of func(host string) tls.Certificate) policyCase {
		c := site(name, fail, ststest.Site{})
		got := of("mta-sts." + domainOf(name))
		c.site.Certificate = &got
		return c
	}
	large := func(size int) string { return body() + "x: " + strings.Repeat("y", size-len(body())-3) }
	nameOnly := cert("common name only", mtasts.WebPKIInvalid, func(h string) tls.Certificate { return l.CA.NameOnly(h) })
	nameOnly.differs = "it accepts the common name of a certificate without other names"
	other := ststest.New(l.T()).CA
	return []policyCase{
		answers("301", redirect(301, "/.well-known/mta-sts.txt?again")),
		answers("302 to another host", redirect(302, "https://mta-sts."+domainOf("record")+"/.well-known/mta-sts.txt")),
		answers("404", http.NotFound), answers("500", answer(500)), answers("204", answer(204)), answers("203", answer(203)),
		slow("dripping body", drip), slow("silence", func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }),
		answers("broken off", breakOff),
		site("no address", mtasts.FetchError, ststest.Site{NoAddress: true}),
		site("TLS 1.1", mtasts.FetchError, ststest.Site{MaxTLS: tls.VersionTLS11}),
		site("HTML", mtasts.FetchError, ststest.Site{Type: "text/html"}),
		site("no media type", mtasts.FetchError, ststest.Site{Type: "none"}),
		site("charset", "", ststest.Site{Type: "text/plain; charset=utf-8"}),
		site("media type in upper case", "", ststest.Site{Type: "TEXT/PLAIN"}),
		site("64 KB", "", ststest.Site{Policy: large(64 << 10)}),
		site("64 KB and a byte", mtasts.FetchError, ststest.Site{Policy: large(64<<10 + 1)}),
		site("65 KB", mtasts.FetchError, ststest.Site{Policy: large(65 << 10)}),
		cert("wrong name", mtasts.WebPKIInvalid, func(string) tls.Certificate { return l.CA.Certificate("lab.example") }),
		cert("name of the domain", mtasts.WebPKIInvalid, func(h string) tls.Certificate {
			return l.CA.Certificate(strings.TrimPrefix(h, "mta-sts."))
		}),
		nameOnly,
		cert("expired", mtasts.WebPKIInvalid, func(h string) tls.Certificate { return l.CA.Expired(h) }),
		cert("unknown authority", mtasts.WebPKIInvalid, func(h string) tls.Certificate { return other.Certificate(h) }),
		cert("wildcard certificate", "", func(h string) tls.Certificate {
			return l.CA.Certificate("*." + strings.TrimPrefix(h, "mta-sts."))
		}),
	}
}

func policyCases() []policyCase {
	good := func(name string, mode mtasts.Mode, mx, policy string) policyCase {
		return policyCase{name: name, mode: mode, mx: mx, site: ststest.Site{TXT: ststest.Record("1"), Policy: policy,
			Type: "text/plain; charset=utf-8"}}
	}
	bad := func(name, differs, policy string) policyCase {
		c := good(name, "", "", policy)
		c.fail, c.differs = mtasts.PolicyInvalid, differs
		return c
	}
	const mail, mx = "mail.lab.example", "mx: mail.lab.example\r\n"
	patterns := "it does not check patterns"
	idn := good("IDN pattern", "enforce", "*.xn--bcher-kva.example", body(mail, "*.bücher.example"))
	idn.differs = "it keeps U-labels, which never match"
	upper := good("pattern in upper case", "enforce", mail, body(mail, "MAIL.Lab.Example"))
	upper.differs = "it keeps the case; Postfix ignores it"
	first := good("mode twice", "enforce", mail, body()+"mode: testing\r\n")
	first.differs = "of repeated fields, it takes the last; RFC 8461 section 3.2 demands the first"
	return []policyCase{
		good("testing", "testing", mail, body("enforce", "testing")),
		good("none", "none", "", body("enforce", "none", mx, "")),
		good("LF", "enforce", mail, body("\r\n", "\n")),
		good("no line end", "enforce", mail, strings.TrimSpace(body())),
		good("blank lines", "enforce", mail, "\r\n"+body()+"\r\n"),
		good("unknown fields", "enforce", mail, body()+"comment: hello: world\r\n"),
		good("several mx", "enforce", mail+" *.lab.example", body()+"mx: *.lab.example\r\n"),
		good("max_age 0", "enforce", mail, body("604800", "0")),
		good("max_age of a year", "enforce", mail, body("604800", "31557600")), idn, upper, first,
		bad("max_age too large", "", body("604800", "31557601")), bad("max_age negative", "", body("604800", "-1")),
		bad("max_age not a number", "", body("604800", "7d")), bad("no max_age", "", body("max_age: 604800\r\n", "")),
		bad("no mx", "", body(mx, "")), bad("no mode", "", body("mode: enforce\r\n", "")),
		bad("unknown mode", "", body("enforce", "strict")), bad("no version", "", body("version: STSv1\r\n", "")),
		bad("policy version 2", "", body("STSv1", "STSv2")), bad("space before colon", "", body("mode:", "mode :")),
		bad("empty policy", "", "\n"), bad("HTML as text", "", "<html><body>Welcome</body></html>"),
		bad("not UTF-8", "", body()+"x: \xff\r\n"),
		bad("star alone", patterns, body(mail, "*")), bad("star in the middle", patterns, body(mail, "mail.*.example")),
		bad("line without colon", "it ignores such lines", body()+"mx mail.lab.example\r\n"),
	}
}

// domainOf returns the domain of a case.
func domainOf(name string) string {
	return strings.ToLower(strings.NewReplacer(" ", "-", "_", "-", ".", "-").Replace(name)) + ".lab.example"
}

// Each case has the verdict of the table in RFC 8461 and of the failures in docs/design/mta-sts.md.
func TestCases(t *testing.T) {
	t.Parallel()
	f := newFixture(t, sqlite(t))
	all := cases(f.lab)
	if len(all) < 60 {
		t.Errorf("there are only %d cases", len(all))
	}
	for _, c := range all {
		f.lab.Set(domainOf(c.name), c.site)
	}
	impatient := f.service(f.d, func(c *tlspolicies.Config, _ *tlspolicies.Deps) { c.Timeout = time.Second })
	seen := map[string]bool{}
	for _, c := range all {
		if seen[domainOf(c.name)] {
			t.Errorf("%s occurs twice", c.name)
		}
		seen[domainOf(c.name)] = true
		s := f.s
		if c.slow {
			s = impatient
		}
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			checkCase(t, s, c)
		})
	}
}

func checkCase(t *testing.T, s *tlspolicies.Service, c policyCase) {
	t.Helper()
	p, st, err := s.For(context.WithoutCancel(t.Context()), strings.ToUpper(domainOf(c.name)))
	if err != nil {
		t.Error(err)
	}
	origin := tlspolicies.NoPolicy
	if c.mode != "" {
		origin = tlspolicies.Live
	}
	if p.Mode != c.mode || strings.Join(p.MX, " ") != c.mx || st.Result != c.fail || st.Origin != origin {
		t.Errorf("the policy is %+v, and the state %+v; want %s of %s and %q", p, st, c.mode, c.mx, c.fail)
	}
	if st.Domain != domainOf(c.name) || st.Reason == "" {
		t.Errorf("the state does not say why: %+v", st)
	}
}
