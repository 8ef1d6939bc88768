// Package gather collects the facts that package doctor judges: it asks the DNS, connects to hosts and listeners, and
// reads the state of the machine and of the database.
//
// # Invariants
//
// All questions are asked at the same time, and Collect ends within [TimeMax]. The number of domains, hosts and
// addresses is limited. The only changes are a small fact in the database, which measures the time of a commit, and
// a small blob. No email is sent.
//
// # Failures
//
// Collect returns no error. The facts contain each failure.
//
// # Out of scope
//
// The package judges nothing, and does not open the database.
package gather

import (
	"context"
	"crypto/x509"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/node/doctor"
	"github.com/postrider/postrider/internal/platform/certs"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
	"github.com/postrider/postrider/internal/sending/domains"
)

// TimeMax is the maximum duration of Collect.
const TimeMax = 2 * time.Minute

// Limits.
const (
	// DomainsMax is the maximum number of teams' domains that are looked up.
	DomainsMax   = 200
	domainsTime  = time.Minute
	domainsAt    = 16 // domains that are looked up at a time
	hostsMax     = 10 // hosts that receive mail
	addrsMax     = 4  // addresses of a host
	commits      = 3  // commits that are measured; the shortest time counts
	databaseTime = 20 * time.Second
	blobTime     = 20 * time.Second
	relayTime    = 30 * time.Second
)

// ProofPath is the path at which a node proves that it belongs to the installation; see [Proof].
const ProofPath = "/doctor/proof"

// Sources are the things to examine.
type Sources struct {
	Config config.Config
	DNS    *resolve.DNS
	DNSErr error // why DNS is nil

	DB    *db.DB // nil if it cannot be opened
	DBErr error  // why DB is nil
	Place string // names the database, without a password

	Keys     *keyring.Keyring // nil if there is no key that can be used
	KeyErr   error
	KeyPlace string

	Allowed func(netip.Addr) bool // whether other servers can reach an address
	Folders []Folder
	// Blobs stores and reads a small blob at BlobPlace. It is nil if blobs are only in memory.
	Blobs     func(ctx context.Context) error
	BlobPlace string
	// Relay tries to use a relay as deliveries do.
	Relay func(ctx context.Context, r config.Relay) error
	// Destinations reads the file of destinations.
	Destinations func() error
	Domains      domains.Config
	// Selection limits the teams' domains; without it, all are looked up, up to DomainsMax.
	Selection domains.Selection
	Only      string // names the selection; "" for all domains
	// Certificates lists the certificates of the installation; it may be nil.
	Certificates func(ctx context.Context) ([]certs.Status, error)
	// DMARCSending says what waits for DMARC reports; it is nil if the installation sends none.
	DMARCSending func(ctx context.Context, r db.Reader) doctor.DMARCSending
	// TLSA compares TLSA records with certificates; it may be nil.
	TLSA func(ctx context.Context) ([]doctor.TLSA, error)
	// Port returns the address of an open listener of this process by the name of its setting, or "".
	Port func(setting string) string
	// AuthorityPort is the port of authoritative name servers; 0 means 53.
	AuthorityPort uint16

	From *From // the installation that looks from outside; may be nil
}

// Folder is a folder whose disk is measured.
type Folder struct{ Setting, Path string }

// From is another installation that is asked to look.
type From struct {
	URL string
	Key string // an API key of that installation, with full access
}

// Proof returns the texts with which nodes of the installation answer at ProofPath, for the current secret key and the
// earlier ones. Only who has the key can make them.
func Proof(keys *keyring.Keyring, nonce string) (all []string) {
	for _, t := range keys.Tags("doctor", []byte(nonce), 16) {
		all = append(all, fmt.Sprintf("%x", t))
	}
	return all
}

// collector collects facts. Each method sets its own fields of the facts.
type collector struct {
	Sources
	roots *x509.CertPool
	f     doctor.Facts
}

// Collect collects the facts.
func Collect(ctx context.Context, s Sources) doctor.Facts {
	ctx, cancel := context.WithTimeout(ctx, TimeMax)
	defer cancel()
	c := &collector{Sources: s, roots: Roots(s.Config.ACMECAFile)}
	c.f = doctor.Facts{Now: time.Now(), Config: s.Config, Local: localAddrs()}
	c.together(ctx, c.machine, c.key, c.blobs, c.database, c.resolver, c.host, c.inbound, c.submission, c.mailHosts, c.tlsa,
		c.dmarcSending, c.outgoing, c.dmarc, c.domains, c.web, c.requests, c.clock, c.outside, c.nameServers)
	c.together(ctx, c.spf, c.lists) // these need the addresses of the host name
	return c.f
}

// together calls functions at the same time.
func (c *collector) together(ctx context.Context, all ...func(context.Context)) {
	var wait sync.WaitGroup
	for _, f := range all {
		wait.Go(func() { f(ctx) })
	}
	wait.Wait()
}

// Roots returns the roots of the system and those in a file, or nil without a file that can be read.
func Roots(name string) *x509.CertPool {
	text, err := os.ReadFile(name)
	if name == "" || err != nil {
		return nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pool.AppendCertsFromPEM(text)
	return pool
}

// localAddrs returns the addresses of this machine.
func localAddrs() (all []netip.Addr) {
	list, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	for _, a := range list {
		if p, err := netip.ParsePrefix(a.String()); err == nil {
			all = append(all, p.Addr().Unmap())
		}
	}
	return all
}

// isLocal reports whether an address belongs to this machine.
func (c *collector) isLocal(a netip.Addr) bool {
	if a.IsLoopback() {
		return true // only one address of 127.0.0.0/8 is listed
	}
	for _, l := range c.f.Local {
		if l == a {
			return true
		}
	}
	return false
}
