// Package pgproxy is a proxy before PostgreSQL that fails as networks and servers do: it refuses connections, ends
// them, falls silent, and loses a COMMIT or its answer. It is for tests and for measurements under faults.
//
// A Proxy begins by passing everything. It reads the frames of the wire protocol (PostgreSQL's documentation, chapter
// 55), and so a fault strikes at a known point: a COMMIT whose answer is lost has been carried out by the server when
// [Proxy.Lost] counts it.
//
// It speaks no TLS: clients that prefer TLS go on without it, and those that demand it fail. A URL with several hosts
// or a Unix socket is refused. A frame is held in memory whole.
package pgproxy

import (
	"fmt"
	"net"
	"net/url"
	"sync"
)

// Proxy passes connections on to one server. Its methods may be called at any time, from any goroutine.
type Proxy struct {
	url    url.URL
	server string // host and port
	addr   string // its own, the same for its whole life
	wg     sync.WaitGroup

	mu       sync.Mutex
	listener net.Listener // nil while connections are refused
	conns    map[*conn]bool
	silent   chan struct{} // closed when the silence ends; nil when there is none
	turned   string        // SQLSTATE with which new connections are turned away
	lose     int           // answers to COMMIT that are still to be lost
	drop     int           // COMMITs that are still to be lost
	whole    int           // answers that are left alone before the next is torn
	tear     int           // answers that are still to be torn; negative is all
	torn     int
	lost     int
	commits  int
	requests int
}

// Start begins to pass connections on to the server of a database URL.
func Start(databaseURL string) (*Proxy, error) {
	u, err := url.Parse(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("read the URL of the database: %w", err)
	}
	if u.Hostname() == "" || u.Query().Has("host") {
		return nil, fmt.Errorf("a proxy needs a URL with one host, not %s", u.Redacted())
	}
	p := &Proxy{url: *u, server: u.Host, conns: map[*conn]bool{}, addr: "127.0.0.1:0"}
	if u.Port() == "" {
		p.server = net.JoinHostPort(u.Hostname(), "5432")
	}
	if err := p.listen(); err != nil {
		return nil, err
	}
	return p, nil
}

// URL is the URL of the database by way of the proxy.
func (p *Proxy) URL() string {
	u := p.url
	u.Host = p.addr
	return u.String()
}

// Close ends the proxy and all its connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.shut()
	p.end()
	p.speak()
	p.mu.Unlock()
	p.wg.Wait()
}

// Pass ends every fault that was asked for and did not strike yet, and takes connections again.
func (p *Proxy) Pass() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.speak()
	p.turned, p.lose, p.drop, p.whole, p.tear = "", 0, 0, 0, 0
	if p.listener != nil {
		return nil
	}
	return p.listen()
}

// Refuse ends all connections and refuses new ones, as a machine does whose server is not running.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut()
	p.end()
}

// TurnAway answers new connections with an error of that SQLSTATE, as a server does that starts up (57P03) or has no
// room for more (53300). Those that there are stay.
func (p *Proxy) TurnAway(sqlstate string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turned = sqlstate
}

// Hang passes nothing on until Pass or Close, and ends nothing: as a network that drops every packet, or a server that
// was stopped.
func (p *Proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent == nil {
		p.silent = make(chan struct{})
	}
}

// Cut ends all connections at once. New ones are taken.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
}

// LoseAnswers has the next n COMMITs reach the server, and ends each one's connection before its answer. While the
// server is at one of them, nobody's request to cancel reaches it.
func (p *Proxy) LoseAnswers(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = n
}

// DropCommits ends the connections of the next n COMMITs before these reach the server.
func (p *Proxy) DropCommits(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop = n
}

// Tear ends connections in the middle of an answer: after the next skip rows and results of statements, n of them
// reach the client by half. A negative n is all, until Pass.
func (p *Proxy) Tear(skip, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.whole, p.tear = skip, n
}

// Torn is how many answers were torn.
func (p *Proxy) Torn() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.torn
}

// Lost is how many COMMITs were lost, or their answers once the server had given them.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lost
}

// Commits is how many COMMITs clients have sent.
func (p *Proxy) Commits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commits
}

// Requests is how many requests clients have sent that the server answers as a whole: each is a round trip.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// listen opens the listener, on the address that it had before. The caller has the lock, or is alone.
func (p *Proxy) listen() error {
	l, err := net.Listen("tcp", p.addr)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	p.listener, p.addr = l, l.Addr().String()
	p.wg.Go(func() { p.accept(l) })
	return nil
}

func (p *Proxy) accept(l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		c := &conn{p: p, client: client, commits: map[string]bool{}}
		p.mu.Lock()
		refused := p.listener != l
		if !refused {
			p.conns[c] = true
		}
		p.mu.Unlock()
		if refused {
			client.Close()
			return
		}
		p.wg.Go(c.serve)
	}
}

// shut closes the listener.
func (p *Proxy) shut() {
	if p.listener != nil {
		p.listener.Close()
		p.listener = nil
	}
}

// end ends all connections.
func (p *Proxy) end() {
	for c := range p.conns {
		c.close()
	}
}

// speak ends the silence.
func (p *Proxy) speak() {
	if p.silent != nil {
		close(p.silent)
		p.silent = nil
	}
}

// wait waits while the proxy is silent.
func (p *Proxy) wait() {
	p.mu.Lock()
	silent := p.silent
	p.mu.Unlock()
	if silent != nil {
		<-silent
	}
}

// loses reports whether the server is at a COMMIT whose answer is lost.
func (p *Proxy) loses() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if c.isLosing() {
			return true
		}
	}
	return false
}

// fate is what becomes of a COMMIT.
type fate int

const (
	pass fate = iota
	loseAnswer
	dropCommit
)

// commit decides what becomes of a COMMIT.
func (p *Proxy) commit() fate {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.commits++
	switch {
	case p.drop > 0:
		p.drop--
		p.lost++
		return dropCommit
	case p.lose > 0:
		p.lose--
		return loseAnswer
	}
	return pass
}

// tears decides whether an answer is torn.
func (p *Proxy) tears() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.tear == 0:
		return false
	case p.whole > 0:
		p.whole--
		return false
	case p.tear > 0:
		p.tear--
	}
	p.torn++
	return true
}
