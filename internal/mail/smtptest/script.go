package smtptest

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience is how long a Player waits for a line from the client.
const patience = 10 * time.Second

// Player is a server that replays a dialogue and fails the test if the client deviates from it. A dialogue consists of
// lines in these forms:
//
//	# a remark
//	S: 220 mx.test ESMTP            the host sends this; consecutive lines are sent in one write
//	C: EHLO *                       the client must send this; * matches anything
//	(data)                          reads a message up to its final dot and stores it unchanged
//	(read 100)                      reads and discards this many bytes
//	(quiet)                         the client must have sent nothing more, because it waits for a reply
//	(raw "250 \xff\r\n")            sends exactly these bytes
//	(starttls) (starttls expired)   performs a TLS handshake, with a certificate for 127.0.0.1 and mx.test
//	(stall)                         reads but sends nothing until the client closes the connection
//	(deaf)                          neither sends nor reads anything until the test ends
//	(endless lines) (endless line)  sends lines, or one line, without end until the client closes the connection
//	(drip)                          slowly sends a line that never ends, until the client closes the connection
//	(drop) (reset)                  closes the connection with a FIN or with a RST
//	(next)                          starts the lines for the next connection
//
// After the last line for a connection, the Player closes the connection.
type Player struct {
	Addr string
	CA   *CA // issues the Player's certificate

	t        testing.TB
	listener net.Listener
	lines    [][]scriptLine // lines for each connection
	done     sync.WaitGroup
	over     chan struct{} // closed when the test ends

	mu     sync.Mutex
	open   net.Conn
	bodies []string
}

type scriptLine struct {
	number int // line number in the dialogue, counted from 1
	text   string
}

// Script starts a Player for the given dialogue. The test fails if the client does not complete the dialogue.
func Script(t testing.TB, dialogue string) *Player {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("listen: %v", err)
	}
	s := &Player{Addr: listener.Addr().String(), CA: NewCA(t), t: t, listener: listener, over: make(chan struct{})}
	s.lines = parseScript(dialogue)
	s.done.Go(s.run)
	t.Cleanup(s.finish)
	return s
}

// ScriptFile calls Script with the contents of testdata/name.smtp in the package under test.
func ScriptFile(t testing.TB, name string) *Player {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".smtp"))
	if err != nil {
		t.Fatal(err)
	}
	return Script(t, string(text))
}

// Bodies returns the messages read so far, including stuffed dots and the final dot.
func (s *Player) Bodies() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.bodies...)
}

func parseScript(dialogue string) [][]scriptLine {
	connections := [][]scriptLine{nil}
	for i, text := range strings.Split(dialogue, "\n") {
		text = strings.TrimSuffix(text, "\r")
		last := len(connections) - 1
		switch trimmed := strings.TrimSpace(text); {
		case trimmed == "" || strings.HasPrefix(trimmed, "#"):
		case trimmed == "(next)":
			connections = append(connections, nil)
		default:
			connections[last] = append(connections[last], scriptLine{i + 1, strings.TrimLeft(text, " \t")})
		}
	}
	return connections
}

// run replays the dialogue for each connection, one after another.
func (s *Player) run() {
	for _, lines := range s.lines {
		nc, err := s.listener.Accept()
		if err != nil {
			s.t.Errorf("dialogue: nobody connected to hear %v", lines)
			return
		}
		s.mu.Lock()
		s.open = nc
		s.mu.Unlock()
		nc.SetDeadline(time.Now().Add(patience))
		p := &scene{s: s, raw: nc}
		p.use(nc)
		for i, line := range lines {
			if err := p.play(line, i+1 < len(lines) && isReply(lines[i+1])); err != nil {
				s.t.Errorf("dialogue line %d: %s: %v", line.number, line.text, err)
				break
			}
		}
		p.w.Flush()
		nc.Close()
	}
}

// finish waits for the dialogue to end. If the dialogue has not ended after two seconds, finish closes the listener and
// the open connection.
func (s *Player) finish() {
	close(s.over)
	ended := make(chan struct{})
	go func() {
		s.done.Wait()
		close(ended)
	}()
	select {
	case <-ended:
	case <-time.After(2 * time.Second):
		s.listener.Close()
		s.mu.Lock()
		if s.open != nil {
			s.open.Close()
		}
		s.mu.Unlock()
		<-ended
	}
	s.listener.Close()
}

func isReply(l scriptLine) bool { return strings.HasPrefix(l.text, "S:") }

// scene replays the dialogue for one connection to a Player.
type scene struct {
	s   *Player
	raw net.Conn
	nc  net.Conn
	r   *bufio.Reader
	w   *bufio.Writer
}

func (p *scene) use(nc net.Conn) {
	p.nc = nc
	p.r = bufio.NewReaderSize(nc, 64<<10)
	p.w = bufio.NewWriterSize(nc, 64<<10)
}

// play executes one line of the dialogue. The more argument must be true if the next line is also a reply, so that both
// replies are sent in one write.
func (p *scene) play(line scriptLine, more bool) error {
	if text, ok := strings.CutPrefix(line.text, "S:"); ok {
		p.w.WriteString(strings.TrimPrefix(text, " ") + "\r\n")
		if more {
			return nil
		}
		return p.w.Flush()
	}
	if text, ok := strings.CutPrefix(line.text, "C:"); ok {
		return p.expect(strings.TrimPrefix(text, " "))
	}
	directive := strings.TrimSuffix(strings.TrimPrefix(line.text, "("), ")")
	verb, arg, _ := strings.Cut(directive, " ")
	return p.direct(verb, arg)
}

func (p *scene) direct(verb, arg string) error {
	switch verb {
	case "data":
		return p.data()
	case "read":
		n, err := strconv.Atoi(arg)
		if err != nil {
			return err
		}
		_, err = io.CopyN(io.Discard, p.r, int64(n))
		return err
	case "quiet":
		if n := p.r.Buffered(); n > 0 {
			return fmt.Errorf("the client did not wait: %d bytes are under way", n)
		}
		return nil
	case "raw":
		text, err := strconv.Unquote(arg)
		if err != nil {
			return err
		}
		_, err = io.WriteString(p.nc, text)
		return err
	case "starttls":
		return p.secure(arg)
	case "stall":
		io.Copy(io.Discard, p.r)
		return nil
	case "deaf":
		<-p.s.over
		return nil
	case "endless":
		return p.babble(arg)
	case "drip":
		return p.drip()
	case "drop":
		return p.nc.Close()
	case "reset":
		if tcp, ok := p.raw.(*net.TCPConn); ok {
			tcp.SetLinger(0)
		}
		return p.raw.Close()
	}
	return fmt.Errorf("no such directive")
}

// expect reads a line from the client and compares it with pattern.
func (p *scene) expect(pattern string) error {
	line, err := p.r.ReadString('\n')
	if err != nil {
		return fmt.Errorf("the client said %q: %w", line, err)
	}
	text, ok := strings.CutSuffix(line, "\r\n")
	if !ok {
		return fmt.Errorf("the client said %q, without CRLF", line)
	}
	if !matches(pattern, text) {
		return fmt.Errorf("the client said %q", text)
	}
	return nil
}

// matches reports whether text matches pattern, where * in the pattern matches anything.
func matches(pattern, text string) bool {
	first, rest, wild := strings.Cut(pattern, "*")
	text, ok := strings.CutPrefix(text, first)
	if !ok || !wild {
		return ok && text == ""
	}
	for i := range len(text) + 1 {
		if matches(rest, text[i:]) {
			return true
		}
	}
	return false
}

func (p *scene) data() error {
	var b strings.Builder
	for {
		line, err := p.r.ReadString('\n')
		b.WriteString(line)
		if err != nil {
			return fmt.Errorf("the message ended after %d bytes: %w", b.Len(), err)
		}
		if line == ".\r\n" {
			break
		}
	}
	p.s.mu.Lock()
	defer p.s.mu.Unlock()
	p.s.bodies = append(p.s.bodies, b.String())
	return nil
}

// secure performs the server side of a TLS handshake. If the client aborts the handshake, secure does not return an
// error, because the next lines of the dialogue detect this.
func (p *scene) secure(kind string) error {
	certificate := p.s.CA.Certificate("mx.test", "127.0.0.1")
	if kind == "expired" {
		certificate = p.s.CA.Expired("mx.test", "127.0.0.1")
	}
	conn := tls.Server(p.raw, &tls.Config{Certificates: []tls.Certificate{certificate}})
	conn.Handshake()
	p.use(conn)
	return nil
}

// drip slowly sends a line that never ends.
func (p *scene) drip() error {
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for _, c := range []byte("250-" + strings.Repeat(".", 1000)) {
		if _, err := p.nc.Write([]byte{c}); err != nil {
			return nil
		}
		<-tick.C
	}
	return fmt.Errorf("the client waited for the end of a line")
}

// babble sends endless replies until the client closes the connection.
func (p *scene) babble(kind string) error {
	chunk := strings.Repeat("250-and another thing\r\n", 100)
	if kind == "line" {
		chunk = strings.Repeat("250 and so on ", 100)
	}
	for range 100_000 {
		if _, err := io.WriteString(p.nc, chunk); err != nil {
			return nil
		}
	}
	return fmt.Errorf("the client listened to it all")
}
