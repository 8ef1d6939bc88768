package smtpserver

import (
	"net/netip"
	"time"
)

// When all slots are in use, the server accepts a new connection by closing one that makes no progress, with a 421
// reply. RFC 5321 section 4.5.3.2.7 requires a server to wait at least five minutes for a command. By default, the
// server does so while enough slots are free. If the server waited that long when all slots are in use, silent clients
// could keep all other clients out for five minutes. A client that receives 421 retries later.
//
// The server closes connections in this order:
//
// - connections that have waited longer than Timeouts.Crowded since their last accepted message or since they were
//   opened, beginning with the one that has waited longest;
// - connections on which a message has been arriving for longer than Timeouts.Crowded, at less than crowdedRate times
//   the minimum rate, beginning with the slowest;
// - other connections on which no message has been accepted yet, from the network with the most such connections,
//   beginning with the one that has waited longest.
//
// The server never closes a connection while it is processing a message that has been received completely. If the
// server cannot close any connection, it refuses the new connection.

// crowdedRate is the multiple of Timeouts.MinRate at which a message must arrive while all slots are in use. By
// default, an attacker must therefore send about thirty megabytes per second to keep all slots of a listener occupied
// with messages.
const crowdedRate = 8

// crowded reports whether at least three quarters of the slots are in use.
func (s *Server) crowded() bool { return 4*s.usedSlots.Load() >= 3*int64(s.c.MaxConnections) }

// freeSlot tries to close a connection to free its slot, and reports whether it succeeded. The caller must hold s.mu.
func (s *Server) freeSlot() bool {
	for range 3 { // evict fails if the connection has become busy since it was selected
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

// leastUseful returns the connection that should be closed first, and the state in which it was selected. The
// connection is nil if none can be closed.
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

// candidate is the best connection found so far for one of the reasons to close a connection. Candidates are compared
// by the fields first and second, in that order; the greater value is better.
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

// network returns the network by which clients are grouped, because a client with one address usually also controls
// neighboring addresses.
func network(a netip.Addr) netip.Addr {
	bits := 64
	if a = a.Unmap(); a.Is4() {
		bits = 24
	}
	p, err := a.WithZone("").Prefix(bits)
	if err != nil {
		return netip.Addr{} // non-TCP connections have no IP address
	}
	return p.Addr()
}

// Network returns the client's network: the first 24 bits of an IPv4 address, or the first 64 bits of an IPv6 address.
// The server uses networks to share slots fairly among clients from which it has not accepted a message.
func (p Peer) Network() netip.Addr { return network(p.Addr.Addr()) }
