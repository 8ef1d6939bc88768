package certs

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/mholt/acmez/v3"
	"github.com/mholt/acmez/v3/acme"
)

// issuer requests certificates from the authority. It implements certmagic.Issuer and certmagic.RenewalInfoGetter.
type issuer struct {
	m    *Manager
	o    ACME
	http *http.Client
	log  *slog.Logger // of the client's steps
}

const (
	callLimit  = 30 * time.Second // of one HTTP request to the authority
	reasonMax  = 500              // bytes of a stored reason
	waitMax    = 6 * time.Hour
	rateWait   = time.Hour // after the authority said that there were too many requests
	accountKey = "account.key"
	accountDoc = "account.json"
)

var (
	_ certmagic.Issuer            = (*issuer)(nil)
	_ certmagic.RenewalInfoGetter = (*issuer)(nil)
)

func newIssuer(m *Manager, o ACME, roots *x509.CertPool) *issuer {
	transport := &http.Transport{Proxy: http.ProxyFromEnvironment, TLSHandshakeTimeout: callLimit,
		ResponseHeaderTimeout: callLimit, IdleConnTimeout: time.Minute, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	return &issuer{m: m, o: o, http: &http.Client{Transport: transport, Timeout: callLimit},
		log: slog.New(quiet{m.o.Log.Handler()})}
}

// waitAfter returns the wait before the next request for a host. Let's Encrypt accepts five failed requests for a host
// in an hour.
func waitAfter(failures int) time.Duration {
	waits := []time.Duration{2 * time.Minute, 10 * time.Minute, 20 * time.Minute, 40 * time.Minute, time.Hour,
		2 * time.Hour, 4 * time.Hour}
	if failures > len(waits) {
		return waitMax
	}
	return waits[max(failures, 1)-1]
}

// IssuerKey implements certmagic.Issuer. It is a part of the paths of certificates, so that another authority has
// others.
func (i *issuer) IssuerKey() string {
	u, err := url.Parse(i.o.Directory)
	if err != nil {
		return "acme"
	}
	return strings.Trim(u.Host+strings.ReplaceAll(u.Path, "/", "-"), "-")
}

// Issue implements certmagic.Issuer. It makes one request. Every error is an ErrNoRetry, because the table of failures
// decides when to repeat a request.
func (i *issuer) Issue(ctx context.Context, csr *x509.CertificateRequest) (*certmagic.IssuedCertificate, error) {
	host := csr.DNSNames[0]
	if err := i.mayRequest(ctx, host); err != nil {
		return nil, certmagic.ErrNoRetry{Err: err}
	}
	began := time.Now()
	i.m.o.Log.Info("requesting a certificate", "host", host, "directory", i.o.Directory)
	chain, err := i.request(ctx, host, csr)
	if err != nil {
		return nil, certmagic.ErrNoRetry{Err: i.failed(ctx, host, err)}
	}
	i.m.o.Log.Info("obtained a certificate", "host", host, "took", time.Since(began).Round(time.Millisecond))
	if err := i.m.storage.succeed(ctx, host); err != nil {
		i.m.o.Log.Warn("the certificate was obtained, but its earlier failure is still listed", "host", host, "error", err)
	}
	return &certmagic.IssuedCertificate{Certificate: chain.ChainPEM, Metadata: chain}, nil
}

// mayRequest returns an error if a host may have no certificate, or if it is too early for a request.
func (i *issuer) mayRequest(ctx context.Context, host string) error {
	f, err := i.m.storage.failureOf(ctx, host)
	if err != nil {
		return err
	}
	if wait := f.retryAt.Sub(i.m.o.DB.Now()); wait > 0 {
		i.m.strangers.refuse(host)
		return fmt.Errorf("the last request for %s failed; the next one is made after %s: %s", host,
			f.retryAt.Format(time.TimeOnly), f.reason)
	}
	if i.m.isOwn(host) {
		return nil
	}
	if i.m.o.Allowed == nil {
		return fmt.Errorf("%s is not a host of this installation", host)
	}
	ok, err := i.m.o.Allowed(ctx, host)
	if err != nil {
		return fmt.Errorf("look up whether %s may have a certificate: %w", host, err)
	}
	if !ok {
		return fmt.Errorf("%s is not a verified tracking host", host)
	}
	if !i.m.orders.Allow() {
		i.m.strangers.refuse(host)
		return fmt.Errorf("this node has requested many certificates for customers' hosts; %s gets one later", host)
	}
	return nil
}

// failed stores a failure and returns it as an error. A request that the node's stop ended is no failure.
func (i *issuer) failed(ctx context.Context, host string, cause error) error {
	if ctx.Err() != nil && errors.Is(context.Cause(ctx), context.Canceled) {
		return cause
	}
	i.m.strangers.refuse(host)
	least := time.Duration(0)
	if problem, ok := errors.AsType[acme.Problem](cause); ok && problem.Type == acme.ProblemTypeRateLimited {
		least = rateWait
	}
	reason := cause.Error()
	f, err := i.m.storage.fail(context.WithoutCancel(ctx), host, reason[:min(len(reason), reasonMax)], least)
	if err != nil {
		return errors.Join(cause, err)
	}
	return fmt.Errorf("request a certificate for %s (the next request is made after %s): %w", host,
		f.retryAt.Format(time.TimeOnly), cause)
}

// request gets a certificate chain from the authority. If the authority no longer has the account, request creates a
// new one, once.
func (i *issuer) request(ctx context.Context, host string, csr *x509.CertificateRequest) (acme.Certificate, error) {
	client := i.client(host)
	for try := 0; ; try++ {
		account, err := i.account(ctx, client)
		if err != nil {
			return acme.Certificate{}, err
		}
		params, err := acmez.OrderParametersFromCSR(account, csr)
		if err != nil {
			return acme.Certificate{}, fmt.Errorf("make the order: %w", err)
		}
		params.Replaces = i.current(ctx, host)
		chains, err := client.ObtainCertificate(ctx, params)
		if problem, ok := errors.AsType[acme.Problem](err); ok && try == 0 &&
			problem.Type == acme.ProblemTypeAccountDoesNotExist {
			if err := i.m.storage.Delete(ctx, i.accountPath()); err != nil {
				return acme.Certificate{}, err
			}
			continue
		}
		if err != nil {
			return acme.Certificate{}, err
		}
		if len(chains) == 0 {
			return acme.Certificate{}, errors.New("the authority returned no certificate")
		}
		return chains[0], nil
	}
}

// current returns the certificate that a new one replaces (RFC 9773 section 5), or nil. Authorities do not count such
// orders.
func (i *issuer) current(ctx context.Context, host string) *x509.Certificate {
	text, err := i.m.storage.Load(ctx, certmagic.StorageKeys.SiteCert(i.IssuerKey(), host))
	if err != nil {
		return nil
	}
	all, err := parsePEM(text)
	if err != nil || len(all) == 0 || time.Now().After(all[0].NotAfter) {
		return nil
	}
	return all[0]
}

// client returns a client with the solvers for a host.
func (i *issuer) client(host string) *acmez.Client {
	solvers := map[string]acmez.Solver{}
	switch {
	case i.m.isOwn(host) && i.o.DNS != nil && i.o.DNS.covers(host):
		solvers[acme.ChallengeTypeDNS01] = i.o.DNS
	case i.m.isOwn(host) && i.o.Hook != "":
		solvers[acme.ChallengeTypeDNS01] = hook{i.o.Hook}
	default:
		for _, kind := range i.o.Challenges {
			solvers[kind] = shared{i.m.storage, kind}
		}
	}
	return &acmez.Client{Client: &acme.Client{Directory: i.o.Directory, HTTPClient: i.http, UserAgent: "Postrider",
		Logger: i.log, PollTimeout: handshakeLimit}, ChallengeSolvers: solvers}
}

// GetRenewalInfo implements certmagic.RenewalInfoGetter (RFC 9773).
func (i *issuer) GetRenewalInfo(ctx context.Context, c certmagic.Certificate) (acme.RenewalInfo, error) {
	return i.client("").Client.GetRenewalInfo(ctx, c.Leaf)
}

// accountPath returns the path of the account. Another contact address, or another external account, has another
// account.
func (i *issuer) accountPath() string {
	name := "contact " + i.o.Email
	if i.o.EABKeyID != "" {
		name += " of " + i.o.EABKeyID
	}
	return path.Join("accounts", i.IssuerKey(), certmagic.StorageKeys.Safe(name))
}

// account returns the account at the authority. The first node that needs it creates it.
func (i *issuer) account(ctx context.Context, client *acmez.Client) (acme.Account, error) {
	a, err := i.loadAccount(ctx)
	if !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	lock := "account " + i.accountPath()
	if err := i.m.storage.Lock(ctx, lock); err != nil {
		return a, err
	}
	defer func() {
		if err := i.m.storage.Unlock(ctx, lock); err != nil {
			i.m.o.Log.Warn("a lock was not released; it ends by itself", "name", lock, "error", err)
		}
	}()
	if a, err = i.loadAccount(ctx); !errors.Is(err, fs.ErrNotExist) {
		return a, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return a, err
	}
	a = acme.Account{TermsOfServiceAgreed: true, PrivateKey: key}
	if i.o.Email != "" {
		a.Contact = []string{"mailto:" + i.o.Email}
	}
	if i.o.EABKeyID != "" {
		binding := acme.EAB{KeyID: i.o.EABKeyID, MACKey: i.o.EABKey}
		if err := a.SetExternalAccountBinding(ctx, client.Client, binding); err != nil {
			return a, fmt.Errorf("bind the account to acme_eab_key_id: %w", err)
		}
	}
	if a, err = client.NewAccount(ctx, a); err != nil {
		return a, fmt.Errorf("create an account at %s: %w", i.o.Directory, err)
	}
	i.m.o.Log.Info("created an account at the certificate authority", "directory", i.o.Directory, "email", i.o.Email)
	return a, i.saveAccount(ctx, a, key)
}

func (i *issuer) loadAccount(ctx context.Context) (a acme.Account, err error) {
	doc, err := i.m.storage.Load(ctx, path.Join(i.accountPath(), accountDoc))
	if err != nil {
		return a, err
	}
	text, err := i.m.storage.Load(ctx, path.Join(i.accountPath(), accountKey))
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(doc, &a); err != nil {
		return a, fmt.Errorf("decode the account: %w", err)
	}
	block, _ := pem.Decode(text)
	if block == nil {
		return a, errors.New("the account's key is not PEM")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return a, fmt.Errorf("decode the account's key: %w", err)
	}
	signer, ok := key.(crypto.Signer)
	if !ok {
		return a, errors.New("the account's key cannot sign")
	}
	a.PrivateKey = signer
	return a, nil
}

// saveAccount stores the key first, because loadAccount looks for the document first.
func (i *issuer) saveAccount(ctx context.Context, a acme.Account, key crypto.Signer) error {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	doc, err := json.Marshal(a)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})
	if err := i.m.storage.Store(ctx, path.Join(i.accountPath(), accountKey), text); err != nil {
		return err
	}
	return i.m.storage.Store(ctx, path.Join(i.accountPath(), accountDoc), doc)
}

// parsePEM returns the certificates in a PEM file.
func parsePEM(text []byte) (all []*x509.Certificate, err error) {
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			return all, nil
		}
		if block.Type != "CERTIFICATE" {
			continue
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, fmt.Errorf("parse a certificate: %w", err)
		}
		all = append(all, c)
	}
}
