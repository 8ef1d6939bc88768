//go:build cgo && libcrypto

package dkim

/*
#cgo LDFLAGS: -lcrypto
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rsa.h>
#include <openssl/x509.h>

// The program must not read the machine's openssl.cnf: the file may name modules to load, which a static program cannot.
static int start(void) { return OPENSSL_init_crypto(OPENSSL_INIT_NO_LOAD_CONFIG, NULL); }

static EVP_PKEY *load_key(const unsigned char *der, long length) {
	return d2i_AutoPrivateKey(NULL, &der, length);
}

static int sign_sha256(EVP_PKEY *key, const unsigned char *digest, unsigned char *signature, size_t *length) {
	EVP_PKEY_CTX *ctx = EVP_PKEY_CTX_new(key, NULL);
	int ok = ctx != NULL && EVP_PKEY_sign_init(ctx) > 0 &&
		EVP_PKEY_CTX_set_rsa_padding(ctx, RSA_PKCS1_PADDING) > 0 &&
		EVP_PKEY_CTX_set_signature_md(ctx, EVP_sha256()) > 0 &&
		EVP_PKEY_sign(ctx, signature, length, digest, 32) > 0;
	EVP_PKEY_CTX_free(ctx);
	return ok;
}
*/
import "C"

import (
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"time"
	"unsafe"
)

// tries is the number of signatures by each implementation before one is chosen. The fastest of them counts, because
// other programs can only delay a signature.
const tries = 6

// minGain is the factor by which libcrypto must be faster than Go to be chosen. Below it, a call through cgo is not worth
// the thread that it occupies.
const minGain = 1.15

var chosenRSA = sync.OnceValue(func() RSAChoice {
	if C.start() == 0 {
		return RSAChoice{Implementation: "Go"}
	}
	private, err := x509.ParsePKCS1PrivateKey(measuredKey())
	if err != nil {
		panic("dkim: the key for measurements: " + err.Error())
	}
	other, err := newLibcryptoSigner(private)
	if err != nil {
		return RSAChoice{Implementation: "Go"}
	}
	choice := RSAChoice{Implementation: "Go", Go: time.Hour, Libcrypto: time.Hour}
	for range tries { // in turns, so that a slow moment affects both
		choice.Go = min(choice.Go, timeSignature(private))
		choice.Libcrypto = min(choice.Libcrypto, timeSignature(other))
	}
	if float64(choice.Libcrypto)*minGain < float64(choice.Go) {
		choice.Implementation = "libcrypto"
	}
	return choice
})

// timeSignature returns the time that one signature takes, or an hour if the signer fails.
func timeSignature(s crypto.Signer) time.Duration {
	digest := sha256.Sum256(nil)
	start := time.Now()
	if _, err := s.Sign(rand.Reader, digest[:], crypto.SHA256); err != nil {
		return time.Hour
	}
	return time.Since(start)
}

// fastest returns the fastest available signer for the key. On processors with AVX-512 IFMA, libcrypto is nearly three
// times as fast as Go's own implementation. Both implementations create identical signatures. Go signs with keys that
// libcrypto refuses.
func fastest(private *rsa.PrivateKey) crypto.Signer {
	if chosenRSA().Implementation != "libcrypto" {
		return private
	}
	s, err := newLibcryptoSigner(private)
	if err != nil {
		return private
	}
	return s
}

func newLibcryptoSigner(private *rsa.PrivateKey) (*libcryptoSigner, error) {
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return nil, fmt.Errorf("marshal RSA key: %w", err)
	}
	key := C.load_key((*C.uchar)(unsafe.Pointer(&der[0])), C.long(len(der)))
	clear(der)
	if key == nil {
		return nil, errors.New("libcrypto does not take the RSA key")
	}
	s := &libcryptoSigner{private: private, key: key}
	runtime.AddCleanup(s, func(key *C.EVP_PKEY) { C.EVP_PKEY_free(key) }, key)
	return s, nil
}

// libcryptoSigner signs SHA-256 digests with RSA PKCS #1 v1.5. A libcryptoSigner is safe for concurrent use, because it
// only reads the key.
type libcryptoSigner struct {
	private *rsa.PrivateKey
	key     *C.EVP_PKEY
}

// Public returns the public key.
func (s *libcryptoSigner) Public() crypto.PublicKey { return s.private.Public() }

// Sign produces the same signature as the Sign method of rsa.PrivateKey.
func (s *libcryptoSigner) Sign(_ io.Reader, digest []byte, opts crypto.SignerOpts) ([]byte, error) {
	if opts.HashFunc() != crypto.SHA256 || len(digest) != sha256.Size {
		return nil, errors.New("libcrypto signs only SHA-256 digests here")
	}
	signature := make([]byte, s.private.Size())
	length := C.size_t(len(signature))
	ok := C.sign_sha256(s.key, (*C.uchar)(unsafe.Pointer(&digest[0])), (*C.uchar)(unsafe.Pointer(&signature[0])), &length)
	runtime.KeepAlive(s)
	if ok == 0 || int(length) != len(signature) {
		return nil, errors.New("libcrypto could not sign")
	}
	return signature, nil
}
