// Package dkim generates key pairs and signatures for DomainKeys Identified Mail (RFC 6376, RFC 8301, RFC 8463).
//
// # Invariants
//
//   - Signatures use relaxed/relaxed canonicalization and SHA-256, and always cover the whole body.
//   - The h= tag lists every field that mail readers display, such as From, one more time than the field occurs, even
//     if it is absent. Adding such a field therefore breaks the signature (RFC 6376 section 8.15).
//   - A message is canonicalized only once and its body is hashed only once, no matter how many keys sign it.
//   - Only Marshal returns a private key; the package neither prints nor logs private keys.
//
// # Failures
//
// Sign returns an error and no output if a message cannot be signed safely. This is the case if the message has no From
// field. It is also the case if the message begins with white space, because its first line would then continue the
// signature field. Sign also fails if a signer's domain or selector contains characters that could terminate a tag.
//
// # Out of scope
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

// RSA key lengths in bits. RSA keys shorter than minRSABits must not be used for signing (RFC 8301 section 3.2).
const (
	newRSABits = 2048
	minRSABits = 1024
)

// Key is an RSA or Ed25519 private key for signing mail. A Key is safe for concurrent use. Parse a key once and reuse
// it: parsing an RSA key takes as long as several signatures.
type Key struct {
	private crypto.Signer
	signer  crypto.Signer // signs with the private key, possibly using a faster implementation
	// algorithm is the value of the a= tag, and hash is the hash function passed to the signer. The hash is 0 for
	// Ed25519, which signs the digest as if it were the message.
	algorithm string
	hash      crypto.Hash
}

// GenerateRSA generates a 2048-bit RSA key.
func GenerateRSA() (*Key, error) {
	private, err := rsa.GenerateKey(rand.Reader, newRSABits)
	if err != nil {
		return nil, fmt.Errorf("generate RSA key: %w", err)
	}
	return newKey(private)
}

// GenerateEd25519 generates an Ed25519 key (RFC 8463).
func GenerateEd25519() (*Key, error) {
	_, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("generate Ed25519 key: %w", err)
	}
	return newKey(private)
}

// ParseKey parses a private key in PKCS #8 DER form (RFC 5958), as Marshal writes it. ParseKey rejects RSA keys shorter
// than 1024 bits and keys for other algorithms.
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
		return &Key{private: signer, signer: fastest(private), algorithm: "rsa-sha256", hash: crypto.SHA256}, nil
	case ed25519.PrivateKey:
		return &Key{private: signer, signer: signer, algorithm: "ed25519-sha256"}, nil
	}
	return nil, errors.New("key is neither RSA nor Ed25519")
}

// Marshal returns the private key in PKCS #8 DER form (RFC 5958). The returned key is a secret: encrypt it before you
// store it.
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
// 4.2). The record of an RSA key is longer than 255 bytes, so a zone file must split it into several strings.
func (k *Key) Record() string {
	if public, ok := k.signer.Public().(ed25519.PublicKey); ok {
		return "v=DKIM1; k=ed25519; p=" + base64.StdEncoding.EncodeToString(public)
	}
	der, err := x509.MarshalPKIXPublicKey(k.signer.Public())
	if err != nil {
		// MarshalPKIXPublicKey cannot fail here, because newKey accepts only RSA and Ed25519 keys.
		panic("dkim: " + err.Error())
	}
	return "v=DKIM1; k=rsa; p=" + base64.StdEncoding.EncodeToString(der)
}

// SignDigest signs a SHA-256 digest, as the signatures of DKIM and ARC do.
func (k *Key) SignDigest(digest []byte) ([]byte, error) { return k.sign(digest) }

func (k *Key) sign(digest []byte) ([]byte, error) {
	return k.signer.Sign(rand.Reader, digest, k.hash)
}
