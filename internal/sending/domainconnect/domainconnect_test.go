package domainconnect_test

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/platform/netguard"
	"github.com/postrider/postrider/internal/sending/domainconnect"
	"github.com/postrider/postrider/internal/sending/domains"
)

var config = domainconnect.Config{ProviderID: "mail.example.net", ServiceID: "email", Name: "Example Mail",
	BounceHost: "bounce.example.net", SPFInclude: "spf.example.net", InboundHost: "in.example.net",
	TrackingHost: "links.example.net"}

// wanted are the records of a domain.
func wanted(domain string) []domains.Record {
	return []domains.Record{
		{Key: "mx", Type: "MX", FQDN: "send." + domain, Value: "bounce.example.net", Priority: 10},
		{Key: "spf", Type: "TXT", FQDN: "send." + domain, Value: "v=spf1 include:spf.example.net ~all"},
		{Key: "dkim", Type: "TXT", FQDN: "r1._domainkey." + domain, Value: "v=DKIM1; k=rsa; p=AB+/="},
		{Key: "dkim-ed25519", Type: "TXT", FQDN: "e1._domainkey." + domain, Value: "v=DKIM1; k=ed25519; p=CD"},
		{Key: "tracking", Type: "CNAME", FQDN: "links." + domain, Value: "links.example.net"},
	}
}

// provider is a DNS provider with Domain Connect.
type provider struct {
	server   *httptest.Server
	settings string // what it answers; "" means that it does not have the zone
	status   int    // of the question about the template
}

func newProvider(t *testing.T) *provider {
	t.Helper()
	p := &provider{status: http.StatusOK}
	p.server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/dc/v2/acme.com/settings" && p.settings != "":
			io.WriteString(w, strings.ReplaceAll(p.settings, "$URL", p.server.URL))
		case r.URL.Path == "/api/v2/domainTemplates/providers/mail.example.net/services/email":
			w.WriteHeader(p.status)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(p.server.Close)
	p.settings = `{"providerId":"dns.example","urlSyncUX":"$URL/ux/","urlAPI":"$URL/api","width":750}`
	return p
}

// fetch downloads from the provider, whose certificate only this client trusts.
func (p *provider) fetch(ctx context.Context, url string, most int64) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.server.Client().Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, &netguard.StatusError{Code: resp.StatusCode}
	}
	return io.ReadAll(io.LimitReader(resp.Body, most))
}

func newService(t *testing.T, d *db.DB, p *provider) *domainconnect.Service {
	t.Helper()
	keys, err := keyring.New(make([]byte, keyring.MasterSize))
	if err != nil {
		t.Fatal(err)
	}
	host := strings.TrimPrefix(p.server.URL, "https://")
	s, err := domainconnect.New(config, domainconnect.Deps{DB: d, Keys: keys, Fetch: p.fetch, DNS: resolve.Fake{
		TXTRecords: map[string][]string{"_domainconnect.acme.com": {strings.Replace(host, "127.0.0.1", "localhost.test", 1) + "/dc"},
			"_domainconnect.bad.com": {"https://" + host}}}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// verify checks the signature of a link as a provider does (section 8.3.4 of the draft).
func verify(records []domainconnect.Record, link string) error {
	_, query, _ := strings.Cut(link, "?")
	signed, rest, found := strings.Cut(query, "&sig=")
	values, err := url.ParseQuery("sig=" + rest)
	if !found || err != nil || values.Get("key") != "_dck1" {
		return fmt.Errorf("the link has no signature: %w", err)
	}
	parts := make([]string, len(records))
	for _, r := range records {
		var n int
		var data string
		if _, err := fmt.Sscanf(r.Value, "p=%d,a=RS256,t=x509,d=%s", &n, &data); err != nil || r.Type != "TXT" ||
			r.Name != "_dck1.mail.example.net" || len(r.Value) > 255 {
			return fmt.Errorf("record %+v: %w", r, err)
		}
		parts[n-1] = data
	}
	der, err := base64.StdEncoding.DecodeString(strings.Join(parts, ""))
	if err != nil {
		return err
	}
	key, err := x509.ParsePKIXPublicKey(der)
	if err != nil {
		return err
	}
	signature, err := base64.StdEncoding.DecodeString(values.Get("sig"))
	if err != nil {
		return err
	}
	public, ok := key.(*rsa.PublicKey)
	if !ok {
		return errors.New("no RSA key")
	}
	sum := sha256.Sum256([]byte(signed))
	return rsa.VerifyPKCS1v15(public, crypto.SHA256, sum[:], signature)
}

// expand applies the template to the parameters of a link, as a provider does.
func expand(t *testing.T, template domainconnect.Template, link string) (all []string) {
	t.Helper()
	u, err := url.Parse(link)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	fill := func(text string) string {
		for name := range q {
			text = strings.ReplaceAll(text, "%"+name+"%", q.Get(name))
		}
		return text
	}
	below := strings.TrimPrefix(q.Get("host")+"."+q.Get("domain"), ".")
	for _, r := range template.Records {
		if slices.Contains(strings.Split(q.Get("groupId"), ","), r.GroupID) {
			all = append(all, strings.TrimPrefix(fill(r.Host)+"."+below, "@.")+" "+r.Type+" "+fill(r.PointsTo)+fill(r.Data))
		}
	}
	return all
}

// The provider's page makes exactly the wanted records, and the signature is right, on both engines and two nodes.
func TestApplyURL(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p := newProvider(t)
		s, other := newService(t, d, p), newService(t, d, p)
		// The name in the record must be a host name, and only the test's server is at that name.
		p.server.Client().Transport.(*http.Transport).DialContext = dialTo(p.server.Listener.Addr().String())
		p.server.Client().Transport.(*http.Transport).TLSClientConfig.ServerName = "example.com"
		for domain, host := range map[string]string{"acme.com": "", "mail.acme.com": "mail"} {
			link, err := s.ApplyURL(t.Context(), "acme.com", domain, wanted(domain))
			if err != nil || !strings.HasPrefix(link, p.server.URL+"/ux/v2/domainTemplates/providers/mail.example.net/services/email/apply?") {
				t.Fatalf("%s: %q, %v", domain, link, err)
			}
			records, err := other.KeyRecords(t.Context())
			if err != nil || len(records) < 2 {
				t.Fatalf("records %v, %v", records, err)
			}
			if err := verify(records, link); err != nil {
				t.Errorf("%s: %v", link, err)
			}
			if err := verify(records, strings.Replace(link, "domain=acme.com", "domain=evil.com", 1)); err == nil {
				t.Error("a changed link has a valid signature")
			}
			template, err := s.Template()
			if err != nil {
				t.Fatal(err)
			}
			var want []string
			for _, r := range wanted(domain) {
				want = append(want, r.FQDN+" "+r.Type+" "+r.Value)
			}
			if got := expand(t, template, link); !slices.Equal(got, want) || strings.Contains(link, "host=") != (host != "") {
				t.Errorf("the template makes\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
		}
		for name, c := range map[string]struct {
			settings string
			status   int
			fails    bool
		}{
			"no template":     {p.settings, http.StatusNotFound, false},
			"no zone":         {"", http.StatusOK, false},
			"only async":      {`{"urlAPI":"$URL/api"}`, http.StatusOK, false},
			"failure":         {p.settings, http.StatusInternalServerError, true},
			"no JSON":         {`<html>`, http.StatusOK, true},
			"URL of a script": {`{"urlSyncUX":"javascript:alert(1)//","urlAPI":"$URL/api"}`, http.StatusOK, true},
			"URL with query":  {`{"urlSyncUX":"$URL/ux?a=","urlAPI":"$URL/api"}`, http.StatusOK, true},
			"plain HTTP":      {`{"urlSyncUX":"http://a.test","urlAPI":"$URL/api"}`, http.StatusOK, true},
		} {
			p.settings, p.status = c.settings, c.status
			if link, err := s.ApplyURL(t.Context(), "acme.com", "acme.com", wanted("acme.com")); link != "" || (err != nil) != c.fails {
				t.Errorf("%s: %q, %v", name, link, err)
			}
		}
		if link, err := s.ApplyURL(t.Context(), "bad.com", "bad.com", wanted("bad.com")); link != "" || err == nil {
			t.Errorf("a record with a URL: %q, %v", link, err)
		}
	})
}

// No link is returned for records that the template cannot produce.
func TestOtherRecords(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		p := newProvider(t)
		s := newService(t, d, p)
		region := wanted("acme.com")
		region[0].Value = "bounce.eu.example.net"
		for name, records := range map[string][]domains.Record{"other region": region,
			"delegation": {{Key: "delegation", Type: "NS", FQDN: "acme.com", Value: "ns1.example.net"}},
			"receiving alone": {{Key: "dkim", Type: "TXT", FQDN: "r1._domainkey.acme.com", Value: "v=DKIM1; p=A"},
				{Key: "receiving", Type: "MX", FQDN: "acme.com", Value: "in.example.net"}}} {
			if link, err := s.ApplyURL(t.Context(), "acme.com", "acme.com", records); link != "" || err != nil {
				t.Errorf("%s: %q, %v", name, link, err)
			}
		}
	})
}

func TestConfig(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	deps := domainconnect.Deps{DB: new(db.DB), Keys: new(keyring.Keyring), DNS: resolve.Fake{}, Fetch: p.fetch}
	off, err := domainconnect.New(domainconnect.Config{}, deps)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := off.Template(); !errors.Is(err, domainconnect.ErrOff) {
		t.Errorf("the template while it is off: %v", err)
	}
	if _, err := off.KeyRecords(t.Context()); !errors.Is(err, domainconnect.ErrOff) {
		t.Errorf("the key while it is off: %v", err)
	}
	if link, err := off.ApplyURL(t.Context(), "acme.com", "acme.com", wanted("acme.com")); link != "" || err != nil {
		t.Errorf("a link while it is off: %q, %v", link, err)
	}
	for _, c := range []domainconnect.Config{{ProviderID: "a/b", ServiceID: "email"}, {ProviderID: "a.test"},
		{ProviderID: "a.test", ServiceID: "x y"}, {ProviderID: "a.test", ServiceID: "email", KeyDomain: "-"}} {
		if _, err := domainconnect.New(c, deps); err == nil || !strings.HasPrefix(err.Error(), "domain_connect_") {
			t.Errorf("%+v: %v", c, err)
		}
	}
}
