// Package keyring holds an installation's master key. The package derives keys from the master key. These keys encrypt
// stored secrets, sign links, create short tags for return paths, and sign access tokens (JWT). Package keyring also
// generates and hashes API keys, which do not depend on the master key.
//
// # Invariants
//
// The master key itself never encrypts or signs data. HKDF (RFC 5869) derives a separate key for each combination of
// use (seal, sign, tag, jwt) and purpose. A value that was created for one purpose is therefore rejected for any other
// purpose. MACs are compared in constant time. Functions that read tokens return either exactly the data that this
// keyring signed or sealed, or an error.
//
// # Failures
//
// If the master key is lost, sealed secrets are unreadable, links are invalid, and neither can be recovered. With a
// different master key, functions return ErrUnsealable or ErrForged, never wrong data.
//
// # Out of scope
//
// The package does not handle passwords, which need a slow hash, or keys for DKIM and TLS. It does not find the rows that
// must be sealed again after a rotation.
//
// # Rotation
//
// A keyring may have earlier master keys besides the current one. Only the current key seals, signs and makes tags. The
// earlier keys open what they sealed and verify what they signed: links, unsubscribe addresses and return paths never
// expire. [Keyring.Reseal] seals data of an earlier key with the current one.
package keyring

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"iter"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
)

// MasterSize is the length of the master key in bytes.
const MasterSize = 32

// sealVersion is the first byte of sealed data: AES-256-GCM, with the 12-byte nonce before the ciphertext.
const sealVersion = 1

// Column is a column of a table whose values Seal made. Their context is the id of the row in text form.
type Column struct{ Table, Name, Purpose string }

// ErrUnsealable means that data was sealed with another key, purpose or context, or was altered after it was sealed.
var ErrUnsealable = errors.New("sealed data cannot be opened: other key, other context, or altered")

// Keyring derives keys from a master key, and from the earlier ones that it replaced. A Keyring is safe for concurrent
// use, and its keys never change.
type Keyring struct {
	root    []byte     // HKDF's extracted pseudorandom key, not the master key itself
	earlier []*Keyring // the keyrings of the earlier master keys, newest first; these have no earlier ones

	mu   sync.Mutex
	tags atomic.Pointer[map[string]*sync.Pool] // by purpose: a pool of hash.Hash values that use its key
}

// New returns the keyring for a master key and the earlier ones, newest first. A key must be MasterSize random bytes.
func New(master []byte, earlier ...[]byte) (*Keyring, error) {
	k, err := newRing(master)
	if err != nil {
		return nil, err
	}
	for _, e := range earlier {
		ring, err := newRing(e)
		if err != nil {
			return nil, err
		}
		k.earlier = append(k.earlier, ring)
	}
	return k, nil
}

func newRing(master []byte) (*Keyring, error) {
	if len(master) != MasterSize {
		return nil, fmt.Errorf("secret key has %d bytes, must have %d", len(master), MasterSize)
	}
	root, err := hkdf.Extract(sha256.New, master, []byte("postrider keyring 1"))
	if err != nil {
		return nil, fmt.Errorf("derive root of keyring: %w", err)
	}
	k := &Keyring{root: root}
	k.tags.Store(&map[string]*sync.Pool{})
	return k, nil
}

// rings returns the keyring of the current key, and then those of the earlier keys.
func (k *Keyring) rings() iter.Seq[*Keyring] {
	return func(yield func(*Keyring) bool) {
		if !yield(k) {
			return
		}
		for _, e := range k.earlier {
			if !yield(e) {
				return
			}
		}
	}
}

// key derives the 32-byte key for a use and a purpose. The derivation takes a few microseconds. A NUL between use and
// purpose ensures that ("a", "bc") and ("ab", "c") have different keys.
func (k *Keyring) key(use, purpose string) []byte {
	sub, err := hkdf.Expand(sha256.New, k.root, use+"\x00"+purpose, 32)
	if err != nil {
		// Expand rejects only lengths of more than 255 hashes (RFC 5869 section 2.3); this key is as long as one hash.
		panic("keyring: derive: " + err.Error())
	}
	return sub
}

// aead returns AES-256-GCM with a random nonce. A key must not encrypt more than 2^32 messages (NIST SP 800-38D section
// 8.3). Each purpose has its own key, and an installation stores far fewer secrets than that limit.
func (k *Keyring) aead(purpose string) (cipher.AEAD, error) {
	block, err := aes.NewCipher(k.key("seal", purpose))
	if err != nil {
		return nil, fmt.Errorf("cipher of purpose %s: %w", purpose, err)
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// Seal encrypts plain for storage. Sealed data can only be opened with the same purpose and context. A context that
// identifies the row (for example by its id) prevents a sealed value from being moved to another row. The result of
// Seal is 29 bytes longer than plain.
func (k *Keyring) Seal(purpose string, plain, context []byte) ([]byte, error) {
	aead, err := k.aead(purpose)
	if err != nil {
		return nil, err
	}
	out := make([]byte, 1, 1+len(plain)+aead.Overhead())
	out[0] = sealVersion
	return aead.Seal(out, nil, plain, bound(context)), nil
}

// Open decrypts what Seal returned for the same purpose and context. For all other data, Open returns ErrUnsealable.
func (k *Keyring) Open(purpose string, sealed, context []byte) ([]byte, error) {
	if len(sealed) == 0 || sealed[0] != sealVersion {
		return nil, fmt.Errorf("open %s: unknown version: %w", purpose, ErrUnsealable)
	}
	for ring := range k.rings() {
		aead, err := ring.aead(purpose)
		if err != nil {
			return nil, err
		}
		if plain, err := aead.Open(nil, nil, sealed[1:], bound(context)); err == nil {
			return plain, nil
		}
	}
	return nil, fmt.Errorf("open %s: %w", purpose, ErrUnsealable)
}

// OpenToken is Open for data that clients keep, such as cookies. Data that was sealed with an earlier master key is not
// valid, because somebody may have seen such a key.
func (k *Keyring) OpenToken(purpose string, sealed, context []byte) ([]byte, error) {
	current := Keyring{root: k.root}
	return current.Open(purpose, sealed, context)
}

// Reseal seals again, with the current master key, what Seal returned with an earlier one. If the data is sealed with
// the current key already, Reseal returns nil. If no key can open it, Reseal returns ErrUnsealable.
func (k *Keyring) Reseal(purpose string, sealed, context []byte) ([]byte, error) {
	current := Keyring{root: k.root}
	if _, err := current.Open(purpose, sealed, context); err == nil {
		return nil, nil
	}
	plain, err := k.Open(purpose, sealed, context)
	if err != nil {
		return nil, err
	}
	return k.Seal(purpose, plain, context)
}

// bound returns the additional authenticated data for a seal. The additional data contains the seal version, so that
// data from a later version is not accepted as data from this version.
func bound(context []byte) []byte {
	return append([]byte{sealVersion}, context...)
}

// Check returns a text that identifies the master key and from which the master key cannot be computed. An installation
// stores it, so that a node that is given another key notices.
func (k *Keyring) Check() string {
	return hex.EncodeToString(k.Tag("check value of the installation", nil, 16))
}

// Checks returns the result of Check for the current key, and then for the earlier keys.
func (k *Keyring) Checks() (all []string) {
	for ring := range k.rings() {
		all = append(all, ring.Check())
	}
	return all
}

// Matches reports whether the current key or an earlier one has the given check value.
func (k *Keyring) Matches(check string) bool { return slices.Contains(k.Checks(), check) }

// TagMatches reports whether the current key or an earlier one made the tag, in constant time for each key.
func (k *Keyring) TagMatches(purpose string, data, tag []byte) bool {
	for ring := range k.rings() {
		if hmac.Equal(tag, ring.Tag(purpose, data, len(tag))) {
			return true
		}
	}
	return false
}

// Tags returns the result of Tag for the current key, and then for the earlier keys.
func (k *Keyring) Tags(purpose string, data []byte, n int) (all [][]byte) {
	for ring := range k.rings() {
		all = append(all, ring.Tag(purpose, data, n))
	}
	return all
}

// Tag returns the first n bytes of the HMAC-SHA256 of data, where n is between 4 and 32. Tags are for return paths,
// where space is limited; guessing a tag of n bytes takes 2^(8n-1) attempts on average. Callers must compare tags with
// TagMatches. Each purpose's key is derived only once, because each email has four tags.
func (k *Keyring) Tag(purpose string, data []byte, n int) []byte {
	return k.AppendTag(make([]byte, 0, sha256.Size), purpose, data, n)
}

// AppendTag appends the result of Tag to dst. AppendTag allocates no memory if dst has capacity for 32 more bytes.
func (k *Keyring) AppendTag(dst []byte, purpose string, data []byte, n int) []byte {
	t := k.Tagger(purpose)
	defer t.Release()
	return t.Append(dst, data, n)
}

// Tagger computes many tags for one purpose. A Tagger is not safe for concurrent use.
type Tagger struct {
	hash hash.Hash
	pool *sync.Pool
}

// Tagger returns a Tagger for a purpose; the caller must call Release after use.
func (k *Keyring) Tagger(purpose string) Tagger {
	pool := k.tagHashes(purpose)
	return Tagger{pool.Get().(hash.Hash), pool}
}

// Append is AppendTag.
func (t Tagger) Append(dst, data []byte, n int) []byte {
	if n < 4 || n > sha256.Size {
		panic(fmt.Sprintf("keyring: a tag of %d bytes; it must have 4 to %d", n, sha256.Size))
	}
	t.hash.Reset()
	t.hash.Write(data)
	return t.hash.Sum(dst)[:len(dst)+n]
}

// Release makes the Tagger's hash available for reuse; the Tagger must not be used afterwards.
func (t Tagger) Release() { t.pool.Put(t.hash) }

// tagHashes returns the pool of hashes that use a purpose's key. The tags map is read without a lock, because it is
// never modified: a new purpose replaces the whole map.
func (k *Keyring) tagHashes(purpose string) *sync.Pool {
	if pool := (*k.tags.Load())[purpose]; pool != nil {
		return pool
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	all := *k.tags.Load()
	if pool := all[purpose]; pool != nil {
		return pool
	}
	key := k.key("tag", purpose)
	pool := &sync.Pool{New: func() any { return hmac.New(sha256.New, key) }}
	all = maps.Clone(all)
	all[purpose] = pool
	k.tags.Store(&all)
	return pool
}

// sum returns an HMAC-SHA256 (RFC 2104).
func sum(key, data []byte) []byte {
	h := hmac.New(sha256.New, key)
	h.Write(data)
	return h.Sum(nil)
}
