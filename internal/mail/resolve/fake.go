package resolve

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// Fake is a Resolver that answers from its own maps, for development and tests. Names that are map keys are in lower
// case and have no trailing dot. The zero value of Fake answers every query as if the name did not exist. A Fake must
// not be modified while it is in use.
type Fake struct {
	MXRecords    map[string][]MX
	AddrRecords  map[string][]netip.Addr
	TXTRecords   map[string][]string
	CNAMERecords map[string]string
	CAARecords   map[string][]CAA
	PTRRecords   map[netip.Addr][]string

	// Fail lists look-ups that fail with ErrTemporary. An entry is either a name ("example.com"), for all types, or a
	// type and a name ("mx example.com"). The types in Fail are mx, addr, txt, cname, caa and ptr. For ptr, an address
	// takes the place of the name.
	Fail []string
}

// MX implements Resolver.
func (f Fake) MX(ctx context.Context, name string) ([]MX, error) {
	records, err := fakeLookup(ctx, f, "mx", f.MXRecords, name)
	return slices.Clone(records), err
}

// Addrs implements Resolver.
func (f Fake) Addrs(ctx context.Context, host string) ([]netip.Addr, error) {
	records, err := fakeLookup(ctx, f, "addr", f.AddrRecords, host)
	return slices.Clone(records), err
}

// TXT implements Resolver.
func (f Fake) TXT(ctx context.Context, name string) ([]string, error) {
	records, err := fakeLookup(ctx, f, "txt", f.TXTRecords, name)
	return slices.Clone(records), err
}

// CAA implements Resolver.
func (f Fake) CAA(ctx context.Context, name string) ([]CAA, error) {
	records, err := fakeLookup(ctx, f, "caa", f.CAARecords, name)
	return slices.Clone(records), err
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
	name = clean(name)
	if err := f.refuse(ctx, "cname", name); err != nil {
		return "", err
	}
	if target, ok := f.CNAMERecords[name]; ok {
		return clean(target), nil
	}
	return "", f.missing(name)
}

// fakeLookup follows CNAME aliases as a real resolver does, and returns the records for the last name.
func fakeLookup[T any](ctx context.Context, f Fake, kind string, records map[string][]T, name string) ([]T, error) {
	name = clean(name)
	for range maxHops + 1 {
		if err := f.refuse(ctx, kind, name); err != nil {
			return nil, err
		}
		if found := records[name]; len(found) > 0 {
			return found, nil
		}
		target, ok := f.CNAMERecords[name]
		if !ok {
			return nil, f.missing(name)
		}
		name = clean(target)
	}
	return nil, fmt.Errorf("%w: CNAME chain of %s is too long", ErrTemporary, name)
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
	return nil
}

// missing returns ErrNotFound if the name exists without the requested records, and ErrNoName if it does not exist. A
// name exists if the name itself or a name below it has a record of any type.
func (f Fake) missing(name string) error {
	if holds(f.MXRecords, name) || holds(f.AddrRecords, name) || holds(f.TXTRecords, name) ||
		holds(f.CNAMERecords, name) || holds(f.CAARecords, name) {
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
