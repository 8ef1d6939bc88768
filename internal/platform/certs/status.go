package certs

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"time"

	"github.com/caddyserver/certmagic"
)

// Where a certificate comes from.
const (
	FromFiles = "files"
	FromACME  = "acme"
)

// failuresMax limits the number of customers' hosts in the list of certificates.
const failuresMax = 100

// Status describes a certificate, or a host that has none.
type Status struct {
	Names    []string
	Source   string    // FromFiles or FromACME
	Own      bool      // whether the names are those of the installation, not of a customer
	Issuer   string    // name of the authority in the certificate; "" without a certificate
	NotAfter time.Time // zero without a certificate
	// LastError is the reason of the last failed request, or what is wrong with a certificate from files. It is "" if the
	// last request succeeded.
	LastError string
	FailedAt  time.Time
	RetryAt   time.Time // no node makes another request before this time
}

// problemType finds the type of an ACME problem in the text of an error (RFC 8555 section 6.7).
var problemType = regexp.MustCompile(`urn:ietf:params:acme:error:([A-Za-z]+)`)

// Reason returns why the last request failed in words that anybody may read. LastError has more, such as addresses and
// the output of the operator's program.
func (s Status) Reason() string {
	if s.LastError == "" {
		return "no request has ended yet"
	}
	kind := ""
	if m := problemType.FindStringSubmatch(s.LastError); m != nil {
		kind = m[1]
	}
	switch kind {
	case "dns":
		return "the authority could not look up the host"
	case "connection", "tls":
		return "the authority could not connect to the host"
	case "unauthorized", "incorrectResponse":
		return "the host did not answer the authority's check as it should"
	case "caa":
		return "a CAA record does not allow this authority"
	case "rateLimited":
		return "there were too many requests"
	case "externalAccountRequired":
		return "the authority needs an account that was created before"
	}
	return "the log of the node has the reason"
}

// Missing reports whether a host that should have a certificate from the authority has none that is valid.
func (s Status) Missing(now time.Time) bool {
	return s.Own && s.Source == FromACME && !s.NotAfter.After(now)
}

// Certificates lists the certificate from files, those of the installation's hosts, and customers' hosts whose last
// request failed. A certificate from the authority is the one in the database, which listeners may load a moment later.
func (m *Manager) Certificates(ctx context.Context) ([]Status, error) {
	var all []Status
	if m.files != nil {
		all = append(all, m.fileStatus())
	}
	if m.acme == nil {
		return all, nil
	}
	ours, others, err := m.storage.failures(ctx, m.names, failuresMax)
	if err != nil {
		return nil, err
	}
	failed := map[string]failure{}
	for _, f := range ours {
		failed[f.host] = f
	}
	for _, name := range m.names {
		if m.fromFiles(name) != nil {
			continue
		}
		s, err := m.acmeStatus(ctx, name, failed[name])
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	for _, f := range others {
		s, err := m.acmeStatus(ctx, f.host, f)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// fileStatus describes the certificate from files.
func (m *Manager) fileStatus() Status {
	leaf := m.files.get().Leaf
	s := Status{Names: leaf.DNSNames, Source: FromFiles, Own: true, Issuer: issuerOf(leaf), NotAfter: leaf.NotAfter}
	names := m.names
	if m.acme != nil {
		names = nil
	}
	for _, text := range complaints(leaf, names, time.Now()) {
		s.LastError = text
		break
	}
	return s
}

// acmeStatus describes the stored certificate of a host.
func (m *Manager) acmeStatus(ctx context.Context, host string, f failure) (Status, error) {
	s := Status{Names: []string{host}, Source: FromACME, Own: m.isOwn(host), LastError: f.reason, FailedAt: f.failedAt,
		RetryAt: f.retryAt}
	text, err := m.storage.Load(ctx, certmagic.StorageKeys.SiteCert(m.acme.IssuerKey(), host))
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, err
	}
	chain, err := parsePEM(text)
	if err != nil || len(chain) == 0 {
		return s, fmt.Errorf("read the certificate of %s: %w", host, cmp.Or(err, errors.New("it is empty")))
	}
	s.Issuer, s.NotAfter = issuerOf(chain[0]), chain[0].NotAfter
	return s, nil
}

// issuerOf returns the name of the authority that issued a certificate.
func issuerOf(c *x509.Certificate) string {
	if len(c.Issuer.Organization) > 0 {
		return c.Issuer.Organization[0]
	}
	return c.Issuer.CommonName
}
