// Package keyring holds the one master key of an installation and everything made from it: the sealing of secrets
// at rest, signed tokens for links, short tags for return paths, and access tokens (JWT). It also makes and hashes API
// keys, which need no master key.
//
// Invariants: the master key itself never touches data. Each pair of use (seal, sign, tag, jwt) and purpose has a
// key of its own by HKDF (RFC 5869), so nothing made for one purpose is accepted for another. Whatever is compared
// is compared in constant time. What comes back from outside is either exactly what was made here, or an error.
//
// Failure: a lost master key makes sealed secrets unreadable and links invalid; there is no second way in. A changed
// one reads as ErrUnsealable, ErrForged: never as other data.
//
// Not here: passwords (they need a slow hash), DKIM keys and TLS keys, and the rotation of the master key. The
// version byte in front of all that is sealed or signed is what a rotation would build upon.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash"
	"sync"
)

// MasterSize is the length of the master key in bytes.
const MasterSize = 32

// sealVersion stands in front of sealed data: AES-256-GCM, the 12-byte nonce before the ciphertext.
const sealVersion = 1

// ErrUnsealable says that data was sealed with another key, purpose or context, or has been altered since.
var ErrUnsealable = errors.New("sealed data cannot be opened: other key, other context, or altered")

// Keyring makes keys from one master key. It is safe for concurrent use, and what it makes never changes.
type Keyring struct {
	root []byte   // the extracted pseudorandom key of HKDF, not the master itself
	tags sync.Map // purpose -> *sync.Pool of hash.Hash, which have the key of Tag; there are few purposes
}

// New returns the keyring of a master key of MasterSize random bytes.
func New(master []byte) (*Keyring, error) {
	if len(master) != MasterSize {
		return nil, fmt.Errorf("secret key has %d bytes, must have %d", len(master), MasterSize)
	}
	root, err := hkdf.Extract(sha256.New, master, []byte("postrider keyring 1"))
	if err != nil {
		return nil, fmt.Errorf("derive root of keyring: %w", err)
	}
	return &Keyring{root: root}, nil
}

// key derives the 32-byte key of a use and purpose, which takes a few microseconds. The NUL keeps ("a", "bc") and
// ("ab", "c") apart.
func (k *Keyring) key(use, purpose string) []byte {
	sub, err := hkdf.Expand(sha256.New, k.root, use+"\x00"+purpose, 32)
	if err != nil {
		// Expand refuses only lengths above 255 hashes (RFC 5869 section 2.3); ours is one.
		panic("keyring: derive: " + err.Error())
	}
	return sub
}

// aead returns AES-256-GCM with a random nonce. Its bound of 2^32 messages a key (NIST SP 800-38D section 8.3) is per
// purpose and far above the number of secrets that an installation keeps.
func (k *Keyring) aead(purpose string) (cipher.AEAD, error) {
	block, err := aes.NewCipher(k.key("seal", purpose))
	if err != nil {
		return nil, fmt.Errorf("cipher of purpose %s: %w", purpose, err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Seal encrypts plain for keeping. The same purpose and context open it again; a context that names the row (say,
// its id) keeps a sealed value from being moved to another row. The result is 29 bytes longer than plain.
func (k *Keyring) Seal(purpose string, plain, context []byte) ([]byte, error) {
	aead, err := k.aead(purpose)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 1, 1+len(plain)+aead.Overhead())
	out[0] = sealVersion
	return aead.Seal(out, nil, plain, bound(context)), nil
}

// Open decrypts what Seal made with the same purpose and context; anything else is ErrUnsealable.
func (k *Keyring) Open(purpose string, sealed, context []byte) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != sealVersion {
		return nil, fmt.Errorf("open %s: unknown version: %w", purpose, ErrUnsealable)
	}
	aead, err := k.aead(purpose)
	if err != nil {
		return nil, err
	}
	plain, err := aead.Open(nil, nil, sealed[1:], bound(context))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", purpose, ErrUnsealable)
	}
	return plain, nil
}

// bound is the additional data of a seal: the version too, so that no later version can be talked down to this one.
func bound(context []byte) []byte {
	return append([]byte{sealVersion}, context...)
}

// Tag returns the first n bytes (4 to 32) of the HMAC-SHA256 of data. Each email has four tags, so its keys are derived
// once. It is meant for return paths, where every
// character counts; whoever guesses a tag of n bytes needs 2^(8n-1) tries on average. Compare it with hmac.Equal.
func (k *Keyring) Tag(purpose string, data []byte, n int) []byte {
	if n < 4 || n > sha256.Size {
		panic(fmt.Sprintf("keyring: a tag of %d bytes; it must have 4 to %d", n, sha256.Size))
	}
	hashes, ok := k.tags.Load(purpose)
	if !ok {
		key := k.key("tag", purpose)
		hashes, _ = k.tags.LoadOrStore(purpose, &sync.Pool{New: func() any { return hmac.New(sha256.New, key) }})
	}
	h := hashes.(*sync.Pool).Get().(hash.Hash)
	defer hashes.(*sync.Pool).Put(h)
	h.Reset()
	h.Write(data)
	return h.Sum(nil)[:n]
}

// sum is HMAC-SHA256 (RFC 2104).
func sum(key, data []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(data)
	return h.Sum(nil)
}
