// Package dkim makes key pairs and signatures for DomainKeys Identified Mail (RFC 6376, RFC 8301, RFC 8463).
//
// # Invariants
//
//   - Signatures are relaxed/relaxed with SHA-256, and always cover the whole body.
//   - The h= tag names From and the other fields that a reader sees once more than they occur, even if they are
//     absent. So adding one breaks the signature (RFC 6376 section 8.15).
//   - A message is canonicalised and its body hashed once, however many keys sign it.
//   - Private keys leave a Key only by Marshal; the package neither prints nor logs them.
//
// # When it fails
//
// Sign fails without output if a message cannot be signed safely: it has no From field, or begins in a way that would
// continue the signature before it. Sign also fails if a signer's names could break out of their tags.
//
// # What it does not do
//
// The package does not verify signatures, does not use the DNS, and does not decide who may sign for which domain.
package dkim

import (
	"crypto"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
)

// RSA key lengths in bits. Keys under minRSABits must not sign (RFC 8301 section 3.2).
const (
	newRSABits = 2048
	minRSABits = 1024
)

// Key is a private key that signs mail: RSA or Ed25519. It is safe for concurrent use. Parse a key once and reuse it:
// parsing an RSA key costs as much as several signatures.
type Key struct {
	private crypto.Signer
	signer  crypto.Signer // signs with private, possibly by a faster implementation
	// algorithm is the a= tag. hash is the hash passed to the signer; Ed25519 takes the digest as its message.
	algorithm string
	hash      crypto.Hash
}

// GenerateRSA makes an RSA key of 2048 bits.
func GenerateRSA() (*Key, error) {
	private, err := rsa.GenerateKey(rand.Reader, newRSABits)
	if err != nil {
		return nil, fmt.Errorf("generate RSA key: %w", err)
	}
	return newKey(private)
}

// GenerateEd25519 makes an Ed25519 key (RFC 8463).
func GenerateEd25519() (*Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate Ed25519 key: %w", err)
	}
	return newKey(private)
}

// ParseKey parses a private key in PKCS #8 DER form (RFC 5958), as Marshal writes it. It refuses RSA keys under 1024
// bits and keys of other algorithms.
func ParseKey(der []byte) (*Key, error) {
	private, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, fmt.Errorf("parse DKIM key: %w", err)
	}
	signer, ok := private.(crypto.Signer)
	if !ok {
		return nil, fmt.Errorf("parse DKIM key: %T cannot sign", private)
	}
	return newKey(signer)
}

func newKey(signer crypto.Signer) (*Key, error) {
	switch private := signer.(type) {
	case *rsa.PrivateKey:
		if bits := private.N.BitLen(); bits < minRSABits {
			return nil, fmt.Errorf("RSA key has %d bits, and %d are the least", bits, minRSABits)
		}
		fast, err := fastest(private)
		if err != nil {
			return nil, err
		}
		return &Key{private: signer, signer: fast, algorithm: "rsa-sha256", hash: crypto.SHA256}, nil
	case ed25519.PrivateKey:
		return &Key{private: signer, signer: signer, algorithm: "ed25519-sha256"}, nil
	}
	return nil, errors.New("key is neither RSA nor Ed25519")
}

// Marshal returns the private key in PKCS #8 DER form (RFC 5958). The result is a secret: encrypt it before you store
// it.
func (k *Key) Marshal() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(k.private)
	if err != nil {
		return nil, fmt.Errorf("marshal DKIM key: %w", err)
	}
	return der, nil
}

// Public returns the public key: *rsa.PublicKey or ed25519.PublicKey.
func (k *Key) Public() crypto.PublicKey { return k.signer.Public() }

// Algorithm returns the name of the signature algorithm: rsa-sha256 or ed25519-sha256.
func (k *Key) Algorithm() string { return k.algorithm }

// Record returns the value of the TXT record at selector._domainkey.domain (RFC 6376 section 3.6.1, RFC 8463 section
// 4.2). For RSA it is longer than 255 bytes: in a zone file it must be split into strings.
func (k *Key) Record() string {
	if public, ok := k.signer.Public().(ed25519.PublicKey); ok {
		return "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(public)
	}
	der, err := x509.MarshalPKIXPublicKey(k.signer.Public())
	if err != nil {
		// This cannot happen: newKey accepts only keys that have this form.
		panic("dkim: " + err.Error())
	}
	return "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der)
}

func (k *Key) sign(digest []byte) ([]byte, error) {
	return k.signer.Sign(rand.Reader, digest, k.hash)
}
