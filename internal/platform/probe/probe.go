// Package probe looks at a server as a stranger would: it talks to a mail host up to STARTTLS, or requests one page.
// The results are facts for the command doctor, about this installation or, on request, about another one.
//
// # Invariants
//
// The conversations are fixed: EHLO, STARTTLS, EHLO and QUIT, or one request for a page. Neither email nor secrets are
// sent. All texts of a server are shortened to printable ASCII. The caller chooses how connections are made, and so
// decides which addresses may be reached.
//
// A certificate is judged but never needed: the conversation continues with a wrong one, because the result should say
// what is wrong with it.
//
// # Failures
//
// The functions return no errors. The field Problem of a result says why a conversation ended early.
//
// # Out of scope
//
// The package looks up no names and decides nothing about the facts.
package probe

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"os"
	"strings"
	"time"
)

// Dial connects to an address and port.
type Dial func(ctx context.Context, network, address string) (net.Conn, error)

const (
	dialTime = 10 * time.Second
	talkTime = 20 * time.Second // the whole conversation
	textMax  = 200              // bytes of a server's text
	namesMax = 10               // names of a certificate
)

// Certificate describes the certificate that a server presented.
type Certificate struct {
	Names    []string  `json:"names"`
	Issuer   string    `json:"issuer"`
	NotAfter time.Time `json:"not_after"`
	// Problem says why clients refuse the certificate; "" if they accept it.
	Problem string `json:"problem,omitempty"`
	// SelfSigned is whether no authority has signed the certificate.
	SelfSigned bool `json:"self_signed,omitempty"`
}

// judge describes a server's certificate, as of the time now. Its chain must lead to one of the given roots, or to one
// of the system if roots is nil.
func judge(chain []*x509.Certificate, host string, roots *x509.CertPool, now time.Time) *Certificate {
	if len(chain) == 0 {
		return nil
	}
	leaf := chain[0]
	c := &Certificate{Issuer: Printable(issuer(leaf)), NotAfter: leaf.NotAfter,
		SelfSigned: leaf.CheckSignatureFrom(leaf) == nil || len(chain) == 1 && leaf.Issuer.String() == leaf.Subject.String()}
	for _, name := range leaf.DNSNames[:min(len(leaf.DNSNames), namesMax)] {
		c.Names = append(c.Names, Printable(name))
	}
	for _, ip := range leaf.IPAddresses[:min(len(leaf.IPAddresses), namesMax)] {
		c.Names = append(c.Names, ip.String())
	}
	between := x509.NewCertPool()
	for _, x := range chain[1:] {
		between.AddCert(x)
	}
	_, err := leaf.Verify(x509.VerifyOptions{Roots: roots, Intermediates: between, CurrentTime: now})
	switch {
	case now.After(leaf.NotAfter):
		c.Problem = "it expired on " + leaf.NotAfter.UTC().Format(time.DateOnly)
	case now.Before(leaf.NotBefore):
		c.Problem = "it is valid only from " + leaf.NotBefore.UTC().Format(time.DateOnly) + " on"
	case leaf.VerifyHostname(host) != nil:
		c.Problem = "it does not cover the host " + host
	case c.SelfSigned && err != nil:
		c.Problem = "it is self-signed"
	case err != nil:
		c.Problem = "no known authority vouches for it, or the server does not send the chain up to the authority"
	}
	return c
}

func issuer(c *x509.Certificate) string {
	if len(c.Issuer.Organization) > 0 {
		return c.Issuer.Organization[0]
	}
	return c.Issuer.CommonName
}

// tlsConfig returns a configuration that accepts every certificate, and calls see with the certificates of the server.
func tlsConfig(host string, see func([]*x509.Certificate)) *tls.Config {
	return &tls.Config{ServerName: host, InsecureSkipVerify: true, VerifyConnection: func(s tls.ConnectionState) error {
		see(s.PeerCertificates)
		return nil
	}}
}

// Printable shortens a text of a server, and replaces what is not printable ASCII.
func Printable(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return '?'
		}
		return r
	}, text)
	if len(text) > textMax {
		text = text[:textMax] + "..."
	}
	return text
}

// reason describes an error in a few words, without addresses of this machine.
func reason(err error) string {
	var dns *net.DNSError
	var op *net.OpError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, os.ErrDeadlineExceeded):
		return "no answer in time"
	case errors.As(err, &dns):
		return "the name cannot be looked up"
	case errors.As(err, &op) && op.Timeout():
		return "no answer in time"
	case errors.As(err, &op) && op.Err != nil:
		return Printable(op.Err.Error())
	}
	return Printable(err.Error())
}
