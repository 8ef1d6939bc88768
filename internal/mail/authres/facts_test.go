package authres_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/authres"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// evaluate is like check, with facts and a log. The result also has the number of look-ups.
func evaluate(t *testing.T, o authres.Origin, raw string, facts bool) (r authres.Results, log string, lookups int) {
	t.Helper()
	var out bytes.Buffer
	dns := &counting{DNS: resolve.NetForm{Resolver: zone()}}
	e := authres.New("mx.postrider.example", dns)
	e.Facts, e.Log = facts, slog.New(slog.NewTextHandler(&out, nil))
	r = e.Check(t.Context(), o, strings.NewReader(raw), int64(len(raw)))
	return r, out.String(), dns.n
}

type counting struct {
	authres.DNS
	n int
}

func (c *counting) LookupTXT(ctx context.Context, name string) ([]string, error) {
	if strings.HasPrefix(name, "_dmarc.") {
		c.n++
	}
	return c.DNS.LookupTXT(ctx, name)
}

// The facts say which methods passed for an aligned domain, and name the selectors of the signatures in their order.
func TestFacts(t *testing.T) {
	t.Parallel()
	from := func(value string) string { return strings.Replace(plain, "Alice <alice@example.com>", value, 1) }
	two := signed(t, signed(t, plain, "mail.example.com", "ed", keys().ed), "example.com", "rsa", keys().rsa)
	for name, c := range map[string]struct {
		o    authres.Origin
		raw  string
		want string
	}{
		"SPF": {origin("192.0.2.1", "x.example", "a@example.com"), plain,
			"192.0.2.1 example.com example.com at example.com: dkim false spf true []"},
		"IPv4 in IPv6": {origin("::ffff:192.0.2.1", "x.example", "a@example.com"), plain,
			"192.0.2.1 example.com example.com at example.com: dkim false spf true []"},
		"signatures": {origin("203.0.113.1", "x.example", ""), two,
			"203.0.113.1 example.com  at example.com: dkim true spf false [rsa pass example.com ed pass mail.example.com]"},
		"folded": {origin("203.0.113.1", "x.example", ""), strings.Replace(two, "s=rsa", "\r\n s = rsa", 1),
			"203.0.113.1 example.com  at example.com: dkim true spf false [rsa fail example.com ed pass mail.example.com]"},
		"below": {origin("203.0.113.1", "x.example", "a@soft.example"), from("a@news.example.com"),
			"203.0.113.1 news.example.com soft.example at example.com: dkim false spf false []"},
		"strict": {origin("192.0.2.1", "x.example", "a@sub.strict.example"), from("a@strict.example"),
			"192.0.2.1 strict.example sub.strict.example at strict.example: dkim false spf false []"},
		"no policy":          {origin("192.0.2.1", "x.example", "a@example.com"), from("a@unknown.example"), ""},
		"policy unavailable": {origin("192.0.2.1", "x.example", "a@example.com"), from("a@nodns.example"), ""},
		"no address":         {authres.Origin{MailFrom: "a@example.com"}, plain, ""},
	} {
		r, _, _ := evaluate(t, c.o, c.raw, true)
		got := ""
		if f := r.Facts; f != nil {
			var all []string
			for _, s := range f.Signatures {
				all = append(all, s.Selector, s.Result, s.Domain)
			}
			got = fmt.Sprintf("%s %s %s at %s: dkim %v spf %v %v", f.Source, f.From, f.MailFrom, f.Found.At, f.DKIM, f.SPF, all)
		}
		if got != c.want {
			t.Errorf("%s:\n%s, want\n%s", name, got, c.want)
		}
		if r, _, _ := evaluate(t, c.o, c.raw, false); r.Facts != nil {
			t.Errorf("%s: facts that nobody asked for", name)
		}
	}
}

// A line says for which messages the public suffix list gives another result. It costs no look-ups, unless a psd tag
// ended the walk.
func TestPublicSuffixListDiffers(t *testing.T) {
	t.Parallel()
	from := func(value string) string { return strings.Replace(plain, "Alice <alice@example.com>", value, 1) }
	for name, c := range map[string]struct {
		o    authres.Origin
		raw  string
		want string // part of the line; "" if there is none
	}{
		"own record":   {origin("192.0.2.1", "x.example", "a@example.com"), plain, ""},
		"organization": {origin("203.0.113.1", "x.example", "a@soft.example"), from("a@news.example.com"), ""},
		"no policy":    {origin("203.0.113.1", "x.example", ""), from("a@unknown.example"), ""},
		"relaxed":      {origin("192.0.2.1", "x.example", "a@bounce.example.com"), plain, ""},
		"below a public suffix that the list does not know": {origin("203.0.113.1", "x.example", ""), from("a@shop.suffix"),
			"domain=shop.suffix result=fail record=suffix old_result=none old_record=\"\""},
		"unavailable": {origin("203.0.113.1", "x.example", ""), from("a@nodns.example"), ""},
	} {
		r, log, lookups := evaluate(t, c.o, c.raw, false)
		if c.want == "" && log != "" || !strings.Contains(log, c.want) {
			t.Errorf("%s: %+v\n%s", name, r.DMARC, log)
		}
		if lookups > 3 {
			t.Errorf("%s: %d look-ups", name, lookups)
		}
	}
}
