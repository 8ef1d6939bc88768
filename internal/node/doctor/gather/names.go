package gather

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	verifier "blitiri.com.ar/go/spf"

	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/registrable"
	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/spf"
	"github.com/postrider/postrider/internal/node/doctor"
)

// errNoDNS is the error of look-ups without a DNS server.
var errNoDNS = errors.New("no DNS server is known")

// dns returns the resolver. Without DNS servers, its look-ups fail.
func (c *collector) dns() resolve.Resolver {
	if c.DNS == nil {
		return noDNS{}
	}
	return c.DNS
}

// noDNS is a resolver without servers.
type noDNS struct{}

func (noDNS) MX(context.Context, string) ([]resolve.MX, error)    { return nil, errNoDNS }
func (noDNS) Addrs(context.Context, string) ([]netip.Addr, error) { return nil, errNoDNS }
func (noDNS) TXT(context.Context, string) ([]string, error)       { return nil, errNoDNS }
func (noDNS) CNAME(context.Context, string) (string, error)       { return "", errNoDNS }
func (noDNS) CAA(context.Context, string) ([]resolve.CAA, error)  { return nil, errNoDNS }
func (noDNS) PTR(context.Context, netip.Addr) ([]string, error)   { return nil, errNoDNS }

func (c *collector) resolver(ctx context.Context) {
	r := &doctor.Resolver{Err: c.DNSErr, Signed: c.Config.DoctorSignedName}
	if c.DNS != nil {
		name := r.Signed
		if name == "" {
			name = c.Config.Hostname
		}
		r.Servers = c.DNS.Validates(ctx, name, c.Config.DoctorBogusName)
	}
	c.f.Resolver = r
}

// host looks up the addresses of the host name and the names of each address.
func (c *collector) host(ctx context.Context) {
	h := &c.f.Host
	addrs, err := c.dns().Addrs(ctx, c.Config.Hostname)
	h.Err = err
	h.Addrs = make([]doctor.Address, len(addrs))
	var all sync.WaitGroup
	for i, a := range addrs {
		all.Go(func() { h.Addrs[i] = c.address(ctx, a) })
	}
	all.Wait()
}

func (c *collector) address(ctx context.Context, a netip.Addr) doctor.Address {
	x := doctor.Address{Addr: a, Public: c.Allowed(a)}
	x.Names, x.Err = c.dns().PTR(ctx, a)
	for _, name := range x.Names[:min(len(x.Names), hostsMax)] {
		if back, err := c.dns().Addrs(ctx, name); err == nil && slices.Contains(back, a) {
			x.Confirmed = append(x.Confirmed, name)
		}
	}
	return x
}

// spfNames returns the names whose SPF records must allow the addresses of this machine, with their purposes.
func (c *collector) spfNames() map[string]string {
	names := map[string]string{}
	for _, r := range c.Config.Regions {
		names[r.SPFInclude] = "spf_include"
	}
	names[c.Config.Hostname] = "hostname"
	names[c.Config.SPFInclude] = "spf_include"
	return names
}

// spf evaluates the SPF records for the addresses from which emails leave.
func (c *collector) spf(ctx context.Context) {
	if c.Config.Transport != "direct" {
		return // the relay has records of its own
	}
	names := c.spfNames()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		records, err := c.dns().TXT(ctx, name)
		records = spf.Find(records)
		for _, a := range c.f.Host.Addrs {
			s := doctor.SPF{Name: name, Purpose: names[name], Records: records, Err: err, Addr: a.Addr}
			if len(records) == 1 {
				result, err := verifier.CheckHostWithSender(a.Addr.AsSlice(), name, "postmaster@"+name, verifier.WithContext(ctx),
					verifier.WithResolver(resolve.NetForm{Resolver: c.dns()}))
				if s.Result = string(result); err != nil {
					s.Detail = err.Error()
				}
			}
			c.f.SPF = append(c.f.SPF, s)
		}
	}
}

// dmarc looks up the policy for the domain of the host name, which is the sender of bounces, and the records that allow
// reports about customers' domains.
func (c *collector) dmarc(ctx context.Context) {
	if c.Config.Transport == "direct" {
		c.f.DMARC = append(c.f.DMARC, c.policy(ctx, c.Config.Hostname))
	}
	if !slices.Contains(c.Config.Roles, "receiving") {
		return
	}
	hosts := []string{cmp.Or(c.Config.ReportHost, c.Config.InboundHost)}
	for _, r := range c.Config.Regions {
		hosts = append(hosts, cmp.Or(c.Config.ReportHost, r.InboundHost))
	}
	slices.Sort(hosts)
	for _, host := range slices.Compact(hosts) {
		h := doctor.ReportHost{Name: host, At: "customer.example._report._dmarc." + host}
		h.Records, h.Err = c.dns().TXT(ctx, h.At)
		c.f.Reports = append(c.f.Reports, h)
	}
}

// policy looks up the DMARC record that applies to a domain (RFC 9989 section 4.10.1). Without a record, the result
// names the registrable domain as the place for one.
func (c *collector) policy(ctx context.Context, domain string) doctor.DMARC {
	found, err := dmarc.NewWalker(c.dns().TXT).Discover(ctx, domain)
	d := doctor.DMARC{Domain: domain, At: registrable.Domain(domain), Err: err}
	switch {
	case len(found.Discarded) > 0:
		d.At, d.Records = found.Discarded[0].Domain, found.Discarded[0].Records
	case found.At != "":
		d.At, d.Records = found.At, []string{found.Text}
	}
	return d
}

// listNames returns this installation's names that are looked up in block lists of names.
func (c *collector) listNames() []string {
	names := []string{c.Config.Hostname, c.Config.TrackingHost}
	if n := c.f.Notices; n != nil && n.Domain != "" {
		names = append(names, n.Domain)
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.Contains(n, ".") })
	slices.Sort(names)
	return slices.Compact(names)
}

// lists looks up the addresses and the names of this installation in the block lists.
func (c *collector) lists(ctx context.Context) {
	var all sync.WaitGroup
	results := make([]doctor.List, len(c.Config.DoctorAddressLists)+len(c.Config.DoctorNameLists))
	for i, zone := range c.Config.DoctorAddressLists {
		all.Go(func() {
			subjects := map[string]string{}
			for _, a := range c.f.Host.Addrs {
				subjects[a.Addr.String()] = reversed(a.Addr)
			}
			results[i] = c.list(ctx, zone, false, "2.0.0.127", "1.0.0.127", subjects)
		})
	}
	for i, zone := range c.Config.DoctorNameLists {
		all.Go(func() {
			subjects := map[string]string{}
			for _, name := range c.listNames() {
				subjects[name] = name
			}
			results[len(c.Config.DoctorAddressLists)+i] = c.list(ctx, zone, true, "test", "invalid", subjects)
		})
	}
	all.Wait()
	c.f.Lists = results
}

// list asks one block list. RFC 5782 section 5 says which entry a list must have and which one it must not have.
func (c *collector) list(ctx context.Context, zone string, names bool, has, lacks string,
	subjects map[string]string) doctor.List {
	l := doctor.List{Zone: config.WithoutKey(zone), Names: names}
	test, errHas := c.entry(ctx, has+"."+zone)
	never, errLacks := c.entry(ctx, lacks+"."+zone)
	l.Err = errors.Join(errHas, errLacks)
	refused := netip.MustParsePrefix("127.255.255.0/24")
	l.Alive = len(test) > 0 && len(never) == 0 && !slices.ContainsFunc(test, refused.Contains)
	for _, subject := range slices.Sorted(maps.Keys(subjects)) {
		e := doctor.Entry{Subject: subject}
		e.Answers, e.Err = c.entry(ctx, subjects[subject]+"."+zone)
		l.Entries = append(l.Entries, e)
	}
	return l
}

// entry looks up an entry of a block list. A name that does not exist is no error.
func (c *collector) entry(ctx context.Context, name string) ([]netip.Addr, error) {
	addrs, err := c.dns().Addrs(ctx, name)
	if errors.Is(err, resolve.ErrNotFound) {
		return nil, nil
	}
	return slices.DeleteFunc(addrs, func(a netip.Addr) bool { return !a.Is4() }), err
}

// reversed returns an address as block lists write it: its parts in reverse order.
func reversed(a netip.Addr) string {
	var parts []string
	if a.Is4() {
		parts = strings.Split(a.String(), ".")
	} else {
		parts = strings.Split(strings.ReplaceAll(a.StringExpanded(), ":", ""), "")
	}
	slices.Reverse(parts)
	return strings.Join(parts, ".")
}
