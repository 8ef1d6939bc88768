package certs

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/caddyserver/certmagic"
)

// MailCertificate returns the certificate that SMTP clients get for a host of the installation. The error says why
// clients that verify certificates refuse it. Senders that obey an MTA-STS policy are such clients. Certificates from
// the authority are read from the database, so any node can call it.
func (m *Manager) MailCertificate(ctx context.Context, host string) (*x509.Certificate, error) {
	chain, err := m.mailChain(ctx, host)
	if err != nil {
		return nil, err
	}
	intermediates := x509.NewCertPool()
	for _, c := range chain[1:] {
		intermediates.AddCert(c)
	}
	_, err = chain[0].Verify(x509.VerifyOptions{DNSName: host, Roots: m.o.PublicRoots, Intermediates: intermediates,
		CurrentTime: time.Now()})
	return chain[0], err
}

// mailChain returns the certificate that SMTP clients get for a host, with its chain.
func (m *Manager) mailChain(ctx context.Context, host string) ([]*x509.Certificate, error) {
	if c := m.fromFiles(host); c != nil {
		return parseChain(c.Certificate)
	}
	if m.acme != nil {
		text, err := m.storage.Load(ctx, certmagic.StorageKeys.SiteCert(m.acme.IssuerKey(), host))
		if err == nil {
			chain, err := parsePEM(text)
			if err == nil && len(chain) == 0 {
				err = errors.New("it is empty")
			}
			return chain, err
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("read the certificate of %s: %w", host, err)
		}
		if c := m.formerFor(host); c != nil {
			return parseChain(c.Certificate)
		}
		return nil, missingError{host + " has no certificate from the authority yet"}
	}
	if c := m.formerFor(host); c != nil {
		return parseChain(c.Certificate)
	}
	if m.files != nil {
		return parseChain(m.files.get().Certificate)
	}
	return nil, fmt.Errorf("the certificate of %s is self-signed", host)
}

// missingError means that a host has no certificate yet.
type missingError struct{ text string }

func (e missingError) Error() string { return e.text }

func parseChain(all [][]byte) (chain []*x509.Certificate, err error) {
	for _, der := range all {
		c, err := x509.ParseCertificate(der)
		if err != nil {
			return nil, fmt.Errorf("parse a certificate: %w", err)
		}
		chain = append(chain, c)
	}
	if len(chain) == 0 {
		return nil, errors.New("the certificate is empty")
	}
	return chain, nil
}
