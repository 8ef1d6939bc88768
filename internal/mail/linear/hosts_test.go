package linear

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"

	"github.com/postrider/postrider/internal/mail/milter"
	"github.com/postrider/postrider/internal/mail/resolve"
	"github.com/postrider/postrider/internal/mail/smtpclient"
)

// hostParsers adds the parsers that read responses from the hosts to which Postrider connects.
func hostParsers(add func(string, func(string), string, ...string)) {
	replies := []string{"250-a\r\n", "250 a\r\n", "a", "\r\n", "\n", "250-", "250", "-", "\x00", "\xff",
		"250-AUTH=A B\r\n", "250-SIZE 1\r\n"}
	ask := func(text string) {
		withServer(text, func(addr string) {
			c, err := smtpclient.Dial(context.Background(), addr, smtpclient.Options{})
			if err == nil {
				c.Close()
			}
		})
	}
	add("greeting", ask, "", append(replies, "220-a\r\n", "220 a\r\n")...)
	add("answer to EHLO", ask, "220 a\r\n", replies...)
	add("content filter", func(text string) {
		withServer(text, func(addr string) {
			c, err := milter.New(milter.Config{Address: "inet:" + addr, Hostname: "a.example"})
			if err != nil {
				panic(err)
			}
			c.Consult(context.Background(), milter.Message{Client: netip.MustParseAddrPort("192.0.2.1:25"),
				Recipients: []string{"a@b.example"},
				Raw:        strings.NewReader(head + "\r\nx\r\n"), Size: int64(len(head) + 5)})
		})
	}, "\x00\x00\x00\x0dO\x00\x00\x00\x06\x00\x00\x01\xff\x00\x00\x00\x00", "\x00\x00\x00\x01c", "\x00\x00\x00\x01p",
		"\x00\x00\x00\x05hA\x00b\x00", "\x00\x00\x00\x06y550 \x00",
		"\x00\x00\x00\x01a", "\x00\x00\x00\x00", "\x00", "\x00\x00\x08\x00h", "\x00\x00\x00\x03+a\x00",
		"\x00\x00\x00\x08m\x00\x00\x00\x01A\x00\x00")
	for _, answers := range []string{"\x00\x00", "\xff\xff"} {
		add("DNS answer of "+answers, func(text string) { lookUp(text[2:]) }, answers, "\x00", "\xc0\x0c", "\x01a", "\x3f",
			"\xff",
			"\xc0\x0c\x00\x10\x00\x01\x00\x00\x00\x00\x00\x02\x01a", "\xc0\x0c\x00\x05\x00\x01\x00\x00\x00\x00\x00\x02\xc0\x0c",
			"\x00\x00\x10\x00\x01\x00\x00\x00\x00\x00\x00")
	}
}

// withServer starts a server that sends the given text to every client, and calls f with the address of the server.
func withServer(text string, f func(addr string)) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	defer l.Close()
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { io.WriteString(c, text); c.(*net.TCPConn).CloseWrite() })
			wg.Go(func() { io.Copy(io.Discard, c); c.Close() })
		}
	})
	f(l.Addr().String())
}

// lookUp queries a DNS server that truncates its UDP response and then responds over TCP with the given bytes, which
// may encode thousands of records.
func lookUp(records string) {
	l, u := bothPorts()
	var wg sync.WaitGroup
	defer wg.Wait()
	defer u.Close()
	defer l.Close()
	wg.Go(func() {
		b := make([]byte, 4096)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			b[2] |= 0x82 // a truncated answer
			u.WriteTo(b[:n], from)
		}
	})
	wg.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			answerTCP(c, records)
			c.Close()
		}
	})
	d, err := resolve.NewDNS([]string{u.LocalAddr().String()})
	if err != nil {
		panic(err)
	}
	d.TXT(context.Background(), "b.example")
}

// bothPorts listens on the same free port number for both TCP and UDP.
func bothPorts() (net.Listener, net.PacketConn) {
	for range 100 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			panic(err)
		}
		if u, err := net.ListenPacket("udp", l.Addr().String()); err == nil {
			return l, u
		}
		l.Close()
	}
	panic("no port is free for both protocols")
}

func answerTCP(c net.Conn, records string) {
	var size [2]byte
	if _, err := io.ReadFull(c, size[:]); err != nil {
		return
	}
	q := make([]byte, binary.BigEndian.Uint16(size[:]))
	if _, err := io.ReadFull(c, q); err != nil {
		return
	}
	question := 12 + bytes.IndexByte(q[12:], 0) + 5
	b := append(q[:question:question], records...)
	b = b[:min(len(b), 1<<16-1)]
	b[2] |= 0x80
	b[6], b[7] = 0x0f, 0xff
	b[10], b[11] = 0, 0
	c.Write(append(binary.BigEndian.AppendUint16(nil, uint16(len(b))), b...))
}
