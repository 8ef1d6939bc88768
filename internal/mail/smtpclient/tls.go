package smtpclient

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/dane"
)

// errInjected means that unencrypted text followed the reply to STARTTLS. If text received before the handshake were
// read as a reply under TLS, an attacker could inject replies (as in CVE-2011-0411).
var errInjected = fmt.Errorf("%w: text after the reply to STARTTLS", ErrProtocol)

// startTLS negotiates TLS with STARTTLS (RFC 3207) as the options require, and repeats EHLO.
func (c *Conn) startTLS(ctx context.Context) *Error {
	if c.o.TLS == TLSNone || c.o.TLS == TLSImplicit {
		return nil
	}
	required := !c.o.TLS.plainText()
	if !c.ext.StartTLS {
		if required {
			return broken(StageTLS, ErrNoTLS)
		}
		return nil
	}
	r, err := c.command(StageTLS, "STARTTLS")
	if err != nil {
		return err
	}
	if !r.Positive() {
		if required || r.Code == 421 {
			return &Error{Stage: StageTLS, Temporary: true, Reply: &r}
		}
		c.log.note("the host offered TLS and refuses it: going on without")
		return nil
	}
	if c.r.Buffered() > 0 {
		return c.fail(StageTLS, errInjected)
	}
	if err := c.handshake(ctx); err != nil {
		err.RetryPlain = !required && ctx.Err() == nil
		return err
	}
	// In TLS 1.3, a client notices only at the next read that the host has rejected the handshake.
	if err := c.hello(); err != nil {
		err.RetryPlain = !required && ctx.Err() == nil && err.Reply == nil
		return err
	}
	return nil
}

// handshake performs a TLS handshake and continues the session on the TLS connection.
func (c *Conn) handshake(ctx context.Context) *Error {
	config := &tls.Config{ServerName: c.o.ServerName, RootCAs: c.o.RootCAs, MinVersion: tls.VersionTLS12}
	var match *dane.Match
	switch {
	case c.o.TLS.anyCertificate():
		// Outdated or unverified encryption is better than none (RFC 7435).
		config.InsecureSkipVerify = true
		config.MinVersion = tls.VersionTLS10
	case c.o.TLS == TLSDANE:
		// VerifyConnection replaces the verification by root certificates.
		config.InsecureSkipVerify = true
		match = new(dane.Match)
		config.VerifyConnection = c.verifyDANE(match)
	}
	ctx, cancel := context.WithTimeout(ctx, c.o.Timeouts.TLS)
	defer cancel()
	c.arm(c.o.Timeouts.TLS)
	conn := tls.Client(c.raw, config)
	if err := conn.HandshakeContext(ctx); err != nil {
		failed := c.fail(StageTLS, fmt.Errorf("TLS handshake: %w", err))
		if bad, ok := errors.AsType[*tls.CertificateVerificationError](err); ok && len(bad.UnverifiedCertificates) > 0 {
			failed.TLS = TLSState{Cert: certificate(bad.UnverifiedCertificates[0]), Problem: problem(bad.Err),
				Cause: bad}
		}
		return failed
	}
	state := conn.ConnectionState()
	if match != nil {
		c.tls = negotiated(state)
		c.tls.Verified, c.tls.Method = true, Method(match.Method())
	} else {
		c.tls = describe(state, config)
	}
	c.use(conn)
	verdict := "verified"
	if !c.tls.Verified {
		verdict = "not verified: " + c.tls.Problem
	}
	c.log.note(c.tls.Version + " " + c.tls.Cipher + ", certificate of " + c.tls.Cert.Peer() + " " + verdict)
	if match != nil {
		record := oneLine(match.Record.String(), certText) // the record may contain a whole certificate
		c.log.note("the certificate matches the TLSA record " + record + " of " + c.o.ServerName)
	}
	return nil
}

// verifyDANE returns a function that verifies the certificates of a handshake with the TLSA records of the options, and
// stores the record that matched.
func (c *Conn) verifyDANE(match *dane.Match) func(tls.ConnectionState) error {
	return func(state tls.ConnectionState) (err error) {
		names := append([]string{c.o.ServerName}, c.o.DANENames...)
		if *match, err = c.o.DANE.Verify(state, names, time.Now()); err != nil {
			return &tls.CertificateVerificationError{UnverifiedCertificates: state.PeerCertificates, Err: err}
		}
		return nil
	}
}

// negotiated returns the negotiated TLS state, without a verdict about the certificate.
func negotiated(state tls.ConnectionState) TLSState {
	s := TLSState{Version: tls.VersionName(state.Version), Cipher: tls.CipherSuiteName(state.CipherSuite)}
	if len(state.PeerCertificates) > 0 {
		s.Cert = certificate(state.PeerCertificates[0])
	}
	return s
}

// describe returns the negotiated TLS state. The certificate is verified here, because an opportunistic handshake does
// not verify it.
func describe(state tls.ConnectionState, config *tls.Config) TLSState {
	s := negotiated(state)
	err := errors.New("no certificate")
	if len(state.PeerCertificates) > 0 {
		between := x509.NewCertPool()
		for _, cert := range state.PeerCertificates[1:] {
			between.AddCert(cert)
		}
		_, err = state.PeerCertificates[0].Verify(x509.VerifyOptions{
			DNSName: config.ServerName, Roots: config.RootCAs, Intermediates: between,
		})
	}
	if err != nil {
		s.Problem, s.Cause = problem(err), err
		return s
	}
	s.Verified, s.Method = true, MethodWebPKI
	return s
}

func problem(err error) string { return oneLine(err.Error(), maxReplyText) }

// oneLine returns a text that a host chose, in one line of at most limit bytes.
func oneLine(s string, limit int) string {
	return strings.ReplaceAll(cleanText([]byte(s), limit), "\n", " ")
}

const (
	certNames = 4
	certText  = 255 // maximum length of each text, in bytes
)

func certificate(c *x509.Certificate) (d Certificate) {
	names := c.DNSNames
	if len(names) == 0 && c.Subject.CommonName != "" {
		names = []string{c.Subject.CommonName}
	}
	for _, n := range names[:min(len(names), certNames)] {
		d.Names = append(d.Names, oneLine(n, certText))
	}
	d.More, d.Expires = len(names)-len(d.Names), c.NotAfter
	issuer := c.Issuer.CommonName
	if issuer == "" && len(c.Issuer.Organization) > 0 {
		issuer = c.Issuer.Organization[0]
	}
	d.Issuer = oneLine(issuer, certText)
	return d
}
