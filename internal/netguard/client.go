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

// ErrTooLarge says that a response is longer than its reader allows.
var ErrTooLarge = errors.New("response is too large")

// ErrSlow says that a server trickles its response.
var ErrSlow = errors.New("response comes too slowly")

// Limits of Fetch.
const (
	fetchTimeout   = 30 * time.Second
	fetchRedirects = 3
)

// StatusError is an answer of Fetch that is not 200.
type StatusError struct {
	Code int
}

// Error names the status.
func (e *StatusError) Error() string {
	return fmt.Sprintf("server answered %d %s", e.Code, http.StatusText(e.Code))
}

// Client returns an HTTP client whose connections are all judged. A request ends after timeout, its body included.
// With redirects 0 a redirect is returned as the response; otherwise at most that many are followed, each to a URL
// that CheckURL accepts. Reading a body beyond maxBody bytes, after decompression, is ErrTooLarge. Make a client once
// and keep it: it has a pool of connections of its own.
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
			// A URL may be a secret, and the next host need not be told.
			r.Header.Del("Referer")
			return nil
		},
	}
}

func (g *Guard) transport() *http.Transport {
	return &http.Transport{
		Proxy:                  nil, // Not the environment's: see the package comment.
		DialContext:            g.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    dialTimeout,
		MaxResponseHeaderBytes: 64 << 10,
		MaxIdleConns:           200,
		MaxIdleConnsPerHost:    4,
		IdleConnTimeout:        30 * time.Second,
	}
}

// fetcher is the client of Fetch. Each request has a connection of its own, because the connections to an address are
// counted as its requests.
func (g *Guard) fetcher() *http.Client {
	c := g.Client(0, fetchRedirects, math.MaxInt64-1) // Fetch has limits of its own, of time too.
	t := g.transport()
	t.DialContext = g.dialBounded
	t.ForceAttemptHTTP2 = false
	t.DisableKeepAlives = true
	c.Transport = t
	return c
}

// Fetched is content on its way. Who has it closes it.
type Fetched struct {
	Type   string // as the server wrote it, possibly empty
	Length int64  // octets; -1 where the server did not say

	body  io.ReadCloser
	pace  *paced
	limit *timeLimit
	heard func(error)
	leave func()
}

// timeLimit ends a fetch that takes longer than fetchTimeout, to its headers and then to the end of the body. Between
// the two it stands still: who fetches may wait before reading, and the server has no part in that.
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

// explain returns why a fetch failed: its time, if that is over.
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

// Read reads on. Beyond the limit of Fetch it returns ErrTooLarge, and ErrSlow from a server that trickles.
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

// Close ends the fetch.
func (f *Fetched) Close() error {
	defer f.leave()
	defer f.limit.end()
	return f.body.Close()
}

// Fetch gets what is at a URL: 200 alone is success, in 30 seconds and its body in 30 seconds from the first Read, over
// at most 3 redirects, in at most maxBytes. Owner
// is whose URL it is. At one host and at one address an owner has 4 fetches at most, one where it was kept waiting, and
// all owners 16 together, which they share; who has none waits for its turn until ctx ends. Errors: those of CheckURL,
// ErrRefused, ErrTooLarge, ErrSlow, ErrBusy, *StatusError, and those of the network.
func (g *Guard) Fetch(ctx context.Context, owner, text string, maxBytes int64) (f *Fetched, err error) {
	u, err := g.CheckURL(text)
	if err != nil {
		return nil, fmt.Errorf("URL %w", err)
	}
	host := strings.ToLower(strings.TrimSuffix(u.Hostname(), "."))
	leave, err := g.places.enter(ctx, "name "+host, owner)
	if err != nil {
		return nil, fmt.Errorf("fetch %s: %w", u.Host, err)
	}
	limit := newTimeLimit(context.WithValue(ctx, ownerKey{}, owner))
	heard := func(err error) {
		timeout, ok := errors.AsType[net.Error](err)
		slow := errors.Is(err, ErrSlow) || ok && timeout.Timeout() && !errors.Is(err, ErrBusy)
		if slow || errors.Is(err, io.EOF) {
			g.places.heard("name "+host, owner, slow)
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
		return nil, fmt.Errorf("fetch %s: %w", u.Host, limit.explain(withoutURL(err)))
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

// A server has to send so much on average, in octets a second, once some time has passed.
const (
	leastRate = 4 << 10
	paceAfter = 10 * time.Second
)

// paced is a body that has to come at the least rate.
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

// withoutURL takes the URL out of an error of package http: its path and query may be all that keeps strangers from the
// file, and errors are logged.
func withoutURL(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		return e.Err
	}
	return err
}

// limited caps the bodies of all responses.
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

// CloseIdleConnections lets http.Client.CloseIdleConnections reach the pool.
func (l *limited) CloseIdleConnections() {
	l.next.CloseIdleConnections()
}

// capped is a body of which at most left bytes may be read.
type capped struct {
	io.ReadCloser
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	// One byte more than allowed is asked for: that it comes is what makes the body too large.
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
