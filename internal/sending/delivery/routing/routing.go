// Package routing decides by which way the mail for a destination leaves and within which limits: directly to the hosts
// of the recipient's domain or through the operator's relays, and by the tables of the operator's file of destinations.
//
// # Invariants
//
// A [Table] does not change after [New], except for what it has learned about the hosts of domains. A node that reads
// new settings builds another Table. All methods may be called concurrently. [Table.Group], [Table.Limits] and
// [Table.Known] are called for each lane and each message, so they take less than a microsecond and allocate nothing.
//
// Names are compared in lower case and without a final dot. At most one destination applies to a message: the one that
// names the recipient's domain, or else the one with the longest suffix of it, or else the one that names the host with
// the best preference, or else the one of the hosts' provider, or else the one for all domains.
//
// # Failures
//
// The package returns no errors. Package config checks the settings from which a Table is built.
//
// # Out of scope
//
// The package looks nothing up in DNS and opens no connection. Package delivery decides which relay is tried, and
// whether another one follows.
package routing

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/postrider/postrider/internal/mail/smtpclient"
	"github.com/postrider/postrider/internal/sending/evidence"
)

// RelaysMax is the maximum number of relays.
const RelaysMax = 60

// learnedMax is the maximum number of domains whose destination is remembered after a look-up of their hosts.
const learnedMax = 50_000

// learnedFor is how long it is remembered. Mail that is held or goes to a relay needs no look-up, which would otherwise
// never notice that a domain has moved to other hosts.
const learnedFor = time.Hour

// Relay is a mail server of the operator that forwards mail.
type Relay struct {
	Name     string
	Address  string // host:port
	Username string // "" means no authentication
	Password string
	TLS      smtpclient.TLSMode
	// Domains and From limit the relay to mail for these recipients' domains and from these senders' domains. A relay
	// that has both lists takes only mail that matches both.
	Domains, From []string

	key string
}

// Key identifies the relay with its settings. Connections to a relay whose settings have changed have another key.
func (r *Relay) Key() string { return r.key }

// IsRelayKey reports whether a key is that of a relay and not an IP address with a port.
func IsRelayKey(key string) bool { return strings.HasPrefix(key, relayPrefix) }

// These prefixes do not occur in names of domains.
const (
	relayPrefix = "relay "
	tablePrefix = "table "
)

// setKey sets the key. It contains a checksum of the settings, which include the password.
func (r *Relay) setKey() {
	h := fnv.New64a()
	fmt.Fprintf(h, "%q %q %q %d", r.Address, r.Username, r.Password, r.TLS)
	r.key = fmt.Sprintf("%s%s %x", relayPrefix, r.Name, h.Sum64())
}

// Destination is a table of the operator's file: rules for the mail to some domains. Zero values keep the defaults.
type Destination struct {
	Name string
	// Domains are recipients' domains, and Hosts names of mail hosts. Both may be patterns such as *.example.com;
	// the domain * stands for all.
	Domains, Hosts []string
	Providers      []evidence.Provider

	Connections int                 // concurrent connections of all nodes together
	Messages    int                 // maximum number of messages over one connection
	Rate        float64             // messages per second, of all nodes together
	TLS         *smtpclient.TLSMode // nil means opportunistic
	Schedule    []time.Duration     // waits between tries
	Lifetime    time.Duration       // time after which an email bounces
	Paused      bool
	Reason      string // why the destination is paused
	Relay       string // name of the relay that takes the mail

	key  string
	path *Path
}

// shared reports whether all domains of the destination share limits.
func (d *Destination) shared() bool { return d.Connections > 0 || d.Rate > 0 || d.Paused }

// Config holds the settings from which a Table is built.
type Config struct {
	// Direct means that mail goes to the recipients' hosts if no rule names a relay. Otherwise, it goes to the relays
	// without rules.
	Direct       bool
	Relays       []Relay
	Destinations []Destination

	// Now returns the current time; nil means time.Now.
	Now func() time.Time

	Connections      int // maximum number of connections to one destination
	RelayConnections int // maximum number of connections of one node to a relay
	Rate             float64
}

// Limits are the limits of a group of mail.
type Limits struct {
	Connections int     // of all nodes together; of one node if First is positive
	First       int     // if positive, the group goes to a relay, which gets this many connections without a condition
	Rate        float64 // messages per second, of all nodes together; 0 means no limit
	Paused      bool
}

// Path is a sequence of relays, which are tried in order.
type Path struct {
	Group  string
	Relays []*Relay
}

// rule is a relay that takes only some mail.
type rule struct {
	relay     *Relay
	to, from  patterns[bool]
	any, each bool // whether the relay takes mail for all domains, and from all domains
}

// learned is the destination of a domain's hosts.
type learned struct {
	destination *Destination
	until       time.Time
}

// Table is what New has built.
type Table struct {
	c         Config
	domains   patterns[*Destination]
	hosts     patterns[*Destination]
	providers map[evidence.Provider]*Destination
	relays    []*Relay
	rules     []rule
	bySender  bool
	plain     *Path // the relays without rules; nil if there are none
	limits    map[string]Limits

	mu      sync.RWMutex
	paths   map[uint64]*Path
	learned map[string]learned
}

// New builds a table.
func New(c Config) *Table {
	t := &Table{c: c, providers: map[evidence.Provider]*Destination{}, limits: map[string]Limits{},
		paths: map[uint64]*Path{}, learned: map[string]learned{}}
	if t.c.Now == nil {
		t.c.Now = time.Now
	}
	byName := map[string]*Relay{}
	var plain []*Relay
	for _, r := range c.Relays[:min(len(c.Relays), RelaysMax)] {
		r.setKey()
		byName[r.Name] = &r
		t.relays = append(t.relays, &r)
		if len(r.Domains)+len(r.From) == 0 {
			plain = append(plain, &r)
			continue
		}
		x := rule{relay: &r, any: len(r.Domains) == 0, each: len(r.From) == 0}
		for _, name := range r.Domains {
			x.to.add(name, true)
		}
		for _, name := range r.From {
			x.from.add(name, true)
		}
		t.bySender = t.bySender || !x.each
		t.rules = append(t.rules, x)
	}
	if len(plain) > 0 {
		t.plain = newPath(plain)
	}
	for _, d := range c.Destinations {
		t.add(&d, byName[d.Relay])
	}
	return t
}

func (t *Table) add(d *Destination, by *Relay) {
	d.key = tablePrefix + d.Name
	if by != nil {
		d.path = newPath([]*Relay{by})
	}
	if d.shared() {
		l := Limits{Connections: d.Connections, Rate: d.Rate, Paused: d.Paused}
		if l.Connections == 0 {
			l.Connections = t.c.Connections
		}
		if l.Rate == 0 {
			l.Rate = t.c.Rate
		}
		t.limits[d.key] = l
	}
	for _, name := range d.Domains {
		t.domains.add(name, d)
	}
	for _, name := range d.Hosts {
		t.hosts.add(name, d)
	}
	for _, p := range d.Providers {
		t.providers[p] = d
	}
}

func newPath(relays []*Relay) *Path {
	p := &Path{Relays: relays}
	names := make([]string, len(relays))
	for i, r := range relays {
		names[i] = r.Name
	}
	p.Group = relayPrefix + strings.Join(names, " ")
	return p
}

// Relays returns all relays in their order.
func (t *Table) Relays() []*Relay { return t.relays }

// Default returns the relay that takes mail for which there is no rule, or nil.
func (t *Table) Default() *Relay {
	if t.plain == nil {
		return nil
	}
	return t.plain.Relays[0]
}

// BySender reports whether the way of an email depends on its sender.
func (t *Table) BySender() bool { return t.bySender }

// Known returns the destination that applies to a domain, as far as it is known without a look-up of its hosts; nil
// means none.
func (t *Table) Known(domain string) *Destination {
	if d, ok := t.domains.find(domain); ok {
		return d
	}
	if t.ByHost() {
		t.mu.RLock()
		l := t.learned[domain]
		t.mu.RUnlock()
		if l.destination != nil && t.c.Now().Before(l.until) {
			return l.destination
		}
	}
	return t.domains.all
}

// ByHost reports whether a destination names hosts or their providers. Otherwise, Learn is not needed.
func (t *Table) ByHost() bool { return len(t.providers) > 0 || !t.hosts.isEmpty() }

// Learn returns the destination that applies to a domain with the given mail hosts, which are in the order of their
// preference, and remembers it for about learnedFor. It writes at most once a minute if the destination stays the same,
// because each email calls it.
func (t *Table) Learn(domain string, hosts []string) *Destination {
	if !t.ByHost() || len(hosts) == 0 {
		return t.Known(domain)
	}
	if d, ok := t.domains.find(domain); ok {
		return d
	}
	d, ok := t.hosts.find(normalize(hosts[0]))
	if !ok {
		d = t.providers[evidence.ProviderOf(hosts)]
	}
	now := t.c.Now()
	t.mu.RLock()
	l := t.learned[domain]
	t.mu.RUnlock()
	if l.destination == d && (d == nil || l.until.Sub(now) > learnedFor-time.Minute) {
		return cmp.Or(d, t.domains.all)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if d == nil {
		delete(t.learned, domain)
		return t.domains.all
	}
	if len(t.learned) >= learnedMax {
		clear(t.learned)
	}
	t.learned[domain] = learned{d, now.Add(learnedFor)}
	return d
}

// Path returns the relays for an email to a domain to which the destination d applies; nil means that it goes to the
// hosts of the domain. The parameter sender is the domain of the sender.
func (t *Table) Path(d *Destination, domain, sender string) *Path {
	if d != nil && d.path != nil {
		return d.path
	}
	if len(t.rules) > 0 {
		if p := t.byRule(domain, sender); p != nil {
			return p
		}
	}
	if t.c.Direct {
		return nil
	}
	return t.plain
}

// byRule returns the relays whose rules an email matches, or nil.
func (t *Table) byRule(domain, sender string) *Path {
	set := uint64(0)
	for i := range t.rules {
		r := &t.rules[i]
		if (r.any || r.to.has(domain)) && (r.each || sender != "" && r.from.has(sender)) {
			set |= 1 << i
		}
	}
	if set == 0 {
		return nil
	}
	t.mu.RLock()
	p := t.paths[set]
	t.mu.RUnlock()
	if p != nil {
		return p
	}
	var relays []*Relay
	for i := range t.rules {
		if set&(1<<i) != 0 {
			relays = append(relays, t.rules[i].relay)
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.paths) >= 1000 {
		clear(t.paths)
	}
	p = newPath(relays)
	t.paths[set] = p
	return p
}

// Group returns the name of the group of mail that shares limits with the mail to a domain. It is the domain itself
// unless a rule says otherwise. Rules for senders are not considered, because a lane has the mail of all senders.
func (t *Table) Group(domain string) string { return t.GroupOf(t.Known(domain), domain, "") }

// GroupOf is like Group for one email, whose destination and sender are known.
func (t *Table) GroupOf(d *Destination, domain, sender string) string {
	if d != nil && d.shared() {
		return d.key
	}
	if p := t.Path(d, domain, sender); p != nil {
		return p.Group
	}
	return domain
}

// Limits returns the limits of a group.
func (t *Table) Limits(group string) Limits {
	if l, ok := t.limits[group]; ok {
		return l
	}
	if IsRelayKey(group) {
		return Limits{Connections: t.c.RelayConnections, First: min(t.c.Connections, t.c.RelayConnections), Rate: t.c.Rate}
	}
	return Limits{Connections: t.c.Connections, Rate: t.c.Rate}
}

// Pauses reports whether a destination is paused.
func (t *Table) Pauses() bool {
	for _, l := range t.limits {
		if l.Paused {
			return true
		}
	}
	return false
}

// Groups returns the groups of the destinations.
func (t *Table) Groups() (all []string) {
	for group := range t.limits {
		all = append(all, group)
	}
	slices.Sort(all)
	return all
}

// patterns finds the value of a name among names, suffixes and a value for all names.
type patterns[V any] struct {
	exact, below map[string]V
	all          V
	hasAll       bool
}

func normalize(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// add adds a name, a pattern such as *.example.com, or * for all names.
func (p *patterns[V]) add(name string, v V) {
	name = normalize(name)
	if name == "*" {
		p.all, p.hasAll = v, true
		return
	}
	to := &p.exact
	if rest, ok := strings.CutPrefix(name, "*."); ok {
		to, name = &p.below, rest
	}
	if *to == nil {
		*to = map[string]V{}
	}
	(*to)[name] = v
}

func (p *patterns[V]) isEmpty() bool { return len(p.exact) == 0 && len(p.below) == 0 && !p.hasAll }

// find returns the value of the most specific pattern except *.
func (p *patterns[V]) find(name string) (v V, ok bool) {
	if len(p.exact) > 0 {
		if v, ok = p.exact[name]; ok {
			return v, true
		}
	}
	for rest := name; len(p.below) > 0; {
		i := strings.IndexByte(rest, '.')
		if i < 0 {
			break
		}
		rest = rest[i+1:]
		if v, ok = p.below[rest]; ok {
			return v, true
		}
	}
	return v, false
}

// has reports whether a pattern matches, including *.
func (p *patterns[V]) has(name string) bool {
	_, ok := p.find(name)
	return ok || p.hasAll
}
