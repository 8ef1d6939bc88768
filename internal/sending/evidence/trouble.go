package evidence

import (
	"encoding/binary"
	"net/netip"
	"time"
)

// Trouble holds facts that are recorded only for an attempt that was refused, deferred or failed. An attempt that went
// well does not store them, so that it takes few bytes. Packed, they have at most troubleMax bytes.
type Trouble struct {
	Route Route
	Peer  Peer
	PTR   PTR
	Same  Same
}

// Route is what the DNS said about the destination's hosts.
type Route struct {
	Hosts    []Host        // the MX records that were considered, in order of preference
	Implicit bool          // the domain has no MX records, so its own addresses were used
	Kept     time.Duration // how much longer this answer was valid; 0 if not recorded
}

// Host is a host of the destination with those of its addresses that were candidates for the attempt.
type Host struct {
	Name    string
	Pref    uint16
	Skipped Skip
	Addrs   []Addr
}

// Addr is an address of a host.
type Addr struct {
	IP    netip.Addr
	Tried bool
}

// Skip says why a host was left out. The order must not change, because attempts store the number.
type Skip uint8

const (
	IsOurs       Skip = iota + 1 // the host is this installation
	AfterOurs                    // the host's preference is not better than that of this installation
	NoAddress                    // the host has no address records
	LookUpFailed                 // the host's addresses could not be looked up
	NotPublic                    // no address of the host is public
	TLSAUnknown                  // the TLSA records of the host could not be looked up, so it must not be used
	NotInPolicy                  // the MTA-STS policy of the domain does not name the host
)

// Peer describes a certificate that a host presented.
type Peer struct {
	Names   []string  // the first names in the certificate
	More    int       // number of further names
	Issuer  string    // the common name or organization of the issuer
	Expires time.Time // with the precision of a second
	Problem string    // why the certificate was not valid; "" if it was
}

// PTR is the reverse DNS of the source address, as it was known before the attempt.
type PTR struct {
	State PTRState
	Name  string // the name that leads back to the address, or else the first name
}

// PTRState is the state of a PTR record. The order must not change, because attempts store the number.
type PTRState uint8

const (
	PTRMissing   PTRState = iota + 1 // no record exists
	PTRConfirmed                     // a name leads back to the address
	PTRElsewhere                     // no name leads back to the address
)

// Same counts attempts of the hour before that got the same kind of answer from the same provider or host. The counts
// are lower bounds: a node counts only its own attempts since it started.
type Same struct {
	Counted bool // whether attempts were counted
	Own     int  // attempts of the same team, without this one
	// Teams and Others count other teams and their attempts. Both are 0 for fewer than OthersMin teams, so that no team
	// learns anything about a particular other one.
	Teams, Others int
}

// OthersMin is the least number of other teams about which an attempt may store a number.
const OthersMin = 10

// Limits of the stored facts: the number of entries, and bytes of each text.
const (
	hostsMax      = 8
	addrsMax      = 8 // of all hosts
	namesMax      = 4
	nameMax       = 80
	problemMax    = 200
	troubleMax    = 2 << 10
	addrTriedMark = 0x80
)

func (t *Trouble) isZero() bool {
	return len(t.Route.Hosts) == 0 && t.Peer.isZero() && t.PTR.State == 0 && !t.Same.Counted
}

func (p *Peer) isZero() bool {
	return len(p.Names) == 0 && p.Issuer == "" && p.Problem == "" && p.Expires.IsZero()
}

// append appends the facts, and returns the set of the fields that it appended.
func (t *Trouble) append(b []byte) (uint64, []byte) {
	fields := uint64(0)
	if len(t.Route.Hosts) > 0 {
		fields, b = fields|hasRoute, t.Route.append(b)
	}
	if !t.Peer.isZero() {
		fields, b = fields|hasPeer, t.Peer.append(b)
	}
	if t.PTR.State != 0 {
		fields, b = fields|hasPTR, appendShort(append(b, byte(t.PTR.State)), t.PTR.Name, nameMax)
	}
	if t.Same.Counted {
		fields |= hasSame
		for _, n := range []int{t.Same.Own, t.Same.Teams, t.Same.Others} {
			b = binary.AppendUvarint(b, uint64(max(n, 0)))
		}
	}
	return fields, b
}

func (r *Route) append(b []byte) []byte {
	hosts, left := r.Hosts[:min(len(r.Hosts), hostsMax)], addrsMax
	implicit := byte(0)
	if r.Implicit {
		implicit = 1
	}
	b = binary.AppendUvarint(append(b, implicit), milliseconds(r.Kept))
	b = append(b, byte(len(hosts)))
	for _, h := range hosts {
		b = appendShort(binary.AppendUvarint(b, uint64(h.Pref)), h.Name, nameMax)
		addrs := h.Addrs[:min(len(h.Addrs), left)]
		left -= len(addrs)
		b = append(b, byte(h.Skipped), byte(len(addrs)))
		for _, a := range addrs {
			bits := a.IP.WithZone("").AsSlice()
			mark := byte(len(bits))
			if a.Tried {
				mark |= addrTriedMark
			}
			b = append(append(b, mark), bits...)
		}
	}
	return b
}

func (p *Peer) append(b []byte) []byte {
	names := p.Names[:min(len(p.Names), namesMax)]
	b = append(b, byte(len(names)))
	for _, n := range names {
		b = appendShort(b, n, nameMax)
	}
	b = binary.AppendUvarint(b, uint64(p.More+len(p.Names)-len(names)))
	b = appendShort(b, p.Issuer, nameMax)
	b = binary.AppendUvarint(b, uint64(max(p.Expires.Unix(), 0)))
	return appendShort(b, p.Problem, problemMax)
}

// appendShort appends a text, cut to limit bytes.
func appendShort(b []byte, s string, limit int) []byte { return appendText(b, cut(s, limit)) }

// trouble reads the facts that Trouble.append has written.
func (r *reader) trouble(has func(uint64) bool) (t Trouble) {
	if has(hasRoute) {
		t.Route = r.route()
	}
	if has(hasPeer) {
		t.Peer = r.peer()
	}
	if has(hasPTR) {
		t.PTR = PTR{PTRState(r.byte()), r.text()}
	}
	if has(hasSame) {
		t.Same = Same{true, r.count(), r.count(), r.count()}
		if t.Same.Teams < OthersMin {
			t.Same.Teams, t.Same.Others = 0, 0
		}
	}
	return t
}

func (r *reader) route() (x Route) {
	x.Implicit, x.Kept = r.byte() == 1, r.duration()
	left := addrsMax
	for range r.entries(hostsMax) {
		pref := r.number()
		if pref > 1<<16-1 {
			r.bad = true
		}
		h := Host{Pref: uint16(pref), Name: r.text(), Skipped: Skip(r.byte())}
		n := r.entries(left)
		left -= n
		for range n {
			mark := r.byte()
			ip, ok := netip.AddrFromSlice([]byte(r.take(int(mark &^ addrTriedMark))))
			r.bad = r.bad || !ok
			h.Addrs = append(h.Addrs, Addr{ip, mark&addrTriedMark != 0})
		}
		x.Hosts = append(x.Hosts, h)
	}
	return x
}

func (r *reader) peer() (p Peer) {
	for range r.entries(namesMax) {
		p.Names = append(p.Names, r.text())
	}
	p.More, p.Issuer = r.count(), r.text()
	if at := r.number(); at > 0 && at < 1<<40 {
		p.Expires = time.Unix(int64(at), 0).UTC()
	}
	p.Problem = r.text()
	return p
}

// entries reads a number of entries, of which at most limit are allowed.
func (r *reader) entries(limit int) int {
	n := int(r.byte())
	if n > limit {
		r.bad = true
		return 0
	}
	return n
}

// count reads a number of things that are counted, at most a billion.
func (r *reader) count() int {
	n := r.number()
	if n > 1e9 {
		r.bad = true
		return 0
	}
	return int(n)
}
