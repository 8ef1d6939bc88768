package netguard

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"
)

// ErrTooLarge says that a response is longer than its reader allows.
var ErrTooLarge = errors.New("response is too large")

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
// With redirects 0 a redirect is returned as the response; otherwise at most that many are followed, each to a URL that
// CheckURL accepts. Reading a body beyond maxBody bytes, after decompression, is ErrTooLarge. Make a client once and keep
// it: it has a pool of connections of its own.
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

// Fetch gets what is at a URL: 200 alone is success, in 30 seconds, over at most 3 redirects, in at most maxBytes. The
// content type is as the server wrote it, possibly empty. Errors: those of CheckURL, ErrRefused, ErrTooLarge,
// *StatusError, and those of the network.
func (g *Guard) Fetch(ctx context.Context, text string, maxBytes int64) (body []byte, contentType string, err error) {
	u, err := g.CheckURL(text)
	if err != nil {
		return nil, "", fmt.Errorf("URL %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, "", fmt.Errorf("request %s: %w", u.Host, err)
	}
	req.Header.Set("User-Agent", "Postrider")
	resp, err := g.fetch.Do(req)
	if err != nil {
		return nil, "", fmt.Errorf("fetch %s: %w", u.Host, withoutURL(err))
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, "", fmt.Errorf("fetch %s: %w", u.Host, &StatusError{resp.StatusCode})
	}
	if resp.ContentLength > maxBytes {
		return nil, "", fmt.Errorf("fetch %s: %w: %d bytes, at most %d are taken", u.Host, ErrTooLarge, resp.ContentLength, maxBytes)
	}
	body, err = io.ReadAll(&capped{ReadCloser: resp.Body, left: maxBytes})
	if err != nil {
		return nil, "", fmt.Errorf("fetch %s: %w", u.Host, err)
	}
	return body, resp.Header.Get("Content-Type"), nil
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
