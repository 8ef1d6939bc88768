package e2e

import (
	"math/rand/v2"
	"net"
	"strconv"
	"sync/atomic"
	"testing"
)

// lastPort counts up from a random port, so that two runs of the tests at the same time rarely try the same one.
var lastPort atomic.Uint32

func init() { lastPort.Store(rand.Uint32N(ports)) }

// Free addresses have one of the ports from firstPort on.
const firstPort, ports = 10_000, 10_000

// freeAddr returns a loopback address on which a program can listen soon. The system gives ports from 32768 on to
// outgoing connections, and could give such a port away before the program listens.
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
