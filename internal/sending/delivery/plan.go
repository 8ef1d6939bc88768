package delivery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/sending/delivery/routing"
	"github.com/postrider/postrider/internal/sending/domains"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// hop is one IP address or one relay to try.
type hop struct {
	name string // host name, used to verify the TLS certificate
	addr string // with port
	pref uint16
	demand

	relay       *routing.Relay // nil for a host of the destination
	spare       bool           // whether the path has other relays
	connections int            // how many connections the destination may have, if the operator has set it; 0 otherwise
	messages    int            // maximum number of messages over one connection; 0 means the general limit
}

// at returns what identifies the hop in the pool and among the hosts: its address, or the key of the relay.
func (h hop) at() string {
	if h.relay != nil {
		return h.relay.Key()
	}
	return h.addr
}

func (h hop) key() poolKey { return poolKey{h.at(), h.mode} }

// verifies returns what a connection must have verified to carry a message to the hop; see proof.
func (h hop) verifies() string { return h.proof(h.name) }

// relayName returns the name of the relay, or "" for a host of the destination.
func (h hop) relayName() string {
	if h.relay == nil {
		return ""
	}
	return h.relay.Name
}

// unnamedRelay is the name of the relay that the settings relay_addr and so on describe.
const unnamedRelay = "relay"

// String returns the host's name and address, or the name of the relay, in the form that is stored in attempts.
func (h hop) String() string {
	if h.relay != nil && h.relay.Name != unnamedRelay {
		return h.name + " [relay " + h.relay.Name + "]"
	}
	return h.name + " [" + hostOf(h.addr) + "]"
}

// These are permanent reasons for which mail cannot be delivered to a domain. Package resolve defines more reasons.
var (
	errOurselves = errors.New("the domain's mail host is this server, which does not take its mail: it would loop")
	errPrivate   = errors.New("the domain's mail hosts have no public address")
)

const (
	maxHops    = 8 // maximum number of addresses tried in one attempt
	maxPerHost = 4 // of one host
)

// lookup is what the DNS said about the hosts of a domain, for the evidence of an attempt.
type lookup struct {
	hosts   []resolve.Host
	skipped map[string]evidence.Skip // hosts that were left out, by name; nil if none was
}

func (l *lookup) skip(host string, why evidence.Skip) {
	if l.skipped == nil {
		l.skipped = map[string]evidence.Skip{}
	}
	l.skipped[host] = why
}

// preferred returns the names of the hosts in the order of their preference, and of their names. Hosts that cannot be
// looked up or that failed recently keep their place: whether a destination of the operator applies, and so which TLS
// its hosts need, must not depend on failures.
func (l *lookup) preferred() (names []string) {
	all := slices.DeleteFunc(slices.Clone(l.hosts), func(h resolve.Host) bool {
		why := l.skipped[h.Name]
		return why == evidence.IsOurs || why == evidence.AfterOurs
	})
	slices.SortFunc(all, func(a, b resolve.Host) int {
		return cmp.Or(cmp.Compare(a.Pref, b.Pref), cmp.Compare(a.Name, b.Name))
	})
	for _, h := range all {
		names = append(names, h.Name)
	}
	return names
}

// way is how an email leaves.
type way struct {
	group       string               // whose limits apply
	destination *routing.Destination // nil if the operator has set nothing for it
	relays      bool                 // whether the hops are relays
	hops        []hop
	seen        lookup
	rule        evidence.Rule // if choose returns an error, the rule that forbids the hosts; 0 if none does
}

// choose returns how an email to a domain leaves. The parameters sender and tls are the sender's domain and its TLS
// setting. The function last reports whether the email bounces after this try at a destination; nil means that it does
// not. The looked-up hosts are valid also if choose returns an error.
func (s *Service) choose(ctx context.Context, domain, sender, tls string, last func(*routing.Destination) bool) (w way,
	err error) {
	table := s.routes.Load()
	w.destination = table.Known(domain)
	path := table.Path(w.destination, domain, sender)
	if path == nil {
		ctx, cancel := context.WithTimeout(ctx, planMax)
		defer cancel()
		var by security
		by, err = s.findHosts(ctx, domain, &w.seen)
		s.countBogus(domain, tls, err)
		if errors.Is(err, resolve.ErrBogus) {
			w.rule = evidence.DANE
		}
		if err == nil && table.ByHost() {
			// The mail of a domain whose hosts name a relay needs neither their addresses nor the domain's policy.
			w.destination = table.Learn(domain, w.seen.preferred())
			path = table.Path(w.destination, domain, sender)
		}
		if err == nil && path == nil {
			err = s.plan(ctx, &w, by, tls, func() bool { return last != nil && last(w.destination) })
		}
	}
	if path != nil {
		w.hops, w.relays = s.relayHops(path, directMode(tls, w.destination) == smtpclient.TLSRequired), true
	}
	w.group = table.GroupOf(w.destination, domain, sender)
	return w, err
}

// limitHops sets what the operator has set for the destination.
func (w *way) limitHops(tls string) {
	if w.destination == nil {
		return
	}
	for i := range w.hops {
		h := &w.hops[i]
		h.connections, h.messages = w.destination.Connections, w.destination.Messages
		h.operator(tls, w.destination)
	}
}

// findHosts looks up the mail hosts of a domain and leaves out those that would send its mail back to this server.
func (s *Service) findHosts(ctx context.Context, domain string, seen *lookup) (by security, err error) {
	if seen.hosts, by, err = s.mailHosts(ctx, domain); err != nil {
		return by, err
	}
	ours, left := s.ownPreference(seen.hosts), 0
	for _, h := range seen.hosts {
		if int(h.Pref) < ours {
			left++
			continue
		}
		seen.skip(h.Name, s.skipOf(h))
	}
	if left == 0 {
		return by, errOurselves
	}
	return by, nil
}

// plan sets the addresses of a domain's mail hosts to try, in order of preference (RFC 5321 section 5.1). The parameter
// tls is that of choose, and last is that of findPolicy.
func (s *Service) plan(ctx context.Context, w *way, by security, tls string, last func() bool) (err error) {
	if tls != reportTLS {
		if err = s.findPolicy(ctx, &by, last); err != nil {
			w.rule = evidence.MTASTS
			return err
		}
	}
	var to *security
	if s.p.Sessions != nil && tls != reportTLS {
		to = &security{}
		*to = by
	}
	var failed error
	fail := func(err error, rule evidence.Rule) {
		if failed == nil || errors.Is(failed, resolve.ErrNotFound) { // a temporary failure is not replaced
			failed, w.rule = err, rule
		}
	}
	private := false
	var barred []candidate
	for _, h := range s.lookUpHosts(ctx, &w.seen, by, tls) {
		if h.err != nil {
			w.seen.skip(h.name, h.skip)
			fail(h.err, h.rule)
			barred = append(barred, h)
			continue
		}
		private = private || len(h.usable) < h.known
		if len(h.usable) == 0 {
			w.seen.skip(h.name, evidence.NotPublic)
			continue
		}
		for _, a := range h.usable[:min(len(h.usable), maxPerHost)] {
			h.demand.to = to
			w.hops = append(w.hops, hop{name: h.name, addr: netip.AddrPortFrom(a, uint16(s.c.SMTPPort)).String(),
				pref: h.pref, demand: h.demand})
		}
	}
	switch {
	case len(w.hops) > 0:
		w.rule = 0
		w.limitHops(tls)
		s.prefer(w.hops)
		w.hops = w.hops[:min(len(w.hops), maxHops)]
		return nil
	case failed != nil && !errors.Is(failed, resolve.ErrNotFound):
		s.countBarred(to, barred)
		return failed // some hosts may be usable later
	case private, failed == nil:
		return errPrivate
	}
	return fmt.Errorf("%w: %w", resolve.ErrNoHost, failed)
}

// candidate is a mail host with its addresses and what a connection to it must prove, or with the reason why it cannot
// be used now.
type candidate struct {
	name   string
	pref   uint16
	known  int          // number of addresses
	usable []netip.Addr // those that may be dialed
	demand
	skip evidence.Skip
	err  error
}

// lookUpHosts looks up the hosts that are not skipped, in order of preference. The hosts of a signed domain are looked
// up at the same time, because a server that does not answer questions about TLSA records takes long to give up.
func (s *Service) lookUpHosts(ctx context.Context, seen *lookup, by security, tls string) []candidate {
	all := make([]candidate, 0, len(seen.hosts))
	for _, h := range seen.hosts {
		if _, skipped := seen.skipped[h.Name]; !skipped {
			all = append(all, candidate{name: h.Name, pref: h.Pref})
		}
	}
	if !by.signed || len(all) == 1 {
		for i := range all {
			s.lookUpHost(ctx, &all[i], by, tls)
		}
		return all
	}
	var asked sync.WaitGroup
	for i := range all {
		asked.Go(func() { s.lookUpHost(ctx, &all[i], by, tls) })
	}
	asked.Wait()
	return all
}

func (s *Service) lookUpHost(ctx context.Context, c *candidate, by security, tls string) {
	addrs, err := s.addresses(ctx, c.name, by)
	if err != nil {
		c.err, c.skip = fmt.Errorf("look up addresses of %s: %w", c.name, err), evidence.LookUpFailed
		if errors.Is(err, resolve.ErrNotFound) {
			c.skip = evidence.NoAddress
		}
		return
	}
	c.known, c.usable = len(addrs.Records), s.usable(addrs.Records)
	if len(c.usable) > 0 {
		c.demand, c.skip, c.err = s.demandOf(ctx, c.name, addrs, by, tls)
	}
}

// ownPreference returns the best preference at which this server is a host, or a number above all preferences. Hosts of
// this preference or a worse one are not used, because they would send mail back to this server.
func (s *Service) ownPreference(all []resolve.Host) int {
	for _, h := range all { // in order of preference
		if s.isOurs(h) {
			return int(h.Pref)
		}
	}
	return math.MaxUint16 + 1
}

func (s *Service) isOurs(h resolve.Host) bool {
	return slices.ContainsFunc(s.c.OwnHosts, func(own string) bool { return strings.EqualFold(own, h.Name) })
}

// skipOf returns why a host is left out whose preference is not better than that of this server.
func (s *Service) skipOf(h resolve.Host) evidence.Skip {
	if s.isOurs(h) {
		return evidence.IsOurs
	}
	return evidence.AfterOurs
}

// usable returns those addresses of a host that may be dialed, in the order in which to try them. IPv6 addresses come
// first if this machine has a route to public IPv6 addresses.
func (s *Service) usable(addrs []netip.Addr) []netip.Addr {
	all := make([]netip.Addr, 0, len(addrs))
	six := false
	for _, a := range addrs {
		if a = a.Unmap(); s.guard.Allowed(a) {
			all = append(all, a)
			six = six || a.Is6()
		}
	}
	if !six || len(all) == 1 {
		return all
	}
	first := 1
	if s.hasIPv6(time.Now()) {
		first = -1
	}
	slices.SortStableFunc(all, func(a, b netip.Addr) int {
		switch {
		case a.Is6() == b.Is6():
			return 0
		case a.Is6():
			return first
		}
		return -first
	})
	return all
}

// hasIPv6 reports whether this machine has a route to public IPv6 addresses. When a UDP socket is connected, the kernel
// looks up a route but sends nothing. The result is cached for a minute.
func (s *Service) hasIPv6(now time.Time) bool {
	at := now.Unix()
	if known := s.ipv6.Load(); known != 0 && at-max(known, -known) < 60 {
		return known > 0
	}
	c, err := net.Dial("udp6", "[2000::1]:25")
	if err != nil {
		s.ipv6.Store(-at)
		return false
	}
	c.Close()
	s.ipv6.Store(at)
	return true
}

// prefer sorts the addresses by MX preference. Addresses that failed recently come last. Among addresses of equal
// preference, those with an idle connection come first.
func (s *Service) prefer(hops []hop) {
	if len(hops) < 2 {
		return
	}
	now := s.shape.now()
	rank := make(map[string]int, len(hops))
	for _, h := range hops {
		n := int(h.pref) * 2
		if !s.pool.has(h.key(), h.verifies(), h.messages) {
			n++
		}
		if s.hosts.failed(h.at(), now) {
			n += 1 << 20
		}
		rank[h.at()] = n
	}
	slices.SortStableFunc(hops, func(a, b hop) int { return cmp.Compare(rank[a.at()], rank[b.at()]) })
}

// operator applies the operator's TLS mode for the destination. It does not weaken what the recipient's domain demands.
func (d *demand) operator(tls string, to *routing.Destination) {
	mode := directMode(tls, to)
	switch d.rule {
	case evidence.DANE, evidence.MTASTS:
	case evidence.DANEUnusable:
		if mode == smtpclient.TLSRequired {
			d.mode, d.rule = mode, evidence.OperatorRequires
		}
	default:
		if d.mode = mode; mode == smtpclient.TLSRequired && tls != domains.Enforced {
			d.rule = evidence.OperatorRequires
		}
	}
}

// directMode returns the TLS mode for connections to the hosts of a destination. The parameter tls is the sending
// domain's TLS setting, which a destination of the operator cannot weaken.
func directMode(tls string, d *routing.Destination) smtpclient.TLSMode {
	switch {
	case tls == domains.Enforced:
		return smtpclient.TLSRequired
	case d != nil && d.TLS != nil:
		return *d.TLS
	}
	return smtpclient.TLSOpportunistic
}

func onThisMachine(addr string) bool {
	host := hostOf(addr)
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// hostOf returns the host part of an address, without the port.
func hostOf(addr string) string {
	host, _, err := net.SplitHostPort(addr)
	if err != nil {
		return addr
	}
	return host
}
