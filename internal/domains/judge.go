package domains

import (
	"maps"
	"slices"
	"time"
)

// finding is what DNS said of a record.
type finding int

const (
	unknown finding = iota // no answer could be had
	present
	absent
	needless // there is nothing to install
)

// judge returns the domain as the findings make it. It is pure: the same findings at the same time give the same.
func judge(d Domain, found map[string]finding, now time.Time) Domain {
	d.checks = maps.Clone(d.checks)
	if d.checks == nil {
		d.checks = map[string]check{}
	}
	for key, f := range found {
		if f == needless {
			delete(d.checks, key)
			continue
		}
		d.checks[key] = next(d.checks[key], f, d.VerifySince, now)
	}
	if f, asked := found[proof]; asked {
		d.excuse(f, now)
	}
	d.Status = d.overall()
	d.CheckedAt = now
	return d
}

// excuse counts how long the domain has received without its proof. Here no answer counts as none, so that this has an
// end.
func (d *Domain) excuse(f finding, now time.Time) {
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

// next is one record's step. A record that was never looked for has 72 hours from now on, whenever the others had
// theirs; began is when those of records began that were entered before each had its own.
func next(c check, f finding, began, now time.Time) check {
	switch {
	case f == present:
		return check{Status: Verified}
	case c.Status == "":
		return check{Pending, now.UnixMicro()}
	case f == unknown, c.Status == Failed:
		return c
	case c.Status == Verified:
		return check{TemporaryFailure, now.UnixMicro()}
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

// restart is the domain when its owner asks to verify it: what is not verified is looked for anew.
func restart(d Domain, records []Record, now time.Time) Domain {
	d.checks = maps.Clone(d.checks)
	if d.checks == nil {
		d.checks = map[string]check{}
	}
	for _, r := range records {
		if c := d.checks[r.Key]; c.Status != Verified && c.Status != TemporaryFailure {
			d.checks[r.Key] = check{Pending, now.UnixMicro()}
		}
	}
	d.VerifySince = now
	d.Status = d.overall()
	return d
}

// prune forgets records that the domain no longer needs, given those that it does: when they are needed again, they are
// looked for as new ones.
func (d *Domain) prune(records []Record) {
	d.checks = maps.Clone(d.checks)
	maps.DeleteFunc(d.checks, func(key string, _ check) bool {
		if key == unproved {
			return !d.Receiving
		}
		return !slices.ContainsFunc(records, func(r Record) bool { return r.Key == key })
	})
}

// recheckAfter is when a domain is looked at again: often while its owner waits, less so later.
func recheckAfter(d *Domain, now time.Time) time.Duration {
	began := d.VerifySince
	for _, c := range d.checks {
		if at := time.UnixMicro(c.Since); c.Status == Pending && c.Since != 0 && at.After(began) {
			began = at
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

// waiting reports whether a record of the domain is still looked for.
func (d *Domain) waiting() bool {
	for _, c := range d.checks {
		if c.Status == Pending {
			return true
		}
	}
	return false
}
