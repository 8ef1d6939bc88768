package freeport

import (
	"net"
	"testing"
)

// Concurrent tests never get the same port, and never one that another program listens on.
func TestTake(t *testing.T) {
	t.Parallel()
	seen := map[int]bool{}
	for range 200 {
		port, release, err := Take()
		if err != nil {
			t.Fatal(err)
		}
		defer release()
		if seen[port] || port < first || port >= first+ports {
			t.Fatalf("port %d, after %v", port, seen)
		}
		seen[port] = true
	}
}

// A port that a program uses is not free, neither for TCP nor for UDP, nor if it is used on another loopback address.
func TestUsedPortIsNotFree(t *testing.T) {
	t.Parallel()
	_, port, _ := net.SplitHostPort(Addr(t))
	number, _ := net.LookupPort("tcp", port)
	if !free(number) {
		t.Fatalf("port %d is not free", number)
	}
	for _, host := range []string{"127.0.0.1", "127.0.0.2"} {
		l, err := net.Listen("tcp", net.JoinHostPort(host, port))
		if err != nil {
			continue // the machine has no such address
		}
		if free(number) {
			t.Errorf("port %d is free although %s uses it for TCP", number, host)
		}
		l.Close()
		p, err := net.ListenPacket("udp", net.JoinHostPort(host, port))
		if err != nil {
			t.Fatal(err)
		}
		if free(number) {
			t.Errorf("port %d is free although %s uses it for UDP", number, host)
		}
		p.Close()
	}
	if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", port)); err != nil {
		t.Errorf("the port cannot be used: %v", err)
	} else {
		l.Close()
	}
}
