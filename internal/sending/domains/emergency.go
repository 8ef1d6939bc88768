package domains

import (
	"slices"
	"time"

	"github.com/postrider/postrider/internal/lib/fault"
)

// mayRepeat returns a fault if the domain's last emergency rotation is so recent that another one cannot begin. The new
// keys must first sign, and then for the TTL of their records. A pause of at most an hour is enough, because the former
// keys are revoked afterwards. So a second leak never waits longer than the first emergency takes.
//
// An Ed25519 key that waits is ignored: the owner of a domain with single records may never publish its record.
func (c *Config) mayRepeat(d *Domain, keys []key, now time.Time) error {
	if k := nextKey(keys, algorithmRSA); k != nil && k.emergency {
		wait := "The record of the new key with the selector %s has not been found yet."
		if !k.seenAt.IsZero() {
			wait = "The record of the new key with the selector %s was found, but resolvers may still have a former one."
		}
		return fault.New(fault.Locked, "", "An emergency rotation of the DKIM keys of %s is under way. "+wait+" Another one "+
			"can begin after the new key has signed for the TTL of its record, or for an hour if that is shorter. The keys of "+
			"the domain show the record.", d.Name, k.selector)
	}
	until := afterEmergency(d, keys)
	if since := now.Sub(d.keysSince); since < 0 || !now.Before(until) { // the clock may have been set back
		return nil
	}
	return fault.New(fault.Locked, "", "The DKIM keys of %s were replaced in an emergency just now, and the former ones "+
		"are revoked soon. Another emergency rotation can begin on %s.", d.Name, day(until.Add(time.Minute-1)))
}

// afterEmergency returns when the pause after an emergency rotation ends, or the zero time if the last rotation of the
// domain's RSA key was an ordinary one. An emergency turns the former keys of ordinary rotations into its own, so the
// time of the change tells whether the key was retired by an emergency.
func afterEmergency(d *Domain, keys []key) time.Time {
	i := slices.IndexFunc(keys, func(k key) bool {
		return k.state == KeyRetired && k.emergency && k.algorithm == algorithmRSA && k.stateAt.Equal(d.keysSince)
	})
	if i < 0 {
		return time.Time{}
	}
	return d.keysSince.Add(min(ttlOf(&keys[i]), resigned))
}
