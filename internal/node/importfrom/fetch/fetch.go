// Package fetch reads JSON documents from the APIs of other email products, for the sources of package importfrom.
//
// # Invariants
//
// A response has at most Options.MaxBody bytes, and takes at most Options.Timeout. Redirects are not followed, because
// they would carry the key to another host; for the same reason, a path begins with a slash. The key is part of
// Options.Header and occurs in no error, even if the server repeats it.
//
// # Failures
//
// A request that fails with 429, 5xx or without a response is repeated, after the time that the server names in
// Retry-After, or else with exponential backoff. The eighth such failure is returned. If the server says that no
// requests are left in the current window (ratelimit-remaining), the next request waits for its end. All other failures
// are returned as a *StatusError.
//
// # Out of scope
//
// The package knows no product, and does not restrict addresses: the operator chooses the server.
package fetch

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Limits of requests.
const (
	tries       = 8
	firstWait   = time.Second
	longestWait = time.Minute
	// patience is the longest time that a server may ask for. The import then stops, and can be continued.
	patience = 15 * time.Minute
	maxSaid  = 300 // maximum length of a server's error message, in bytes
	// minSecret is the length from which on a credential is removed from messages. Shorter texts occur by chance.
	minSecret = 4
)

// Options configures a Client.
type Options struct {
	URL     string      // base of the API, such as https://api.example.com/v1
	Header  http.Header // of each request, with the credential
	Name    string      // of the product, for errors
	MaxBody int64       // 0 means 32 MiB
	Timeout time.Duration

	// Wait waits for a time; nil means a timer. Tests replace it.
	Wait func(ctx context.Context, d time.Duration) error
}

// Client reads from one API.
type Client struct {
	o    Options
	base string
	http *http.Client

	mu    sync.Mutex
	until time.Time // no request may begin before
}

// New returns a client, or an error if the URL is not usable.
func New(o Options) (*Client, error) {
	u, err := url.Parse(o.URL)
	if err != nil {
		return nil, errors.New("the URL of the API cannot be parsed: write it as https://api.example.com")
	}
	if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" {
		return nil, fmt.Errorf("%q is not the URL of an API: write it as https://api.example.com", u.Redacted())
	}
	if u.Scheme == "http" && !isNear(u.Hostname()) {
		return nil, fmt.Errorf("%s would send the key without encryption: use https, or a host of a private network", u.Redacted())
	}
	o.MaxBody = cmp.Or(o.MaxBody, 32<<20)
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	if o.Wait == nil {
		o.Wait = wait
	}
	return &Client{o: o, base: strings.TrimSuffix(u.String(), "/"), http: &http.Client{Timeout: o.Timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}, nil
}

// isNear reports whether a host is this machine or in a private network, as far as its name shows.
func isNear(host string) bool {
	ip := net.ParseIP(host)
	return ip == nil && !strings.Contains(host, ".") || ip != nil && (ip.IsLoopback() || ip.IsPrivate())
}

// URL returns the base of the API.
func (c *Client) URL() string { return c.base }

// StatusError is a response other than 2xx.
type StatusError struct {
	Name   string // of the product
	Path   string
	Status int
	Said   string // the server's message
}

func (e *StatusError) Error() string {
	text := fmt.Sprintf("%s answered %s with %d", e.Name, e.Path, e.Status)
	if e.Said != "" {
		text += ": " + e.Said
	}
	if e.Status == http.StatusUnauthorized || e.Status == http.StatusForbidden {
		text += " (check the key and what it may read)"
	}
	return text
}

// Status returns the status of a response that caused err, or 0.
func Status(err error) int {
	if e, ok := errors.AsType[*StatusError](err); ok {
		return e.Status
	}
	return 0
}

// Get reads the document at a path below the base into the variable that into points to.
func (c *Client) Get(ctx context.Context, path string, query url.Values, into any) error {
	if !strings.HasPrefix(path, "/") { // it could end the name of the host, as in "@example.net/"
		return fmt.Errorf("%s named the page %q, which may lead to another address than %s", c.o.Name, path, c.base)
	}
	address := c.base + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	for try := 1; ; try++ {
		if err := c.pace(ctx); err != nil {
			return err
		}
		after, err := c.once(ctx, address, path, into)
		if err == nil || ctx.Err() != nil {
			return cmp.Or(ctx.Err(), err)
		}
		if after < 0 || try == tries {
			return err
		}
		if after == 0 {
			after = min(firstWait<<(try-1), longestWait)
		}
		if after > patience {
			return fmt.Errorf("%w; it asks to wait for %s: continue the import later", err, after)
		}
		c.holdUntil(time.Now().Add(after))
		if err := c.o.Wait(ctx, after); err != nil {
			return err
		}
		c.holdUntil(time.Time{})
	}
}

// once makes one request. If it fails, after is the time until the next try: -1 for never, and 0 if the server named
// none.
func (c *Client) once(ctx context.Context, address, path string, into any) (after time.Duration, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, http.NoBody)
	if err != nil {
		return -1, fmt.Errorf("make a request to %s: %w", c.o.Name, err)
	}
	for name, values := range c.o.Header {
		r.Header[name] = values
	}
	r.Header.Set("Accept", "application/json")
	answer, err := c.http.Do(r)
	if err != nil {
		return 0, fmt.Errorf("ask %s: %w", c.o.Name, err)
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(io.LimitReader(answer.Body, c.o.MaxBody+1))
	switch {
	case answer.StatusCode/100 != 2:
		e := &StatusError{c.o.Name, path, answer.StatusCode, c.said(body)}
		if e.Status == http.StatusTooManyRequests || e.Status/100 == 5 && e.Status != http.StatusNotImplemented {
			return retryAfter(answer.Header), e
		}
		return -1, e
	case err != nil:
		return 0, fmt.Errorf("read %s of %s: %w", path, c.o.Name, err)
	case int64(len(body)) > c.o.MaxBody:
		return -1, fmt.Errorf("%s of %s has more than %d bytes", path, c.o.Name, c.o.MaxBody)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return -1, fmt.Errorf("%s of %s is not the JSON that its documentation describes: %w", path, c.o.Name, err)
	}
	c.observe(answer.Header)
	return 0, nil
}

// pace waits until the server accepts requests again.
func (c *Client) pace(ctx context.Context) error {
	c.mu.Lock()
	left := time.Until(c.until)
	c.mu.Unlock()
	if left <= 0 {
		return nil
	}
	return c.o.Wait(ctx, left)
}

// holdUntil makes all requests wait until a time; the zero time lets them begin.
func (c *Client) holdUntil(at time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.until = at
}

// observe makes the next request wait if the server says that no request is left in this window.
func (c *Client) observe(h http.Header) {
	left, err := strconv.Atoi(h.Get("Ratelimit-Remaining"))
	if err != nil || left > 0 {
		return
	}
	seconds, err := strconv.Atoi(h.Get("Ratelimit-Reset"))
	if err == nil && seconds > 0 && seconds <= int(patience/time.Second) {
		c.holdUntil(time.Now().Add(time.Duration(seconds) * time.Second))
	}
}

// retryAfter returns the time that a response names in Retry-After, in seconds or as a date, or 0.
func retryAfter(h http.Header) time.Duration {
	text := h.Get("Retry-After")
	if seconds, err := strconv.Atoi(text); err == nil && seconds >= 0 {
		return max(time.Duration(seconds)*time.Second, time.Millisecond)
	}
	if at, err := http.ParseTime(text); err == nil {
		return max(time.Until(at), time.Millisecond)
	}
	return 0
}

// said returns the message of an error response in printable form and without the key. Products call its member
// message, Message, error or errors.
func (c *Client) said(body []byte) string {
	var m struct {
		Message string `json:"message"`
		Error   any    `json:"error"`
		Errors  []struct{ Message string }
	}
	text := ""
	if json.Unmarshal(body, &m) == nil {
		text = m.Message
		if of, ok := m.Error.(string); ok {
			text = cmp.Or(text, of)
		}
		if len(m.Errors) > 0 {
			text = cmp.Or(text, m.Errors[0].Message)
		}
	}
	for _, secret := range secrets(c.o.Header) {
		text = strings.ReplaceAll(text, secret, "[key]")
	}
	if len(text) > maxSaid {
		text = strings.ToValidUTF8(text[:maxSaid], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, text)
}

// secrets returns the credentials in a header, longest first: values, and the parts of values of the schemes Bearer and
// Basic.
func secrets(h http.Header) (all []string) {
	for _, values := range h {
		for _, v := range values {
			credential := v[strings.LastIndexByte(v, ' ')+1:]
			all = append(all, v, credential)
			if decoded, err := base64.StdEncoding.DecodeString(credential); err == nil {
				_, password, _ := strings.Cut(string(decoded), ":")
				all = append(all, string(decoded), password)
			}
		}
	}
	all = slices.DeleteFunc(all, func(s string) bool { return len(s) < minSecret })
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return all
}

func wait(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
