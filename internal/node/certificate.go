package node

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"log/slog"
	"math/big"
	"os"
	"sync"
	"time"
)

// lookAgain is the interval at which the certificate files are checked for changes.
const lookAgain = 10 * time.Second

// certificates provides the operator's certificate to TLS listeners and reloads it when its files change. If no files
// are configured, the certificate is self-signed. A self-signed certificate protects only against passive
// eavesdroppers, but mail hosts do not expect more from one another.
type certificates struct {
	certFile, keyFile string
	log               *slog.Logger

	mu      sync.Mutex
	cert    *tls.Certificate
	changed time.Time // modification time of the loaded files
	looked  time.Time
}

func newCertificates(certFile, keyFile, hostname string, log *slog.Logger) (*certificates, error) {
	c := &certificates{certFile: certFile, keyFile: keyFile, log: log}
	if certFile == "" {
		cert, err := selfSigned(hostname)
		if err != nil {
			return nil, fmt.Errorf("make a certificate: %w", err)
		}
		log.Info("SMTP listeners use a self-signed certificate, so clients cannot verify this host; "+
			"set tls_cert_file and tls_key_file", "hostname", hostname)
		c.cert = cert
		return c, nil
	}
	if err := c.load(); err != nil {
		return nil, fmt.Errorf("read tls_cert_file and tls_key_file: %w", err)
	}
	return c, nil
}

// get returns the certificate to use in a TLS handshake. If the files cannot be reloaded, get returns the previous
// certificate.
func (c *certificates) get(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.certFile == "" || time.Since(c.looked) < lookAgain {
		return c.cert, nil
	}
	if c.looked = time.Now(); c.modified().Equal(c.changed) {
		return c.cert, nil
	}
	if err := c.load(); err != nil {
		c.log.Error("the changed TLS certificate cannot be loaded; the old one stays in use", "error", err)
	} else {
		c.log.Info("the TLS certificate was reloaded", "file", c.certFile)
	}
	return c.cert, nil
}

// modified returns the later of the certificate file's and the key file's modification times.
func (c *certificates) modified() (last time.Time) {
	for _, name := range []string{c.certFile, c.keyFile} {
		if info, err := os.Stat(name); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

func (c *certificates) load() error {
	changed := c.modified() // read first, so that the next check detects changes made while the files are being loaded
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return err
	}
	c.cert, c.changed, c.looked = &cert, changed, time.Now()
	return nil
}

// selfSigned creates a self-signed certificate for a host. The certificate is valid for ten years and is never stored
// on disk.
func selfSigned(hostname string) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	template := &x509.Certificate{SerialNumber: big.NewInt(now.UnixNano()), Subject: pkix.Name{CommonName: hostname},
		DNSNames: []string{hostname}, NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
