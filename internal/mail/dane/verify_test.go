package dane_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"math/big"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/dane"
)

var now = time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)

// issued is a certificate with its key, so that it can issue others.
type issued struct {
	*x509.Certificate
	key *ecdsa.PrivateKey
}

// issue returns a certificate that is valid for a day around now. A nil parent means that the certificate signs itself.
func issue(t testing.TB, name string, parent *issued, change func(*x509.Certificate)) *issued {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	c := &issued{key: key}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name},
		NotBefore: now.Add(-12 * time.Hour), NotAfter: now.Add(12 * time.Hour), KeyUsage: x509.KeyUsageDigitalSignature}
	if change != nil {
		change(template)
	}
	signer, by := template, key
	if parent != nil {
		signer, by = parent.Certificate, parent.key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, signer, &key.PublicKey, by)
	if err == nil {
		c.Certificate, err = x509.ParseCertificate(der)
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func authority(c *x509.Certificate) {
	c.IsCA, c.BasicConstraintsValid, c.KeyUsage, c.MaxPathLen = true, true, x509.KeyUsageCertSign, -1
}

func pathOf(n int) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		authority(c)
		c.MaxPathLen, c.MaxPathLenZero = n, n == 0
	}
}

func server(names ...string) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		c.DNSNames, c.ExtKeyUsage = names, []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	}
}

func both(changes ...func(*x509.Certificate)) func(*x509.Certificate) {
	return func(c *x509.Certificate) {
		for _, change := range changes {
			change(c)
		}
	}
}

func expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = now.Add(-48*time.Hour), now.Add(-time.Hour)
}

func future(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = now.Add(time.Hour), now.Add(48*time.Hour)
}

// record returns the record that a certificate matches.
func record(c *issued, usage, selector, matching uint8) dane.Record {
	r := dane.Record{Usage: usage, Selector: selector, Matching: matching, Data: c.Raw}
	if selector == dane.SelectorKey {
		r.Data = c.RawSubjectPublicKeyInfo
	}
	switch matching {
	case dane.MatchingSHA256:
		sum := sha256.Sum256(r.Data)
		r.Data = sum[:]
	case dane.MatchingSHA512:
		sum := sha512.Sum512(r.Data)
		r.Data = sum[:]
	}
	return r
}

func chain(all ...*issued) (certs []*x509.Certificate) {
	for _, c := range all {
		certs = append(certs, c.Certificate)
	}
	return certs
}

func TestVerify(t *testing.T) {
	t.Parallel()
	const host, domain = "mx.example.com", "example.com"
	root := issue(t, "root", nil, authority)
	between := issue(t, "between", root, authority)
	leaf := issue(t, host, between, server(host))
	stranger := issue(t, "stranger", nil, authority)
	oldLeaf := issue(t, host, root, both(server("other.example"), expired))
	old := issue(t, "old", root, both(authority, expired))
	early := issue(t, "early", root, both(authority, future))
	short := issue(t, "short", nil, pathOf(0))
	below := issue(t, "below", short, authority)
	deep := issue(t, "deep", nil, pathOf(1))
	noCA := issue(t, "no CA", root, server("ca.example.com"))
	unsigning := issue(t, "unsigning", root, func(c *x509.Certificate) {
		authority(c)
		c.KeyUsage = x509.KeyUsageDigitalSignature
	})
	mailOnly := issue(t, "mail only", root, func(c *x509.Certificate) {
		authority(c)
		c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageEmailProtection}
	})
	self := issue(t, host, nil, both(authority, server(host)))
	client := issue(t, host, root, func(c *x509.Certificate) {
		c.DNSNames, c.ExtKeyUsage = []string{host}, []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	})
	anyUse := issue(t, host, root, func(c *x509.Certificate) { c.DNSNames = []string{host} })
	commonName := issue(t, host, root, nil)
	forDomain := issue(t, "d", root, server(domain))
	wild := issue(t, "w", root, server("*.example.com"))
	tooLow := issue(t, "w", root, server("*.mx.example.com"))
	named := func(parent *issued) *issued { return issue(t, host, parent, server(host)) }
	limited := issue(t, "limited", root, func(c *x509.Certificate) {
		authority(c)
		c.PermittedDNSDomainsCritical, c.PermittedDNSDomains = true, []string{"example.net"}
	})
	sum := func(c *issued, usage uint8) dane.Record { return record(c, usage, 1, 1) }

	for _, c := range []struct {
		name    string
		records []dane.Record
		chain   []*x509.Certificate
		want    string // the method, or "" if the verification must fail
		err     error
		says    string // a part of the error
	}{
		{"EE, key, SHA-256", []dane.Record{record(leaf, 3, 1, 1)}, chain(leaf), "dane-ee", nil, ""},
		{"EE, key, SHA-512", []dane.Record{record(leaf, 3, 1, 2)}, chain(leaf), "dane-ee", nil, ""},
		{"EE, key, whole", []dane.Record{record(leaf, 3, 1, 0)}, chain(leaf), "dane-ee", nil, ""},
		{"EE, certificate, SHA-256", []dane.Record{record(leaf, 3, 0, 1)}, chain(leaf), "dane-ee", nil, ""},
		{"EE, certificate, SHA-512", []dane.Record{record(leaf, 3, 0, 2)}, chain(leaf), "dane-ee", nil, ""},
		{"EE, certificate, whole", []dane.Record{record(leaf, 3, 0, 0)}, chain(leaf), "dane-ee", nil, ""},
		{"EE ignores name and expiry", []dane.Record{sum(oldLeaf, 3)}, chain(oldLeaf), "dane-ee", nil, ""},
		{"EE ignores the usage of the key", []dane.Record{sum(client, 3)}, chain(client), "dane-ee", nil, ""},
		{"EE, one of several", []dane.Record{sum(root, 3), sum(leaf, 3), sum(stranger, 3)}, chain(leaf), "dane-ee", nil, ""},
		{"EE, wrong digest", []dane.Record{sum(stranger, 3)}, chain(leaf), "", dane.ErrNoMatch, sum(leaf, 3).String()},
		{"EE, digest of the other part", []dane.Record{{Usage: 3, Selector: 0, Matching: 1, Data: sum(leaf, 3).Data}},
			chain(leaf), "", dane.ErrNoMatch, ""},
		{"EE does not match an issuer", []dane.Record{sum(root, 3)}, chain(leaf, between, root), "", dane.ErrNoMatch, ""},
		{"no certificate", []dane.Record{sum(leaf, 3)}, nil, "", dane.ErrNoMatch, "no certificate"},
		{"only unusable records", []dane.Record{sum(leaf, 1)}, chain(leaf), "", dane.ErrUnusable, ""},
		{"an unusable one beside", []dane.Record{sum(leaf, 1), sum(stranger, 3)}, chain(leaf), "", dane.ErrNoMatch, ""},

		{"TA, root", []dane.Record{record(root, 2, 0, 1)}, chain(leaf, between, root), "dane-ta", nil, ""},
		{"TA, root, by key", []dane.Record{record(root, 2, 1, 2)}, chain(leaf, between, root), "dane-ta", nil, ""},
		{"TA, intermediate", []dane.Record{sum(between, 2)}, chain(leaf, between), "dane-ta", nil, ""},
		{"TA, unordered", []dane.Record{sum(root, 2)}, chain(leaf, root, between), "dane-ta", nil, ""},
		{"TA, padded", []dane.Record{sum(root, 2)}, chain(leaf, stranger, old, between, leaf, root, short), "dane-ta", nil, ""},
		{"TA, whole certificate in the record only", []dane.Record{record(root, 2, 0, 0)}, chain(leaf, between), "dane-ta",
			nil, ""},
		{"TA, whole key in the record only", []dane.Record{record(root, 2, 1, 0)}, chain(leaf, between), "dane-ta", nil, ""},
		{"TA, whole key of a stranger", []dane.Record{record(stranger, 2, 1, 0)}, chain(leaf, between), "",
			dane.ErrNoMatch, ""},
		{"TA, whole key of an expired authority that is sent", []dane.Record{record(old, 2, 1, 0)}, chain(named(old), old), "",
			dane.ErrExpired, `"old"`},
		{"TA, whole key, and other name", []dane.Record{record(root, 2, 1, 0)}, chain(commonName), "", dane.ErrName, ""},
		{"TA, whole key, and expired", []dane.Record{record(old, 2, 1, 0)}, chain(issue(t, host, old, both(server(host),
			expired))), "", dane.ErrExpired, ""},
		{"TA, not sent", []dane.Record{sum(root, 2)}, chain(leaf, between), "", dane.ErrNoMatch, "no issuer in the chain"},
		{"TA, wrong issuer", []dane.Record{sum(stranger, 2)}, chain(leaf, between, root, stranger), "", dane.ErrNoMatch,
			"no valid chain"},
		{"TA, a stranger with an expired one beside", []dane.Record{sum(stranger, 2)}, chain(leaf, old, stranger), "",
			dane.ErrNoMatch, "no valid chain"},
		{"TA, intermediate missing", []dane.Record{sum(root, 2)}, chain(leaf, root), "", dane.ErrNoMatch, ""},
		{"TA, expired intermediate", []dane.Record{sum(root, 2)}, chain(named(old), old, root), "", dane.ErrExpired, `"old"`},
		{"TA, intermediate of the future", []dane.Record{sum(root, 2)}, chain(named(early), early, root), "",
			dane.ErrExpired, `"early"`},
		{"TA, expired authority", []dane.Record{sum(old, 2)}, chain(named(old), old), "", dane.ErrExpired, `"old"`},
		{"TA, expired certificate", []dane.Record{sum(root, 2)}, chain(issue(t, host, root, both(server(host), expired)),
			root), "", dane.ErrExpired, "that of the host"},
		{"TA, path as long as allowed", []dane.Record{sum(deep, 2)}, func() []*x509.Certificate {
			middle := issue(t, "middle", deep, authority)
			return chain(named(middle), middle, deep)
		}(), "dane-ta", nil, ""},
		{"TA, path too long", []dane.Record{sum(short, 2)}, chain(named(below), below, short), "", dane.ErrNoMatch,
			"intermediates"},
		{"TA, issuer that is no CA", []dane.Record{sum(noCA, 2)}, chain(named(noCA), noCA), "", dane.ErrNoMatch, ""},
		{"TA, intermediate that is no CA", []dane.Record{sum(root, 2)}, chain(named(noCA), noCA, root), "",
			dane.ErrNoMatch, ""},
		{"TA, issuer that may not sign", []dane.Record{sum(unsigning, 2)}, chain(named(unsigning), unsigning), "",
			dane.ErrNoMatch, ""},
		{"TA, issuer for other purposes", []dane.Record{sum(mailOnly, 2)}, chain(named(mailOnly), mailOnly), "",
			dane.ErrNoMatch, "usage"},
		{"TA, issuer for other names", []dane.Record{sum(limited, 2)}, chain(named(limited), limited), "",
			dane.ErrNoMatch, ""},
		{"TA, leaf that itself matches", []dane.Record{sum(self, 2)}, chain(self), "", dane.ErrNoMatch, ""},
		{"TA, leaf that itself matches, sent twice", []dane.Record{sum(self, 2)}, chain(self, self), "", dane.ErrNoMatch, ""},
		{"TA, leaf as a whole in the record", []dane.Record{record(self, 2, 0, 0)}, chain(self), "", dane.ErrNoMatch, ""},
		{"TA, leaf without server usage", []dane.Record{sum(root, 2)}, chain(client, root), "", dane.ErrNoMatch, "usage"},
		{"TA, leaf without any stated usage", []dane.Record{sum(root, 2)}, chain(anyUse, root), "dane-ta", nil, ""},
		{"TA, other name", []dane.Record{sum(root, 2)}, chain(issue(t, host, root, server("a.example", "b.example")), root),
			"", dane.ErrName, "it is valid for a.example, b.example, but must be valid for mx.example.com or example.com"},
		{"TA, common name only", []dane.Record{sum(root, 2)}, chain(commonName, root), "", dane.ErrName, "no host name"},
		{"TA, name of the domain", []dane.Record{sum(root, 2)}, chain(forDomain, root), "dane-ta", nil, ""},
		{"TA, wildcard", []dane.Record{sum(root, 2)}, chain(wild, root), "dane-ta", nil, ""},
		{"TA, wildcard below the name", []dane.Record{sum(root, 2)}, chain(tooLow, root), "", dane.ErrName, ""},
		{"TA fails and EE matches", []dane.Record{sum(stranger, 2), sum(leaf, 3)}, chain(leaf), "dane-ee", nil, ""},
		{"EE fails and TA matches", []dane.Record{sum(stranger, 3), sum(root, 2)}, chain(leaf, between, root), "dane-ta",
			nil, ""},

		// If several digests have the same usage and selector, only the strongest counts.
		{"a weak digest matches, a strong one does not", []dane.Record{record(leaf, 3, 1, 1), record(stranger, 3, 1, 2)},
			chain(leaf), "", dane.ErrNoMatch, ""},
		{"a strong digest matches", []dane.Record{record(stranger, 3, 1, 1), record(leaf, 3, 1, 2)}, chain(leaf), "dane-ee",
			nil, ""},
		{"a whole key beside a strong digest", []dane.Record{record(stranger, 3, 1, 2), record(leaf, 3, 1, 0)}, chain(leaf),
			"dane-ee", nil, ""},
		{"a strong digest of another selector", []dane.Record{record(leaf, 3, 1, 1), record(stranger, 3, 0, 2)}, chain(leaf),
			"dane-ee", nil, ""},
		{"a strong digest of the key beside a weak one of the certificate", []dane.Record{record(leaf, 3, 0, 1),
			record(stranger, 3, 1, 2)}, chain(leaf), "dane-ee", nil, ""},
		{"a strong digest with usage 3 beside a weak one with usage 2", []dane.Record{record(root, 2, 1, 1),
			record(stranger, 3, 1, 2)}, chain(leaf, between, root), "dane-ta", nil, ""},
		{"a strong digest of another usage", []dane.Record{record(leaf, 3, 1, 1), record(stranger, 2, 1, 2)}, chain(leaf),
			"dane-ee", nil, ""},
		{"an unusable strong digest", []dane.Record{record(leaf, 3, 1, 1), {Usage: 3, Selector: 1, Matching: 2,
			Data: make([]byte, 63)}}, chain(leaf), "dane-ee", nil, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			match, err := dane.Parse(c.records).Verify(tls.ConnectionState{PeerCertificates: c.chain},
				[]string{host, domain}, now)
			if !errors.Is(err, c.err) || err == nil && c.err != nil || match.Method() != c.want {
				t.Fatalf("%q, %v; want %q, %v", match.Method(), err, c.want, c.err)
			}
			if err != nil && !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v does not contain %q", err, c.says)
			}
			if err == nil && !slices.ContainsFunc(c.records, func(r dane.Record) bool {
				return r.String() == match.Record.String()
			}) {
				t.Errorf("matched %s, which is no record of the host", match.Record)
			}
			if (match.Name != "") != (match.Method() == "dane-ta") {
				t.Errorf("valid for the name %q", match.Name)
			}
		})
	}
}

// A nil set and a set without records accept no certificate.
func TestVerifyWithoutRecords(t *testing.T) {
	t.Parallel()
	leaf := issue(t, "mx.example.com", nil, server("mx.example.com"))
	for _, s := range []*dane.Set{nil, dane.Parse(nil)} {
		_, err := s.Verify(tls.ConnectionState{PeerCertificates: chain(leaf)}, []string{"mx.example.com"}, now)
		if !errors.Is(err, dane.ErrUnusable) || s.Usable() || s.Digest() != "" || s.Records() != nil || s.Unusable() != nil {
			t.Errorf("%v, usable: %v", err, s.Usable())
		}
	}
}
