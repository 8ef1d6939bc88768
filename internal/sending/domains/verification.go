package domains

import (
	"maps"
	"slices"
	"time"
)

// finding is the result of a look-up of a DNS record.
type finding int

const (
	unknown finding = iota // no name server answered
	present
	absent
	needless // the record is not needed
)

// judge applies findings to a domain and returns the changed domain. The function judge has no side effects.
func judge(d Domain, found map[string]finding, now time.Time) Domain {
	d.checks = maps.Clone(d.checks)
	if d.checks == nil {
		d.checks = map[string]check{}
	}
	d.rememberTracking() // in rows from older releases, Tracked may lack the current subdomain
	for key, f := range found {
		if f == needless {
			delete(d.checks, key)
			continue
		}
		d.checks[key] = next(d.checks[key], f, d.VerifySince, now)
	}
	d.rememberTracking()
	if f, asked := found[proof]; asked {
		d.updateReceivingGrace(f, now)
	}
	d.awaitServers(found, now)
	d.endFormerSetup()
	d.Status = d.overall()
	d.CheckedAt = now
	return d
}

// awaitServers sets a failed delegation to pending if it is found again, so that the name servers are asked again.
func (d *Domain) awaitServers(found map[string]finding, now time.Time) {
	if found[delegationSeen] == present && found[delegated] == unknown && d.checks[delegated].Status == Failed {
		d.checks[delegated] = check{Status: Pending, Since: now.UnixMicro()}
	}
}

// updateReceivingGrace updates the check unproved, which allows the domain to receive mail without the proof. If the
// look-up got no answer, the record counts as missing; otherwise the grace period might never end.
func (d *Domain) updateReceivingGrace(f finding, now time.Time) {
	c, ok := d.checks[unproved]
	if !ok {
		return
	}
	if c = next(c, absent, now, now); f == present || c.Status != TemporaryFailure {
		delete(d.checks, unproved)
		return
	}
	d.checks[unproved] = c
}

// next returns the next state of a record. If a record has never been looked up, its 72 hours start now. For pending
// records from older releases, which have no stored start time, the parameter began is used as the start time.
func next(c check, f finding, began, now time.Time) check {
	switch {
	case f == present:
		return check{Status: Verified}
	case c.Status == "":
		return check{Status: Pending, Since: now.UnixMicro()}
	case f == unknown, c.Status == Failed:
		return c
	case c.Status == Verified:
		return check{Status: TemporaryFailure, Since: now.UnixMicro()}
	}
	if c.Since == 0 && c.Status == Pending && !began.IsZero() {
		c.Since = began.UnixMicro()
	}
	if c.Since == 0 {
		c.Since = now.UnixMicro()
	}
	if now.Sub(time.UnixMicro(c.Since)) > patience {
		return check{Status: Failed}
	}
	return c
}

// restart returns the domain as it is after a verification request. All records that are not verified become pending.
func restart(d Domain, records []Record, now time.Time) Domain {
	d.checks = maps.Clone(d.checks)
	if d.checks == nil {
		d.checks = map[string]check{}
	}
	for _, r := range records {
		if c := d.checks[r.Key]; c.Status != Verified && c.Status != TemporaryFailure {
			c.Status, c.Since = Pending, now.UnixMicro()
			d.checks[r.Key] = c
		}
	}
	d.VerifySince = now
	d.Status = d.overall()
	return d
}

// prune deletes the checks of records that the domain no longer needs. The parameter records lists the records that the
// domain still needs. If a deleted check is needed again, its record starts as not_started.
func (d *Domain) prune(records []Record) {
	d.checks = maps.Clone(d.checks)
	maps.DeleteFunc(d.checks, func(key string, _ check) bool {
		switch key {
		case unproved:
			return !d.Receiving
		case delegationSeen:
			return !d.uses(SetupDelegation)
		}
		return !slices.ContainsFunc(records, func(r Record) bool { return r.Key == key })
	})
}

// recheckAfter returns the delay until the domain's next look-up. The delay is short at first, because the owner is
// probably waiting, and grows over time.
func recheckAfter(d *Domain, now time.Time) time.Duration {
	began := d.VerifySince
	for _, c := range d.checks {
		if at := time.UnixMicro(c.Since); c.Status == Pending && c.Since != 0 && at.After(began) {
			began = at
		}
	}
	if at := d.checks[delegationSeen].Changed; d.awaitsServers() && at != 0 {
		if age := now.Sub(time.UnixMicro(at)); age < serversSoon {
			return serversEvery
		} else if age < serversSlow {
			return min(age, time.Minute)
		}
	}
	switch age := now.Sub(began); {
	case age < 2*time.Minute:
		return 10 * time.Second
	case age < 10*time.Minute:
		return 30 * time.Second
	case age < time.Hour:
		return 2 * time.Minute
	case age < 6*time.Hour:
		return 10 * time.Minute
	}
	return 30 * time.Minute
}

// LooksAgainAfter returns the approximate delay until the domain's records are looked up again, if nobody asks for it.
func (d *Domain) LooksAgainAfter(now time.Time) time.Duration {
	if d.hasPending() {
		return recheckAfter(d, now)
	}
	for _, c := range d.checks {
		if c.Status == TemporaryFailure {
			return missingEvery
		}
	}
	return recheckEvery
}

// hasPending reports whether any of the domain's records is pending.
func (d *Domain) hasPending() bool {
	for _, c := range d.checks {
		if c.Status == Pending {
			return true
		}
	}
	return false
}
