package preflight

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/postrider/postrider/internal/mail/message"
	"github.com/postrider/postrider/internal/mail/resolve"
)

// zone returns the DNS records that match the email from good.
func zone() resolve.Fake {
	return resolve.Fake{TXTRecords: map[string][]string{
		"send.acme.org":      {"v=spf1 include:spf.postrider.test ~all"},
		"_dmarc.acme.org":    {"v=DMARC1; p=reject"},
		"spf.postrider.test": {"other", "v=spf1 ip4:192.0.2.0/24 ip6:2001:db8::/32 -all"},
	}}
}

// good returns an email that passes all checks.
func good() Input {
	return Input{From: message.Address{Name: "Acme", Local: "hello", Domain: "acme.org"}, Subject: "Your order",
		HTML: `<p>Hello, <a href="https://www.acme.org/orders/1">your order</a> is on its way.` +
			`<img src="cid:logo" alt="Acme">`,
		Text: "Hello.", ContentIDs: []string{"logo"}, DNS: zone(),
		Sender: Sender{SignedBy: "acme.org", ReturnPath: "send.acme.org",
			Keys: []Key{{Name: "postrider._domainkey.acme.org", State: Found},
				{Name: "postrider-ed25519._domainkey.acme.org", Optional: true}}}}
}

var allChecks = []string{"sender", "dkim", "spf", "dmarc", "alignment", "unsubscribe", "no_reply", "subject",
	"text_part", "html_size", "html_tags", "link_text", "link_hosts", "link_http", "link_shortener", "link_target",
	"image_alt", "image_hosts", "image_inline"}

// check runs all checks and returns the results by id.
func check(t testing.TB, in Input) map[string]Result {
	t.Helper()
	all := Run(t.Context(), in)
	byID := map[string]Result{}
	var ids []string
	for _, r := range all {
		ids, byID[r.ID] = append(ids, r.ID), r
		if strings.Contains(r.Message, "GET /") {
			t.Errorf("%s speaks of the API, but pages show it too: %s", r.ID, r.Message)
		}
		if r.Message == "" || len(r.Details) > maxDetails || !slices.Contains(levels, r.Level) {
			t.Errorf("%s: %+v", r.ID, r)
		}
		for _, d := range r.Details {
			if len(d) > maxDetail+len("…") || !utf8.ValidString(d) || printable(d) != d && !strings.HasSuffix(d, "…") {
				t.Errorf("%s shows %q", r.ID, d)
			}
		}
	}
	if diff := gocmp.Diff(allChecks, ids); diff != "" {
		t.Errorf("the checks: %s", diff)
	}
	return byID
}

func TestGoodEmail(t *testing.T) {
	t.Parallel()
	all := check(t, good())
	for id, r := range all {
		if r.Level != Pass {
			t.Errorf("%s: %+v", id, r)
		}
	}
	if worst := Worst(Run(t.Context(), good())); worst != Pass {
		t.Errorf("all in all %s", worst)
	}
	for _, id := range allChecks {
		if r := check(t, Input{})[id]; r.Message == "" {
			t.Errorf("nothing is said of %s in an email without anything", id)
		}
	}
}

func TestWorst(t *testing.T) {
	t.Parallel()
	for want, all := range map[Level][]Level{Pass: nil, Info: {Pass, Info}, Warning: {Warning, Info},
		Problem: {Pass, Problem, Warning}} {
		var results []Result
		for _, l := range all {
			results = append(results, Result{Level: l})
		}
		if got := Worst(results); got != want {
			t.Errorf("%v: %s, want %s", all, got, want)
		}
	}
}

// Each test case changes one property of a good email. Only the named check reports the change, unless the case names
// several checks.
func TestEmails(t *testing.T) {
	t.Parallel()
	list := func(pairs ...string) (all []message.Field) {
		for i := 0; i < len(pairs); i += 2 {
			all = append(all, message.Field{Name: pairs[i], Value: pairs[i+1]})
		}
		return all
	}
	const oneClick = "List-Unsubscribe=One-Click"
	for _, c := range []struct {
		name   string
		change func(*Input)
		id     string
		level  Level
		shows  string // expected in the message or in the details
	}{
		{"refused", func(in *Input) { in.Sender.Refused = "Verify it." }, "sender", Problem, "Verify it."},
		{"DKIM record gone", func(in *Input) { in.Sender.Keys[0].State = Gone }, "dkim", Problem,
			"postrider._domainkey.acme.org"},
		{"DKIM record not found", func(in *Input) { in.Sender.Keys[0].State = NotFound }, "dkim", Problem, "not found yet"},
		{"no keys", func(in *Input) { in.Sender.Keys = nil }, "dkim", Problem, "No DKIM record"},

		{"no-reply", func(in *Input) { in.From.Local = "No-Reply+x" }, "no_reply", Warning, "No-Reply+x@acme.org"},
		{"do not reply", func(in *Input) { in.From.Local = "do_not.reply" }, "no_reply", Warning, "reply_to"},
		{"no-reply, answered elsewhere", func(in *Input) {
			in.From.Local, in.ReplyTo = "noreply", []string{"Acme <help@acme.org>"}
		}, "no_reply", Info, "another address"},
		{"no-reply twice", func(in *Input) { in.From.Local, in.ReplyTo = "noreply", []string{"noreply@acme.org", ""} },
			"no_reply", Warning, "noreply"},
		{"a name with reply in it", func(in *Input) { in.From.Local = "replyall" }, "", "", ""},

		{"no subject", func(in *Input) { in.Subject = " " }, "subject", Warning, "no subject"},
		{"a long subject", func(in *Input) { in.Subject = strings.Repeat("é", 51) }, "subject", Info, "51 characters"},
		{"a subject that just fits", func(in *Input) { in.Subject = strings.Repeat("é", 50) }, "", "", ""},
		{"no text", func(in *Input) { in.Text = "" }, "text_part", Warning, "text part"},

		{"bulk without a way out", func(in *Input) { in.Bulk = true }, "unsubscribe", Problem, "no way to unsubscribe"},
		{"one click", func(in *Input) {
			in.Bulk, in.Headers = true, list("list-unsubscribe", "<mailto:a@acme.org>, <https://acme.org/u>",
				"List-Unsubscribe-Post", oneClick)
		}, "", "", ""},
		{"no POST", func(in *Input) { in.Headers = list("List-Unsubscribe", "<https://acme.org/u>") }, "unsubscribe", Problem,
			"List-Unsubscribe-Post"},
		{"a wrong POST", func(in *Input) {
			in.Headers = list("List-Unsubscribe", "<https://acme.org/u>", "List-Unsubscribe-Post", "yes")
		}, "unsubscribe", Problem, "yes"},
		{"mailto only", func(in *Input) {
			in.Headers = list("List-Unsubscribe", "<mailto:a@acme.org>", "List-Unsubscribe-Post", oneClick)
		}, "unsubscribe", Problem, "mailto:a@acme.org"},
		{"http only", func(in *Input) {
			in.Headers = list("List-Unsubscribe", "<http://acme.org/u>", "List-Unsubscribe-Post", oneClick)
		}, "unsubscribe", Problem, "begins with http:"},
		{"not in brackets", func(in *Input) {
			in.Headers = list("List-Unsubscribe", "https://acme.org/u", "List-Unsubscribe-Post", oneClick)
		}, "unsubscribe", Problem, "no https:"},
		{"twice", func(in *Input) {
			in.Headers = list("List-Unsubscribe", "<https://acme.org/u>", "List-Unsubscribe", "<https://acme.org/v>",
				"List-Unsubscribe-Post", oneClick)
		}, "unsubscribe", Problem, "several"},

		{"just small enough", func(in *Input) { in.HTML = padded(clipped) }, "", "", ""},
		{"too large", func(in *Input) { in.HTML = padded(clipped + 1) }, "html_size", Warning, "103 KB"},
		{"far too large", func(in *Input) { in.HTML = padded(maxHTML + 1) }, "html_size", Warning, "first 2 MB"},
		{"too large with tracking", func(in *Input) {
			in.HTML = padded(clipped-1000) + strings.Repeat(`<a href="https://acme.org">x</a>`, 30)
			in.Sender.Tracking = Tracking{Host: "links.acme.org", Clicks: true}
		}, "html_size", Warning, "tracked links"},
		{"links that are not tracked", func(in *Input) {
			in.HTML = padded(clipped-1500) + strings.Repeat(`<a data-postrider-no-track href="https://acme.org">x</a>`, 20)
			in.Sender.Tracking = Tracking{Host: "links.acme.org", Clicks: true}
		}, "", "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			in := good()
			c.change(&in)
			wantOnly(t, in, c.id, c.level, c.shows)
		})
	}
}

// padded returns HTML of the given size in bytes.
func padded(size int) string { return "<p>" + strings.Repeat("x", size-len("<p>")) }

// wantOnly checks that only the check with the given id has findings, or that no check has findings if id is "".
func wantOnly(t *testing.T, in Input, id string, level Level, shows string) {
	t.Helper()
	for _, r := range check(t, in) {
		switch text := r.Message + "\n" + strings.Join(r.Details, "\n"); {
		case r.ID != id && r.Level != Pass:
			t.Errorf("also %s: %s %s", r.ID, r.Level, text)
		case r.ID == id && (r.Level != level || !strings.Contains(text, shows)):
			t.Errorf("%s: %s %s; want %s, and %q", id, r.Level, text, level, shows)
		}
	}
}

// In the HTML of each test case, only the check with the given id has findings.
func TestHTML(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		html  string
		id    string
		level Level
		shows string
	}{
		{"", "", "", ""},
		{`<SCRIPT>"<a href=http://evil.net>"</SCRIPT>`, "html_tags", Warning, "1 element that the HTML has"},
		{`<form action=x><input></form>`, "html_tags", Warning, "2 elements that"},
		{`<iframe src="https://www.acme.org/"></iframe>`, "html_tags", Warning, "<iframe>"},
		{`<link rel="icon Stylesheet" href=style.css>`, "html_tags", Warning, "style.css"},
		{`<link rel=icon href=icon.png><meta http-equiv=Content-Type><style>p{}</style>`, "", "", ""},
		{`<meta http-equiv="Refresh" content="0">`, "html_tags", Warning, "refresh"},
		{`<a href="javascript:x()">x</a>`, "html_tags", Warning, "javascript:"},
		{`<!-- <script> <img> -->`, "", "", ""},

		{`<a href="https://acme.org.evil.net/x">x</a>`, "link_hosts", Warning, "acme.org.evil.net"},
		{`<a href="https://acme.org@evil.net/x">x</a>`, "link_hosts", Warning, "evil.net"},
		{`<a href="https:\\evil.net\x">x</a>`, "link_hosts", Warning, "evil.net"},
		{`<a href=" HTTPS://Evil.NET:8443?acme.org">x</a>`, "link_hosts", Warning, "1 link to hosts"},
		{`<a href="https://e` + "\n" + `vil.net/">x</a><a href="https://evil.net/b">y</a>`, "link_hosts", Warning, "2 links"},
		{`<map><area href="https://evil.net/"></map>`, "link_hosts", Warning, "evil.net"},
		{`<a href="https://192.0.2.1/">x</a>`, "link_hosts", Warning, "192.0.2.1"},
		{`<a href="https://bücher.example/">x</a>`, "link_hosts", Warning, "xn--bcher-kva.example"},
		{`<a href="https://acme.org.">x</a><a href="https://a.b.acme.org:8443/">x</a>`, "", "", ""},
		{`<a href="mailto:a@evil.net">x</a><a href="tel:+1">y</a><a name=x>z</a><a href="#x">z</a>`, "", "", ""},

		{`<a href="http://acme.org/">x</a>`, "link_http", Warning, "1 address with http:"},
		{`<img alt="" src="http://acme.org/x.png">`, "link_http", Warning, "http://acme.org/x.png"},
		{`<a href="">x</a>`, "link_target", Problem, "empty address"},
		{`<a href="#">x</a>`, "link_target", Problem, "empty address"},
		{`<a href="/orders/1">x</a><a href="orders/2">y</a>`, "link_target", Problem, "2 addresses"},
		{`<a href="//acme.org/">x</a>`, "link_target", Problem, "//acme.org/"},
		{`<a href="www.acme.org">x</a>`, "link_target", Problem, "www.acme.org"},
		{`<a href="http://localhost:3000/">x</a>`, "link_target", Problem, "localhost:3000"},
		{`<a href="https://[::1]/">x</a>`, "link_target", Problem, "[::1]"},
		{`<a href="https://[x]/">x</a><a href="https://[fe80::1%1]/">x</a>`, "link_target", Problem, "2 addresses"},
		{`<a href="https://` + strings.Repeat("x.", 600) + `net/">x</a>`, "link_target", Problem, "https://x.x."},
		{`<a href="https://10.0.0.1/">x</a>`, "link_target", Problem, "10.0.0.1"},
		{`<a href="https://nas.local/">x</a>`, "link_target", Problem, "nas.local"},
		{`<a href="https://">x</a>`, "link_target", Problem, "https://"},
		{`<a href="https://a b.org/">x</a>`, "link_target", Problem, "a b.org"},
		{`<img alt="" src="logo.png">`, "link_target", Problem, "logo.png"},
		{`<a href="{{{UNSUBSCRIBE_URL}}}">x</a>`, "link_target", Problem, "{{{UNSUBSCRIBE_URL}}}"},
		{`<a href="https://{{{HOST}}}/">x</a><img alt="" src="{{{LOGO}}}">`, "link_target", Problem, "2 addresses"},
		{`<a href="https://evil.net/{{{X}}}">y</a>`, "link_hosts", Warning, "evil.net"},
		{`<img alt="">`, "link_target", Problem, "an image with an empty address"},
		{`<img alt="" src="https://intranet/logo.png">`, "link_target", Problem, "intranet"},

		{`<img src="https://acme.org/logo.png">`, "image_alt", Warning, "https://acme.org/logo.png"},
		{`<img src="https://acme.org/a.png" alt><img src="https://acme.org/b.png" alt=b>`, "", "", ""},
		{`<img alt="" src="https://cdn.net/a.png">`, "image_hosts", Info, "cdn.net"},
		{`<td background="https://cdn.net/a.png">`, "image_hosts", Info, "1 image from"},
		{`<img alt="" src="cid:logo"><img alt="" src="CID:%6Cogo">`, "", "", ""},
		{`<img alt="" src="cid:other">`, "image_inline", Problem, "cid:other"},
		{`<img alt="" src="data:image/png;base64,` + strings.Repeat("A", 3000) + `">`, "image_inline", Warning, "3 KB"},

		{`<a href="https://acme.org/x">https://acme.org/y</a><a href="https://links.acme.org/x"><b>acme</b>.org</a>`,
			"", "", ""},
		{`<a href="https://acme.org/x">https://bank.com/</a>`, "link_text", Problem,
			"https://bank.com/ leads to https://acme.org/x"},
		{`<a href="https://acme.org/x"> <b>https://</b>ba&#110;k.com </a>`, "link_text", Problem, "bank.com"},
		{`<a href="https://acme.org/x">www.bank.com<a href="https://acme.org/y">y</a>`, "link_text", Problem, "www.bank.com"},
		{`<a href="https://acme.org/x">https://bank.com/`, "link_text", Problem, "bank.com"},
		{`<a href="https://acme.org/x">bank.com</a>`, "link_text", Warning, "bank.com leads to"},
		{`<a href="https://acme.org/x">setup.exe</a> <a href="https://acme.org/x">10:30</a>
			<a href="https://acme.org/x">1.2.3</a> <a href="https://acme.org/x">See bank.com</a>
			<a href="https://acme.org/x">a@bank.com</a> <a href="https://acme.org/x"></a>`, "", "", ""},
	} {
		t.Run(c.html[:min(len(c.html), 60)], func(t *testing.T) {
			t.Parallel()
			in := good()
			in.HTML = c.html
			wantOnly(t, in, c.id, c.level, c.shows)
		})
	}
}

// A link through a link shortener also counts as foreign, unless the shortener belongs to the sender's domain.
func TestShorteners(t *testing.T) {
	t.Parallel()
	in := good()
	in.HTML = `<a href="https://bit.ly/x">x</a><a href="https://go.bit.ly/y">y</a>`
	all := check(t, in)
	if r := all["link_shortener"]; r.Level != Problem || len(r.Details) != 2 {
		t.Errorf("%+v", r)
	}
	in.From.Domain, in.Sender.SignedBy = "bit.ly", "bit.ly"
	if r := check(t, in)["link_shortener"]; r.Level != Pass {
		t.Errorf("for the shortener itself: %+v", r)
	}
}

// If links are tracked, a link's text may show a URL whose host differs from the tracking host to which the link first
// leads.
func TestTextsOfTrackedLinks(t *testing.T) {
	t.Parallel()
	in := good()
	in.Sender.Tracking = Tracking{Host: "links.acme.org", Clicks: true}
	for _, c := range []struct {
		html  string
		level Level
	}{
		{`<a href="https://other.net/">https://other.net/</a>`, Warning},
		{`<a href="https://other.net/" data-postrider-no-track>https://other.net/</a>`, Pass},
		{`<a href="https://acme.org/">https://acme.org/</a>`, Pass},
		{`<a href="https://other.net/">other</a>`, Pass},
	} {
		in.HTML = c.html
		if r := check(t, in)["link_text"]; r.Level != c.level {
			t.Errorf("%s: %+v", c.html, r)
		}
	}
}

// All occurrences are counted, but only a few are listed.
func TestDetailsAreBounded(t *testing.T) {
	t.Parallel()
	in := good()
	var b strings.Builder
	for i := range 500 {
		fmt.Fprintf(&b, `<a href="http://h%d.evil.net/%s">x</a>`, i, strings.Repeat("é", 300))
		b.WriteString(`<a href="http://h.evil.net/">x</a>`)
	}
	in.HTML = b.String()
	all := check(t, in)
	for _, id := range []string{"link_hosts", "link_http"} {
		if r := all[id]; len(r.Details) != maxDetails || !strings.Contains(r.Message, "1000 ") {
			t.Errorf("%s: %d details, %s", id, len(r.Details), r.Message)
		}
	}
	if got := printable("a\x00b\r\nc\u202ed\xffe\u2028"); got != "abcde" {
		t.Errorf("%q", got)
	}
}

func TestSandbox(t *testing.T) {
	t.Parallel()
	in := good()
	in.Sender, in.From.Domain = Sender{Sandbox: true, SignedBy: "resend.dev"}, "resend.dev"
	counted := &counting{Resolver: zone()}
	in.DNS = counted
	all := check(t, in)
	for _, id := range []string{"sender", "spf", "dmarc", "alignment"} {
		if all[id].Level != Info {
			t.Errorf("%+v", all[id])
		}
	}
	if n := counted.n.Load(); n != 0 {
		t.Errorf("%d look-ups", n)
	}
}

// For a domain that the team has not added, only the DNS records are checked.
func TestUnknownDomain(t *testing.T) {
	t.Parallel()
	in := good()
	in.Sender = Sender{Refused: "Add it."}
	all := check(t, in)
	for id, want := range map[string]Level{"sender": Problem, "dkim": Problem, "spf": Info, "dmarc": Pass,
		"alignment": Info} {
		if all[id].Level != want {
			t.Errorf("%+v, want %s", all[id], want)
		}
	}
}

// counting is a DNS resolver that counts its queries.
type counting struct {
	resolve.Resolver
	n atomic.Int32
}

func (c *counting) TXT(ctx context.Context, name string) ([]string, error) {
	c.n.Add(1)
	return c.Resolver.TXT(ctx, name)
}

func (c *counting) MX(ctx context.Context, name string) ([]resolve.MX, error) {
	c.n.Add(1)
	return c.Resolver.MX(ctx, name)
}

func (c *counting) Addrs(ctx context.Context, name string) ([]netip.Addr, error) {
	c.n.Add(1)
	return c.Resolver.Addrs(ctx, name)
}

// silent is a DNS resolver that never answers.
type silent struct{ resolve.Resolver }

func (silent) TXT(ctx context.Context, _ string) ([]string, error) {
	<-ctx.Done()
	return nil, fmt.Errorf("%w: %w", resolve.ErrTemporary, ctx.Err())
}

// If DNS does not answer or look-ups are disabled, no check fails and Run returns promptly.
func TestNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		in := good()
		want := func(what, says string, took time.Duration) {
			t.Helper()
			began := time.Now()
			for _, r := range Run(t.Context(), in) {
				asks := r.ID == "spf" || r.ID == "dmarc"
				if asks != (r.Level == Info) || asks && !strings.Contains(r.Message, says) {
					t.Errorf("%s: %+v", what, r)
				}
			}
			if d := time.Since(began); d != took {
				t.Errorf("%s: it took %v", what, d)
			}
		}
		in.DNS = silent{}
		want("silent", "could not be looked up", lookUpTime)
		in.DNS = resolve.Fake{Fail: []string{"send.acme.org", "_dmarc.acme.org"}}
		want("failing", "could not be looked up", 0)
		in.DNS = nil
		want("none", "does not ask the DNS", 0)
	})
}
