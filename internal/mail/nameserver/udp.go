package nameserver

import (
	"context"
	"errors"
	"net"
	"runtime"
	"time"

	"golang.org/x/net/ipv4"
	"golang.org/x/net/ipv6"
	"golang.org/x/sync/errgroup"
)

// socketBuffer is the requested size of the kernel's receive buffer, in bytes. The kernel may allow less.
const socketBuffer = 1 << 20

// servePackets answers the queries of a UDP socket, with one goroutine per processor. An answer needs no waiting, so
// more goroutines would not help.
func (s *Server) servePackets(ctx context.Context, g *errgroup.Group, u *net.UDPConn) {
	_ = u.SetReadBuffer(socketBuffer) // a smaller buffer works too
	local, _ := u.LocalAddr().(*net.UDPAddr)
	answersAt := local != nil && local.IP.IsUnspecified() && tellDestination(u)
	for range runtime.GOMAXPROCS(0) {
		g.Go(func() error { return s.readPackets(ctx, u, answersAt) })
	}
}

// readPackets answers queries until the socket is closed. If answersAt is true, each response leaves from the address
// to which the query was sent. Otherwise the system would choose another one of a machine with several addresses, and
// resolvers would discard the response.
func (s *Server) readPackets(ctx context.Context, u *net.UDPConn, answersAt bool) error {
	in, out := make([]byte, maxQuery+1), make([]byte, maxUDP)
	var control []byte
	if answersAt {
		control = make([]byte, max(len(ipv4.NewControlMessage(ipv4.FlagDst|ipv4.FlagInterface)),
			len(ipv6.NewControlMessage(ipv6.FlagDst|ipv6.FlagInterface))))
	}
	for wait := time.Duration(0); ; {
		n, controls, _, client, err := u.ReadMsgUDPAddrPort(in, control)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil:
			s.log.Warn("could not read a DNS query; the name server continues", "error", err)
			pause(ctx, &wait)
			continue
		}
		wait = 0
		if client.Port() == 0 {
			continue // a forged packet; no response can be sent to port 0
		}
		response, info := s.respond(in[:n], client.Addr(), false, out)
		s.c.Observe(info)
		if response == nil {
			continue
		}
		// A response that cannot be sent is lost like any packet; the client asks again.
		_, _, _ = u.WriteMsgUDPAddrPort(response, source(control[:controls]), client)
	}
}

// tellDestination makes the kernel report the destination address of each packet. It returns false if the system does
// not support this.
func tellDestination(u *net.UDPConn) bool {
	err6 := ipv6.NewPacketConn(u).SetControlMessage(ipv6.FlagDst|ipv6.FlagInterface, true)
	err4 := ipv4.NewPacketConn(u).SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true)
	return err6 == nil || err4 == nil
}

// source returns the control message that makes a response leave from the address to which the query was sent. It
// returns nil if control does not name that address.
func source(control []byte) []byte {
	if len(control) == 0 {
		return nil
	}
	var destination net.IP
	var m6 ipv6.ControlMessage
	if m6.Parse(control) == nil && m6.Dst != nil {
		destination = m6.Dst
	} else {
		var m4 ipv4.ControlMessage
		if m4.Parse(control) == nil {
			destination = m4.Dst
		}
	}
	switch {
	case destination == nil:
		return nil
	case destination.To4() != nil: // also on a socket for both families
		return (&ipv4.ControlMessage{Src: destination}).Marshal()
	}
	// A link-local address needs its interface.
	return (&ipv6.ControlMessage{Src: destination, IfIndex: interfaceOf(destination, m6.IfIndex)}).Marshal()
}

func interfaceOf(a net.IP, index int) int {
	if a.IsLinkLocalUnicast() {
		return index
	}
	return 0
}
