package bimi_test

import (
	"bytes"
	"compress/gzip"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/pem"
	"math/big"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/cryptobyte"
	casn1 "golang.org/x/crypto/cryptobyte/asn1"

	"github.com/postrider/postrider/internal/mail/bimi"
	"github.com/postrider/postrider/internal/mail/dmarc"
)

const good = `<?xml version="1.0" encoding="UTF-8"?>
<svg xmlns="http://www.w3.org/2000/svg" version="1.2" baseProfile="tiny-ps" viewBox="0 0 100 100">
<title>Acme</title><defs><linearGradient id="g"/></defs><rect width="100" height="100" fill="url(#g)"/></svg>`

func TestParseRecord(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"v=BIMI1; l=https://a.test/l.svg; a=https://a.test/m.pem": "",
		"v=BIMI1;l=https://a.test/l.svg":                          "",
		"v=BIMI1; l=; a=;":                                        "",
		"v=BIMI1":                                                 "no tag l",
		"v=BIMI1; l=http://a.test/l.svg":                          "l must be a URL",
		"v=BIMI1; l=https://a.test/; a=file:///x":                 "a must be a URL",
		"v=BIMI1; l=https://a.test/; l=https://b.test/":           "occurs twice",
		"v=BIMI2; l=x":                                            "-",
		"":                                                        "-",
	} {
		_, problems, ok := bimi.ParseRecord(text)
		if ok != (want != "-") || ok && (want == "") != (len(problems) == 0) ||
			ok && !strings.Contains(strings.Join(problems, " "), want) {
			t.Errorf("%q: %q, %v", text, problems, ok)
		}
	}
}

func TestCheckPolicy(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{"v=DMARC1; p=reject": 0, "v=DMARC1; p=quarantine; sp=reject": 0,
		"v=DMARC1; p=none": 1, "v=DMARC1; p=reject; sp=none": 1, "v=DMARC1; p=reject; t=y": 1,
		"v=DMARC1; p=none; t=y": 2} {
		r, _ := dmarc.Parse(text)
		if got := bimi.CheckPolicy(&dmarc.Discovery{At: "acme.com", Record: r}); len(got) != want {
			t.Errorf("%s: %q", text, got)
		}
	}
	if got := bimi.CheckPolicy(&dmarc.Discovery{}); len(got) != 1 {
		t.Errorf("without a record: %q", got)
	}
}

func TestCheckImage(t *testing.T) {
	t.Parallel()
	if got := bimi.CheckImage([]byte(good)); len(got) > 0 {
		t.Errorf("the good image: %q", got)
	}
	inside := func(s string) string { return strings.Replace(good, "<rect", s+"<rect", 1) }
	for name, c := range map[string]struct{ image, want string }{
		"version":      {strings.Replace(good, `"1.2"`, `"1.1"`, 1), "version="},
		"profile":      {strings.Replace(good, "tiny-ps", "tiny", 1), "baseProfile="},
		"title":        {strings.Replace(good, "<title>Acme</title>", "<title> </title>", 1), "no title"},
		"title below":  {strings.Replace(good, "<title>Acme</title>", "<g><title>Acme</title></g>", 1), "no title"},
		"not square":   {strings.Replace(good, "100 100", "100 50", 1), "square"},
		"no size":      {strings.Replace(good, `viewBox="0 0 100 100"`, "", 1), "square"},
		"x":            {strings.Replace(good, "viewBox", `x="1" viewBox`, 1), "attribute x"},
		"script":       {inside("<script>alert(1)</script>"), "a script"},
		"prefix":       {inside("<svg:script/>"), "a script"},
		"event":        {inside(`<g onclick="x()"/>`), "a script"},
		"link":         {inside(`<a href="#x"/>`), "a link"},
		"animation":    {inside(`<animate attributeName="x"/>`), "an animation"},
		"raster":       {inside(`<image width="1"/>`), "a raster image"},
		"reference":    {inside(`<use xlink:href="https://a.test/x.svg#y"/>`), "outside of itself"},
		"data":         {inside(`<use href="data:image/png;base64,AA"/>`), "outside of itself"},
		"property":     {inside(`<g fill="url(https://a.test/x)"/>`), "outside of itself"},
		"upper case":   {inside(`<g fill="URL(https://a.test/x)"/>`), "outside of itself"},
		"style sheet":  {inside(`<style>@import "https://a.test/x";</style>`), "outside of itself"},
		"style":        {inside(`<style>g { fill: url(https://a.test/x) }</style>`), "outside of itself"},
		"stylesheet":   {strings.Replace(good, "<svg", `<?xml-stylesheet href="x"?><svg`, 1), "processing instruction"},
		"entities":     {strings.Replace(good, "<svg", `<!DOCTYPE svg [<!ENTITY a "b">]><svg`, 1), "entities"},
		"entity alone": {inside("&lol;"), "not valid XML"},
		"not closed":   {strings.TrimSuffix(good, "</svg>"), "complete"},
		"crossed":      {inside("<g><h></g></h>"), "did not begin"},
		"two roots":    {good + good[strings.Index(good, "<svg"):], "one element svg"},
		"html":         {"<html><svg/></html>", "one element svg"},
		"empty":        {"", "complete"},
		"deep":         {inside(strings.Repeat("<g>", 100)), "nested"},
		"large":        {inside(strings.Repeat("<g/>", 10000)), "at most 32768"},
		"binary":       {"\x89PNG\r\n", "not valid XML"},
	} {
		got := strings.Join(bimi.CheckImage([]byte(c.image)), " ")
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func pack(data []byte) []byte {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write(data)
	z.Close()
	return b.Bytes()
}

// A small file that unpacks to 20 MB costs no more memory than an image. The test counts allocations, so it does not
// run in parallel with others.
func TestUnpack(t *testing.T) {
	if got, err := bimi.Unpack(pack([]byte(good))); err != nil || string(got) != good {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := bimi.Unpack([]byte(good)); err != nil || string(got) != good {
		t.Errorf("%q, %v", got, err)
	}
	bomb := pack(make([]byte, 20<<20))
	allocated := testing.AllocsPerRun(1, func() {
		if _, err := bimi.Unpack(bomb); err == nil {
			t.Error("a bomb was unpacked")
		}
	})
	if allocated > 1000 {
		t.Errorf("%v allocations", allocated)
	}
	for _, bad := range [][]byte{pack([]byte(good))[:20], {0x1f, 0x8b}, make([]byte, bimi.ImageMax+1)} {
		if _, err := bimi.Unpack(bad); err == nil {
			t.Errorf("%.20q was unpacked", bad)
		}
	}
}

// authority is a certificate authority for tests.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

var now = time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)

// issue makes a certificate; without a parent it is a root.
func issue(t *testing.T, template *x509.Certificate, parent *authority) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template.SerialNumber = big.NewInt(1)
	if template.NotAfter.IsZero() {
		template.NotBefore, template.NotAfter = now.AddDate(0, -1, 0), now.AddDate(1, 0, 0)
	}
	by := parent
	if by == nil {
		by = &authority{template, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, by.cert, key.Public(), by.key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return &authority{cert, key}
}

func (a *authority) pem() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
}

// logotype makes the extension of RFC 9399 with an image in a data URL.
func logotype(image []byte) pkix.Extension {
	packed := pack(image)
	sum := sha256.Sum256(packed)
	var b cryptobyte.Builder
	context := func(n int) casn1.Tag { return casn1.Tag(n).Constructed().ContextSpecific() }
	b.AddASN1(casn1.SEQUENCE, func(b *cryptobyte.Builder) {
		b.AddASN1(context(2), func(b *cryptobyte.Builder) {
			b.AddASN1(context(0), func(b *cryptobyte.Builder) {
				b.AddASN1(casn1.SEQUENCE, func(b *cryptobyte.Builder) {
					b.AddASN1(casn1.SEQUENCE, func(b *cryptobyte.Builder) {
						b.AddASN1(casn1.SEQUENCE, func(b *cryptobyte.Builder) {
							b.AddASN1(casn1.IA5String, func(b *cryptobyte.Builder) { b.AddBytes([]byte("image/svg+xml")) })
							b.AddASN1(casn1.SEQUENCE, func(b *cryptobyte.Builder) {
								b.AddASN1(casn1.SEQUENCE, func(b *cryptobyte.Builder) {
									b.AddASN1(casn1.SEQUENCE, func(b *cryptobyte.Builder) {
										b.AddASN1ObjectIdentifier(asn1.ObjectIdentifier{2, 16, 840, 1, 101, 3, 4, 2, 1})
									})
									b.AddASN1OctetString(sum[:])
								})
							})
							b.AddASN1(casn1.SEQUENCE, func(b *cryptobyte.Builder) {
								b.AddASN1(casn1.IA5String, func(b *cryptobyte.Builder) {
									b.AddBytes([]byte("data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(packed)))
								})
							})
						})
					})
				})
			})
		})
	})
	return pkix.Extension{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 5, 5, 7, 1, 12}, Value: b.BytesOrPanic()}
}

func TestCheckCertificate(t *testing.T) {
	t.Parallel()
	ca := func(name string, by *authority) *authority {
		return issue(t, &x509.Certificate{Subject: pkix.Name{CommonName: name}, IsCA: true, BasicConstraintsValid: true,
			KeyUsage: x509.KeyUsageCertSign}, by)
	}
	root, other := ca("root", nil), ca("other", nil)
	between := ca("between", root)
	leaf := func(change func(*x509.Certificate)) []byte {
		c := &x509.Certificate{Subject: pkix.Name{CommonName: "Acme"}, DNSNames: []string{"acme.com"},
			UnknownExtKeyUsage: []asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 31}},
			ExtraExtensions:    []pkix.Extension{logotype([]byte(good))}}
		change(c)
		return append(issue(t, c, between).pem(), between.pem()...)
	}
	same := func(*x509.Certificate) {}
	pool := x509.NewCertPool()
	pool.AddCert(root.cert)
	foreign := x509.NewCertPool()
	foreign.AddCert(other.cert)
	for name, c := range map[string]struct {
		data   []byte
		domain string
		image  string
		roots  *x509.CertPool
		want   string
	}{
		"good":           {leaf(same), "acme.com", good, pool, ""},
		"below":          {leaf(same), "mail.acme.com", good, pool, ""},
		"no roots given": {leaf(same), "acme.com", good, nil, ""},
		"name of a record": {leaf(func(c *x509.Certificate) { c.DNSNames = []string{"default._bimi.acme.com"} }), "acme.com", good,
			pool, ""},
		"other domain": {leaf(same), "notacme.com", good, pool, "not for notacme.com"},
		"top level":    {leaf(func(c *x509.Certificate) { c.DNSNames = []string{"com"} }), "acme.com", good, pool, "not for"},
		"other image":  {leaf(same), "acme.com", strings.Replace(good, "Acme", "Evil", 1), pool, "differs"},
		"no usage":     {leaf(func(c *x509.Certificate) { c.UnknownExtKeyUsage = nil }), "acme.com", good, pool, "not a mark"},
		"no image":     {leaf(func(c *x509.Certificate) { c.ExtraExtensions = nil }), "acme.com", good, pool, "contains no image"},
		"broken image": {leaf(func(c *x509.Certificate) { c.ExtraExtensions[0].Value = []byte{0x30, 0x03, 0xa2, 0x01} }),
			"acme.com", good, pool, "contains no image"},
		"other authority": {leaf(same), "acme.com", good, foreign, "mark authority"},
		"expired": {leaf(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.AddDate(-2, 0, 0), now.AddDate(0, 0, -1) }),
			"acme.com", good, nil, "expired on 30 November 2026"},
		"later": {leaf(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.AddDate(0, 1, 0), now.AddDate(1, 0, 0) }),
			"acme.com", good, nil, "not valid before"},
		"soon": {leaf(func(c *x509.Certificate) { c.NotBefore, c.NotAfter = now.AddDate(-1, 0, 0), now.AddDate(0, 0, 29) }),
			"acme.com", good, nil, "expires on 30 December 2026"},
		"no PEM":  {[]byte("hello"), "acme.com", good, pool, "no valid certificate"},
		"garbage": {pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte("x")}), "acme.com", good, pool, "cannot be read"},
		"large":   {make([]byte, bimi.CertificateMax+1), "acme.com", good, pool, "more than"},
	} {
		problems, expires := bimi.CheckCertificate(c.data, bimi.Certificate{Domain: c.domain, Selector: "default",
			Image: []byte(c.image), Roots: c.roots, Now: now})
		got := strings.TrimSpace(strings.Join(problems, " ") + " " + expires)
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func FuzzCheckImage(f *testing.F) {
	f.Add([]byte(good))
	f.Add([]byte("<svg><![CDATA["))
	f.Fuzz(func(t *testing.T, data []byte) {
		if plain, err := bimi.Unpack(data); err == nil {
			bimi.CheckImage(plain)
		}
		bimi.CheckCertificate(data, bimi.Certificate{Domain: "a.test", Now: now})
	})
}
