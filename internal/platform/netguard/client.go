package netguard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"time"
)

// ErrTooLarge means that a response is longer than allowed.
var ErrTooLarge = errors.New("response is too large")

// ErrSlow means that a server sends its response too slowly.
var ErrSlow = errors.New("response comes too slowly")

// Limits of Fetch.
const (
	fetchTimeout   = 30 * time.Second
	fetchRedirects = 3
)

// StatusError is the error that Fetch returns for a response whose status is not 200.
type StatusError struct {
	Code int
}

// Error returns a message that names the HTTP status.
func (e *StatusError) Error() string {
	return fmt.Sprintf("server answered %d %s", e.Code, http.StatusText(e.Code))
}

// Client returns an HTTP client that checks the address of each connection. A request, including its body, ends after
// timeout. If redirects is 0, the client returns a redirect as the response. If redirects is greater than 0, the client
// follows at most that many redirects, each to a URL that CheckURL accepts. Reading more than maxBody bytes of a
// decompressed body returns ErrTooLarge. Each client has its own connection pool, so callers should create a client
// once and reuse it.
func (g *Guard) Client(timeout time.Duration, redirects int, maxBody int64) *http.Client {
	return &http.Client{
		Timeout:   timeout,
		Transport: &limited{g.transport(), maxBody},
		CheckRedirect: func(r *http.Request, via []*http.Request) error {
			if redirects == 0 {
				return http.ErrUseLastResponse
			}
			if len(via) > redirects {
				return fmt.Errorf("more than %d redirects", redirects)
			}
			if _, err := g.CheckURL(r.URL.String()); err != nil {
				return fmt.Errorf("redirect: URL %w", err)
			}
			// The URL may be secret, so it must not be sent to the next host as the referrer.
			r.Header.Del("Referer")
			return nil
		},
	}
}

func (g *Guard) transport() *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // proxies from the environment are not used: see the package comment
		DialContext:            g.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    dialTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConns:           200,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        30 * time.Second,
	}
}

// fetcher returns the HTTP client for Fetch. Each request uses its own connection, because the limit on requests per
// address counts connections.
func (g *Guard) fetcher() *http.Client {
	c := g.Client(0, fetchRedirects, math.MaxInt64-1) // Fetch applies its own size and time limits.
	t := g.transport()
	t.DialContext = g.dialBounded
	t.ForceAttemptHTTP2 = false
	t.DisableKeepAlives = true
	c.Transport = t
	return c
}

// Fetched is the response that Fetch returns. Callers must close a Fetched after use.
type Fetched struct {
	Type   string // Content-Type as the server sent it; may be empty
	Length int64  // length of the body in bytes; -1 if the server did not send it

	body  io.ReadCloser
	pace  *paced
	limit *timeLimit
	heard func(error)
	leave func()
}

// timeLimit ends a fetch if its headers take longer than fetchTimeout, or if its body takes longer than fetchTimeout
// from the first Read. The time between the headers and the first Read does not count, because the caller may wait
// before it reads.
type timeLimit struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	timer  *time.Timer
}

func newTimeLimit(ctx context.Context) *timeLimit {
	l := &timeLimit{}
	l.ctx, l.cancel = context.WithCancelCause(ctx)
	l.timer = time.AfterFunc(fetchTimeout, func() { l.cancel(os.ErrDeadlineExceeded) })
	return l
}

// explain returns the time limit's error if the limit ended the fetch. If the fetch failed for another reason, explain
// returns err.
func (l *timeLimit) explain(err error) error {
	if err != nil && context.Cause(l.ctx) == os.ErrDeadlineExceeded {
		return fmt.Errorf("no more within %v: %w", fetchTimeout, os.ErrDeadlineExceeded)
	}
	return err
}

func (l *timeLimit) end() {
	l.timer.Stop()
	l.cancel(nil)
}

// Read reads the body of the response. Read returns ErrTooLarge if the body exceeds the limit passed to Fetch, and
// ErrSlow if the server sends too slowly.
func (f *Fetched) Read(p []byte) (int, error) {
	if f.pace.since.IsZero() {
		f.pace.since = time.Now()
		f.limit.timer.Reset(fetchTimeout)
	}
	n, err := f.body.Read(p)
	if err = f.limit.explain(err); err != nil {
		f.heard(err)
	}
	return n, err
}

// Close ends the fetch and releases its slots.
func (f *Fetched) Close() error {
	defer f.leave()
	defer f.limit.end()
	return f.body.Close()
}

// Fetch downloads a URL. A response with a status other than 200 is an error. The headers must arrive within 30
// seconds, after at most 3 redirects. The body may have at most maxBytes bytes. It must arrive within 30 seconds from
// the first Read, at a rate of at least 4 KB per second.
//
// The owner parameter is the team for which the URL is fetched. An owner may run 4 fetches at a time from each host and
// from each address. If the host was slow for this owner in the last 5 minutes, the owner may run only one. All owners
// together may run 16 fetches from one host, which they share as described in package fairshare. If all slots are in
// use, Fetch waits for a slot and returns ErrBusy if ctx ends first. Fetch may also return ErrRefused, ErrTooLarge,
// ErrSlow, a *StatusError, network errors, and errors from CheckURL. If the machine's DNS servers do not work, the
// error is an outage (fault.IsOutage).
func (g *Guard) Fetch(ctx context.Context, owner, text string, maxBytes int64) (f *Fetched, err error) {
	u, err := g.CheckURL(text)
	if err != nil {
		return nil, fmt.Errorf("URL %w", err)
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	leave, err := g.slots.acquire(ctx, "name "+host, owner)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", u.Host, err)
	}
	limit := newTimeLimit(context.WithValue(ctx, ownerKey{}, owner))
	heard := func(err error) {
		timeout, ok := errors.AsType[net.Error](err)
		slow := errors.Is(err, ErrSlow) || ok && timeout.Timeout() && !errors.Is(err, ErrBusy)
		if slow || errors.Is(err, io.EOF) {
			g.slots.heard("name "+host, owner, slow)
		}
	}
	defer func() {
		if f == nil {
			heard(err)
			limit.end()
			leave()
		}
	}()
	req, err := http.NewRequestWithContext(limit.ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("request %s: %w", u.Host, err)
	}
	req.Header.Set("User-Agent", "Postrider")
	resp, err := g.fetch.Do(req)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", u.Host, g.explainDNS(ctx, limit.explain(withoutURL(err))))
	}
	if resp.StatusCode != http.StatusOK {
		err = &StatusError{resp.StatusCode}
	} else if resp.ContentLength > maxBytes {
		err = fmt.Errorf("%w: %d bytes, at most %d are taken", ErrTooLarge, resp.ContentLength, maxBytes)
	}
	if err != nil {
		resp.Body.Close()
		return nil, fmt.Errorf("fetch %s: %w", u.Host, err)
	}
	limit.timer.Stop()
	body := &paced{ReadCloser: resp.Body}
	return &Fetched{Type: resp.Header.Get("Content-Type"), Length: resp.ContentLength, heard: heard, leave: leave,
		body: &capped{ReadCloser: body, left: maxBytes}, pace: body, limit: limit}, nil
}

// leastRate is the lowest allowed average rate of a response, in bytes per second. The minimum rate applies after
// paceAfter.
const (
	leastRate = 4 << 10
	paceAfter = 10 * time.Second
)

// paced is a response body that must arrive at a rate of at least leastRate.
type paced struct {
	io.ReadCloser
	since time.Time
	n     int64
}

func (p *paced) Read(b []byte) (int, error) {
	n, err := p.ReadCloser.Read(b)
	p.n += int64(n)
	if took := time.Since(p.since); err == nil && took > paceAfter && float64(p.n) < took.Seconds()*leastRate {
		return n, ErrSlow
	}
	return n, err
}

// withoutURL removes the URL from an error that package http returned. Errors are logged, and a URL's path or query may
// be the only secret that protects a file.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// limited is a transport that limits the size of all response bodies.
type limited struct {
	next *http.Transport
	max  int64
}

func (l *limited) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(r)
	if err == nil {
		resp.Body = &capped{ReadCloser: resp.Body, left: l.max}
	}
	return resp, err
}

// CloseIdleConnections closes the pool's idle connections; http.Client.CloseIdleConnections calls it.
func (l *limited) CloseIdleConnections() {
	l.next.CloseIdleConnections()
}

// capped is a response body from which only a limited number of bytes can be read. The left field holds the number of
// bytes that remain.
type capped struct {
	io.ReadCloser
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	// Read requests one byte more than the limit allows. If this additional byte arrives, the body is too large.
	if int64(len(p)) > c.left+1 {
		p = p[:c.left+1]
	}
	n, err := c.ReadCloser.Read(p)
	if int64(n) > c.left {
		n = int(c.left)
		c.left = 0
		return n, ErrTooLarge
	}
	c.left -= int64(n)
	return n, err
}
