package domains

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/platform/db"
)

// KeyState is the state of one of a domain's DKIM keys.
type KeyState string

const (
	KeyNext    KeyState = "next"    // its record must be published; it does not sign yet
	KeySigning KeyState = "signing" // it signs, except an Ed25519 key whose record is not published
	KeyRetired KeyState = "retired" // it no longer signs; its record stays for mail that is under way
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
	// ttl is how long resolvers keep the record or its absence; 0 if it is unknown. That of a retired key is the one of
	// the key that replaced it.
	ttl time.Duration
}

// remindAfter is the time after which the owner of a domain is reminded of the record of a next key.
const remindAfter = 7 * 24 * time.Hour

// overdue reports whether the key is a next key whose record was not found for remindAfter.
func (k *key) overdue(now time.Time) bool {
	return k.state == KeyNext && k.seenAt.IsZero() && now.Sub(k.createdAt) >= remindAfter
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

// restricted returns a DKIM record with tags for zones that only this installation fills (RFC 6376 section 3.6.1). With
// t=s, signatures cannot name a subdomain as their identity. With s=, the key is valid for emails and TLS reports (RFC
// 8460 section 3) and not for other services. Records of revoked keys stay as they are.
func restricted(record string) string {
	before, key, ok := strings.Cut(record, "p=")
	if !ok || key == "" {
		return record
	}
	return before + "s=email:tlsrpt; t=s; p=" + key
}

// selectors returns the selectors of the domain's keys that sign.
func (c *Config) selectors(d *Domain) (rsa, ed25519 string) {
	return cmp.Or(d.rsa.selector, c.Selector), cmp.Or(d.ed25519.selector, c.SelectorEd25519)
}

// publishedKeys returns the DKIM records that the DNS must show now for domains of any team, by the id of the domain.
// The records of signing keys come first, RSA before Ed25519. Names of records may be outside the zones that this
// installation serves.
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

// Key is one of a domain's DKIM keys, without its private part.
type Key struct {
	Selector  string
	Algorithm string // rsa-sha256 or ed25519-sha256
	State     KeyState
	Name      string // of the TXT record that the DNS must show
	Value     string
	Emergency bool      // it belongs to an emergency rotation
	Since     time.Time // when the state began; zero if that is unknown
	SeenAt    time.Time // for a next key, since when all servers show its record; zero if they do not
	Until     time.Time // about when the state ends if nothing is missing; zero if that is unknown
	Advice    string    // what the domain's owner has to do; "" if it is nothing
}

// DKIMKeys returns the DKIM keys of a domain: first those that sign, and then those of rotations, oldest first.
func (s *Service) DKIMKeys(ctx context.Context, d *Domain) ([]Key, error) {
	keys, err := keysOf(ctx, s.DB.Reader, d.TeamID, d.ID)
	if err != nil {
		return nil, err
	}
	return s.describeKeys(d, keys, s.DB.Now()), nil
}

// Selectors returns the selectors with which a domain's emails are or were signed: those of its signing keys and of former
// ones, and those with which every domain begins.
func (s *Service) Selectors(ctx context.Context, d *Domain) ([]string, error) {
	all := []string{s.c.Selector, s.c.SelectorEd25519}
	keys, err := s.DKIMKeys(ctx, d)
	for i := range keys {
		if keys[i].State != KeyNext {
			all = append(all, keys[i].Selector)
		}
	}
	return all, err
}

func (s *Service) describeKeys(d *Domain, keys []key, now time.Time) []Key {
	name := func(selector string) string { return selector + "._domainkey." + d.Name }
	rsa, ed25519 := s.c.signing(d)
	all := []Key{{Selector: rsa, Algorithm: algorithmRSA, State: KeySigning, Name: name(rsa), Value: d.rsa.record,
		Since: d.keysSince}}
	if d.Sending && d.keySetup() != SetupCNAME {
		all = append(all, Key{Selector: ed25519, Algorithm: algorithmEd25519, State: KeySigning, Name: name(ed25519),
			Value: d.ed25519.record})
	}
	for i := range keys {
		k := &keys[i]
		if k.state == KeyNext && d.unpublished(k.algorithm) {
			continue // It replaces a key that signs no email, and no record will show it.
		}
		one := Key{Selector: k.selector, Algorithm: k.algorithm, State: k.state, Name: name(k.selector),
			Value: k.published().Record, Emergency: k.emergency, Since: k.stateAt, SeenAt: k.seenAt}
		if k.state != KeyNext || !k.seenAt.IsZero() {
			one.Until = now.Add(max(s.c.need(k)-k.waited, 0))
		}
		if one.Advice = d.advice(&one); one.Advice != "" && k.overdue(now) {
			one.Advice = fmt.Sprintf("This record has not been found for %d days. ", now.Sub(k.createdAt)/(24*time.Hour)) +
				one.Advice
		}
		all = append(all, one)
	}
	return all
}

// PublishesKeys reports whether the domain's owner publishes the records of its keys.
func (d *Domain) PublishesKeys() bool { return d.keySetup() == SetupRecords }

// advice says what the owner of the domain has to do for a key, or "" if it is nothing. With the set-up SetupCNAME, the
// owner still has records of former keys.
func (d *Domain) advice(k *Key) string {
	former := d.keySetup() == SetupCNAME && k.State != KeyNext && !slices.Contains(cnameSelectors, k.Selector)
	switch {
	case !d.PublishesKeys() && !former:
		return ""
	case k.State == KeyNext && k.SeenAt.IsZero() && k.Emergency:
		return "Add this record at your DNS provider now. Emails are signed with the new key as soon as the record is seen. " +
			"Keep the records of the other keys until they are revoked, an hour later."
	case k.State == KeyNext && k.SeenAt.IsZero():
		return "Add this record at your DNS provider. Emails are signed with the new key some time after the record is seen. " +
			"Keep the records of the other keys."
	case k.State == KeyNext:
		return "The record is found. Keep it. Emails are signed with the new key when no name server can have the answer from " +
			"before."
	case k.State == KeyRetired:
		return "Keep this record until the key is revoked, because emails that it signed are still on their way."
	case k.State == KeyRevoked:
		return "Delete this record, or replace its value with this one, which says that the key is invalid."
	}
	return ""
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
