package domains

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/platform/db"
)

// KeyState is the state of one of a domain's DKIM keys.
type KeyState string

const (
	KeyNext    KeyState = "next"    // its record must be published; it does not sign yet
	KeySigning KeyState = "signing" // it signs, except an Ed25519 key whose record is not published
	KeyRetired KeyState = "retired" // it signs no more; its record stays, because mail that it signed is still under way
	KeyRevoked KeyState = "revoked" // its record must say that it is invalid, or be absent
)

// These are the values of key.algorithm.
const (
	algorithmRSA     = "rsa-sha256"
	algorithmEd25519 = "ed25519-sha256"
)

// revokedRecord is the record of a revoked key (RFC 6376 section 3.6.1): it has an empty p= tag.
const revokedRecord = "v=DKIM1; p="

// key is a row of the table domain_keys: a key that does not sign.
type key struct {
	id, domainID, teamID string
	selector, algorithm  string
	state                KeyState
	sealed               []byte // the private key; its context is the id of the row
	record               string
	emergency            bool // the waiting times are short
	reused               bool // resolvers may still have the record of another key with the same selector
	createdAt            time.Time
	stateAt              time.Time // when the state began
	seenAt               time.Time // since when all servers show the next key; zero if they do not
	steppedAt            time.Time // last step of the rotation
	waited               time.Duration
	ttl                  time.Duration // how long resolvers keep the record or its absence; 0 if it is unknown
}

// PublishedKey is a DKIM record that the DNS must show for a domain, at the name Selector._domainkey.DOMAIN.
type PublishedKey struct{ Selector, Record string }

// published returns the record that the DNS must show for a key.
func (k *key) published() PublishedKey {
	if k.state == KeyRevoked {
		return PublishedKey{k.selector, revokedRecord}
	}
	return PublishedKey{k.selector, k.record}
}

// selectors returns the selectors of the domain's keys that sign.
func (c *Config) selectors(d *Domain) (rsa, ed25519 string) {
	return cmp.Or(d.rsa.selector, c.Selector), cmp.Or(d.ed25519.selector, c.SelectorEd25519)
}

// publishedKeys returns the DKIM records that the DNS must show now for some domains of any teams, by the id of the
// domain: first those of the keys that sign, RSA before Ed25519, and then those of all other keys. A name of a record
// may be outside the zones that this installation serves.
func (s *Service) publishedKeys(ctx context.Context, r db.Reader, domainIDs ...string) (map[string][]PublishedKey,
	error) {
	all, err := signingRecords(ctx, r, &s.c, domainIDs)
	if err != nil {
		return nil, fmt.Errorf("read the DKIM keys of domains: %w", err)
	}
	others, err := keysOfAll(ctx, r, domainIDs)
	if err != nil {
		return nil, fmt.Errorf("read the DKIM keys of rotations: %w", err)
	}
	for _, k := range others {
		all[k.domainID] = append(all[k.domainID], k.published())
	}
	return all, nil
}

// newKeys generates and encrypts the two DKIM keys of a new domain.
func (s *Service) newKeys(d *Domain) (err error) {
	if d.rsa, err = s.newKey(algorithmRSA, d.ID); err != nil {
		return err
	}
	d.ed25519, err = s.newKey(algorithmEd25519, d.ID)
	return err
}

// newKey generates a DKIM key and encrypts it for the row with the given id. If an RSA key is ready, newKey uses it.
func (s *Service) newKey(algorithm, rowID string) (row keyRow, err error) {
	generate := dkim.GenerateEd25519
	if algorithm == algorithmRSA {
		generate = s.takeRSA
	}
	k, err := generate()
	if err != nil {
		return row, fmt.Errorf("make a DKIM key (%s): %w", algorithm, err)
	}
	der, err := k.Marshal()
	if err != nil {
		return row, fmt.Errorf("encode a DKIM key: %w", err)
	}
	if row.sealed, err = s.Keys.Seal(sealPurpose, der, []byte(rowID)); err != nil {
		return row, fmt.Errorf("seal a DKIM key: %w", err)
	}
	row.record = k.Record()
	return row, nil
}

// takeRSA returns the RSA key that [Service.Run] has ready, or generates one.
func (s *Service) takeRSA() (*dkim.Key, error) {
	select {
	case k := <-s.ready:
		return k, nil
	default:
		return s.GenerateRSA()
	}
}
