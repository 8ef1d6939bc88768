// Package signing creates, encrypts and rotates the secrets with which requests to users' URLs are signed, and signs
// these requests according to Standard Webhooks.
//
// # Invariants
//
// Each row has its own random secret, which is encrypted with the row's id as context. After a rotation, both secrets
// sign for [Overlap], so that receivers can change over. Another rotation ends the use of the older secret at once.
//
// # Failures
//
// If the master key is lost, secrets are unreadable, and nothing can be signed with them.
//
// # Out of scope
//
// The package stores nothing: the packages that own the rows do. It makes no requests.
package signing

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/platform/keyring"
)

// Overlap is the time after a rotation during which the previous secret also signs.
const Overlap = 24 * time.Hour

const (
	prefix = "whsec_"
	size   = 32 // bytes

	// teamPurpose is the key derivation purpose for the secrets of teams. Receivers hold these secrets, so it never
	// changes.
	teamPurpose = "automation webhook"
)

// Secret is the encrypted secret of a row, with the previous one.
type Secret struct {
	Sealed   []byte // empty if the row has no secret
	Old      []byte // empty if there was no rotation
	OldUntil time.Time
}

// Replace makes a secret that [Sealer.New] returned the current one. The current secret becomes the previous one.
func (x *Secret) Replace(sealed []byte, now time.Time) {
	x.Old, x.OldUntil, x.Sealed = x.Sealed, now.Add(Overlap), sealed
}

// Sealer encrypts and decrypts the secrets of the rows of a table.
type Sealer struct {
	Keys    *keyring.Keyring
	Purpose string // a purpose of the keyring, which no other table has
}

// Columns returns the columns of a table with encrypted secrets, which must be named secret and old_secret.
func Columns(table, purpose string) []keyring.Column {
	return []keyring.Column{{Table: table, Name: "secret", Purpose: purpose},
		{Table: table, Name: "old_secret", Purpose: purpose}}
}

// New generates a secret for the row with an id, and returns it twice: in plain text for the user and encrypted for the
// database.
func (s Sealer) New(rowID string) (shown string, sealed []byte, err error) {
	key := make([]byte, size)
	rand.Read(key)
	if sealed, err = s.Seal(rowID, key); err != nil {
		return "", nil, err
	}
	return Encode(key), sealed, nil
}

// Seal encrypts a secret for the row with an id.
func (s Sealer) Seal(rowID string, key []byte) ([]byte, error) {
	sealed, err := s.Keys.Seal(s.Purpose, key, []byte(rowID))
	if err != nil {
		return nil, fmt.Errorf("seal a signing secret: %w", err)
	}
	return sealed, nil
}

// Show returns the current secret of the row with an id in plain text.
func (s Sealer) Show(rowID string, x *Secret) (string, error) {
	key, err := s.open(rowID, x.Sealed)
	if err != nil {
		return "", err
	}
	return Encode(key), nil
}

// Signing returns the keys that sign a request for the row with an id at a time: the current one, and during a rotation
// also the previous one.
func (s Sealer) Signing(rowID string, x *Secret, at time.Time) ([][]byte, error) {
	keys := make([][]byte, 1, 2)
	var err error
	if keys[0], err = s.open(rowID, x.Sealed); err != nil {
		return nil, err
	}
	if len(x.Old) > 0 && at.Before(x.OldUntil) {
		old, err := s.open(rowID, x.Old)
		if err != nil {
			return nil, err
		}
		keys = append(keys, old)
	}
	return keys, nil
}

func (s Sealer) open(rowID string, sealed []byte) ([]byte, error) {
	key, err := s.Keys.Open(s.Purpose, sealed, []byte(rowID))
	if err != nil {
		return nil, fmt.Errorf("open the signing secret of %s %s: %w", s.Purpose, rowID, err)
	}
	return key, nil
}

// Encode returns a secret in the format that libraries expect which verify signatures.
func Encode(key []byte) string { return prefix + base64.StdEncoding.EncodeToString(key) }

// TeamKeys returns the secret that all requests of a team's automations share, and then those of earlier master keys.
// It is derived from the master key.
func TeamKeys(k *keyring.Keyring, teamID string) [][]byte {
	return k.Tags(teamPurpose, []byte(teamID), size)
}
