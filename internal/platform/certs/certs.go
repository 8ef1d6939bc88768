// Package certs provides the TLS certificates of an installation to its listeners: the operator's own certificate from
// files, certificates that it obtains from an ACME authority (RFC 8555), and a self-signed certificate for SMTP.
//
// The library certmagic renews certificates, keeps them in memory and decides in handshakes which one to use. Its
// storage and its locks are tables of the database (see [Storage]), so all nodes share certificates and the account at
// the authority. Requests to the authority are made by package acmez, the client below certmagic, because certmagic's
// own requests keep challenges in global variables, open listeners of their own, and retry inside handshakes.
//
// # Invariants
//
// A host has at most one request at a time on all nodes together. After a failed request, no node makes another one for
// the host before the time that the table of failures has. Every value in the table of values is sealed with the secret
// key. Any node answers a challenge that another node requested.
//
// Hosts of customers get a certificate in the handshake, and only if Options.Allowed accepts them. The number of such
// requests is limited, because the authority limits those of an account.
//
// Strangers cannot make a node query the database at will: handshakes with unknown hosts are limited by source, and
// requests for challenges share one reading of all challenges in progress.
//
// # Failures
//
// New returns errors that name the setting to change: files that cannot be read, and a key that does not belong to its
// certificate. An expired certificate, or one that does not cover a host, is logged as an error and used all the same:
// a node that refused to start would take down mail, too, although most mail hosts do not verify certificates. If
// changed files cannot be loaded, the previous certificate stays in use. If they cover fewer hosts of the installation,
// it stays in use for the others, until it expires or the authority has issued a certificate for them.
//
// If the authority or the database is unavailable, handshakes use the certificates in memory. Failed requests are
// repeated with growing waits; [Manager.Certificates] lists their reasons. If SMTP has no certificate for a host, it
// uses the one for its own host name, or else a self-signed one. HTTPS then refuses the handshake.
//
// # Out of scope
//
// The package opens no listeners and makes no certificates for clients. Verifying other hosts' certificates is up to
// packages smtpclient and netguard.
package certs

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
)

// Options configures a Manager.
type Options struct {
	DB   *db.DB
	Keys *keyring.Keyring
	Log  *slog.Logger

	CertFile, KeyFile string // the operator's own certificate; "" means none

	Web  []string // hosts of HTTPS listeners; clients that name no host get the certificate of the first one
	Mail []string // hosts of SMTP listeners; clients that name no known host get the certificate of the first one

	ACME *ACME // nil means that no certificates are requested
	// Allowed reports whether a host of a customer may have a certificate. If Allowed is nil, no such host has one.
	Allowed func(ctx context.Context, host string) (bool, error)
	// Published returns the TLSA records of a mail host. An error means that they could not be looked up. If Published
	// is nil, changes of keys do not wait for records.
	Published func(ctx context.Context, host string) (Published, error)
	// PublicRoots are the authorities that senders trust; nil means those of the system.
	PublicRoots *x509.CertPool
}

// ACME configures requests for certificates. By setting it, the operator agrees to the authority's terms of service.
type ACME struct {
	Directory  string   // URL of the authority's directory
	Email      string   // contact of the account; may be empty
	EABKeyID   string   // external account binding; "" means none
	EABKey     string   // in base64url without padding
	CAFile     string   // PEM file with the root certificate of a private authority; may be empty
	Challenges []string // http-01 and tls-alpn-01, or one of them
	// DNS or Hook publish DNS-01 challenges; at most one of them is set. They are used for the installation's hosts (with
	// DNS, for those in its zone), instead of the other challenges.
	DNS  *DNSUpdate
	Hook string
}

// Manager chooses the certificates of TLS listeners. A Manager is safe for concurrent use.
type Manager struct {
	o       Options
	names   []string // those of Web and Mail that an authority can know
	files   *files   // nil if there are none
	storage *Storage
	acme    *issuer // nil without ACME

	own           *certmagic.Config // for names, except those of mail hosts
	mail          *certmagic.Config // for names of mail hosts; renewals keep the key
	customers     *certmagic.Config // for all other hosts
	ownCache      *certmagic.Cache  // certificates in memory
	customerCache *certmagic.Cache

	strangers  *strangers
	orders     *rate.Limiter // of certificates for customers' hosts
	challenges *challengeList

	// reloaded receives a value after the operator's files were loaded again, or a stored certificate was replaced.
	reloaded   chan struct{}
	selfSigned func() (*tls.Certificate, error)
	closed     func()
}

const (
	// Let's Encrypt accepts 300 orders of an account in three hours. A node makes at most 250.
	orderEvery = 3 * time.Hour / 200
	orderBurst = 50

	handshakeLimit = 3 * time.Minute // of a request that a handshake waits for
	requestLimit   = 5 * time.Minute // of a request that no handshake waits for
	requestsMax    = 4               // simultaneous ones for the installation's hosts
	manageEvery    = time.Minute
	cleanEvery     = 24 * time.Hour
	keepExpired    = 30 * 24 * time.Hour
	cacheMax       = 5_000 // certificates of customers' hosts in memory
	// hostMax is the maximum length of a host name in bytes. In a handshake, a client can send one of 64 KB.
	hostMax = 253
	// soonAfterStart is the wait after the last failure at which a node that starts makes its next request: the operator
	// may have removed the cause.
	soonAfterStart = 2 * time.Minute
)

// New builds a Manager. The caller must call Run or Close.
func New(o Options) (*Manager, error) {
	m := &Manager{o: o, names: certifiable(o.Web, o.Mail), storage: NewStorage(o.DB, o.Keys, o.Log),
		orders: rate.NewLimiter(rate.Every(orderEvery), orderBurst), reloaded: make(chan struct{}, 1)}
	m.challenges = &challengeList{storage: m.storage}
	m.closed = sync.OnceFunc(m.close)
	m.selfSigned = sync.OnceValues(func() (*tls.Certificate, error) { return selfSigned(first(o.Mail)) })
	var err error
	if m.strangers, err = newStrangers(); err != nil {
		return nil, err
	}
	if o.CertFile != "" {
		if m.files, err = openFiles(o.CertFile, o.KeyFile, o.Log); err != nil {
			return nil, err
		}
		m.files.names = m.names
		m.files.warn = func(leaf *x509.Certificate) {
			m.complain(leaf)
			m.wake()
		}
		m.complain(m.files.get().Leaf)
	} else if o.ACME == nil && len(o.Mail) > 0 {
		o.Log.Info("SMTP listeners use a self-signed certificate, so clients cannot verify this host; set acme, or "+
			"tls_cert_file and tls_key_file", "hostname", first(o.Mail))
	}
	if o.ACME != nil {
		if err := m.newACME(); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// newACME builds the issuer and the library's configurations.
func (m *Manager) newACME() error {
	a := m.o.ACME
	roots, err := readRoots(a.CAFile)
	if err != nil {
		return err
	}
	if a.Hook != "" {
		if err := checkHook(a.Hook); err != nil {
			return err
		}
	}
	m.acme = newIssuer(m, *a, roots)
	base := certmagic.Config{Storage: m.storage, Issuers: []certmagic.Issuer{m.acme}, DisableStorageCheck: true}
	own, mail, customers := base, base, base
	own.Logger = newZap(m.o.Log, slog.LevelError)
	mail.Logger, mail.ReusePrivateKeys = own.Logger, true
	customers.Logger = newZap(m.o.Log, slog.LevelWarn) // a customer's mistake needs no action of the operator
	customers.OnDemand = &certmagic.OnDemandConfig{DecisionFunc: m.mayLoad}
	m.ownCache = newCache(0, own.Logger, func(c certmagic.Certificate) *certmagic.Config {
		return m.configOf(first(c.Names))
	})
	m.customerCache = newCache(cacheMax, customers.Logger,
		func(certmagic.Certificate) *certmagic.Config { return m.customers })
	m.own, m.mail = certmagic.New(m.ownCache, own), certmagic.New(m.ownCache, mail)
	m.customers = certmagic.New(m.customerCache, customers)
	m.o.DB.OnHint(hintTopic, func(string) { m.wake() })
	return nil
}

// newCache returns a cache in memory with at most max certificates; 0 means no limit.
func newCache(max int, log *zap.Logger, of func(certmagic.Certificate) *certmagic.Config) *certmagic.Cache {
	return certmagic.NewCache(certmagic.CacheOptions{Capacity: max, Logger: log,
		GetConfigForCert: func(c certmagic.Certificate) (*certmagic.Config, error) { return of(c), nil }})
}

// wake makes Run check immediately for missing or replaced certificates.
func (m *Manager) wake() {
	select {
	case m.reloaded <- struct{}{}:
	default:
	}
}

// readRoots returns the system's root certificates and those of a file, or nil without a file.
func readRoots(name string) (*x509.CertPool, error) {
	if name == "" {
		return nil, nil
	}
	text, err := os.ReadFile(name)
	if err != nil {
		return nil, unreadable("acme_ca_file", err)
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if !pool.AppendCertsFromPEM(text) {
		return nil, unreadable("acme_ca_file", fmt.Errorf("%s contains no certificate in PEM", name))
	}
	return pool, nil
}

// complain logs what is wrong with the certificate from files. Hosts that get a certificate from the authority need no
// other.
func (m *Manager) complain(leaf *x509.Certificate) {
	names := m.names
	if m.o.ACME != nil {
		names = nil
	}
	for _, text := range complaints(leaf, names, time.Now()) {
		m.o.Log.Error("tls_cert_file: "+text, "file", m.o.CertFile)
	}
}

// HTTPS returns the TLS configuration of HTTPS listeners.
func (m *Manager) HTTPS() *tls.Config {
	return &tls.Config{GetCertificate: m.forWeb, MinVersion: tls.VersionTLS12,
		NextProtos: []string{"h2", "http/1.1", acmez.ACMETLS1Protocol}}
}

// SMTP returns the TLS configuration of SMTP listeners, for STARTTLS and for TLS from the first byte.
func (m *Manager) SMTP() *tls.Config {
	return &tls.Config{GetCertificate: m.forMail, MinVersion: tls.VersionTLS12}
}

// forWeb returns the certificate for a handshake with an HTTPS listener.
func (m *Manager) forWeb(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	host := normalHost(hello.ServerName)
	if m.acme != nil && isALPNChallenge(hello) {
		return m.alpnCertificate(hello.Context(), host)
	}
	host = cmp.Or(host, first(m.o.Web))
	if c := m.fromFiles(host); c != nil {
		return c, nil
	}
	if m.acme != nil && !m.isOwn(host) {
		return m.forCustomer(named(hello, host), host)
	}
	c, err := m.fromMemory(hello, host)
	if err == nil {
		return c, nil
	}
	if c := m.formerFor(host); c != nil {
		return c, nil
	}
	if m.acme == nil && m.files != nil {
		return m.files.get(), nil // the client says best what is wrong with it
	}
	return nil, err
}

// forMail returns the certificate for a handshake with an SMTP listener. Mail hosts may name any host, or none, and
// most of them do not verify the certificate.
func (m *Manager) forMail(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	host := normalHost(hello.ServerName)
	if !m.isOwn(host) {
		host = first(m.o.Mail)
	}
	if c := m.fromFiles(host); c != nil {
		return c, nil
	}
	for _, name := range []string{host, first(m.o.Mail)} {
		if c, err := m.fromMemory(hello, name); err == nil {
			return c, nil
		}
		if c := m.formerFor(name); c != nil {
			return c, nil
		}
	}
	if m.files != nil {
		return m.files.get(), nil
	}
	return m.selfSigned()
}

// fromMemory returns the authority's certificate for a host of the installation.
func (m *Manager) fromMemory(hello *tls.ClientHelloInfo, host string) (*tls.Certificate, error) {
	if m.acme == nil {
		return nil, errors.New("this node has no certificate for HTTPS")
	}
	if len(m.ownCache.AllMatchingCertificates(host)) == 0 {
		return nil, fmt.Errorf("there is no certificate for %s yet", host)
	}
	return m.configOf(host).GetCertificateWithContext(hello.Context(), named(hello, host))
}

// fromFiles returns the operator's certificate if it covers a host.
func (m *Manager) fromFiles(host string) *tls.Certificate {
	if m.files == nil {
		return nil
	}
	if c := m.files.get(); c.Leaf.VerifyHostname(host) == nil {
		return c
	}
	return nil
}

// formerFor returns the operator's certificate before a reload if it covers a host that the loaded one does not cover.
func (m *Manager) formerFor(host string) *tls.Certificate {
	if m.files == nil {
		return nil
	}
	return m.files.formerFor(host)
}

// forCustomer returns the certificate of a customer's host, and requests it if there is none. The certificate is also
// stored if the client does not wait for it.
func (m *Manager) forCustomer(hello *tls.ClientHelloInfo, host string) (*tls.Certificate, error) {
	if len(host) > hostMax {
		return nil, errors.New("the client names a host that is too long")
	}
	if len(m.customerCache.AllMatchingCertificates(host)) == 0 {
		if m.strangers.isRefused(host) {
			return nil, fmt.Errorf("%s has no certificate at present", host)
		}
		var client net.Addr
		if hello.Conn != nil {
			client = hello.Conn.RemoteAddr()
		}
		if !m.strangers.mayLookUp(host, client) {
			return nil, errors.New("too many handshakes with unknown hosts")
		}
		if err := m.mayLoad(hello.Context(), host); err != nil {
			m.strangers.refuse(host)
			return nil, err
		}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(hello.Context()), handshakeLimit)
	defer cancel()
	c, err := m.customers.GetCertificateWithContext(ctx, hello)
	if err == nil {
		m.strangers.accept(host)
	}
	return c, err
}

// mayLoad returns an error if a host may not have a certificate. While the database is unavailable, mayLoad accepts
// every host, because certmagic would otherwise drop certificates that it has in memory. Issue checks again before a
// request.
func (m *Manager) mayLoad(ctx context.Context, host string) error {
	if m.o.Allowed == nil {
		return fmt.Errorf("%s is not a host of this installation", host)
	}
	if ok, err := m.o.Allowed(ctx, host); err == nil && !ok {
		return fmt.Errorf("%s is not a host of this installation, and not a verified tracking host", host)
	}
	return nil
}

// isOwn reports whether a host belongs to the installation.
func (m *Manager) isOwn(host string) bool { return slices.Contains(m.names, host) }

// Close stops the library and waits until nothing uses the database any more.
func (m *Manager) Close() { m.closed() }

func (m *Manager) close() {
	if m.acme != nil {
		m.ownCache.Stop()
		m.customerCache.Stop()
	}
	m.storage.Close()
}

// named returns a copy of a client's message with another host name.
func named(hello *tls.ClientHelloInfo, host string) *tls.ClientHelloInfo {
	of := *hello
	of.ServerName = host
	return &of
}

func normalHost(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

func first(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return names[0]
}

// certifiable returns the host names of all lists for which an authority can issue a certificate, each once. Addresses
// and names of this machine's own network, such as vm and localhost, are left out.
func certifiable(lists ...[]string) (all []string) {
	for _, name := range slices.Concat(lists...) {
		_, err := netip.ParseAddr(name)
		if err != nil && strings.Contains(name, ".") && !strings.HasSuffix(name, ".localhost") &&
			!slices.Contains(all, name) {
			all = append(all, name)
		}
	}
	return all
}
