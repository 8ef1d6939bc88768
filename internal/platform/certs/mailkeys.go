package certs

import (
	"context"
	"crypto"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"time"

	"github.com/caddyserver/certmagic"
	"github.com/go-json-experiment/json"

	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/mail/dane"
)

// TLSA records (DANE, RFC 7672) name the key of a mail host. A certificate from the authority is therefore renewed with
// the same key. The next key is created in advance and stored encrypted in the database, so that its record can be
// published before the key is used. An operator starts a change of the key. A node completes the change after the
// record of the next key was published for two TTLs (RFC 7671 section 8.1).

const (
	mailKeysPath = "mailkeys"
	// hintTopic is the topic of hints that the stored certificate of a host was replaced. The payload is the host.
	hintTopic = "certificates"

	// DefaultTTL is the TTL of TLSA records that ChangeKey assumes if the operator gives none.
	DefaultTTL = 24 * time.Hour
	maxTTL     = 7 * 24 * time.Hour
)

// Published holds the result of looking up the TLSA records of a mail host.
type Published struct {
	Records []dane.Record
	TTL     time.Duration // remaining lifetime of the records; 0 if it is unknown
	// Useless means that senders ignore records of this host, because its zone is not signed (DNSSEC). They may still
	// obey records that they have cached from a time when it was.
	Useless bool
}

// MailKey describes the key of a mail host.
type MailKey struct {
	Host   string
	Source string // FromFiles or FromACME; "" if the host has no certificate that covers it
	// InUse is the TLSA record of the key that SMTP clients see. Chain is the certificate with its chain. Both are
	// empty without a certificate.
	InUse dane.Record
	Chain []*x509.Certificate
	// Next is the TLSA record of the next key. It is empty before a node has created the key. It is also empty for a
	// certificate from files, because the operator creates that key.
	Next dane.Record
	// ChangeAsked is when an operator started the change of the key; zero if no change was started.
	ChangeAsked time.Time
	TTL         time.Duration // TTL of the TLSA records
	// UseAfter is when the next key may be used; zero if its record was not seen yet.
	UseAfter time.Time
}

// nextKey is the stored form of a next key.
type nextKey struct {
	Key         string    `json:"key"` // PEM
	ChangeAsked time.Time `json:"change_asked,omitzero"`
	TTL         int64     `json:"ttl,omitzero"`        // seconds
	SeenSince   time.Time `json:"seen_since,omitzero"` // since when every look-up has found its record
	// AbsentSince is since when every look-up has found no records, or useless ones.
	AbsentSince time.Time `json:"absent_since,omitzero"`
}

func (k *nextKey) ttl() time.Duration { return time.Duration(k.TTL) * time.Second }

// record returns the TLSA record of the key.
func (k *nextKey) record() (dane.Record, error) {
	key, err := certmagic.PEMDecodePrivateKey([]byte(k.Key))
	if err != nil {
		return dane.Record{}, fmt.Errorf("read a next key: %w", err)
	}
	return dane.For(key.Public())
}

// fixedKey is a certmagic.KeyGenerator that returns a given key.
type fixedKey struct{ key crypto.PrivateKey }

// GenerateKey implements certmagic.KeyGenerator.
func (k fixedKey) GenerateKey() (crypto.PrivateKey, error) { return k.key, nil }

// keepsKey reports whether renewals of a host's certificate keep the key.
func (m *Manager) keepsKey(host string) bool {
	return m.isOwn(host) && slices.Contains(m.o.Mail, host)
}

// configOf returns the library's configuration for a host of the installation.
func (m *Manager) configOf(host string) *certmagic.Config {
	if m.keepsKey(host) {
		return m.mail
	}
	return m.own
}

// mailNames returns the hosts of SMTP listeners for which an authority can issue a certificate.
func (m *Manager) mailNames() []string { return certifiable(m.o.Mail) }

func nextKeyPath(host string) string {
	return path.Join(mailKeysPath, certmagic.StorageKeys.Safe(host))
}

// loadNext returns the next key of a host, or nil if there is none.
func (m *Manager) loadNext(ctx context.Context, host string) (*nextKey, error) {
	text, err := m.storage.Load(ctx, nextKeyPath(host))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the next key of %s: %w", host, err)
	}
	k := &nextKey{}
	if err := json.Unmarshal(text, k); err != nil {
		return nil, fmt.Errorf("decode the next key of %s: %w", host, err)
	}
	return k, nil
}

func (m *Manager) storeNext(ctx context.Context, host string, k *nextKey) error {
	text, err := json.Marshal(k)
	if err != nil {
		return fmt.Errorf("encode the next key of %s: %w", host, err)
	}
	return m.storage.Store(ctx, nextKeyPath(host), text)
}

// newNext creates and stores the next key of a host.
func (m *Manager) newNext(ctx context.Context, host string) (*nextKey, error) {
	key, err := certmagic.StandardKeyGenerator{KeyType: certmagic.P256}.GenerateKey()
	if err != nil {
		return nil, fmt.Errorf("make the next key of %s: %w", host, err)
	}
	text, err := certmagic.PEMEncodePrivateKey(key)
	if err != nil {
		return nil, fmt.Errorf("encode the next key of %s: %w", host, err)
	}
	k := &nextKey{Key: string(text)}
	return k, m.storeNext(ctx, host, k)
}

// changeNext calls f with the next key of a host while it holds the host's lock. If there is no next key, changeNext
// creates it first.
func (m *Manager) changeNext(ctx context.Context, host string, f func(k *nextKey) error) error {
	lock := "next key " + host
	if err := m.storage.Lock(ctx, lock); err != nil {
		return err
	}
	defer func() {
		if err := m.storage.Unlock(context.WithoutCancel(ctx), lock); err != nil {
			m.o.Log.Warn("a lock was not released; it ends by itself", "name", lock, "error", err)
		}
	}()
	k, err := m.loadNext(ctx, host)
	if err != nil {
		return err
	}
	if k == nil {
		if k, err = m.newNext(ctx, host); err != nil {
			return err
		}
	}
	return f(k)
}

// MailKeys lists the keys of the installation's mail hosts. It only reads.
func (m *Manager) MailKeys(ctx context.Context) (all []MailKey, err error) {
	for _, host := range m.mailNames() {
		k := MailKey{Host: host}
		if m.fromFiles(host) != nil {
			k.Source = FromFiles
		} else if m.acme != nil {
			k.Source = FromACME
		}
		if k.Source != "" {
			if k.Chain, err = m.mailChain(ctx, host); err == nil {
				k.InUse, err = dane.For(k.Chain[0].PublicKey)
			} else if _, ok := errors.AsType[missingError](err); ok {
				err = nil
			}
			if err != nil {
				return nil, err
			}
		}
		if k.Source == FromACME {
			if err := m.addNext(ctx, &k); err != nil {
				return nil, err
			}
		}
		all = append(all, k)
	}
	return all, nil
}

// addNext adds the next key of a host to k, if there is one. A node creates a missing next key within a minute.
func (m *Manager) addNext(ctx context.Context, k *MailKey) error {
	n, err := m.loadNext(ctx, k.Host)
	if err != nil || n == nil {
		return err
	}
	k.Next, err = n.record()
	k.ChangeAsked, k.TTL = n.ChangeAsked, n.ttl()
	if !n.SeenSince.IsZero() {
		k.UseAfter = n.SeenSince.Add(2 * k.TTL)
	} else if !n.AbsentSince.IsZero() {
		k.UseAfter = n.AbsentSince.Add(k.TTL)
	}
	return err
}

// ChangeKey starts the change of a mail host's key. A node uses the next key after its TLSA record was published for
// two of its lifetimes. If the host has no records, or its zone is not signed, it waits for one lifetime, in which
// senders may know earlier records. The lifetime is the longest one that was seen in the DNS, and at least ttl; 0 means
// DefaultTTL.
func (m *Manager) ChangeKey(ctx context.Context, host string, ttl time.Duration) error {
	if err := m.checkChange(host); err != nil {
		return err
	}
	if ttl == 0 {
		ttl = DefaultTTL
	}
	if ttl < time.Second || ttl > maxTTL {
		return fault.Invalidf("ttl", "The lifetime of the records must be 1s to %s.", maxTTL)
	}
	return m.changeNext(ctx, host, func(k *nextKey) error {
		if k.ChangeAsked.IsZero() {
			k.ChangeAsked = m.o.DB.Now()
		}
		k.TTL, k.SeenSince, k.AbsentSince = int64(ttl/time.Second), time.Time{}, time.Time{}
		return m.storeNext(ctx, host, k)
	})
}

// CancelKeyChange ends the change of a mail host's key, unless the next key is in use already. The next key stays the
// same.
func (m *Manager) CancelKeyChange(ctx context.Context, host string) error {
	if err := m.checkChange(host); err != nil {
		return err
	}
	return m.changeNext(ctx, host, func(k *nextKey) error {
		if k.ChangeAsked.IsZero() {
			return fault.Invalidf("host", "No change of the key of %s was started.", host)
		}
		k.ChangeAsked, k.SeenSince, k.AbsentSince = time.Time{}, time.Time{}, time.Time{}
		return m.storeNext(ctx, host, k)
	})
}

// checkChange returns a fault unless Postrider manages the key of a mail host.
func (m *Manager) checkChange(host string) error {
	switch {
	case !slices.Contains(m.mailNames(), host):
		return fault.Invalidf("host", "%.100q is not a mail host of this installation.", host)
	case m.fromFiles(host) != nil:
		return fault.Invalidf("host", "The key of %s is in tls_key_file. Publish the TLSA record of the new key "+
			"before you replace the files.", host)
	case m.acme == nil:
		return fault.Invalidf("host", "%s has no certificate from an authority: set acme.", host)
	}
	return nil
}

// manageKeys creates missing next keys, and continues changes of keys. It logs errors; the next call follows a minute
// later.
func (m *Manager) manageKeys(ctx context.Context) {
	for _, host := range m.mailNames() {
		if m.fromFiles(host) != nil {
			continue
		}
		if err := m.manageKey(ctx, host); err != nil && ctx.Err() == nil {
			m.o.Log.Error("the key of a mail host could not be managed; the next attempt follows in a minute", "host", host,
				"error", err)
		}
	}
}

func (m *Manager) manageKey(ctx context.Context, host string) error {
	k, err := m.loadNext(ctx, host)
	if err != nil || k != nil && k.ChangeAsked.IsZero() {
		return err
	}
	return m.changeNext(ctx, host, func(k *nextKey) error {
		if k.ChangeAsked.IsZero() {
			return nil
		}
		ready, err := m.isPublished(ctx, host, k)
		if err != nil || !ready {
			return err
		}
		return m.useNext(ctx, host, k)
	})
}

// isPublished reports whether the next key of a host may be used. It stores since when its record is published.
func (m *Manager) isPublished(ctx context.Context, host string, k *nextKey) (bool, error) {
	if m.o.Published == nil {
		return true, nil
	}
	p, err := m.o.Published(ctx, host)
	if err != nil {
		return false, fmt.Errorf("look up the TLSA records of %s: %w", host, err)
	}
	next, err := k.record()
	if err != nil {
		return false, err
	}
	now, before := m.o.DB.Now(), *k
	k.observe(p, next, now)
	switch {
	case *k != before:
		if before.SeenSince.IsZero() && !k.SeenSince.IsZero() {
			m.o.Log.Info("the TLSA record of the next key is published", "host", host, "used_after", now.Add(2*k.ttl()))
		}
		return false, m.storeNext(ctx, host, k)
	case !k.SeenSince.IsZero():
		return now.Sub(k.SeenSince) >= 2*k.ttl(), nil
	case !k.AbsentSince.IsZero():
		return now.Sub(k.AbsentSince) >= k.ttl(), nil
	}
	return false, nil
}

// observe notes what a look-up found about the record of the key, which is next. A DNS cache tells the remaining lifetime
// of the records, so that the longest one counts.
func (k *nextKey) observe(p Published, next dane.Record, now time.Time) {
	k.TTL = max(k.TTL, int64(min(p.TTL, maxTTL)/time.Second))
	found := slices.ContainsFunc(p.Records, func(r dane.Record) bool { return r.String() == next.String() })
	since := func(is bool, at *time.Time) {
		if !is {
			*at = time.Time{}
		} else if at.IsZero() {
			*at = now
		}
	}
	since(found && !p.Useless, &k.SeenSince)
	since(len(p.Records) == 0 || p.Useless, &k.AbsentSince)
}

// useNext requests a certificate with the next key, and creates another next key. If a node was killed after the
// request, the certificate in the database already has the next key, and useNext makes no second request.
func (m *Manager) useNext(ctx context.Context, host string, k *nextKey) error {
	next, err := k.record()
	if err != nil {
		return err
	}
	if !m.uses(ctx, host, next) {
		key, err := certmagic.PEMDecodePrivateKey([]byte(k.Key))
		if err != nil {
			return fmt.Errorf("read the next key of %s: %w", host, err)
		}
		within, cancel := context.WithTimeout(ctx, requestLimit)
		defer cancel()
		c := *m.mail
		c.ReusePrivateKeys, c.KeySource = false, fixedKey{key}
		if err := certmagic.New(m.ownCache, c).RenewCertSync(within, host, true); err != nil {
			return fmt.Errorf("request a certificate with the next key of %s: %w", host, err)
		}
	}
	if !m.uses(ctx, host, next) {
		return fmt.Errorf("the new certificate of %s does not have the next key", host)
	}
	m.o.Log.Info("a mail host has its next key; remove the TLSA record of the former key", "host", host)
	if _, err := m.newNext(ctx, host); err != nil {
		return err
	}
	m.o.DB.Hint(hintTopic, host)
	return nil
}

// uses reports whether the key of a host's stored certificate matches a TLSA record.
func (m *Manager) uses(ctx context.Context, host string, key dane.Record) bool {
	chain, err := m.mailChain(ctx, host)
	if err != nil {
		return false
	}
	r, err := dane.For(chain[0].PublicKey)
	return err == nil && r.String() == key.String()
}

// reloadStored replaces certificates in memory that differ from the stored ones. They differ after another node, or a
// change of the key, has stored a new certificate.
func (m *Manager) reloadStored(ctx context.Context) {
	for _, host := range m.mailNames() {
		old := m.ownCache.AllMatchingCertificates(host)
		if len(old) == 0 || m.fromFiles(host) != nil {
			continue
		}
		chain, err := m.mailChain(ctx, host)
		if err != nil || slices.ContainsFunc(old, func(c certmagic.Certificate) bool { return c.Leaf.Equal(chain[0]) }) {
			continue
		}
		loaded, err := m.mail.CacheManagedCertificate(ctx, host)
		if err != nil {
			m.o.Log.Warn("the new certificate of a mail host could not be loaded", "host", host, "error", err)
			continue
		}
		var hashes []string
		for _, c := range old {
			if c.Hash() != loaded.Hash() {
				hashes = append(hashes, c.Hash())
			}
		}
		m.ownCache.Remove(hashes)
	}
}
