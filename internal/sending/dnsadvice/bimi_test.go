package dnsadvice_test

import (
	"bytes"
	"compress/gzip"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/dnsadvice"
)

const image = `<svg xmlns="http://www.w3.org/2000/svg" version="1.2" baseProfile="tiny-ps" viewBox="0 0 1 1"><title>A</title></svg>`

// A domain without a BIMI record has no BIMI problems. Files that are hostile, huge or missing lead to one each.
func TestBIMI(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(make([]byte, 10<<20))
	z.Close()
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/bomb.svgz":
			w.Write(bomb.Bytes())
		case "/huge.svg":
			for range 1000 {
				if _, err := w.Write(make([]byte, 100<<10)); err != nil {
					return
				}
			}
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(server.Close)
	at := func(file string) string { return "v=BIMI1; l=" + server.URL + file }
	for name, c := range map[string]struct {
		records []string
		policy  string
		want    string
	}{
		"none":          {nil, "v=DMARC1; p=reject", ""},
		"other":         {[]string{"v=spf1 -all"}, "v=DMARC1; p=reject", ""},
		"declined":      {[]string{"v=BIMI1; l=; a=;"}, "v=DMARC1; p=none", ""},
		"two":           {[]string{at("/a"), at("/b")}, "v=DMARC1; p=reject", "bimi_record"},
		"without l":     {[]string{"v=BIMI1; a=https://a.test/"}, "v=DMARC1; p=reject", "bimi_record"},
		"mild policy":   {[]string{at("/none")}, "v=DMARC1; p=none", "bimi_policy bimi_unreachable (bimi_certificate_missing)"},
		"untrusted":     {[]string{at("/bomb.svgz")}, "v=DMARC1; p=reject", "bimi_unreachable (bimi_certificate_missing)"},
		"not public":    {[]string{"v=BIMI1; l=https://10.0.0.1/l.svg"}, "v=DMARC1; p=reject", "bimi_unreachable (bimi_certificate_missing)"},
		"without https": {[]string{"v=BIMI1; l=http://a.test/l.svg"}, "v=DMARC1; p=reject", "bimi_record"},
		"no certificate": {[]string{at("/none") + "; a=" + server.URL + "/none"}, "v=DMARC1; p=reject",
			"bimi_unreachable bimi_unreachable"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			fake := resolve.Fake{TXTRecords: map[string][]string{"default._bimi.acme.com": c.records, "_dmarc.acme.com": {c.policy}}}
			b := &dnsadvice.BIMI{DNS: fake, Guard: netguard.New(netguard.Options{AllowLoopback: true})}
			problems := b.Check(t.Context(), "team", "mail.acme.com")
			if got := codesOf(problems); got != c.want {
				t.Errorf("%s, want %s: %+v", got, c.want, problems)
			}
			for _, p := range problems {
				checkText(t, p)
			}
		})
	}
}

// The size of a file is limited while it is fetched, and again while it is unpacked.
func TestBIMIFiles(t *testing.T) {
	t.Parallel()
	var bomb bytes.Buffer
	z := gzip.NewWriter(&bomb)
	z.Write(make([]byte, 10<<20))
	z.Close()
	for name, c := range map[string]struct {
		body []byte
		want string
	}{
		"good":     {[]byte(image), ""},
		"bomb":     {bomb.Bytes(), "larger than"},
		"entities": {[]byte(`<!DOCTYPE svg [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>` + image), "entities"},
		"script":   {[]byte(strings.Replace(image, "<title>", "<script/><title>", 1)), "script"},
		"huge":     {make([]byte, 100<<10), "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(c.body) }))
			t.Cleanup(server.Close)
			b := &dnsadvice.BIMI{Guard: netguard.New(netguard.Options{AllowLoopback: true})}
			problems := b.CheckImageAt(t.Context(), "team", server.URL)
			if (c.want == "") != (len(problems) == 0) || c.want != "" && !strings.Contains(problems[0].What, c.want) {
				t.Errorf("%+v, want %q", problems, c.want)
			}
		})
	}
}
