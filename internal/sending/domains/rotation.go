package domains

import (
	"cmp"
	"crypto/rand"
	"slices"
	"time"
)

// Rotation of DKIM keys.
//
// A key that does not sign is a row of the table domain_keys. A rotation takes it through these states:
//
//	next ──seen by all servers, and two TTLs──► signing ──the next rotation──► retired ──► revoked ──► deleted
//
// The key that signs is in the table domains. [step] decides what happens next, and has no side effects.
//
// # Invariants
//
//   - A key signs only after a look-up has just found its record at the authoritative servers, and none of the look-ups
//     of the waiting time before missed it. The exception is a key whose record the set-up does not publish, because
//     no email is signed with it.
//   - The record of a key that signs, or has signed within the waiting time of retired keys, is published.
//   - Waiting times are sums of the intervals between steps. A step counts at most the planned interval, and waiting times
//     are longer than required by at least that interval. A clock that jumps forward once during a waiting time therefore
//     does not end it early. Clocks that jump back, and stopped nodes, lengthen it.
const (
	unknownTTL   = time.Hour          // TTL of records for which the servers report no TTL
	maxTTL       = 7 * 24 * time.Hour // resolvers keep no record longer
	retiredFor   = 7 * 24 * time.Hour
	afterRetries = 24 * time.Hour // how long retired keys stay after the end of the retry schedule, for mail under way
	revokedFor   = 30 * 24 * time.Hour
	// resigned is how long the record of a former key stays published in an emergency. Each attempt to deliver an email
	// signs it again. A node may sign with the former key for 30 seconds more, from its cache. An attempt lasts at most 30
	// minutes.
	resigned = time.Hour

	minInterval = 5 * time.Second
	maxInterval = 6 * time.Hour
	intervals   = 8  // planned steps in a waiting time, within the limits minInterval and maxInterval
	keysMax     = 20 // maximum number of keys per domain, not counting those that sign

	examineOften   = 24 * time.Hour // interval between examinations of a domain whose keys are old enough
	examineSeldom  = 7 * 24 * time.Hour
	selectorLength = 10
)

// cnameSelectors are the two selectors of a domain with the set-up SetupCNAME. Its rotations alternate between them.
var cnameSelectors = []string{selectorFirst, selectorSecond}

// sighting is the result of looking up the record of a key.
type sighting struct {
	finding finding // present if all servers show the record, absent if one shows that it is missing
	ttl     time.Duration
}

// required returns how long a key must be in its state at least, not counting the time until it is seen.
func (c *Config) required(k *key) time.Duration {
	switch ttl := ttlOf(k); {
	case k.state == KeyNext && !k.emergency:
		return 2 * ttl
	case k.state == KeyNext && k.reused:
		return ttl
	case k.state == KeyNext:
		return 0
	case k.state == KeyRetired && k.emergency:
		return resigned
	case k.state == KeyRetired:
		return max(retiredFor, c.retrySpan()+afterRetries)
	}
	return revokedFor
}

// need returns the waiting time of a key: the required time, and at least one interval for a clock that jumps.
func (c *Config) need(k *key) time.Duration {
	wait := c.required(k)
	if wait == 0 {
		return 0
	}
	return wait + max(wait/intervals, minInterval)
}

func (c *Config) retrySpan() time.Duration {
	if c.liveSpan == nil {
		return c.RetrySpan
	}
	return time.Duration(c.liveSpan.Load())
}

func ttlOf(k *key) time.Duration {
	if k.ttl == 0 {
		return unknownTTL
	}
	return min(k.ttl, maxTTL)
}

// interval returns the planned time between two steps of a key whose waiting time has begun.
func (c *Config) interval(k *key) time.Duration {
	return min(max(c.required(k)/intervals, minInterval), maxInterval)
}

// count adds the time since the last step to the waiting time.
func (c *Config) count(k *key, now time.Time) {
	k.waited += min(max(now.Sub(k.steppedAt), 0), c.interval(k))
}

// nextStep returns the delay until the next step of a key.
func (c *Config) nextStep(k *key, now time.Time) time.Duration {
	if k.state == KeyNext && k.seenAt.IsZero() {
		return unseenInterval(now.Sub(k.createdAt))
	}
	return min(c.interval(k), max(c.need(k)-k.waited, minInterval))
}

// unseenInterval returns the time between two look-ups of a record that has not been seen since age.
func unseenInterval(age time.Duration) time.Duration {
	switch {
	case age < 2*time.Minute:
		return minInterval
	case age < 10*time.Minute:
		return 30 * time.Second
	case age < time.Hour:
		return 2 * time.Minute
	case age < 24*time.Hour:
		return 10 * time.Minute
	case age < 7*24*time.Hour:
		return time.Hour
	}
	return maxInterval
}

// outcome is what a step of a rotation has decided.
type outcome struct {
	keys    []key // all keys that stay or change, except those in sign
	deleted []key
	sign    []key // next keys that sign from now on
}

// step returns what happens to the keys of a domain after look-ups of the records of its next keys.
func (c *Config) step(d *Domain, keys []key, seen map[string]sighting, now time.Time) (o outcome) {
	keys, deleted, moved := c.fitKeys(d, keys, now)
	o.deleted = deleted
	for _, k := range keys {
		switch s, asked := seen[k.id]; {
		case k.state == KeyNext && d.unpublished(k.algorithm):
			o.sign = append(o.sign, k) // It signs no email with this set-up.
			continue
		case k.state == KeyNext:
			if asked && !moved[k.id] && c.look(&k, s, now) {
				o.sign = append(o.sign, k)
				continue
			}
		default:
			c.count(&k, now)
			if k.waited < c.need(&k) {
				break
			}
			if k.state == KeyRevoked {
				o.deleted = append(o.deleted, k)
				continue
			}
			k.state, k.stateAt, k.waited = KeyRevoked, now, 0
		}
		k.steppedAt = now
		o.keys = append(o.keys, k)
	}
	return o
}

// fitKeys returns the keys that stay after the domain's set-up may have changed. Next keys that do not fit the set-up are
// deleted. In an emergency they must not be lost, because the keys in use would go on signing. They are moved to another
// selector then, and their waiting time begins again.
func (c *Config) fitKeys(d *Domain, keys []key, now time.Time) (kept, deleted []key, moved map[string]bool) {
	kept, moved = slices.Clone(keys), map[string]bool{}
	for _, k := range keys {
		fits := d.unpublished(k.algorithm) || d.fits(k.selector)
		switch {
		case k.state != KeyNext || fits && d.publishesNext():
			continue
		case !k.emergency:
			deleted = append(deleted, k)
			kept = slices.DeleteFunc(kept, func(other key) bool { return other.id == k.id })
			continue
		case fits:
			continue
		}
		selector := c.selector(d, keys, true)
		kept = slices.DeleteFunc(kept, func(other key) bool {
			if other.selector == selector {
				deleted = append(deleted, other)
			}
			return other.selector == selector
		})
		at := slices.IndexFunc(kept, func(other key) bool { return other.id == k.id })
		k.selector, k.reused = selector, slices.Contains(cnameSelectors, selector)
		k.createdAt, k.stateAt, k.seenAt, k.waited, k.ttl = now, now, time.Time{}, 0, 0
		kept[at], moved[k.id] = k, true
	}
	return kept, deleted, moved
}

// look applies a look-up to a next key, and reports whether the key may sign.
func (c *Config) look(k *key, s sighting, now time.Time) bool {
	k.ttl = max(k.ttl, s.ttl)
	switch {
	case s.finding == unknown:
		return false // The time since the last step does not count.
	case s.finding != present:
		k.seenAt, k.waited = time.Time{}, 0
		return false
	case k.seenAt.IsZero():
		k.seenAt, k.waited = now, 0
	default:
		c.count(k, now)
	}
	return k.waited >= c.need(k)
}

// rotates reports whether the keys of a domain are rotated without a request.
func (d *Domain) rotates() bool {
	return !d.Placeholder && d.TeamID != system && d.Sending && d.proved()
}

// publishesNext reports whether the domain's owner is asked for the records that make next keys visible. A domain that
// does not send is not asked for the second alias of the set-up SetupCNAME.
func (d *Domain) publishesNext() bool { return d.Sending || d.keySetup() != SetupCNAME }

// keySetup returns the set-up by which the records of the domain's keys are published.
func (d *Domain) keySetup() string { return cmp.Or(d.sendingSetup(), d.setup()) }

// signing returns the selectors with which the domain signs.
func (c *Config) signing(d *Domain) (rsa, ed25519 string) { return c.selectorsIn(d.keySetup(), d) }

// unpublished reports whether the domain's set-up publishes no keys of an algorithm, so that they sign no email.
func (d *Domain) unpublished(algorithm string) bool {
	return d.keySetup() == SetupCNAME && algorithm == algorithmEd25519
}

// fits reports whether the domain's set-up publishes keys with a selector.
func (d *Domain) fits(selector string) bool {
	alias := slices.Contains(cnameSelectors, selector)
	switch d.keySetup() {
	case SetupCNAME:
		return alias
	case SetupRecords:
		return !alias
	}
	return true
}

// period returns the age at which the keys of a domain are rotated without a request, or 0 for never. If the owner must
// install the record of each key, keys are rotated half as often.
func (c *Config) period(d *Domain) time.Duration {
	if d.keySetup() == SetupRecords {
		return 2 * c.Rotation
	}
	return c.Rotation
}

// rotationDue reports whether a rotation of the domain's keys begins without a request.
func (c *Config) rotationDue(d *Domain, keys []key, now time.Time) bool {
	if !d.rotates() || nextKey(keys, algorithmRSA) != nil || c.selector(d, keys, false) == "" {
		return false
	}
	period := c.period(d)
	return period > 0 && now.Sub(d.keysSince) >= period
}

// examineAt returns when it is next examined whether a rotation is due.
func (c *Config) examineAt(d *Domain, now time.Time) time.Time {
	period := c.period(d)
	if period == 0 {
		return now.Add(examineSeldom)
	}
	return now.Add(min(max(d.keysSince.Add(period).Sub(now), examineOften), examineSeldom))
}

// nextKey returns the key of an algorithm that will sign next, or nil.
func nextKey(keys []key, algorithm string) *key {
	i := slices.IndexFunc(keys, func(k key) bool { return k.state == KeyNext && k.algorithm == algorithm })
	if i < 0 {
		return nil
	}
	return &keys[i]
}

// algorithms returns the algorithms of the keys that a new rotation makes. Keys that do not sign, because their record
// is not published, are replaced only in an emergency: they would sign after a change of the set-up.
func (d *Domain) algorithms(keys []key, emergency bool) []string {
	all := []string{algorithmRSA}
	used := d.keySetup() == SetupDelegation || d.found("dkim-ed25519")
	if !d.Sending {
		return all
	}
	if emergency || used && !d.unpublished(algorithmEd25519) && nextKey(keys, algorithmEd25519) == nil {
		all = append(all, algorithmEd25519)
	}
	return all
}

// selector returns the selector of a new key, or "" if none is free. In an emergency, the keys that wait or are retired
// give theirs away.
func (c *Config) selector(d *Domain, keys []key, emergency bool) string {
	if d.keySetup() != SetupCNAME {
		return newSelector()
	}
	rsa, _ := c.signing(d)
	for _, s := range cnameSelectors {
		free := !slices.ContainsFunc(keys, func(k key) bool {
			return k.selector == s && k.state != KeyRevoked && !emergency
		})
		if s != rsa && free {
			return s
		}
	}
	return ""
}

// newSelector returns a random selector without a meaning. It begins with a letter.
func newSelector() string {
	const letters = "abcdefghjkmnpqrstuvwxyz" // without i, l and o, which look like digits
	const all = letters + "23456789"
	b := make([]byte, selectorLength)
	rand.Read(b)
	for i, x := range b {
		if i == 0 {
			b[i] = letters[int(x)%len(letters)]
			continue
		}
		b[i] = all[int(x)%len(all)]
	}
	return string(b)
}

// retire adds a key that has signed to the keys of a domain. It returns the ones that it replaces: if the set-up was
// changed, a key of an earlier rotation may have the same selector, and its record is not published any more.
func retire(keys []key, old key) (kept, replaced []key) {
	for _, k := range keys {
		if k.selector == old.selector {
			replaced = append(replaced, k)
		} else {
			kept = append(kept, k)
		}
	}
	return append(kept, old), replaced
}

// begin adds the keys of a new rotation to those of a domain. It returns the keys that they replace: in an emergency
// those that wait, because they may be known to others too, and the one that had the selector before. An emergency also
// replaces the oldest revoked keys if there are too many: a record that is absent is as invalid as one that says so.
func (c *Config) begin(d *Domain, keys, made []key, emergency bool, now time.Time) (added, kept, replaced []key) {
	kept = slices.Clone(keys)
	for _, k := range made {
		k.domainID, k.teamID, k.state, k.emergency = d.ID, d.TeamID, KeyNext, emergency
		k.createdAt, k.stateAt, k.steppedAt = now, now, now
		if k.selector = c.selector(d, kept, emergency); d.unpublished(k.algorithm) {
			k.selector = newSelector()
		}
		kept = slices.DeleteFunc(kept, func(old key) bool {
			same := old.selector == k.selector
			gone := same || old.state == KeyNext && old.algorithm == k.algorithm
			if k.reused = k.reused || same; gone {
				replaced = append(replaced, old)
			}
			return gone
		})
		added = append(added, k)
	}
	excess := len(kept) + len(added) - keysMax
	kept = slices.DeleteFunc(kept, func(old key) bool {
		gone := emergency && excess > 0 && old.state == KeyRevoked
		if gone {
			excess--
			replaced = append(replaced, old)
		}
		return gone
	})
	for i := range kept {
		if k := &kept[i]; emergency && k.state == KeyRetired && !k.emergency {
			// One step of the longer waiting time may have counted six hours, because the clock jumped, which is more
			// than the shorter waiting time. It begins again.
			k.emergency, k.waited, k.steppedAt = true, 0, now
		}
	}
	return added, kept, replaced
}
