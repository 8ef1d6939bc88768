// Package domainconnect lets the DNS provider of a domain install the records of the domain, if the owner agrees
// (Domain Connect, draft-ietf-dconn-domainconnect-03).
//
// The operator gives a template of the records to the DNS providers ([Service.Template]) and publishes a public key
// ([Service.KeyRecords]). For a domain, the package finds the provider and asks it whether it has the template. It then
// returns a signed link to the page on which the owner agrees to the records.
//
// # Invariants
//
//   - A link is returned only if the provider answers that it has the template.
//   - Each link is signed with a key that the installation has generated. The key is encrypted in the database, and all
//     nodes use the same one.
//   - The template has the hosts of this installation as constants, so a link can add only names and keys to a zone.
//
// # Failures
//
// Providers are reached only at public addresses over HTTPS, and their answers are limited in size and time. If a
// provider fails, there is no link.
//
// # Out of scope
//
// The package does not know whether the owner has agreed: the usual look-ups find the records. It does not use the
// asynchronous flow, and offers only the records of the set-up "records".
package domainconnect

import (
	"cmp"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
)

const (
	keyPurpose = "domain connect"
	keyID      = "00000000-0000-0000-0000-000000000002" // the table has one row
	keyBits    = 2048
	keyLabel   = "_dck1" // label of the public key's records
	partMax    = 200     // characters of the key in one record, so that a record is one string of at most 255 bytes
)

// Sealed lists the columns with encrypted secrets.
var Sealed = []keyring.Column{{Table: "domain_connect_keys", Name: "private", Purpose: keyPurpose}}

// Config holds the settings.
type Config struct {
	ProviderID string // domain of the operator that identifies the template's owner; empty if Domain Connect is off
	ServiceID  string // name of the template
	Name       string // name of the operator, for people
	KeyDomain  string // domain below which the public key is published
	// These are the hosts of the installation, as the records name them.
	BounceHost, SPFInclude, InboundHost, TrackingHost string
}

// Deps are the dependencies of a Service.
type Deps struct {
	DB   *db.DB
	Keys *keyring.Keyring
	DNS  resolve.Resolver
	// Fetch downloads at most most bytes from a public address. The error for a status other than 200 is a
	// *netguard.StatusError.
	Fetch func(ctx context.Context, url string, most int64) ([]byte, error)
}

// Service makes links to the pages of DNS providers.
type Service struct {
	Deps
	c Config

	mu  sync.Mutex
	key *rsa.PrivateKey // nil until it is needed
}

// New returns the service. New fails if a dependency is missing.
func New(c Config, d Deps) (*Service, error) {
	if err := fault.Complete(d); err != nil {
		return nil, err
	}
	if c.ProviderID != "" && !identifier.MatchString(c.ProviderID) {
		return nil, fmt.Errorf("domain_connect_provider: %q is not a domain; write one such as example.com", c.ProviderID)
	}
	if c.ProviderID != "" && !identifier.MatchString(c.ServiceID) {
		return nil, fmt.Errorf("domain_connect_service: %q must have letters, digits, hyphens and dots only", c.ServiceID)
	}
	c.KeyDomain = cmp.Or(c.KeyDomain, c.ProviderID)
	if c.ProviderID != "" && !identifier.MatchString(c.KeyDomain) {
		return nil, fmt.Errorf("domain_connect_key_domain: %q is not a domain", c.KeyDomain)
	}
	return &Service{Deps: d, c: c}, nil
}

// identifier is the form of the identifiers of a template, which are parts of URLs.
var identifier = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9.-]{0,252}$`)

// ErrOff means that the settings do not turn Domain Connect on.
var ErrOff = errors.New("set domain_connect_provider to the domain that identifies this installation's template")

// Record is a DNS record that the operator publishes.
type Record struct{ Name, Type, Value string }

// KeyRecords returns the TXT records of the public key, all of which have the same name.
func (s *Service) KeyRecords(ctx context.Context) ([]Record, error) {
	if s.c.ProviderID == "" {
		return nil, ErrOff
	}
	key, err := s.privateKey(ctx)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKIXPublicKey(&key.PublicKey)
	if err != nil {
		return nil, fmt.Errorf("encode the public key: %w", err)
	}
	var all []Record
	for part := range slices.Chunk([]byte(base64.StdEncoding.EncodeToString(der)), partMax) {
		all = append(all, Record{Name: keyLabel + "." + s.c.KeyDomain, Type: "TXT",
			Value: fmt.Sprintf("p=%d,a=RS256,t=x509,d=%s", len(all)+1, part)})
	}
	return all, nil
}

// privateKey returns the key of the installation, which the first call makes.
func (s *Service) privateKey(ctx context.Context) (*rsa.PrivateKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.key != nil {
		return s.key, nil
	}
	sealed, err := getKey(ctx, s.DB.Reader)
	if errors.Is(err, db.ErrNoRows) {
		sealed, err = s.makeKey(ctx)
	}
	if err != nil {
		return nil, fmt.Errorf("read the key of Domain Connect: %w", err)
	}
	der, err := s.Keys.Open(keyPurpose, sealed, []byte(keyID))
	if err != nil {
		return nil, fmt.Errorf("open the key of Domain Connect: %w", err)
	}
	parsed, err := x509.ParsePKCS8PrivateKey(der)
	key, ok := parsed.(*rsa.PrivateKey)
	if err != nil || !ok {
		return nil, errors.New("the stored key of Domain Connect is not an RSA key")
	}
	s.key = key
	return key, nil
}

// makeKey makes and stores a key unless another node has stored one meanwhile, and returns the stored one.
func (s *Service) makeKey(ctx context.Context) ([]byte, error) {
	key, err := rsa.GenerateKey(rand.Reader, keyBits)
	if err != nil {
		return nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	sealed, err := s.Keys.Seal(keyPurpose, der, []byte(keyID))
	if err != nil {
		return nil, err
	}
	var kept []byte
	err = s.DB.Update(ctx, func(tx *db.Tx) (err error) {
		kept, err = keepKey(ctx, tx, sealed)
		return err
	})
	return kept, err
}

// escape encodes a parameter as RFC 3986 says.
func escape(text string) string { return strings.ReplaceAll(url.QueryEscape(text), "+", "%20") }

// sign returns the query string with the parameters in order, and with the signature and the name of the key.
func (s *Service) sign(ctx context.Context, parameters map[string]string) (string, error) {
	var pairs []string
	for name, value := range parameters {
		pairs = append(pairs, escape(name)+"="+escape(value))
	}
	slices.SortFunc(pairs, func(a, b string) int {
		a, _, _ = strings.Cut(a, "=")
		b, _, _ = strings.Cut(b, "=")
		return strings.Compare(a, b)
	})
	query := strings.Join(pairs, "&")
	key, err := s.privateKey(ctx)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(query))
	signature, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
	if err != nil {
		return "", fmt.Errorf("sign a link of Domain Connect: %w", err)
	}
	return query + "&sig=" + escape(base64.StdEncoding.EncodeToString(signature)) + "&key=" + keyLabel, nil
}
