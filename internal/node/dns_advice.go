package node

import (
	"crypto/x509"
	"fmt"
	"io"
	"os"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/node/resources"
	"github.com/postrider/postrider/internal/sending/dnsadvice"
	"github.com/postrider/postrider/internal/sending/domainconnect"
	"github.com/postrider/postrider/internal/sending/domains"
)

// adviceFileMax is the maximum size of the files of DNS providers and of root certificates, in bytes.
const adviceFileMax = 1 << 20

// addAdvice adds the settings for advice about the DNS of domains. Commands ignore the error, because the node reports
// it.
func addAdvice(c config.Config, r *resources.Config) (err error) {
	region := domains.Region(c.Region(""))
	r.DomainConnect = domainconnect.Config{ProviderID: c.DomainConnectProvider, ServiceID: c.DomainConnectService,
		Name: c.DomainConnectProvider, KeyDomain: c.DomainConnectKeyDomain, BounceHost: region.BounceHost,
		SPFInclude: region.SPFInclude, InboundHost: region.InboundHost, TrackingHost: region.TrackingHost}
	if r.DNSProviders, err = readDNSProviders(c); err != nil {
		return fmt.Errorf("dns_providers_file: %w", err)
	}
	if r.MarkRoots, err = readMarkRoots(c); err != nil {
		return fmt.Errorf("bimi_roots_file: %w", err)
	}
	return nil
}

// readMarkRoots returns the root certificates of mark authorities, or nil if no file is set.
func readMarkRoots(c config.Config) (*x509.CertPool, error) {
	if c.BIMIRootsFile == "" {
		return nil, nil
	}
	data, err := readSmall(c.BIMIRootsFile)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(data) {
		return nil, fmt.Errorf("%s contains no certificate in the PEM format", c.BIMIRootsFile)
	}
	return pool, nil
}

// readSmall reads a file of at most adviceFileMax bytes.
func readSmall(path string) ([]byte, error) {
	if _, err := versionOf(path); err != nil { // a pipe, for example
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, adviceFileMax+1))
	if err == nil && len(data) > adviceFileMax {
		err = fmt.Errorf("%s has more than %d bytes", path, adviceFileMax)
	}
	return data, err
}

// readDNSProviders returns the DNS providers of the file that c names. If c names none, it returns the built-in list.
func readDNSProviders(c config.Config) ([]dnsadvice.Provider, error) {
	if c.DNSProvidersFile == "" {
		return dnsadvice.EmbeddedProviders(), nil
	}
	data, err := readSmall(c.DNSProvidersFile)
	if err != nil {
		return nil, err
	}
	return dnsadvice.ParseProviders(c.DNSProvidersFile, data)
}
