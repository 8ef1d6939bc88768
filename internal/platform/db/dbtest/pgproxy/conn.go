package pgproxy

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
)

// Codes that a client may send in place of the protocol version (PostgreSQL documentation, section 55.7: SSLRequest and
// similar messages).
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// frameMax is the maximum length of a frame in bytes. A longer frame means that the proxy misread the stream.
const frameMax = 1 << 30

// conn is a client's connection together with the proxy's connection to the server for this client.
type conn struct {
	p       *Proxy
	to      string // host and port of the server
	client  net.Conn
	commits map[string]bool // names of the client's prepared COMMIT statements

	mu     sync.Mutex
	server net.Conn // connection to the server; nil before it is established
	closed bool
	losing bool // whether the answer to a COMMIT is being lost; if so, the client receives nothing more

	silent chan struct{} // like the proxy's field, for this connection only; see Strand. Guarded by the proxy's lock.
}

// close closes both connections.
func (c *conn) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	c.client.Close()
	if c.server != nil {
		c.server.Close()
	}
}

func (c *conn) serve() {
	defer func() {
		c.close()
		c.p.mu.Lock()
		delete(c.p.conns, c)
		c.p.mu.Unlock()
	}()
	start, err := c.begin()
	if err != nil || !c.dial() {
		return
	}
	if _, err := c.server.Write(start); err != nil {
		return
	}
	executed := make(chan bool, 1)
	go func() { executed <- c.answers() }()
	c.requests()
	if !c.isLosing() {
		c.close()
		<-executed
		return
	}
	c.p.settle(<-executed)
}

// begin reads the first messages on a connection and returns the bytes to forward to the server.
func (c *conn) begin() ([]byte, error) {
	for {
		head := make([]byte, 8)
		if _, err := io.ReadFull(c.client, head); err != nil {
			return nil, err
		}
		c.wait()
		n, code := binary.BigEndian.Uint32(head), binary.BigEndian.Uint32(head[4:])
		if code == sslRequest || code == gssRequest {
			if _, err := c.client.Write([]byte{'N'}); err != nil {
				return nil, err
			}
			continue
		}
		if n < 8 || n > frameMax {
			return nil, fmt.Errorf("a start of %d bytes", n)
		}
		start := append(head, make([]byte, n-8)...)
		if _, err := io.ReadFull(c.client, start[8:]); err != nil {
			return nil, err
		}
		if code == cancelRequest && c.p.loses() {
			return nil, errors.New("a request to cancel what the network has lost")
		}
		c.p.mu.Lock()
		turned := c.p.turned
		c.p.mu.Unlock()
		if turned != "" && code != cancelRequest {
			_, err := c.client.Write(fatal(turned))
			if err == nil {
				err = fmt.Errorf("turned away with %s", turned)
			}
			return nil, err
		}
		return start, nil
	}
}

// fatal returns the error message with which a server ends a connection (PostgreSQL documentation, section 55.8).
func fatal(sqlstate string) []byte {
	text := "SFATAL\x00VFATAL\x00C" + sqlstate + "\x00Mturned away by the proxy\x00\x00"
	return append(binary.BigEndian.AppendUint32([]byte{'E'}, uint32(len(text)+4)), text...)
}

// dial connects to the server. If the connection attempt fails, or the client's connection has been closed, dial
// returns false.
func (c *conn) dial() bool {
	server, err := net.Dial("tcp", c.to)
	if err != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		server.Close()
		return false
	}
	c.server = server
	return true
}

// read reads one frame: its type, its length and its content.
func read(r io.Reader) ([]byte, error) {
	head := make([]byte, 5)
	if _, err := io.ReadFull(r, head); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(head[1:])
	if n < 4 || n > frameMax {
		return nil, fmt.Errorf("a frame of %d bytes", n)
	}
	frame := append(head, make([]byte, n-4)...)
	_, err := io.ReadFull(r, frame[5:])
	return frame, err
}

// requests forwards the client's messages until either side closes or a COMMIT is lost.
func (c *conn) requests() {
	for {
		frame, err := read(c.client)
		if err != nil {
			return
		}
		c.wait()
		if frame[0] == 'S' || frame[0] == 'Q' {
			c.p.mu.Lock()
			c.p.requests++
			c.p.mu.Unlock()
		}
		if c.isCommit(frame) {
			switch c.p.commit() {
			case dropCommit:
				return
			case loseAnswer:
				c.mu.Lock()
				c.losing = true
				c.mu.Unlock()
			}
		}
		if _, err := c.server.Write(frame); err != nil {
			c.close()
			return
		}
		// The server answers once it has received the end of the request: a Sync, or the simple query itself.
		if c.isLosing() && (frame[0] == 'S' || frame[0] == 'Q') {
			c.client.Close()
			return
		}
	}
}

// isCommit reports whether a frame executes a COMMIT, and records which prepared statements are COMMITs.
func (c *conn) isCommit(frame []byte) bool {
	switch kind, content := frame[0], frame[5:]; kind {
	case 'Q':
		return commits(content)
	case 'P':
		name, rest, _ := bytes.Cut(content, []byte{0})
		c.commits[string(name)] = commits(rest)
	case 'B':
		_, rest, _ := bytes.Cut(content, []byte{0})
		name, _, _ := bytes.Cut(rest, []byte{0})
		return c.commits[string(name)]
	}
	return false
}

// commits reports whether a NUL-terminated statement is COMMIT.
func commits(text []byte) bool {
	text, _, _ = bytes.Cut(text, []byte{0})
	return strings.EqualFold(strings.Trim(string(text), " \t\r\n;"), "COMMIT")
}

// answers forwards the server's messages to the client. It reports whether the server has executed a COMMIT whose
// answer is lost.
func (c *conn) answers() (executed bool) {
	defer c.close()
	for {
		frame, err := read(c.server)
		if err != nil {
			return false
		}
		c.wait()
		if c.isLosing() {
			if frame[0] != 'Z' {
				continue
			}
			return true // ReadyForQuery means that the server has finished the request
		}
		if (frame[0] == 'D' || frame[0] == 'C') && c.p.tears() {
			c.client.Write(frame[:len(frame)/2])
			return false
		}
		if _, err := c.client.Write(frame); err != nil {
			return false
		}
	}
}

func (c *conn) isLosing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.losing
}
