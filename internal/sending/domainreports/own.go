package domainreports

import (
	"cmp"
	"context"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/spf"
)

const (
	ownFor      = 10 * time.Minute // how long addresses are remembered
	ownAgain    = 30 * time.Second // until the next try if a look-up failed
	spfTime     = 5 * time.Second
	spfRecords  = 30 // look-ups for one domain, three times as many as SPF allows
	spfDepth    = 10
	spfNetworks = 5000
)

// network is a range of addresses with the name of the SPF include that lists it; "" means that the domain's own record
// lists it.
type network struct {
	netip.Prefix
	include string
}

type networks []network

// find returns the network of an address.
func (n networks) find(a netip.Addr) (network, bool) {
	for _, x := range n {
		if x.Contains(a) {
			return x, true
		}
	}
	return network{}, false
}

// own returns the addresses from which this installation sends: those in its SPF records, and those of its hosts. If a
// look-up fails, addresses that were found before stay.
func (s *Service) own(ctx context.Context) networks {
	now := s.c.Now()
	s.mu.Lock()
	known, fresh := s.ours, now.Before(s.until)
	s.mu.Unlock()
	if fresh {
		return known
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), spfTime)
	defer cancel()
	w := s.newWalk()
	for _, host := range s.c.SPFHosts {
		w.record(ctx, host, "", 0)
	}
	for _, host := range s.c.OwnHosts {
		w.addrs(ctx, host, "", -1, -1)
	}
	keep := ownFor
	if w.left < 0 {
		s.p.Log.Warn("our SPF records need more look-ups than are made to find our addresses, so that reports may call own "+
			"mail foreign", "look_ups", spfRecords, "spf_hosts", s.c.SPFHosts)
	}
	if w.failed || w.left < 0 {
		for _, n := range known {
			if !slices.Contains(w.found, n) {
				w.add(n.Prefix, n.include)
			}
		}
		keep = ownAgain
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ours, s.until = w.found, now.Add(keep)
	return s.ours
}

// listed returns the addresses that the SPF records of some names list. If a look-up failed, or the records need too
// many, complete is false.
func (s *Service) listed(ctx context.Context, names ...string) (found networks, complete bool) {
	ctx, cancel := context.WithTimeout(ctx, spfTime)
	defer cancel()
	w := s.newWalk()
	for _, name := range names {
		w.record(ctx, name, "", 0)
	}
	return w.found, !w.failed && w.left >= 0
}

// walk collects the addresses that SPF records list. It ignores macros, exists and ptr.
type walk struct {
	dns    resolve.Resolver
	left   int // look-ups
	found  networks
	failed bool
}

func (s *Service) newWalk() *walk { return &walk{dns: s.p.DNS, left: spfRecords} }

func (w *walk) mayLookUp(err error) bool {
	if err != nil && !errors.Is(err, resolve.ErrNotFound) {
		w.failed = true
	}
	return err == nil
}

func (w *walk) spend() bool {
	w.left--
	return w.left >= 0
}

func (w *walk) add(p netip.Prefix, include string) {
	if len(w.found) < spfNetworks {
		w.found = append(w.found, network{p.Masked(), include})
	}
}

// record adds what the SPF record of a name lists.
func (w *walk) record(ctx context.Context, name, include string, depth int) {
	if depth > spfDepth || !w.spend() {
		return
	}
	texts, err := w.dns.TXT(ctx, name)
	if !w.mayLookUp(err) {
		return
	}
	records := spf.Find(texts)
	if len(records) == 0 {
		return
	}
	for _, text := range strings.Fields(records[0])[1:] {
		t, err := spf.ParseTerm(text)
		allows := t.Qualifier == '+' && t.Name != "redirect" || t.Modifier && t.Name == "redirect"
		if allows && !t.HasMacro() && !(t.Domain == "" && errors.Is(err, spf.ErrNoDomain)) {
			w.term(ctx, name, &t, include, depth)
		}
	}
}

// term adds what a term lists. A term with a mistake lists what receivers would find without the mistake.
func (w *walk) term(ctx context.Context, name string, t *spf.Term, include string, depth int) {
	switch t.Name {
	case "include":
		w.record(ctx, t.Domain, cmp.Or(include, t.Domain), depth+1)
	case "redirect":
		w.record(ctx, t.Domain, include, depth+1)
	case "ip4", "ip6":
		if t.Network.IsValid() {
			w.add(t.Network, include)
		}
	case "a":
		w.addrs(ctx, cmp.Or(t.Domain, name), include, t.Bits4, t.Bits6)
	case "mx":
		if !w.spend() {
			return
		}
		hosts, err := w.dns.MX(ctx, cmp.Or(t.Domain, name))
		if w.mayLookUp(err) {
			for _, h := range hosts[:min(len(hosts), 10)] {
				w.addrs(ctx, h.Host, include, t.Bits4, t.Bits6)
			}
		}
	}
}

// addrs adds the addresses of a host. Negative lengths of prefixes mean single addresses.
func (w *walk) addrs(ctx context.Context, host, include string, bits4, bits6 int) {
	if host == "" || !w.spend() {
		return
	}
	all, err := w.dns.Addrs(ctx, host)
	if !w.mayLookUp(err) {
		return
	}
	for _, a := range all {
		a = a.Unmap()
		bits := bits6
		if a.Is4() {
			bits = bits4
		}
		if bits < 0 {
			bits = a.BitLen()
		}
		w.add(netip.PrefixFrom(a, bits), include)
	}
}

// providers maps the SPF names that customers include to the names of the services.
var providers = []struct{ suffix, name string }{
	{"_spf.google.com", "Google Workspace"}, {"protection.outlook.com", "Microsoft 365"},
	{"amazonses.com", "Amazon SES"}, {"sendgrid.net", "SendGrid"}, {"mailgun.org", "Mailgun"},
	{"mcsv.net", "Mailchimp"}, {"mandrillapp.com", "Mandrill"}, {"mtasv.net", "Postmark"}, {"zendesk.com", "Zendesk"},
	{"salesforce.com", "Salesforce"}, {"hubspotemail.net", "HubSpot"}, {"zoho.com", "Zoho"}, {"zoho.eu", "Zoho"},
	{"mailjet.com", "Mailjet"}, {"sendinblue.com", "Brevo"}, {"brevo.com", "Brevo"}, {"freshdesk.com", "Freshdesk"},
	{"messagingengine.com", "Fastmail"}, {"protonmail.ch", "Proton Mail"}, {"icloud.com", "iCloud Mail"},
	{"sparkpostmail.com", "SparkPost"}, {"pphosted.com", "Proofpoint"}, {"mimecast.com", "Mimecast"},
}

// providerOf returns the name of the service to which an SPF include belongs, or the include itself.
func providerOf(include string) string {
	for _, p := range providers {
		if include == p.suffix || strings.HasSuffix(include, "."+p.suffix) {
			return p.name
		}
	}
	return include
}
