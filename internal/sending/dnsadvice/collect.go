package dnsadvice

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/lib/registrable"
	"github.com/postrider/postrider/internal/mail/authority"
	"github.com/postrider/postrider/internal/mail/dmarc"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/sending/preflight"
)

// collectTime is the time limit for all look-ups of a domain.
const collectTime = 4 * time.Second

const (
	wantedMax     = 30 // records of a domain that are looked up
	concurrentMax = 64 // questions of a domain that are asked at the same time
	askedMax      = 2  // servers that are asked about names at which no record should be
)

// Collector gathers the facts about the DNS of a domain. A Collector is safe for concurrent use.
type Collector struct {
	DNS       resolve.Resolver // without a cache
	Authority *authority.Client
	// Providers returns the known DNS providers.
	Providers func() []Provider
}

// Collect looks up everything that Check needs. It ends after collectTime and leaves out the facts that are unknown by
// then.
func (c *Collector) Collect(ctx context.Context, domain string, wanted []Wanted) *Facts {
	ctx, cancel := context.WithTimeout(ctx, collectTime)
	defer cancel()
	f := &Facts{Domain: domain, Organization: registrable.Domain(domain), Wanted: wanted[:min(len(wanted), wantedMax)],
		Answers: map[Question]Findings{}, Targets: map[string][]string{},
		Random: strings.ToLower(rand.Text()) + "._domainkey." + domain}
	at := domain
	if slices.ContainsFunc(f.Wanted, func(w Wanted) bool { return w.Type == "NS" }) {
		_, at, _ = strings.Cut(domain, ".") // the owner enters a delegation in the zone above
	}
	if zone, servers, err := c.Authority.Zone(ctx, at); err == nil {
		f.Zone, f.Servers = zone, servers
		f.Provider = Recognize(c.Providers(), servers)
	}
	g := &gathering{Collector: c, facts: f, slots: make(chan struct{}, concurrentMax), silent: map[string]bool{}}
	// The questions to all servers come first: a question is never asked again, and later ones go to only a few
	// servers.
	for _, w := range f.Wanted {
		if w.Type != "NS" {
			g.ask(ctx, w.Name, w.Type, 0)
		}
	}
	g.policies(ctx)
	g.wait.Wait()
	// The other questions go to servers that have answered.
	g.wrongPolicies(ctx)
	for i := range f.Wanted {
		g.wanted(ctx, &f.Wanted[i])
	}
	g.ask(ctx, f.Random, "TXT", askedMax)
	g.wait.Wait()
	return f
}

// gathering is one run of Collect.
type gathering struct {
	*Collector
	facts *Facts
	slots chan struct{}
	wait  sync.WaitGroup

	mu     sync.Mutex      // guards the maps, lists and pointers of facts while look-ups run, and silent
	silent map[string]bool // servers that have not answered
}

// run calls f in the background when a slot is free.
func (g *gathering) run(ctx context.Context, f func()) {
	g.wait.Go(func() {
		select {
		case g.slots <- struct{}{}:
			defer func() { <-g.slots }()
			f()
		case <-ctx.Done():
		}
	})
}

// wanted asks about one wanted record, and about the types and names with which owners confuse it.
func (g *gathering) wanted(ctx context.Context, w *Wanted) {
	if w.Type == "NS" {
		g.run(ctx, func() { g.delegation(ctx, w.Name) })
		return
	}
	for _, typ := range []string{"CNAME", "TXT", "MX"} {
		if typ != w.Type {
			g.ask(ctx, w.Name, typ, askedMax)
		}
	}
	if w.Type == "CNAME" {
		g.ask(ctx, w.Name, "A", askedMax)
		g.ask(ctx, w.Name, "AAAA", askedMax)
		g.run(ctx, func() { g.target(ctx, w.Value) })
	}
	g.run(ctx, func() {
		checker, ok := g.DNS.(resolve.SignatureChecker)
		if ok && checker.WrongSignatures(ctx, w.Name) {
			g.mu.Lock()
			defer g.mu.Unlock()
			g.facts.Bogus = append(g.facts.Bogus, w.Name)
		}
	})
	if zone := g.facts.Zone; zone != "" {
		for _, name := range append(shortened(w.Name, g.facts.Domain, zone), doubled(w.Name, zone)) {
			g.ask(ctx, name, w.Type, askedMax)
		}
	}
	if w.isSPF() {
		g.run(ctx, func() {
			r := preflight.CountSPF(ctx, g.DNS, w.Name)
			g.mu.Lock()
			defer g.mu.Unlock()
			g.facts.SPF = &r
		})
	}
}

// wrongPolicies asks about DMARC records at wrong names.
func (g *gathering) wrongPolicies(ctx context.Context) {
	if g.facts.Zone != "" {
		for _, name := range dmarcNames(g.facts.Domain, g.facts.Zone) {
			g.ask(ctx, name, "TXT", askedMax)
		}
	}
}

// policies asks about the DMARC records of the domain.
func (g *gathering) policies(ctx context.Context) {
	domain := g.facts.Domain
	g.ask(ctx, "_dmarc."+domain, "TXT", 0)
	g.run(ctx, func() {
		d, above := discover(ctx, g.DNS.TXT, domain, g.facts.Organization)
		g.mu.Lock()
		defer g.mu.Unlock()
		g.facts.DMARC, g.facts.Above = d, above
	})
}

// discover returns the policy of a domain, and that of its organization if the search for the domain's ended below. A
// result is nil if it is not known.
func discover(ctx context.Context, lookup dmarc.Lookup, domain, org string) (d, above *dmarc.Discovery) {
	walker := dmarc.NewWalker(lookup)
	found, err := walker.Discover(ctx, domain)
	if err != nil {
		return nil, nil
	}
	if hidesPolicyOf(&found, org) {
		if of, err := walker.Discover(ctx, org); err == nil {
			above = &of
		}
	}
	return &found, above
}

// ask asks the zone's servers and the recursive servers, unless it has asked the same question before. If most is not
// 0, ask asks at most that many servers of the zone. It then asks the recursive servers only if it asked none of the
// zone's servers.
func (g *gathering) ask(ctx context.Context, name, typ string, most int) {
	q := Question{name, typ}
	g.mu.Lock()
	_, asked := g.facts.Answers[q]
	if !asked {
		g.facts.Answers[q] = Findings{}
	}
	g.mu.Unlock()
	if asked {
		return
	}
	g.run(ctx, func() {
		found := Findings{Servers: g.servers(ctx, name, typ, most)}
		if most == 0 || len(found.Servers) == 0 {
			found.Visible, found.State = g.visible(ctx, name, typ)
		}
		g.mu.Lock()
		defer g.mu.Unlock()
		g.facts.Answers[q] = found
	})
}

// servers asks the authoritative servers of a name.
func (g *gathering) servers(ctx context.Context, name, typ string, most int) []authority.Answer {
	if g.facts.Zone == "" {
		return nil
	}
	servers := g.facts.Servers
	if most > 0 {
		g.mu.Lock()
		servers = slices.DeleteFunc(slices.Clone(servers), func(s string) bool { return g.silent[s] })
		g.mu.Unlock()
		servers = servers[:min(len(servers), most)]
	}
	all, err := g.Authority.AskServers(ctx, servers, name, typ)
	if err != nil {
		return nil
	}
	g.mu.Lock()
	for _, a := range all {
		g.silent[a.Server] = g.silent[a.Server] || a.Outcome == authority.Silent || a.Outcome == authority.NoAddress
	}
	g.mu.Unlock()
	for _, a := range all {
		if a.Outcome == authority.Referred { // a zone of its own
			if all, err = g.Authority.Ask(ctx, name, typ); err != nil {
				return nil
			}
			break
		}
	}
	return all
}

// visible asks the recursive servers.
func (g *gathering) visible(ctx context.Context, name, typ string) (values []string, s Visibility) {
	var err error
	switch typ {
	case "TXT":
		values, err = g.DNS.TXT(ctx, name)
	case "CNAME":
		var target string
		if target, err = g.DNS.CNAME(ctx, name); err == nil {
			values = []string{target}
		}
	case "MX":
		var hosts []resolve.MX
		hosts, err = g.DNS.MX(ctx, name)
		for _, h := range hosts {
			if h.Host == "" {
				h.Host = "."
			}
			values = append(values, fmt.Sprintf("%d %s", h.Pref, h.Host))
		}
	default:
		return nil, Unknown
	}
	switch {
	case err == nil:
		return values, Present
	case errors.Is(err, resolve.ErrNoName):
		return nil, NoName
	case errors.Is(err, resolve.ErrNotFound):
		return nil, Absent
	}
	return nil, Unknown
}

// target looks up the addresses of the host to which a CNAME record should lead.
func (g *gathering) target(ctx context.Context, host string) {
	addrs, err := g.DNS.Addrs(ctx, host)
	if err != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.facts.Targets[host] = nil
	for _, a := range addrs {
		g.facts.Targets[host] = append(g.facts.Targets[host], a.String())
	}
}

// delegation asks the servers of the zone above a name to which servers they delegate it.
func (g *gathering) delegation(ctx context.Context, name string) {
	_, above, _ := strings.Cut(name, ".")
	_, servers, err := g.Authority.Zone(ctx, above)
	if err != nil {
		return
	}
	answers, err := g.Authority.AskServers(ctx, servers, name, "NS")
	if err != nil {
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.facts.Answers[Question{name, "NS"}] = Findings{Servers: answers}
}
