// Package pgproxy is a proxy in front of PostgreSQL that simulates network and server failures. The proxy can refuse or
// close connections, stop answering, and lose a COMMIT or its answer.
//
// A new Proxy forwards all messages until a method requests a fault. The proxy reads the frames of the wire protocol
// (PostgreSQL's documentation, chapter 55), so that faults happen at known points. By the time [Proxy.Lost] counts a
// lost answer, the server has executed the corresponding COMMIT.
//
// A proxy may have two ways: one to a connection pooler, and one directly to the server behind it. Faults concern both.
//
// The proxy does not support TLS: clients that prefer TLS continue without TLS, and clients that require TLS fail.
// Start rejects a URL with several hosts or a Unix socket. The proxy buffers whole frames in memory.
package pgproxy

import (
	"fmt"
	"net"
	"net/url"
	"strconv"
	"sync"

	"github.com/postrider/postrider/internal/lib/freeport"
)

// Proxy forwards connections to one server. The methods of a Proxy may be called at any time and from any goroutine.
type Proxy struct {
	ways []*way
	wg   sync.WaitGroup

	mu       sync.Mutex
	open     bool // whether the proxy accepts connections
	conns    map[*conn]bool
	silent   chan struct{} // closed to end a Hang; nil if the proxy does not hang
	turned   string        // SQLSTATE for refused connections
	lose     int           // number of answers to COMMIT that the proxy still has to lose
	losing   int           // number of COMMITs whose answers are being lost
	settled  *sync.Cond    // losing has become smaller
	drop     int           // number of COMMITs that the proxy still has to drop
	whole    int           // number of answers to forward before Tear cuts an answer
	tear     int           // number of answers that Tear still has to cut; negative for all
	torn     int
	lost     int
	commits  int
	requests int
}

// way is an address of the proxy, and the server to which it leads.
type way struct {
	url      url.URL
	server   string       // host and port
	addr     string       // address of the proxy, which never changes
	release  func()       // ends the reservation of the address's port
	listener net.Listener // listener for clients; nil while connections are refused
}

// Start starts a proxy on the loopback address for the server that a database URL names.
func Start(databaseURL string) (*Proxy, error) { return start(databaseURL) }

// StartBoth starts a proxy with two addresses: one that leads to a pooler, and one that leads to the server behind it.
func StartBoth(pooledURL, directURL string) (*Proxy, error) { return start(pooledURL, directURL) }

func start(urls ...string) (*Proxy, error) {
	p := &Proxy{conns: map[*conn]bool{}}
	p.settled = sync.NewCond(&p.mu)
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil {
			return nil, fmt.Errorf("read the URL of the database: %w", err)
		}
		if u.Hostname() == "" || u.Query().Has("host") {
			return nil, fmt.Errorf("a proxy needs a URL with one host, not %s", u.Redacted())
		}
		port, release, err := freeport.Take()
		if err != nil {
			p.Close()
			return nil, err
		}
		w := &way{url: *u, server: u.Host, addr: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), release: release}
		if u.Port() == "" {
			w.server = net.JoinHostPort(u.Hostname(), "5432")
		}
		p.ways = append(p.ways, w)
	}
	if err := p.listen(); err != nil {
		p.Close()
		return nil, err
	}
	return p, nil
}

// URL returns a database URL that leads through the proxy.
func (p *Proxy) URL() string { return p.ways[0].through() }

// DirectURL returns a URL that leads through the proxy to the server behind the pooler, or "" if there is no pooler.
func (p *Proxy) DirectURL() string {
	if len(p.ways) == 1 {
		return ""
	}
	return p.ways[1].through()
}

func (w *way) through() string {
	u := w.url
	u.Host = w.addr
	return u.String()
}

// Close closes the listener and all connections.
func (p *Proxy) Close() {
	p.mu.Lock()
	p.shut()
	p.end()
	p.speak()
	p.mu.Unlock()
	p.wg.Wait()
	for _, w := range p.ways {
		w.release()
	}
}

// Pass ends every fault, cancels requested faults that have not happened yet, and accepts connections again.
func (p *Proxy) Pass() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.speak()
	p.turned, p.lose, p.drop, p.whole, p.tear = "", 0, 0, 0, 0
	if p.open {
		return nil
	}
	return p.listen()
}

// Refuse closes all connections and refuses new ones, like a machine without a running server.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shut()
	p.end()
}

// TurnAway answers new connections with an error that has the given SQLSTATE, like a server that is starting up (57P03)
// or has too many connections (53300). TurnAway does not close existing connections.
func (p *Proxy) TurnAway(sqlstate string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.turned = sqlstate
}

// Hang stops all forwarding until Pass or Close is called, but keeps connections open, like a suspended server or a
// network that drops every packet.
func (p *Proxy) Hang() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.silent == nil {
		p.silent = make(chan struct{})
	}
}

// Strand stops forwarding on the open connections until Pass or Close is called, and accepts new connections, like a
// firewall that was restarted and drops the packets of connections that it does not know.
func (p *Proxy) Strand() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		if c.silent == nil {
			c.silent = make(chan struct{})
		}
	}
}

// Cut closes all connections immediately. After Cut, the proxy still accepts new connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.end()
}

// LoseAnswers forwards the next n COMMITs to the server, and closes each COMMIT's connection before the answer arrives.
// While the server executes such a COMMIT, the proxy drops all requests to cancel statements.
func (p *Proxy) LoseAnswers(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lose = n
}

// DropCommits closes the connections of the next n COMMITs before they reach the server.
func (p *Proxy) DropCommits(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.drop = n
}

// Tear closes connections in the middle of an answer. The proxy forwards the given number of rows and statement
// results, and then sends only half of each of the next n answers. If n is negative, all subsequent answers are cut
// until Pass is called.
func (p *Proxy) Tear(skip, n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.whole, p.tear = skip, n
}

// Torn returns how many answers the proxy has cut.
func (p *Proxy) Torn() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.torn
}

// Lost returns how many COMMITs were dropped, or were executed without their answers reaching the client. It first
// waits until the server has executed all such COMMITs.
func (p *Proxy) Lost() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.losing > 0 {
		p.settled.Wait()
	}
	return p.lost
}

// Commits returns how many COMMITs clients have sent.
func (p *Proxy) Commits() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.commits
}

// Requests returns how many round trips clients have made. Messages that the server answers in one response count as
// one round trip.
func (p *Proxy) Requests() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.requests
}

// listen opens the listeners. The caller must hold the lock, unless no other goroutine uses p yet.
func (p *Proxy) listen() error {
	for _, w := range p.ways {
		l, err := net.Listen("tcp", w.addr)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		w.listener = l
		p.wg.Go(func() { p.accept(w, l) })
	}
	p.open = true
	return nil
}

func (p *Proxy) accept(w *way, l net.Listener) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		c := &conn{p: p, to: w.server, client: client, commits: map[string]bool{}}
		p.mu.Lock()
		refused := w.listener != l
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

// shut closes the listeners.
func (p *Proxy) shut() {
	p.open = false
	for _, w := range p.ways {
		if w.listener != nil {
			w.listener.Close()
			w.listener = nil
		}
	}
}

// end closes all connections.
func (p *Proxy) end() {
	for c := range p.conns {
		c.close()
	}
}

// speak ends the effect of Hang and of Strand.
func (p *Proxy) speak() {
	if p.silent != nil {
		close(p.silent)
		p.silent = nil
	}
	for c := range p.conns {
		if c.silent != nil {
			close(c.silent)
			c.silent = nil
		}
	}
}

// wait blocks while the proxy or this connection hangs (see Hang and Strand).
func (c *conn) wait() {
	c.p.mu.Lock()
	silent, alone := c.p.silent, c.silent
	c.p.mu.Unlock()
	if silent != nil {
		<-silent
	}
	if alone != nil {
		<-alone
	}
}

// loses reports whether the server is executing a COMMIT whose answer the proxy will lose.
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

// fate is what the proxy does with a COMMIT.
type fate int

const (
	pass fate = iota
	loseAnswer
	dropCommit
)

// commit counts a COMMIT and decides what to do with it.
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
		p.losing++
		return loseAnswer
	}
	return pass
}

// settle notes that a COMMIT whose answer is lost was executed, or that its connection ended before.
func (p *Proxy) settle(executed bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.losing--
	if executed {
		p.lost++
	}
	p.settled.Broadcast()
}

// tears reports whether the proxy must cut the current answer.
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
