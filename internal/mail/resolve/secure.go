package resolve

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/mail/dane"
)

// Secure is a Resolver whose answers say whether they were authenticated by DNSSEC. DNS, Cached and Fake implement it.
//
// If an error is ErrNotFound, IsSecure tells whether the absence was authenticated. An ErrTemporary, above all
// ErrBogus, never means that a name has no records: the caller must not continue as if there were none.
type Secure interface {
	Resolver
	// MXSecure is like MX.
	MXSecure(ctx context.Context, name string) (Answer[MX], error)
	// AddrsSecure is like Addrs. The answer is secure if those about both address families are.
	AddrsSecure(ctx context.Context, host string) (Answer[netip.Addr], error)
	// CNAMESecure is like CNAME. The answer holds one record and is secure if the alias is, whatever its target is.
	CNAMESecure(ctx context.Context, name string) (Answer[string], error)
	// TLSA returns the TLSA records at name, such as _25._tcp.mx.example.com.
	TLSA(ctx context.Context, name string) (Answer[TLSA], error)
}

// TLSA is the data of one TLSA record (RFC 6698 section 2.1).
type TLSA = dane.Record

// Answer is a positive answer.
type Answer[T any] struct {
	Records []T
	Name    string // the name that has the records, after aliases
	// Secure is whether a server that DNS believes after a self-check has authenticated the records and each alias that
	// led to them.
	Secure bool
	TTL    time.Duration // remaining lifetime when the answer came; only of TLSA records
}

// ErrBogus is an ErrTemporary: a DNS server found that the signatures of the answer are wrong (DNSSEC). Either the
// domain is set up wrongly, or the answer is forged. If the server finds all signatures wrong, the error is ErrNoServer
// in its place.
var ErrBogus = fmt.Errorf("%w: the DNSSEC signatures are not valid", ErrTemporary)

// authenticated is the error for an absence that was authenticated.
type authenticated struct{ error }

func (a authenticated) Unwrap() error { return a.error }

// authenticate marks an error about an absence as authenticated if secure is set.
func authenticate(err error, secure bool) error {
	if secure {
		return authenticated{err}
	}
	return err
}

// IsSecure reports whether err says that records do not exist, and whether that was authenticated by DNSSEC.
func IsSecure(err error) bool {
	_, ok := errors.AsType[authenticated](err)
	return ok
}

// Outcome is the result of a secure look-up, for counters of operators.
type Outcome string

// These are the outcomes. A node for which each outcome is OutcomeInsecure has a DNS server that does not validate.
const (
	OutcomeSecure   Outcome = "secure"   // there are records, and they were authenticated
	OutcomeAbsent   Outcome = "absent"   // there are none, and that was authenticated
	OutcomeInsecure Outcome = "insecure" // records or their absence were not authenticated
	OutcomeBogus    Outcome = "bogus"    // ErrBogus
	OutcomeFailed   Outcome = "failed"   // any other ErrTemporary
)

// OutcomeOf returns the outcome of a look-up with this result.
func OutcomeOf[T any](a Answer[T], err error) Outcome {
	switch {
	case errors.Is(err, ErrBogus):
		return OutcomeBogus
	case errors.Is(err, ErrNotFound) && IsSecure(err):
		return OutcomeAbsent
	case err != nil && !errors.Is(err, ErrNotFound):
		return OutcomeFailed
	case err == nil && a.Secure:
		return OutcomeSecure
	}
	return OutcomeInsecure
}

// MXSecure implements Secure.
func (d *DNS) MXSecure(ctx context.Context, name string) (Answer[MX], error) {
	a, _, err := d.mxSecure(ctx, name)
	return a, err
}

// AddrsSecure implements Secure. Like Addrs, it returns the addresses of one family if the look-up for the other fails.
func (d *DNS) AddrsSecure(ctx context.Context, host string) (Answer[netip.Addr], error) {
	a, _, err := d.addrsSecure(ctx, host)
	return a, err
}

// CNAMESecure implements Secure.
func (d *DNS) CNAMESecure(ctx context.Context, name string) (Answer[string], error) {
	a, _, err := d.cnameSecure(ctx, name)
	return a, err
}

// TLSA implements Secure.
func (d *DNS) TLSA(ctx context.Context, name string) (Answer[TLSA], error) {
	a, _, err := d.tlsa(ctx, name)
	return a, err
}

func (d *DNS) mxSecure(ctx context.Context, name string) (Answer[MX], time.Duration, error) {
	a, ttl, err := d.lookUpMX(ctx, name, true)
	observe(d, "mx", a, err)
	if d.hides(err) {
		a, ttl, err = d.lookUpMX(ctx, name, false)
	}
	return a, d.keep(ttl), err
}

// hides reports whether an absence may be due to the servers that were named as validating ones: the other servers may
// know names that exist only in their network.
func (d *DNS) hides(err error) bool { return d.named && errors.Is(err, ErrNotFound) && !IsSecure(err) }

// insecureTTL is how long an answer is cached while no server validates, so that answers become secure soon after one
// does.
const insecureTTL = 5 * time.Minute

// keep returns how long the answer of a secure look-up may be cached.
func (d *DNS) keep(ttl time.Duration) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if slices.ContainsFunc(d.secure, func(s *server) bool { return s.standing == validates }) {
		return ttl
	}
	return min(ttl, insecureTTL)
}

func (d *DNS) addrsSecure(ctx context.Context, host string) (Answer[netip.Addr], time.Duration, error) {
	a, ttl, err := d.lookUpAddrs(ctx, host, true)
	observe(d, "addr", a, err)
	if d.hides(err) {
		a, ttl, err = d.lookUpAddrs(ctx, host, false)
	}
	return a, d.keep(ttl), err
}

func (d *DNS) cnameSecure(ctx context.Context, name string) (Answer[string], time.Duration, error) {
	a, ttl, err := d.lookUpCNAME(ctx, name, true)
	observe(d, "cname", a, err)
	return a, d.keep(ttl), err
}

func (d *DNS) tlsa(ctx context.Context, name string) (Answer[TLSA], time.Duration, error) {
	a, ttl, err := collect(ctx, d, name, dns.TypeTLSA, true, func(rr *dns.TLSA) TLSA {
		// The library decoded the record from the wire and encoded its data as hexadecimal digits.
		data, _ := hex.DecodeString(rr.Certificate)
		return TLSA{Usage: rr.Usage, Selector: rr.Selector, Matching: rr.MatchingType, Data: data}
	})
	observe(d, "tlsa", a, err)
	a.TTL = ttl
	return a, d.keep(ttl), err
}

func observe[T any](d *DNS, kind string, a Answer[T], err error) {
	d.counts.add(OutcomeOf(a, err))
	if d.Observe != nil {
		d.Observe(kind, OutcomeOf(a, err))
	}
}
