// Package smtptest provides mail servers for tests. The servers listen on 127.0.0.1 and use real connections. Script
// replays an SMTP dialogue line by line, and can simulate a misbehaving host. Server is a working mail exchanger that
// can be configured to refuse mail. CA issues certificates that test clients can verify.
//
// The servers and certificate authorities report failures to the testing.TB with which they were created. The servers
// stop when the test ends.
package smtptest

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"testing"
	"time"
)

// CA is a certificate authority that is trusted only by clients that use its Pool.
type CA struct {
	t    testing.TB
	key  *ecdsa.PrivateKey
	cert *x509.Certificate
}

// NewCA creates a certificate authority.
func NewCA(t testing.TB) *CA {
	t.Helper()
	ca := &CA{t: t}
	ca.key = newKey(t)
	template := certificate("smtptest authority")
	template.NotAfter = time.Now().AddDate(20, 0, 0) // for tests that move their clock
	template.IsCA = true
	template.BasicConstraintsValid = true
	template.KeyUsage = x509.KeyUsageCertSign
	ca.cert = ca.sign(template, template, ca.key)
	return ca
}

// Pool returns the root certificates with which clients can verify certificates issued by the authority.
func (ca *CA) Pool() *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(ca.cert)
	return pool
}

// Certificate returns a certificate for names, which may include IP addresses. The certificate is valid for an hour.
func (ca *CA) Certificate(names ...string) tls.Certificate {
	ca.t.Helper()
	return ca.certificate(certificate(names[0]), names)
}

// Until is like Certificate, but returns a certificate that is valid until the given time.
func (ca *CA) Until(end time.Time, names ...string) tls.Certificate {
	ca.t.Helper()
	template := certificate(names[0])
	template.NotAfter = end
	return ca.certificate(template, names)
}

// PEM returns the root certificate in PEM.
func (ca *CA) PEM() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: ca.cert.Raw})
}

// Expired is like Certificate, but returns a certificate that expired an hour ago.
func (ca *CA) Expired(names ...string) tls.Certificate {
	ca.t.Helper()
	template := certificate(names[0])
	template.NotBefore = time.Now().Add(-2 * time.Hour)
	template.NotAfter = time.Now().Add(-time.Hour)
	return ca.certificate(template, names)
}

// NameOnly is like Certificate, but returns a certificate that has the name only as its common name.
func (ca *CA) NameOnly(name string) tls.Certificate {
	ca.t.Helper()
	return ca.certificate(certificate(name), nil)
}

// ServerTLS returns a TLS configuration for a server, with a certificate for names.
func (ca *CA) ServerTLS(names ...string) *tls.Config {
	ca.t.Helper()
	return &tls.Config{Certificates: []tls.Certificate{ca.Certificate(names...)}}
}

func (ca *CA) certificate(template *x509.Certificate, names []string) tls.Certificate {
	ca.t.Helper()
	for _, name := range names {
		if ip := net.ParseIP(name); ip != nil {
			template.IPAddresses = append(template.IPAddresses, ip)
		} else {
			template.DNSNames = append(template.DNSNames, name)
		}
	}
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	key := newKey(ca.t)
	cert := ca.sign(template, ca.cert, key)
	return tls.Certificate{Certificate: [][]byte{cert.Raw}, PrivateKey: key, Leaf: cert}
}

func (ca *CA) sign(template, parent *x509.Certificate, key *ecdsa.PrivateKey) *x509.Certificate {
	ca.t.Helper()
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, ca.key)
	if err != nil {
		ca.t.Fatalf("create certificate: %v", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		ca.t.Fatalf("parse certificate: %v", err)
	}
	return cert
}

func newKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("generate key: %v", err)
	}
	return key
}

func certificate(name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}
