// Package freeport finds ports for the servers of tests. A test needs it if it must know a port before a server listens
// on it, or if a server listens on the same port again later. Other servers of tests listen on port 0.
//
// The ports are from 10,000 to 19,999. The operating system gives none of them to outgoing connections or to listeners
// on port 0, so that no other program of a test run takes one meanwhile. Test programs that run at the same time do not
// get the same port: a port is reserved by a UDP socket on the loopback port that is 10,000 higher. A program outside
// of the tests can still take the port.
package freeport

import (
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
)

// Ports are from first to first+ports-1. The port that reserves another is ports higher.
const first, ports = 10_000, 10_000

// last starts at a random port and counts up.
var last atomic.Uint32

func init() { last.Store(rand.Uint32N(ports)) }

// Take reserves a port that is free for TCP and UDP on the addresses 127.0.0.1 to 127.0.0.3, as far as the machine has
// these addresses. The function release ends the reservation.
func Take() (port int, release func(), err error) {
	for range ports {
		port := int(first + last.Add(1)%ports)
		guard, err := net.ListenPacket("udp", loopback(1, port+ports))
		if err != nil {
			continue
		}
		if free(port) {
			return port, func() { guard.Close() }, nil
		}
		guard.Close()
	}
	return 0, nil, errors.New("found no free port from 10,000 to 19,999")
}

// Addr reserves a port until the test ends, and returns its address on 127.0.0.1.
func Addr(t testing.TB) string {
	t.Helper()
	port, release, err := Take()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(release)
	return loopback(1, port)
}

func free(port int) bool {
	for host := 1; host <= 3; host++ {
		if l, err := net.Listen("tcp", loopback(host, 0)); err != nil {
			continue // the machine has no such address
		} else {
			l.Close()
		}
		l, err := net.Listen("tcp", loopback(host, port))
		if err != nil {
			return false
		}
		defer l.Close()
		p, err := net.ListenPacket("udp", loopback(host, port))
		if err != nil {
			return false
		}
		defer p.Close()
	}
	return true
}

func loopback(host, port int) string {
	return net.JoinHostPort("127.0.0."+strconv.Itoa(host), strconv.Itoa(port))
}
