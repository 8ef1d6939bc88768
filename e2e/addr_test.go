package e2e

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
)

// lastPort starts at a random port and counts up, so that concurrent test runs rarely try the same ports.
var lastPort atomic.Uint32

func init() { lastPort.Store(rand.Uint32N(ports)) }

// freeAddr returns ports from firstPort up to firstPort+ports-1.
const firstPort, ports = 10_000, 10_000

// freeAddr returns a loopback address that a program can listen on later. The port is below 32768, because the
// operating system could assign higher ports to outgoing connections.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range ports {
		addr := net.JoinHostPort("127.0.0.1", strconv.Itoa(int(firstPort+lastPort.Add(1)%ports)))
		if l, err := net.Listen("tcp", addr); err == nil {
			l.Close()
			return addr
		}
	}
	t.Fatal("no port is free")
	return ""
}
