package smtpserver

import (
	"net/netip"
	"time"
)

// When all places are taken, a connection that makes no progress is closed with 421 for a new one. RFC 5321 section
// 4.5.3.2.7 requires a server to wait five minutes for a command. The server is that patient with slow hosts while
// there are free places; without free places, silent clients would keep everybody else out for as long. A client that
// receives 421 tries again.
//
// Connections are closed in this order:
//
//  1. those that have waited longer than Timeouts.Crowded since their last message, or since they connected: the
//     longest first;
//  2. those that have been sending a message for longer than that, at less than crowdedRate times the least rate: the
//     slowest first;
//  3. those that have not sent a message yet, of the network with the most such connections: the longest first.
//
// A message that has been received whole and is being processed is never cut off. If there is no such connection, the
// new one is refused.

// crowdedRate is how many times faster than Timeouts.MinRate a message must come while all places are taken.
// Occupying all places of a listener with messages then costs some thirty megabytes a second.
const crowdedRate = 8

// crowded reports whether few places are left: three of four are taken.
func (s *Server) crowded() bool { return 4*s.taken.Load() >= 3*int64(s.c.MaxConnections) }

// makeRoom frees a place and reports whether it could. The caller holds the lock.
func (s *Server) makeRoom() bool {
	for range 3 { // The state may have changed meanwhile; a connection that is busy now is not evicted.
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

// leastUseful returns the connection that should lose its place, or nil.
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

// candidate is the best match so far for one reason to lose a place, ordered by first, then by second.
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

// network returns the network by which unauthenticated clients are grouped: a client with one address mostly has its
// neighbours too.
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

// Network returns the address of the client's network, of 24 bits or, in IPv6, of 64. Places for unauthenticated
// clients are shared among networks.
func (p Peer) Network() netip.Addr { return network(p.Addr.Addr()) }
