package smtpserver

import (
	"net/netip"
	"time"
)

// When all slots are in use, the server closes a connection that makes no progress, with 421, to accept a new one. RFC
// 5321 section 4.5.3.2.7 requires a server to wait five minutes for a command. The server does so while slots are free.
// Otherwise silent clients could keep all other clients out for five minutes. A client that receives 421 tries again
// later.
//
// Connections are closed in this order:
//
// - those that have waited longer than Timeouts.Crowded since their last message, or since they connected: the longest
//   first;
// - those that have been sending a message for longer than that, at less than crowdedRate times the minimum rate: the
//   slowest first;
// - those that have not sent a message yet, from the network with the most such connections: the longest first.
//
// A completely received message that is being processed is never interrupted. If no connection can be closed, the new
// one is refused.

// crowdedRate is how many times faster than Timeouts.MinRate a message must arrive while all slots are in use. To
// occupy all slots of a listener with messages, an attacker then has to send some thirty megabytes a second.
const crowdedRate = 8

// crowded reports whether at least three quarters of the slots are in use.
func (s *Server) crowded() bool { return 4*s.usedSlots.Load() >= 3*int64(s.c.MaxConnections) }

// freeSlot closes one connection to free its slot, and reports whether it found one. The caller holds the lock.
func (s *Server) freeSlot() bool {
	for range 3 { // The state may have changed since the selection; a connection that is busy by now is not evicted.
		c, state := s.leastUseful(time.Now())
		if c == nil {
			return false
		}
		if c.evict(state) {
			s.releaseSlot(c)
			return true
		}
	}
	return false
}

// leastUseful returns the connection to close first, with the state in which it was selected, or nil.
func (s *Server) leastUseful(now time.Time) (*conn, waiting) {
	var stale, slow, fresh candidate
	unproven := map[netip.Addr]int{}
	for c := range s.conns {
		if w, p := c.state(); c.hasSlot && (w == forHandshake || w == forCommand) && !p.accepted {
			unproven[network(c.addr)]++
		}
	}
	for c := range s.conns {
		w, p := c.state()
		switch waited := now.Sub(p.since); {
		case !c.hasSlot || w == forUs:
		case w == forMessage:
			took := now.Sub(p.begun)
			least := took.Seconds() * float64(s.c.Timeouts.MinRate*crowdedRate)
			if took > s.c.Timeouts.Crowded && float64(p.bytesIn) < least {
				slow.offer(c, w, 0, took.Seconds()/float64(p.bytesIn+1))
			}
		case waited > s.c.Timeouts.Crowded:
			stale.offer(c, w, 0, waited.Seconds())
		case !p.accepted:
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

// candidate is the connection found so far that is best to close for one reason. The connection with
// the greater first is the better one. If these are equal, the one with the greater second is.
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

// network returns the network by which unauthenticated clients are grouped, because a client with one address usually
// controls its neighbours too.
func network(a netip.Addr) netip.Addr {
	bits := 64
	if a = a.Unmap(); a.Is4() {
		bits = 24
	}
	p, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Addr{} // the connection is not TCP and has no address
	}
	return p.Addr()
}

// Network returns the client's network: 24 bits of an IPv4 address, or 64 bits of an IPv6 address. Slots of
// unauthenticated clients are shared fairly among networks.
func (p Peer) Network() netip.Addr { return network(p.Addr.Addr()) }
