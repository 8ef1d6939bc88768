package nameserver

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
	"time"
)

// conn is a TCP connection of a client.
type conn struct {
	net.Conn
	client  netip.Addr
	network netip.Addr
}

// accept accepts connections until the listener is closed, and waits for the end of all connections.
func (s *Server) accept(ctx context.Context, l net.Listener) error {
	var all sync.WaitGroup
	defer all.Wait()
	for wait := time.Duration(0); ; {
		nc, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				nc.Close()
			}
			return nil
		case errors.Is(err, net.ErrClosed):
			return err
		case err != nil: // for example, if no file descriptors are free until connections end
			s.log.Warn("could not accept a DNS connection; the name server tries again", "error", err)
			pause(ctx, &wait)
			continue
		}
		wait = 0
		c := s.register(nc)
		if c == nil {
			nc.Close()
			continue
		}
		all.Go(func() {
			defer s.leave(c)
			s.serveConn(ctx, c)
		})
	}
}

// register records a connection. It returns nil if the server has too many, in total or from the client's network.
func (s *Server) register(nc net.Conn) *conn {
	c := &conn{Conn: nc}
	if a, ok := nc.RemoteAddr().(*net.TCPAddr); ok {
		c.client = a.AddrPort().Addr().Unmap()
	}
	c.network = networkOf(c.client)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.conns) >= s.c.Connections || s.byNet[c.network] >= s.c.PerNetwork {
		return nil
	}
	s.conns[c] = struct{}{}
	s.byNet[c.network]++
	return c
}

func (s *Server) leave(c *conn) {
	c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
	if s.byNet[c.network]--; s.byNet[c.network] == 0 {
		delete(s.byNet, c.network)
	}
}

// endConns closes all connections.
func (s *Server) endConns() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for c := range s.conns {
		c.Close()
	}
}

// serveConn answers the queries of a connection, in their order, until the client closes it or is too slow. The client
// may send queries before it has read the responses to earlier ones (RFC 7766 section 6.2.1.1).
func (s *Server) serveConn(ctx context.Context, c *conn) {
	end := time.Now().Add(s.c.MaxAge)
	r := bufio.NewReaderSize(c, maxQuery)
	query, out := make([]byte, maxQuery), make([]byte, 2+plainUDP)
	var size [2]byte
	for ctx.Err() == nil && time.Now().Before(end) {
		if c.SetReadDeadline(time.Now().Add(s.c.IdleTimeout)) != nil {
			return
		}
		if _, err := r.Peek(1); err != nil {
			return
		}
		if c.SetReadDeadline(time.Now().Add(s.c.MessageTimeout)) != nil {
			return
		}
		if _, err := io.ReadFull(r, size[:]); err != nil {
			return
		}
		n := int(binary.BigEndian.Uint16(size[:]))
		if n > maxQuery {
			s.c.Observe(Query{TCP: true, Malformed: true})
			return
		}
		if _, err := io.ReadFull(r, query[:n]); err != nil {
			return
		}
		response, info := s.respond(query[:n], c.client, true, out[2:])
		s.c.Observe(info)
		if response == nil {
			return // the client does not speak DNS
		}
		if !s.write(c, out, response) {
			return
		}
	}
}

// write sends the length of a response and the response in one call. The response may already be stored in out, after
// the first two bytes.
func (s *Server) write(c *conn, out, response []byte) bool {
	framed := out
	if len(response)+2 > len(framed) {
		framed = make([]byte, len(response)+2)
	}
	framed = framed[:len(response)+2]
	binary.BigEndian.PutUint16(framed, uint16(len(response)))
	copy(framed[2:], response)
	if c.SetWriteDeadline(time.Now().Add(s.c.MessageTimeout)) != nil {
		return false
	}
	_, err := c.Write(framed)
	return err == nil
}
