package danetest

import (
	"bufio"
	"crypto/tls"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// server says how a mail host behaves. The zero server offers no STARTTLS.
type server struct {
	cert   tls.Certificate // without one, the host offers no STARTTLS
	max    uint16          // highest TLS version; 0 means all
	strip  bool            // as if a middlebox overwrote STARTTLS in the reply to EHLO
	refuse bool            // answers 454 to STARTTLS
	breaks bool            // ends the connection in place of the handshake
	down   bool            // takes no connections
}

// Message is an email that a host received.
type Message struct {
	TLS  bool
	Data string
}

// host is a mail host at an address.
type host struct {
	server
	addr string

	mu       sync.Mutex
	open     map[net.Conn]struct{}
	messages []Message
	clear    []string
}

// start listens until the test ends.
func (h *host) start(t testing.TB) {
	t.Helper()
	if h.down {
		return
	}
	l, err := net.Listen("tcp", h.addr)
	if err != nil {
		t.Fatalf("listen as a mail host: %v", err)
	}
	var all sync.WaitGroup
	h.open = map[net.Conn]struct{}{}
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			h.mu.Lock()
			h.open[c] = struct{}{}
			h.mu.Unlock()
			all.Go(func() {
				h.serve(c)
				c.Close()
				h.mu.Lock()
				delete(h.open, c)
				h.mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		h.mu.Lock()
		for c := range h.open {
			c.Close()
		}
		h.mu.Unlock()
		all.Wait()
	})
}

const maxSession = time.Minute

// serve holds one conversation.
func (h *host) serve(c net.Conn) {
	c.SetDeadline(time.Now().Add(maxSession))
	secure := false
	r := bufio.NewReader(c)
	say := func(lines ...string) { io.WriteString(c, strings.Join(lines, "\r\n")+"\r\n") }
	say("220 host.lab ESMTP")
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return
		}
		verb, _, _ := strings.Cut(strings.ToUpper(strings.TrimSpace(line)), " ")
		if !secure {
			h.note(verb, line)
		}
		switch verb {
		case "EHLO":
			offer := "250-STARTTLS"
			switch {
			case h.cert.Certificate == nil && !h.refuse && !h.breaks || secure:
				offer = "250-PIPELINING"
			case h.strip:
				offer = "250-XXXXXXXA"
			}
			say("250-host.lab", offer, "250 8BITMIME")
		case "STARTTLS":
			if h.refuse {
				say("454 4.7.0 TLS is not available")
				continue
			}
			say("220 go on")
			if h.breaks {
				return
			}
			over := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{h.cert}, MinVersion: tls.VersionTLS10,
				MaxVersion: h.max})
			if over.Handshake() != nil {
				return
			}
			c, r, secure = over, bufio.NewReader(over), true
		case "DATA":
			say("354 go on")
			var data strings.Builder
			for {
				line, err := r.ReadString('\n')
				if !secure {
					h.note("", line)
				}
				if err != nil {
					return
				}
				if line == ".\r\n" {
					break
				}
				data.WriteString(line)
			}
			h.mu.Lock()
			h.messages = append(h.messages, Message{secure, data.String()})
			h.mu.Unlock()
			say("250 ok")
		case "QUIT":
			say("221 bye")
			return
		default:
			say("250 ok")
		}
	}
}

// note records an unencrypted line, unless it is a command that every client sends before TLS.
func (h *host) note(verb, line string) {
	switch verb {
	case "EHLO", "HELO", "STARTTLS", "QUIT":
		return
	}
	h.mu.Lock()
	h.clear = append(h.clear, line)
	h.mu.Unlock()
}
