package resolve

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Fake is a Secure that answers from its own maps, for development and tests. Names that are map keys are in lower
// case and have no trailing dot. The zero value of Fake answers every query as if the name did not exist. A Fake must
// not be modified while it is in use.
type Fake struct {
	MXRecords    map[string][]MX
	AddrRecords  map[string][]netip.Addr
	TXTRecords   map[string][]string
	CNAMERecords map[string]string
	CAARecords   map[string][]CAA
	PTRRecords   map[netip.Addr][]string
	TLSARecords  map[string][]TLSA
	NSRecords    map[string][]string

	// Fail lists look-ups that fail with ErrTemporary. An entry is either a name ("example.com"), for all types, or a
	// type and a name ("mx example.com"). The types in Fail are mx, addr, txt, cname, caa, tlsa, ns and ptr. For ptr,
	// an address takes the place of the name.
	Fail []string
	// Bogus lists look-ups that fail with ErrBogus. Its entries have the same form as those of Fail.
	Bogus []string

	// SignedZones lists zones whose answers are secure: the name itself and all names below it. UnsignedZones lists
	// exceptions below them. If several zones contain a name, the longest one counts.
	SignedZones, UnsignedZones []string
}

// MX implements Resolver.
func (f Fake) MX(ctx context.Context, name string) ([]MX, error) {
	a, err := f.MXSecure(ctx, name)
	return a.Records, err
}

// MXSecure implements Secure.
func (f Fake) MXSecure(ctx context.Context, name string) (Answer[MX], error) {
	return fakeLookup(ctx, f, "mx", f.MXRecords, name)
}

// Addrs implements Resolver.
func (f Fake) Addrs(ctx context.Context, host string) ([]netip.Addr, error) {
	a, err := f.AddrsSecure(ctx, host)
	return a.Records, err
}

// AddrsSecure implements Secure.
func (f Fake) AddrsSecure(ctx context.Context, host string) (Answer[netip.Addr], error) {
	return fakeLookup(ctx, f, "addr", f.AddrRecords, host)
}

// TXT implements Resolver.
func (f Fake) TXT(ctx context.Context, name string) ([]string, error) {
	a, err := fakeLookup(ctx, f, "txt", f.TXTRecords, name)
	return a.Records, err
}

// CAA implements Resolver.
func (f Fake) CAA(ctx context.Context, name string) ([]CAA, error) {
	a, err := fakeLookup(ctx, f, "caa", f.CAARecords, name)
	return a.Records, err
}

// NS implements NameServers.
func (f Fake) NS(ctx context.Context, name string) ([]string, error) {
	name = clean(name)
	if err := f.refuse(ctx, "ns", name); err != nil {
		return nil, err
	}
	if found := f.NSRecords[name]; len(found) > 0 {
		return slices.Clone(found), nil
	}
	return nil, f.missing(name)
}

// TLSA implements Secure.
func (f Fake) TLSA(ctx context.Context, name string) (Answer[TLSA], error) {
	return fakeLookup(ctx, f, "tlsa", f.TLSARecords, name)
}

// PTR implements Resolver.
func (f Fake) PTR(ctx context.Context, addr netip.Addr) ([]string, error) {
	addr = addr.Unmap().WithZone("")
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemporary, err)
	}
	if slices.Contains(f.Fail, "ptr "+addr.String()) {
		return nil, fmt.Errorf("%w: ptr %s", ErrTemporary, addr)
	}
	if names := f.PTRRecords[addr]; len(names) > 0 {
		return slices.Clone(names), nil
	}
	return nil, fmt.Errorf("%w: PTR %s", ErrNoName, addr)
}

// CNAME implements Resolver.
func (f Fake) CNAME(ctx context.Context, name string) (string, error) {
	a, err := f.CNAMESecure(ctx, name)
	if err != nil {
		return "", err
	}
	return a.Records[0], nil
}

// CNAMESecure implements Secure.
func (f Fake) CNAMESecure(ctx context.Context, name string) (Answer[string], error) {
	name = clean(name)
	if err := f.refuse(ctx, "cname", name); err != nil {
		return Answer[string]{}, err
	}
	if target, ok := f.CNAMERecords[name]; ok {
		return Answer[string]{Records: []string{clean(target)}, Name: name, Secure: f.signs(name)}, nil
	}
	return Answer[string]{}, authenticate(f.missing(name), f.signs(name))
}

// fakeLookup follows CNAME aliases as a real resolver does, and returns the records for the last name.
func fakeLookup[T any](ctx context.Context, f Fake, kind string, records map[string][]T,
	name string) (Answer[T], error) {
	name = clean(name)
	secure := true
	for range maxHops + 1 {
		if err := f.refuse(ctx, kind, name); err != nil {
			return Answer[T]{}, err
		}
		secure = secure && f.signs(name)
		if found := records[name]; len(found) > 0 {
			return Answer[T]{Records: slices.Clone(found), Name: name, Secure: secure}, nil
		}
		target, ok := f.CNAMERecords[name]
		if !ok {
			return Answer[T]{}, authenticate(f.missing(name), secure)
		}
		name = clean(target)
	}
	return Answer[T]{}, fmt.Errorf("%w: CNAME chain of %s is too long", ErrTemporary, name)
}

// signs reports whether the answers about a name are secure.
func (f Fake) signs(name string) bool {
	depth := func(zones []string) (longest int) {
		for _, zone := range zones {
			if zone = clean(zone); name == zone || strings.HasSuffix(name, "."+zone) {
				longest = max(longest, len(zone))
			}
		}
		return longest
	}
	return depth(f.SignedZones) > depth(f.UnsignedZones)
}

// refuse returns an error if the context is done, the name is invalid, or the look-up is listed in Fail.
func (f Fake) refuse(ctx context.Context, kind, name string) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("%w: %w", ErrTemporary, err)
	}
	if err := checkName(name); err != nil {
		return err
	}
	if slices.Contains(f.Fail, name) || slices.Contains(f.Fail, kind+" "+name) {
		return fmt.Errorf("%w: %s %s", ErrTemporary, kind, name)
	}
	if slices.Contains(f.Bogus, name) || slices.Contains(f.Bogus, kind+" "+name) {
		return fmt.Errorf("%w: %s %s", ErrBogus, kind, name)
	}
	return nil
}

// missing returns ErrNotFound if the name exists without the requested records, and ErrNoName if it does not exist. A
// name exists if the name itself or a name below it has a record of any type.
func (f Fake) missing(name string) error {
	if holds(f.MXRecords, name) || holds(f.AddrRecords, name) || holds(f.TXTRecords, name) ||
		holds(f.CNAMERecords, name) || holds(f.CAARecords, name) || holds(f.TLSARecords, name) ||
		holds(f.NSRecords, name) {
		return fmt.Errorf("%w: %s", ErrNotFound, name)
	}
	return fmt.Errorf("%w: %s", ErrNoName, name)
}

func holds[T any](records map[string]T, name string) bool {
	if _, ok := records[name]; ok {
		return true
	}
	for key := range records {
		if strings.HasSuffix(key, "."+name) {
			return true
		}
	}
	return false
}
