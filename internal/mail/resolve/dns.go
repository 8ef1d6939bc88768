package resolve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/miekg/dns"
	"golang.org/x/sync/singleflight"
)

const (
	tryTimeout = 3 * time.Second
	rounds     = 2    // how many times each server is queried
	maxServers = 4    // maximum number of servers; any more are ignored
	ednsSize   = 1232 // maximum size of a UDP response that no network fragments, in bytes (RFC 9715 section 3)
	readSize   = 4096 // size of the buffer for a UDP response, in bytes
	maxAnswers = 200  // maximum number of records used from one response
	resolvConf = "/etc/resolv.conf"
)

// DNS is a Resolver that queries recursive servers, over UDP with EDNS0 (RFC 6891), and over TCP if a response is
// truncated. If a server does not respond within 3 s, or responds with a failure, DNS queries the next server. DNS uses
// at most four servers, and returns a temporary failure after each of them has failed twice. DNS accepts a response
// only if its source address and port, its id and its question match the query.
//
// Each query asks whether the answer was authenticated (the AD bit, RFC 6840 section 5.7). DNS may believe only
// validating servers that it was given, and servers on a loopback address. DNS believes such a server after it has
// passed the self-check (see Believes). While there is one, secure look-ups ask only such servers. Otherwise an
// attacker who makes a validating server fail could have its question answered by another one.
type DNS struct {
	servers []*server
	secure  []*server // those that secure look-ups ask
	named   bool      // whether these were named as validating servers
	probes  singleflight.Group

	// Observe, if set, is called after each secure look-up with its kind: mx, addr, cname or tlsa. It must be set
	// before the first look-up.
	Observe func(kind string, o Outcome)
	// SignedZone is a signed zone for whose SOA record the self-check asks; "" means the root zone. It is for networks
	// that cannot reach the root zone, and must be set before the first look-up.
	SignedZone string

	counts counts

	mu        sync.Mutex
	known     [maxKnown]question // questions with positive answers about different domains, the last one first
	checked   bool               // whether the self-check has run
	wasSecure *simplelru.LRU[question, struct{}]
}

// server is a DNS server.
type server struct {
	addr     string
	believed bool // whether its AD bit counts after the self-check

	// The mutex of DNS guards the following fields.
	standing   standing
	answeredAt time.Time // time of its last answer, positive or negative
}

// NewDNS returns a resolver that queries the given servers, in the form "address:port", or the servers in
// /etc/resolv.conf if none are given. Secure look-ups query the validating servers instead, if there are any. The way
// to these servers must be protected, because DNS believes what they say about signatures.
func NewDNS(servers []string, validating ...string) (*DNS, error) {
	if len(servers) == 0 {
		var err error
		if servers, err = configured(resolvConf); err != nil {
			return nil, err
		}
	}
	d := new(DNS)
	d.wasSecure, _ = simplelru.NewLRU[question, struct{}](maxSecure, nil) // the error is for sizes below 1
	var err error
	if d.servers, err = newServers(servers, false); err != nil {
		return nil, err
	}
	if d.secure, err = newServers(validating, true); err != nil {
		return nil, err
	}
	if d.named = len(d.secure) > 0; d.named {
		for _, s := range d.servers {
			s.believed = false
		}
		return d, nil
	}
	for _, s := range d.servers {
		if s.believed {
			d.secure = append(d.secure, s)
		}
	}
	if len(d.secure) == 0 {
		d.secure = d.servers
	}
	return d, nil
}

// forwarder is the address of the DNS server in containers of Docker. It passes answers on from the servers of the
// host, over a network that nobody needs to have protected, and keeps their AD bit.
var forwarder = netip.MustParseAddr("127.0.0.11")

// newServers returns the servers with the given addresses. Servers on a loopback address are believed in any case,
// except for forwarder.
func newServers(addrs []string, believed bool) (servers []*server, err error) {
	for _, s := range addrs {
		addr, err := netip.ParseAddrPort(s)
		if err != nil {
			return nil, fmt.Errorf("DNS server %q is not address:port: %w", s, err)
		}
		local := addr.Addr().Unmap().IsLoopback() && addr.Addr().Unmap() != forwarder
		servers = append(servers, &server{addr: s, believed: believed || local})
	}
	return servers[:min(len(servers), maxServers)], nil
}

// configured returns the name servers listed in a file in resolv.conf(5) format.
func configured(file string) (servers []string, err error) {
	conf, err := dns.ClientConfigFromFile(file)
	if err != nil {
		return nil, fmt.Errorf("read DNS servers: %w", err)
	}
	for _, s := range conf.Servers {
		servers = append(servers, net.JoinHostPort(s, conf.Port))
	}
	if len(servers) == 0 {
		return nil, fmt.Errorf("%s names no DNS server", file)
	}
	return servers, nil
}

// MX implements Resolver.
func (d *DNS) MX(ctx context.Context, name string) ([]MX, error) {
	records, _, err := d.mx(ctx, name)
	return records, err
}

// Addrs implements Resolver and returns IPv4 addresses first. Addrs looks up IPv4 and IPv6 addresses concurrently. If
// one of the two look-ups fails but the other finds addresses, Addrs returns those addresses, because they suffice for
// delivery.
func (d *DNS) Addrs(ctx context.Context, host string) ([]netip.Addr, error) {
	addrs, _, err := d.addrs(ctx, host)
	return addrs, err
}

// TXT implements Resolver.
func (d *DNS) TXT(ctx context.Context, name string) ([]string, error) {
	records, _, err := d.txt(ctx, name)
	return records, err
}

// CNAME implements Resolver.
func (d *DNS) CNAME(ctx context.Context, name string) (string, error) {
	target, _, err := d.cname(ctx, name)
	return target, err
}

// CAA implements Resolver.
func (d *DNS) CAA(ctx context.Context, name string) ([]CAA, error) {
	records, _, err := d.caa(ctx, name)
	return records, err
}

// PTR implements Resolver.
func (d *DNS) PTR(ctx context.Context, addr netip.Addr) ([]string, error) {
	names, _, err := d.ptr(ctx, addr.Unmap().WithZone("").String())
	return names, err
}

func (d *DNS) mx(ctx context.Context, name string) ([]MX, time.Duration, error) {
	a, ttl, err := d.lookUpMX(ctx, name, false)
	return a.Records, ttl, err
}

func (d *DNS) addrs(ctx context.Context, host string) ([]netip.Addr, time.Duration, error) {
	a, ttl, err := d.lookUpAddrs(ctx, host, false)
	return a.Records, ttl, err
}

func (d *DNS) txt(ctx context.Context, name string) ([]string, time.Duration, error) {
	a, ttl, err := collect(ctx, d, name, dns.TypeTXT, false, func(rr *dns.TXT) string {
		return Unescape(strings.Join(rr.Txt, ""))
	})
	return a.Records, ttl, err
}

func (d *DNS) caa(ctx context.Context, name string) ([]CAA, time.Duration, error) {
	a, ttl, err := collect(ctx, d, name, dns.TypeCAA, false, func(rr *dns.CAA) CAA {
		return CAA{Flag: rr.Flag, Tag: strings.ToLower(rr.Tag), Value: rr.Value}
	})
	return a.Records, ttl, err
}

func (d *DNS) ptr(ctx context.Context, addr string) ([]string, time.Duration, error) {
	name, err := dns.ReverseAddr(addr)
	if err != nil {
		return nil, defaultTTL, fmt.Errorf("%w: PTR %s", ErrNotFound, addr)
	}
	a, ttl, err := collect(ctx, d, name, dns.TypePTR, false, func(rr *dns.PTR) string { return clean(rr.Ptr) })
	return a.Records, ttl, err
}

func (d *DNS) cname(ctx context.Context, name string) (string, time.Duration, error) {
	a, ttl, err := d.lookUpCNAME(ctx, name, false)
	if err != nil {
		return "", ttl, err
	}
	return a.Records[0], ttl, nil
}

func (d *DNS) lookUpMX(ctx context.Context, name string, secure bool) (Answer[MX], time.Duration, error) {
	return collect(ctx, d, name, dns.TypeMX, secure, func(rr *dns.MX) MX {
		return MX{Host: clean(rr.Mx), Pref: rr.Preference}
	})
}

func (d *DNS) lookUpCNAME(ctx context.Context, name string, secure bool) (Answer[string], time.Duration, error) {
	name = clean(name)
	answer, err := d.ask(ctx, question{name, dns.TypeCNAME}, secure)
	if err != nil {
		return Answer[string]{}, answer.negativeTTL(), authenticate(err, answer.secure)
	}
	for _, rr := range answer.records {
		if alias, ok := rr.(*dns.CNAME); ok && clean(rr.Header().Name) == name {
			return Answer[string]{Records: []string{clean(alias.Target)}, Name: name, Secure: answer.secure},
				seconds(rr.Header().Ttl), nil
		}
	}
	return Answer[string]{}, answer.negativeTTL(), authenticate(fmt.Errorf("%w: CNAME %s", ErrNotFound, name),
		answer.secure)
}

func (d *DNS) lookUpAddrs(ctx context.Context, host string, secure bool) (Answer[netip.Addr], time.Duration, error) {
	type result struct {
		Answer[netip.Addr]
		ttl time.Duration
		err error
	}
	six := make(chan result, 1)
	go func() {
		a, ttl, err := collect(ctx, d, host, dns.TypeAAAA, secure, func(rr *dns.AAAA) netip.Addr { return addrOf(rr.AAAA) })
		six <- result{a, ttl, err}
	}()
	var r4 result
	r4.Answer, r4.ttl, r4.err = collect(ctx, d, host, dns.TypeA, secure, func(rr *dns.A) netip.Addr { return addrOf(rr.A) })
	r6 := <-six
	both := Answer[netip.Addr]{Name: cmp.Or(r4.Name, r6.Name), Secure: r4.mayBeSecure(r4.err) && r6.mayBeSecure(r6.err)}
	both.Records = slices.DeleteFunc(append(r4.Records, r6.Records...), func(a netip.Addr) bool { return !a.IsValid() })
	if len(both.Records) > 0 {
		return both, min(r4.ttl, r6.ttl), nil
	}
	if errors.Is(r4.err, ErrTemporary) {
		return Answer[netip.Addr]{}, 0, r4.err
	}
	err := r6.err
	if err == nil {
		err = fmt.Errorf("%w: AAAA %s", ErrNotFound, host)
	}
	if insecure, ok := err.(authenticated); ok && !both.Secure {
		err = insecure.error // the absence of IPv4 addresses was not authenticated
	}
	return Answer[netip.Addr]{}, min(r4.ttl, r6.ttl), err
}

// mayBeSecure reports whether the answer or the absence of records is secure. A failed look-up says nothing about that,
// so the other one decides.
func (a *Answer[T]) mayBeSecure(err error) bool {
	return err == nil && a.Secure || err != nil && (IsSecure(err) || errors.Is(err, ErrTemporary))
}

func addrOf(ip net.IP) netip.Addr {
	addr, _ := netip.AddrFromSlice(ip)
	return addr.Unmap()
}

// collect looks up records of one type, follows aliases, and converts the records that it finds. The returned duration
// is the time for which the answer, positive or negative, may be cached.
func collect[R dns.RR, T any](ctx context.Context, d *DNS, name string, qtype uint16, secure bool,
	convert func(R) T) (Answer[T], time.Duration, error) {
	name = clean(name)
	asked := name
	ttl, authentic := maxTTL, true
	for hops := 0; hops <= maxHops; hops++ {
		answer, err := d.ask(ctx, question{name, qtype}, secure)
		authentic = authentic && answer.secure
		if err != nil {
			return Answer[T]{}, min(ttl, answer.negativeTTL()), authenticate(err, authentic)
		}
		var aliased bool
		var aliasTTL time.Duration
		if name, aliasTTL, aliased, err = answer.end(name); err != nil {
			return Answer[T]{}, 0, err
		}
		ttl = min(ttl, aliasTTL)
		var found []T
		for _, rr := range answer.records {
			if record, ok := rr.(R); ok && clean(rr.Header().Name) == name {
				found = append(found, convert(record))
				ttl = min(ttl, seconds(rr.Header().Ttl))
			}
		}
		if len(found) > 0 {
			return Answer[T]{Records: found, Name: name, Secure: authentic}, ttl, nil
		}
		// A recursive server follows CNAME aliases itself. An SOA record or an empty answer means that the target of
		// the last alias has no records of this type. A server that does not follow aliases returns only the alias
		// itself, so this loop follows any remaining aliases.
		if !aliased || answer.hasSOA {
			return Answer[T]{}, min(ttl, answer.negativeTTL()), authenticate(fmt.Errorf("%w: %s %s", ErrNotFound,
				dns.TypeToString[qtype], asked), authentic)
		}
	}
	return Answer[T]{}, 0, fmt.Errorf("%w: CNAME chain of %s is too long", ErrTemporary, asked)
}

// answer holds the parts of a DNS message that this package uses.
type answer struct {
	records []dns.RR
	secure  bool // whether a server that is believed has authenticated all records, or their absence
	hasSOA  bool
	soaTTL  time.Duration
}

func newAnswer(m *dns.Msg) answer {
	a := answer{records: m.Answer[:min(len(m.Answer), maxAnswers)]}
	for _, rr := range m.Ns {
		if soa, ok := rr.(*dns.SOA); ok {
			a.hasSOA = true
			a.soaTTL = seconds(min(soa.Minttl, soa.Hdr.Ttl)) // as required by RFC 2308 section 5
		}
	}
	return a
}

// negativeTTL returns how long a negative answer may be cached, using the SOA record if there is one.
func (a answer) negativeTTL() time.Duration {
	if a.hasSOA {
		return a.soaTTL
	}
	return defaultTTL
}

// end returns the last name in the alias chain that begins at name, using only the aliases in this answer.
func (a answer) end(name string) (last string, ttl time.Duration, aliased bool, err error) {
	ttl = maxTTL
	for range maxHops + 1 {
		i := slices.IndexFunc(a.records, func(rr dns.RR) bool {
			return rr.Header().Rrtype == dns.TypeCNAME && clean(rr.Header().Name) == name
		})
		if i < 0 {
			return name, ttl, aliased, nil
		}
		alias, ok := a.records[i].(*dns.CNAME)
		if !ok {
			return name, ttl, aliased, nil
		}
		name, aliased = clean(alias.Target), true
		ttl = min(ttl, seconds(alias.Hdr.Ttl))
	}
	return "", 0, false, fmt.Errorf("%w: CNAME chain at %s is too long", ErrTemporary, name)
}

func seconds(ttl uint32) time.Duration { return time.Duration(ttl) * time.Second }

// Unescape decodes TXT strings from the presentation format (\" \\ \DDD) in which the DNS library returns them.
func Unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	out := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] != '\\' || i+1 == len(s) {
			out = append(out, s[i])
			continue
		}
		if i+3 < len(s) && isDigit(s[i+1]) && isDigit(s[i+2]) && isDigit(s[i+3]) {
			out = append(out, (s[i+1]-'0')*100+(s[i+2]-'0')*10+s[i+3]-'0')
			i += 3
			continue
		}
		i++
		out = append(out, s[i])
	}
	return string(out)
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }
