package certs

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"os"
	"sync"
	"time"
)

// lookAgain is the interval at which the certificate files are checked for changes.
const lookAgain = 10 * time.Second

// files provides the operator's own certificate and reloads it when its files change.
type files struct {
	certFile, keyFile string
	log               *slog.Logger
	names             []string                     // the installation's hosts
	warn              func(leaf *x509.Certificate) // called after each reload

	mu      sync.Mutex
	cert    *tls.Certificate
	former  *tls.Certificate // an earlier one that covers hosts that cert does not cover; nil if there is none
	changed time.Time        // modification time of the loaded files
	looked  time.Time
}

// openFiles loads the certificate. Errors name the setting to change.
func openFiles(certFile, keyFile string, log *slog.Logger) (*files, error) {
	f := &files{certFile: certFile, keyFile: keyFile, log: log}
	if err := f.load(); err != nil {
		return nil, err
	}
	return f, nil
}

// get returns the certificate. If the files have changed and cannot be loaded, get returns the previous certificate.
func (f *files) get() *tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.looked) < lookAgain {
		return f.cert
	}
	if f.looked = time.Now(); f.modified().Equal(f.changed) {
		return f.cert
	}
	before := f.cert
	if err := f.load(); err != nil {
		f.log.Error("the changed TLS certificate cannot be loaded; the old one stays in use", "error", err)
		return f.cert
	}
	f.keepFormer(before)
	f.log.Info("the TLS certificate was reloaded", "file", f.certFile, "expires", f.cert.Leaf.NotAfter)
	if f.warn != nil {
		f.warn(f.cert.Leaf)
	}
	return f.cert
}

// keepFormer keeps the certificate before a reload, or an earlier one, if it is valid and covers hosts that the loaded
// one does not cover. Without it, these hosts would have no certificate until the authority issues one, or a certificate
// that clients refuse. The caller holds the mutex.
func (f *files) keepFormer(before *tls.Certificate) {
	earlier := f.former
	f.former = nil
	for _, c := range []*tls.Certificate{before, earlier} {
		if c == nil || time.Now().After(c.Leaf.NotAfter) {
			continue
		}
		var lost []string
		for _, name := range f.names {
			if c.Leaf.VerifyHostname(name) == nil && f.cert.Leaf.VerifyHostname(name) != nil {
				lost = append(lost, name)
			}
		}
		if len(lost) > 0 {
			f.former = c
			f.log.Error("tls_cert_file: the changed certificate does not cover these hosts any more, so the old one stays in "+
				"use for them; use one that names them, or set acme", "file", f.certFile, "hosts", lost, "expires",
				c.Leaf.NotAfter)
			return
		}
	}
}

// formerFor returns the certificate before a reload if it is valid and covers a host, or nil.
func (f *files) formerFor(host string) *tls.Certificate {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.former == nil || time.Now().After(f.former.Leaf.NotAfter) || f.former.Leaf.VerifyHostname(host) != nil {
		return nil
	}
	return f.former
}

// modified returns the later of the certificate file's and the key file's modification times.
func (f *files) modified() (last time.Time) {
	for _, name := range []string{f.certFile, f.keyFile} {
		if info, err := os.Stat(name); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

func (f *files) load() error {
	changed := f.modified() // read first, so that the next check detects changes made while the files are being loaded
	cert, err := loadPair(f.certFile, f.keyFile)
	if err != nil {
		return err
	}
	f.cert, f.changed, f.looked = cert, changed, time.Now()
	return nil
}

// FileError is why the file that a setting names cannot be used.
type FileError struct {
	Setting string
	Cause   error
}

func (e *FileError) Error() string { return e.Setting + ": " + e.Cause.Error() }
func (e *FileError) Unwrap() error { return e.Cause }

// unreadable returns the error of a file that cannot be read.
func unreadable(setting string, cause error) error {
	if errors.Is(cause, fs.ErrPermission) {
		cause = fmt.Errorf("%w; let the group of the node's user read the file, as with `chgrp postrider FILE` and "+
			"`chmod 640 FILE`", cause)
	}
	return fmt.Errorf("read %w", &FileError{setting, cause})
}

// CheckFiles returns the problems of the files that the options name. A node with a wrong file does not start. The
// complaints are about a certificate with which a node starts, but that clients refuse.
func CheckFiles(o Options) (wrong, complains []*FileError) {
	add := func(err error) {
		if e, ok := errors.AsType[*FileError](err); ok {
			wrong = append(wrong, e)
		}
	}
	names := certifiable(o.Web, o.Mail)
	if o.ACME != nil {
		names = nil // they get certificates from the authority
	}
	if o.CertFile != "" {
		cert, err := loadPair(o.CertFile, o.KeyFile)
		add(err)
		if err == nil {
			for _, text := range complaints(cert.Leaf, names, time.Now()) {
				complains = append(complains, &FileError{"tls_cert_file", errors.New(text)})
			}
		}
	}
	if o.ACME == nil {
		return wrong, complains
	}
	_, err := readRoots(o.ACME.CAFile)
	add(err)
	if o.ACME.Hook != "" {
		add(checkHook(o.ACME.Hook))
	}
	return wrong, complains
}

// loadPair reads a certificate with its chain and its key. The error says which of the two settings is wrong.
func loadPair(certFile, keyFile string) (*tls.Certificate, error) {
	chain, err := os.ReadFile(certFile)
	if err != nil {
		return nil, unreadable("tls_cert_file", err)
	}
	if err := checkChain(chain); err != nil {
		return nil, unreadable("tls_cert_file", fmt.Errorf("%s: %w", certFile, err))
	}
	key, err := os.ReadFile(keyFile)
	if err != nil {
		return nil, unreadable("tls_key_file", err)
	}
	cert, err := tls.X509KeyPair(chain, key)
	if err != nil {
		return nil, unreadable("tls_key_file", fmt.Errorf("%s is not the unencrypted PEM key of the certificate in "+
			"tls_cert_file: %w", keyFile, err))
	}
	return &cert, nil
}

// checkChain returns an error if a file has no certificate, or one that cannot be read.
func checkChain(pemText []byte) error {
	all, err := parsePEM(pemText)
	if err == nil && len(all) == 0 {
		return errors.New("the file contains no certificate in PEM")
	}
	return err
}

// complaints lists what is wrong with a certificate for the given names, in words for an operator.
func complaints(leaf *x509.Certificate, names []string, now time.Time) (all []string) {
	switch {
	case now.After(leaf.NotAfter):
		all = append(all, "the certificate expired on "+leaf.NotAfter.UTC().Format(time.DateOnly)+
			"; clients refuse it: replace the file")
	case now.Before(leaf.NotBefore):
		all = append(all, "the certificate is valid only from "+leaf.NotBefore.UTC().Format(time.DateOnly)+
			" on; clients refuse it: check the clock of this machine, or replace the file")
	}
	for _, name := range names {
		if leaf.VerifyHostname(name) != nil {
			all = append(all, "the certificate does not cover the host "+name+", so clients that connect to this host refuse "+
				"it: use one that names the host, or set acme")
		}
	}
	return all
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
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}
