package domains

import (
	"maps"
	"time"
)

// finding is what DNS said of a record.
type finding int

const (
	unknown finding = iota // no answer could be had
	present
	absent
)

// judge returns the domain as the findings make it. It is pure: the same findings at the same time give the same.
func judge(d Domain, found map[string]finding, now time.Time) Domain {
	d.checks = maps.Clone(d.checks)
	if d.checks == nil {
		d.checks = map[string]check{}
	}
	for key, f := range found {
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

// next is one record's step.
func next(c check, f finding, since, now time.Time) check {
	switch f {
	case present:
		return check{Status: Verified}
	case unknown:
		if c.Status == "" {
			return check{Status: Pending}
		}
		return c
	}
	switch c.Status {
	case Verified:
		return check{TemporaryFailure, now.UnixMicro()}
	case TemporaryFailure:
		if c.Since == 0 {
			return check{TemporaryFailure, now.UnixMicro()}
		}
		if now.Sub(time.UnixMicro(c.Since)) > patience {
			return check{Status: Failed}
		}
		return c
	case Failed:
		return c
	}
	if !since.IsZero() && now.Sub(since) > patience {
		return check{Status: Failed}
	}
	return check{Status: Pending}
}

// restart is the domain when its owner asks to verify it: what is not verified is looked for anew.
func restart(d Domain, records []Record, now time.Time) Domain {
	d.checks = maps.Clone(d.checks)
	if d.checks == nil {
		d.checks = map[string]check{}
	}
	for _, r := range records {
		if c := d.checks[r.Key]; c.Status != Verified && c.Status != TemporaryFailure {
			d.checks[r.Key] = check{Status: Pending}
		}
	}
	d.VerifySince = now
	d.Status = d.overall()
	return d
}

// recheckAfter is when a domain is looked at again: often while its owner waits, less so later.
func recheckAfter(d *Domain, now time.Time) time.Duration {
	switch age := now.Sub(d.VerifySince); {
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
