//go:build chaos

package e2e

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/mail"
	"net/textproto"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// latency delays a host's response to the final dot, so that some messages are always in transit.
const latency = 300 * time.Millisecond

// ending is a host's reaction to a complete message after the final dot.
type ending int

const (
	take    ending = iota // responds 250 and stores the message
	refuse                // responds 451 and drops the message
	stall                 // stores the message and never responds
	drop                  // stores the message and closes the connection
	endless               // stores the message and sends an endless response
)

// arrival is one copy of an email that a host received.
type arrival struct {
	life string // EHLO name of the sending node
	id   string // Message-ID
	at   time.Time
}

// mailbox holds the messages that hosts received, by email number. The recipient's local part contains the email
// number.
type mailbox struct {
	t testing.TB

	mu       sync.Mutex
	latency  time.Duration
	tries    map[int]int // number of complete messages, including rejected messages
	arrivals map[int][]arrival
	sessions map[string]int // number of open sessions, by EHLO name
	last     time.Time      // time at which the last message arrived
}

func newMailbox(t testing.TB) *mailbox {
	return &mailbox{t: t, latency: latency, tries: map[int]int{}, arrivals: map[int][]arrival{},
		sessions: map[string]int{}, last: time.Now()}
}

// listen starts a host that stores messages in the mailbox. The function end returns the host's reaction to the nth
// attempt to deliver an email; if end is nil, the host accepts all messages.
func (m *mailbox) listen(addr string, end func(number, n int) ending) (listening string) {
	m.t.Helper()
	l, err := net.Listen("tcp", addr)
	if err != nil {
		m.t.Fatal(err)
	}
	var sessions sync.WaitGroup
	done := make(chan struct{})
	sessions.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			sessions.Go(func() {
				go func() {
					<-done
					c.Close()
				}()
				m.serve(c, end)
				c.Close()
			})
		}
	})
	m.t.Cleanup(func() {
		l.Close()
		close(done)
		sessions.Wait()
	})
	return l.Addr().String()
}

var recipient = regexp.MustCompile(`(?i)^RCPT TO:<u(\d+)@`)

// serve handles an SMTP session until the client ends it.
func (m *mailbox) serve(c net.Conn, end func(number, n int) ending) {
	r := textproto.NewReader(bufio.NewReader(c))
	life, number := "", 0
	defer func() { m.left(life) }()
	say := func(line string) bool {
		_, err := io.WriteString(c, line+"\r\n")
		return err == nil
	}
	for ok := say("220 host.test ESMTP"); ok; {
		line, err := r.ReadLine()
		if err != nil {
			return
		}
		switch verb, rest, _ := strings.Cut(line, " "); strings.ToUpper(verb) {
		case "EHLO":
			m.left(life)
			life = rest
			m.came(life)
			ok = say("250-host.test\r\n250-PIPELINING\r\n250 8BITMIME")
		case "RCPT":
			if found := recipient.FindStringSubmatch(line); found != nil {
				number, _ = strconv.Atoi(found[1])
			}
			ok = say("250 ok")
		case "DATA":
			if !say("354 go on") {
				return
			}
			data, err := r.ReadDotBytes()
			if err != nil {
				return
			}
			ok = m.finish(c, life, number, data, end)
		case "QUIT":
			say("221 bye")
			return
		default:
			ok = say("250 ok")
		}
	}
}

// finish reacts to a complete message and reports whether the SMTP session continues.
func (m *mailbox) finish(c net.Conn, life string, number int, data []byte, end func(number, n int) ending) bool {
	message, err := mail.ReadMessage(bytes.NewReader(data))
	if err != nil {
		m.t.Errorf("email %d is no message: %v", number, err)
		return false
	}
	m.mu.Lock()
	m.tries[number]++
	how := take
	if end != nil {
		how = end(number, m.tries[number])
	}
	if how != refuse {
		m.last = time.Now()
		m.arrivals[number] = append(m.arrivals[number], arrival{life: life, id: message.Header.Get("Message-ID"), at: m.last})
	}
	think := m.latency
	m.mu.Unlock()
	switch how {
	case stall:
		io.Copy(io.Discard, c)
		return false
	case drop:
		return false
	case endless:
		for {
			if _, err := io.WriteString(c, "250-and so on\r\n"); err != nil {
				return false
			}
		}
	}
	select {
	case <-time.After(think):
	case <-m.t.Context().Done():
	}
	answer := "250 ok\r\n"
	if how == refuse {
		answer = "451 4.7.1 later\r\n"
	}
	_, err = io.WriteString(c, answer)
	return err == nil
}

func (m *mailbox) came(life string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sessions[life]++
}

func (m *mailbox) left(life string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sessions[life]--; m.sessions[life] <= 0 {
		delete(m.sessions, life)
	}
}

// slow sets the hosts' latency for later messages.
func (m *mailbox) slow(latency time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.latency = latency
}

// open returns the number of open sessions from a node.
func (m *mailbox) open(life string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.sessions[life]
}

// quiet reports whether no message has arrived for the given duration.
func (m *mailbox) quiet(d time.Duration) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return time.Since(m.last) > d
}

// copies returns the copies of an email that have arrived.
func (m *mailbox) copies(number int) []arrival {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.arrivals[number]
}
