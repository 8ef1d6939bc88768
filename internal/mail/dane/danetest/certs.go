package danetest

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"fmt"
	"math/big"
	"testing"
	"time"
)

// pair is a certificate with its key.
type pair struct {
	*x509.Certificate
	key crypto.Signer
}

// option changes a certificate before it is signed.
type option func(*x509.Certificate)

// expired gives a certificate a validity that has ended.
func expired(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().AddDate(0, 0, -3), time.Now().AddDate(0, 0, -2)
}

// future gives a certificate a validity that has not begun.
func future(c *x509.Certificate) {
	c.NotBefore, c.NotAfter = time.Now().AddDate(0, 0, 2), time.Now().AddDate(0, 0, 3)
}

// clientOnly makes a certificate that servers may not use.
func clientOnly(c *x509.Certificate) { c.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth} }

func anyUse(c *x509.Certificate) { c.ExtKeyUsage = nil }

// noAuthority makes a certificate that is not one of an authority.
func noAuthority(c *x509.Certificate) { c.IsCA = false }

// noIssuing leaves an authority the right to sign data, but not certificates.
func noIssuing(c *x509.Certificate) { c.KeyUsage = x509.KeyUsageDigitalSignature }

// noFurther is for an authority that may issue certificates for hosts, but not for other authorities.
func noFurther(c *x509.Certificate) { c.MaxPathLen, c.MaxPathLenZero = 0, true }

// kit issues certificates.
type kit struct {
	t    testing.TB
	last int64
}

// issue issues a certificate. Without an issuer, it is self-signed.
func (k *kit) issue(issuer *pair, name string, options []option, base x509.Certificate) *pair {
	k.t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		k.t.Fatal(err)
	}
	k.last++
	base.SerialNumber, base.Subject = big.NewInt(k.last), pkix.Name{CommonName: name}
	base.NotBefore, base.NotAfter = time.Now().AddDate(0, 0, -1), time.Now().AddDate(0, 0, 1)
	base.BasicConstraintsValid = true
	for _, o := range options {
		o(&base)
	}
	if issuer == nil {
		issuer = &pair{&base, key}
	}
	der, err := x509.CreateCertificate(rand.Reader, &base, issuer.Certificate, key.Public(), issuer.key)
	if err != nil {
		k.t.Fatal(err)
	}
	c, err := x509.ParseCertificate(der)
	if err != nil {
		k.t.Fatal(err)
	}
	return &pair{c, key}
}

// authority issues the certificate of an authority.
func (k *kit) authority(issuer *pair, name string, options ...option) *pair {
	k.t.Helper()
	return k.issue(issuer, name, options, x509.Certificate{IsCA: true, KeyUsage: x509.KeyUsageCertSign})
}

// leaf issues the certificate of a host.
func (k *kit) leaf(issuer *pair, name string, options ...option) *pair {
	k.t.Helper()
	return k.issue(issuer, name, options, x509.Certificate{DNSNames: []string{name},
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
}

// send returns the certificate of a host with the others that the host sends.
func send(leaf *pair, others ...*pair) tls.Certificate {
	c := tls.Certificate{Certificate: [][]byte{leaf.Raw}, PrivateKey: leaf.key}
	for _, o := range others {
		c.Certificate = append(c.Certificate, o.Raw)
	}
	return c
}

// tlsa returns the data of the TLSA record for a certificate.
func tlsa(usage, selector, matching int, c *pair) string {
	data := c.Raw
	if selector == 1 {
		data = c.RawSubjectPublicKeyInfo
	}
	switch matching {
	case 1:
		sum := sha256.Sum256(data)
		data = sum[:]
	case 2:
		sum := sha512.Sum512(data)
		data = sum[:]
	}
	return fmt.Sprintf("%d %d %d %s", usage, selector, matching, hex.EncodeToString(data))
}

// other returns the data of a TLSA record that matches no certificate.
func other(usage, selector, matching, size int) string {
	return fmt.Sprintf("%d %d %d %s", usage, selector, matching, hex.EncodeToString(make([]byte, size)))
}
