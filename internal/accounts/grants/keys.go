package grants

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/keyring"
)

const (
	keyPurpose = "oauth signing key"
	keysTopic  = "oauth_keys"        // topic of the cache-invalidation hints that announce a change to the keys
	keyLife    = 90 * 24 * time.Hour // how long a key is used to sign tokens
	keyAhead   = 24 * time.Hour      // how long a key is published before it is used, so that clients can cache it
	keyAfter   = 24 * time.Hour      // how long a replaced key stays published; longer than the lifetime of access tokens
	keysCached = time.Minute         // how long a node caches the signing keys
	keysRetry  = time.Second         // minimum interval between queries for unknown key ids
)

// Sealed lists the columns with encrypted secrets.
var Sealed = []keyring.Column{{Table: "oauth_keys", Name: "private", Purpose: keyPurpose}}

// key is a private key that signs access tokens.
type key struct {
	id      string
	private *ecdsa.PrivateKey
	signsAt time.Time
}

// signing is this node's cache of the signing keys.
type signing struct {
	mu   sync.Mutex
	keys []key // sorted by signsAt
	read time.Time
}

func (c *signing) forget() {
	c.mu.Lock()
	c.read = time.Time{}
	c.mu.Unlock()
}

// keys returns all signing keys. If the cache is younger than the given maximum age, keys returns the cached keys.
// Concurrent callers share one database query.
func (s *Service) keys(ctx context.Context, within time.Duration) ([]key, error) {
	c := &s.signing
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.read.IsZero() && time.Since(c.read) < within {
		return c.keys, nil
	}
	stored, err := listKeys(ctx, s.DB.Reader)
	if err != nil {
		return nil, fmt.Errorf("read the signing keys: %w", err)
	}
	var all []key
	for _, k := range stored {
		der, err := s.Keys.Open(keyPurpose, k.private, []byte(k.id))
		if errors.Is(err, keyring.ErrUnsealable) {
			continue // the key was sealed with an earlier secret key of the installation
		}
		if err != nil {
			return nil, fmt.Errorf("signing key %s: %w", k.id, err)
		}
		private, err := x509.ParsePKCS8PrivateKey(der)
		if err != nil {
			return nil, fmt.Errorf("signing key %s: %w", k.id, err)
		}
		ec, ok := private.(*ecdsa.PrivateKey)
		if !ok {
			return nil, fmt.Errorf("signing key %s is a %T", k.id, private)
		}
		all = append(all, key{k.id, ec, k.signsAt})
	}
	c.keys, c.read = all, time.Now()
	return all, nil
}

// signer returns the key with which tokens are signed at the given time. If there is no signing key, signer creates the
// first one.
func (s *Service) signer(ctx context.Context, now time.Time) (key, error) {
	for _, within := range []time.Duration{keysCached, 0} {
		all, err := s.keys(ctx, within)
		if err != nil {
			return key{}, err
		}
		for _, k := range slices.Backward(all) {
			if !k.signsAt.After(now) {
				return k, nil
			}
		}
		if len(all) > 0 {
			return all[0], nil // the clock was set back, so no key is in use yet
		}
		if err := s.RotateKeys(ctx); err != nil {
			return key{}, err
		}
	}
	return key{}, errors.New("the signing key that was made is not there")
}

// verifier returns the public key with the given id, or nil if no such key exists. Tokens with unknown key ids cause at
// most one database query per second.
func (s *Service) verifier(ctx context.Context, keyID string) (crypto.PublicKey, error) {
	for _, within := range []time.Duration{keysCached, keysRetry} {
		all, err := s.keys(ctx, within)
		if err != nil {
			return nil, err
		}
		for _, k := range all {
			if k.id == keyID {
				return k.private.Public(), nil
			}
		}
	}
	return nil, nil
}

// PublicKeys returns the public keys that verify access tokens (RFC 7517), including keys that are not used for signing
// yet.
func (s *Service) PublicKeys(ctx context.Context) (jose.JSONWebKeySet, error) {
	if _, err := s.signer(ctx, s.DB.Now()); err != nil {
		return jose.JSONWebKeySet{}, err
	}
	all, err := s.keys(ctx, keysCached)
	set := jose.JSONWebKeySet{Keys: []jose.JSONWebKey{}}
	for _, k := range all {
		set.Keys = append(set.Keys, jose.JSONWebKey{Key: k.private.Public(), KeyID: k.id, Algorithm: string(jose.ES256),
			Use: "sig"})
	}
	return set, err
}

// RotateKeys creates the next signing key one day before the current key has been in use for 90 days, and deletes keys
// whose tokens have expired. Call it periodically. The first signing key is used immediately.
func (s *Service) RotateKeys(ctx context.Context) error {
	return s.rotateKeys(ctx, s.DB.Now())
}

func (s *Service) rotateKeys(ctx context.Context, now time.Time) error {
	all, err := listKeys(ctx, s.DB.Reader)
	if err != nil {
		return fmt.Errorf("read the signing keys: %w", err)
	}
	if _, due := nextKey(s.openableKeys(all), now); !due && len(expiredKeys(all, now)) == 0 {
		return nil
	}
	made, err := s.newKey()
	if err != nil {
		return fmt.Errorf("make a signing key: %w", err)
	}
	return s.DB.Update(ctx, func(tx *db.Tx) error {
		// The lock prevents two nodes from creating a signing key at the same time.
		if err := tx.Serialize(ctx, keysTopic); err != nil {
			return err
		}
		all, err := listKeys(ctx, tx.Reader)
		if err != nil {
			return fmt.Errorf("read the signing keys: %w", err)
		}
		if at, due := nextKey(s.openableKeys(all), now); due {
			made.signsAt = at
			insertKey(ctx, tx, &made)
		}
		for _, k := range expiredKeys(all, now) {
			deleteKey(ctx, tx, k.id)
		}
		tx.AfterCommit(func() { s.DB.Hint(keysTopic, "") })
		return nil
	})
}

// openableKeys returns the signing keys that can be decrypted, and omits keys that were sealed with an earlier secret
// key of the installation.
func (s *Service) openableKeys(all []storedKey) []storedKey {
	return slices.DeleteFunc(slices.Clone(all), func(k storedKey) bool {
		_, err := s.Keys.Open(keyPurpose, k.private, []byte(k.id))
		return errors.Is(err, keyring.ErrUnsealable)
	})
}

// nextKey reports whether a new signing key is due, and returns the time of its first use. The list of keys must be
// sorted by signsAt.
func nextKey(all []storedKey, now time.Time) (signsAt time.Time, due bool) {
	if len(all) == 0 {
		return now.Add(-keyAhead), true // the first key may sign immediately, because no client has cached an older key set
	}
	ends := all[len(all)-1].signsAt.Add(keyLife)
	if now.Add(keyAhead).Before(ends) {
		return time.Time{}, false
	}
	return now.Add(keyAhead), true
}

// expiredKeys returns the replaced signing keys whose tokens have all expired.
func expiredKeys(all []storedKey, now time.Time) []storedKey {
	n := 0
	for n+1 < len(all) && all[n+1].signsAt.Add(keyAfter).Before(now) {
		n++
	}
	return all[:n]
}

func (s *Service) newKey() (storedKey, error) {
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return storedKey{}, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return storedKey{}, err
	}
	k := storedKey{id: id.New()}
	k.private, err = s.Keys.Seal(keyPurpose, der, []byte(k.id))
	return k, err
}
