package nameserver_test

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/postrider/postrider/internal/mail/nameserver"
)

func TestPipelining(t *testing.T) {
	t.Parallel()
	r := start(t, nameserver.Config{}, sample())
	c, err := net.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	var all []byte
	const n = 50
	for i := range n {
		q := question("mail.acme.example.", dns.TypeMX)
		q.Id = uint16(i)
		packed, err := q.Pack()
		if err != nil {
			t.Fatal(err)
		}
		all = binary.BigEndian.AppendUint16(all, uint16(len(packed)))
		all = append(all, packed...)
	}
	// The length of the first message comes in two pieces.
	for _, piece := range [][]byte{all[:1], all[1:]} {
		if _, err := c.Write(piece); err != nil {
			t.Fatal(err)
		}
	}
	conn := dns.Conn{Conn: c}
	for i := range n {
		a, err := conn.ReadMsg()
		if err != nil || int(a.Id) != i || len(a.Answer) != 1 {
			t.Fatalf("response %d: %v, %v", i, a, err)
		}
	}
}

// closes reports whether the server closes the connection.
func closes(t *testing.T, c net.Conn) bool {
	t.Helper()
	c.SetReadDeadline(time.Now().Add(10 * time.Second))
	_, err := io.ReadAll(c)
	return !errors.Is(err, os.ErrDeadlineExceeded)
}

func TestSlowAndBrokenConnections(t *testing.T) {
	t.Parallel()
	r := start(t, nameserver.Config{IdleTimeout: 300 * time.Millisecond, MessageTimeout: 300 * time.Millisecond}, sample())
	for name, sent := range map[string]string{"silent": "", "half a length": "\x00", "half a query": "\x00\x20abc",
		"no query": "\x00\x03abc", "huge": "\xff\xffabc", "HTTP": "GET / HTTP/1.1\r\n\r\n"} {
		c, err := net.Dial("tcp", r.addr)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(c, sent); err != nil {
			t.Fatal(err)
		}
		if !closes(t, c) {
			t.Errorf("%s: the connection stays open", name)
		}
		c.Close()
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]nameserver.Config{"in total": {Connections: 2}, "per network": {PerNetwork: 2}} {
		r := start(t, c, sample())
		dial := func() *dns.Conn {
			conn, err := dns.Dial("tcp", r.addr)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			conn.SetDeadline(time.Now().Add(10 * time.Second))
			return conn
		}
		works := func(conn *dns.Conn) bool {
			if conn.WriteMsg(question("mail.acme.example.", dns.TypeMX)) != nil {
				return false
			}
			a, err := conn.ReadMsg()
			return err == nil && len(a.Answer) == 1
		}
		first, second := dial(), dial()
		if !works(first) || !works(second) {
			t.Errorf("%s: a connection below the limit does not work", name)
		}
		if works(dial()) {
			t.Errorf("%s: a connection above the limit works", name)
		}
		first.Close()
		// The server notices the end of the first connection at some time.
		for !works(dial()) {
			if t.Context().Err() != nil {
				t.Fatal("no further connection works")
			}
		}
	}
}

// The server ends although clients stay connected.
func TestStop(t *testing.T) {
	t.Parallel()
	r := start(t, nameserver.Config{}, sample())
	c, err := dns.Dial("tcp", r.addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := c.WriteMsg(question("mail.acme.example.", dns.TypeMX)); err != nil {
		t.Fatal(err)
	}
	if _, err := c.ReadMsg(); err != nil {
		t.Fatal(err)
	}
	r.stop()
	if !closes(t, c.Conn) {
		t.Error("the connection stays open")
	}
	again, err := nameserver.Listen(r.addr)
	if err != nil {
		t.Fatalf("the address is still in use: %v", err)
	}
	again.Close()
}
