package smtpserver

import (
	"net/netip"
	"time"
)

// When all places are taken, a connection that gets nothing done gives its place to a new one, and hears 421. RFC 5321
// section 4.5.3.2.7 asks a server to wait five minutes for a command. There is such patience with slow hosts while
// there is room; without room, strangers who say nothing would keep everybody else out for as long. A client that
// hears 421 tries again.
//
// These go, in this order:
//
//  1. who has waited longer than Timeouts.Crowded since its last message, or since it connected: the longest first;
//  2. who has sent a message for longer than that, at less than crowdedRate times the least rate: the slowest first;
//  3. who has not handed in a message yet, of the network that has most of such connections: the longest first.
//
// What has been handed in whole, and is being worked on, is never cut off. A new connection that finds none of these
// is refused.

// crowdedRate is by how much faster than Timeouts.MinRate a message must come while others find no place. Keeping the
// places of a whole listener with messages then costs some thirty megabytes a second.
const crowdedRate = 8

// crowded reports whether places run short: three of four are taken.
func (s *Server) crowded() bool { return 4*s.taken.Load() >= 3*int64(s.c.MaxConnections) }

// makeRoom frees a place and reports whether it could. It is called with the lock held.
func (s *Server) makeRoom() bool {
	for range 3 { // What was seen may have changed meanwhile; who is busy now is not evicted.
		c, seen := s.leastUseful(time.Now())
		if c == nil {
			return false
		}
		if c.evict(seen) {
			s.vacate(c)
			return true
		}
	}
	return false
}

// leastUseful is the connection that should give up its place, nil when none should.
func (s *Server) leastUseful(now time.Time) (*conn, waiting) {
	var stale, slow, fresh candidate
	unproven := map[netip.Addr]int{}
	for c := range s.conns {
		if w, p := c.state(); c.placed && (w == forHandshake || w == forCommand) && !p.taken {
			unproven[network(c.addr)]++
		}
	}
	for c := range s.conns {
		w, p := c.state()
		switch waited := now.Sub(p.since); {
		case !c.placed || w == forUs:
		case w == forMessage:
			took := now.Sub(p.begun)
			least := took.Seconds() * float64(s.c.Timeouts.MinRate*crowdedRate)
			if took > s.c.Timeouts.Crowded && float64(p.octets) < least {
				slow.offer(c, w, 0, took.Seconds()/float64(p.octets+1))
			}
		case waited > s.c.Timeouts.Crowded:
			stale.offer(c, w, 0, waited.Seconds())
		case !p.taken:
			fresh.offer(c, w, unproven[network(c.addr)], waited.Seconds())
		}
	}
	for _, found := range []candidate{stale, slow, fresh} {
		if found.conn != nil {
			return found.conn, found.waiting
		}
	}
	return nil, forUs
}

// candidate is the connection that has most of what it is chosen by.
type candidate struct {
	conn    *conn
	waiting waiting
	first   int
	second  float64
}

func (k *candidate) offer(c *conn, w waiting, first int, second float64) {
	if k.conn == nil || first > k.first || first == k.first && second > k.second {
		*k = candidate{c, w, first, second}
	}
}

// network is what strangers are taken together by: those who have an address at all mostly have its neighbours too.
func network(a netip.Addr) netip.Addr {
	bits := 64
	if a = a.Unmap(); a.Is4() {
		bits = 24
	}
	p, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Addr{} // no address, as of a connection that is not TCP
	}
	return p.Addr()
}

// Network is the address of the client's network, of 24 bits or of 64 in IPv6: who shares places among strangers
// shares them among networks.
func (p Peer) Network() netip.Addr { return network(p.Addr.Addr()) }
