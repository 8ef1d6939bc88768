package domainreports

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
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
	if w.failed {
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
	for _, text := range texts {
		fields := strings.Fields(text)
		if len(fields) == 0 || !strings.EqualFold(fields[0], "v=spf1") {
			continue
		}
		for _, field := range fields[1:] {
			w.term(ctx, name, strings.TrimPrefix(field, "+"), include, depth)
		}
		return
	}
}

func (w *walk) term(ctx context.Context, name, field, include string, depth int) {
	if strings.Contains(field, "%") {
		return
	}
	if to, ok := cutFold(field, "redirect="); ok {
		w.record(ctx, to, include, depth+1)
		return
	}
	if to, ok := cutFold(field, "include:"); ok {
		if include == "" {
			include = strings.ToLower(strings.TrimSuffix(to, "."))
		}
		w.record(ctx, to, include, depth+1)
		return
	}
	for _, scheme := range []string{"ip4:", "ip6:"} {
		if text, ok := cutFold(field, scheme); ok {
			if p, err := parseNetwork(text); err == nil {
				w.add(p, include)
			}
			return
		}
	}
	mechanism, _, _ := strings.Cut(field, "/")
	bits4, bits6 := prefixLengths(field[len(mechanism):])
	kind, host, given := strings.Cut(mechanism, ":")
	if !given {
		host = name
	}
	switch strings.ToLower(kind) {
	case "a":
		w.addrs(ctx, host, include, bits4, bits6)
	case "mx":
		if !w.spend() {
			return
		}
		hosts, err := w.dns.MX(ctx, host)
		if w.mayLookUp(err) {
			for _, h := range hosts[:min(len(hosts), 10)] {
				w.addrs(ctx, h.Host, include, bits4, bits6)
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
		if bits < 0 || bits > a.BitLen() {
			bits = a.BitLen()
		}
		w.add(netip.PrefixFrom(a, bits), include)
	}
}

func cutFold(text, prefix string) (string, bool) {
	if len(text) < len(prefix) || !strings.EqualFold(text[:len(prefix)], prefix) {
		return "", false
	}
	return text[len(prefix):], true
}

func parseNetwork(text string) (netip.Prefix, error) {
	if strings.Contains(text, "/") {
		return netip.ParsePrefix(text)
	}
	a, err := netip.ParseAddr(text)
	return netip.PrefixFrom(a, a.BitLen()), err
}

// prefixLengths reads the end of a mechanism, such as /24, //64 or /24//64.
func prefixLengths(text string) (bits4, bits6 int) {
	four, six, _ := strings.Cut(text, "//")
	number := func(text string) int {
		if n, err := strconv.Atoi(text); err == nil {
			return n
		}
		return -1
	}
	return number(strings.TrimPrefix(four, "/")), number(six)
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
