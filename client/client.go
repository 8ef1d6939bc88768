package client

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"
)

// defaultRetries is the number of times that a request is repeated unless [WithRetries] says otherwise.
const defaultRetries = 3

// Client calls the API with one API key. Many goroutines can use a Client at the same time.
type Client struct {
	Services

	base      string // URL of the API without a slash at the end
	key       string
	http      *http.Client
	userAgent string
	retries   int
}

// Option changes a new Client.
type Option func(c *Client)

// WithHTTPClient makes the client send its requests with h. Without this option, a client has its own connections,
// follows no redirects, and waits up to two minutes for the beginning of a response.
func WithHTTPClient(h *http.Client) Option { return func(c *Client) { c.http = h } }

// WithUserAgent puts the name of the calling program, such as "billing/1.4", before the client's own name in the
// User-Agent header.
func WithUserAgent(name string) Option {
	return func(c *Client) { c.userAgent = strings.TrimSpace(name + " " + ownUserAgent()) }
}

// WithRetries sets how often a request is repeated; 0 means never.
func WithRetries(n int) Option { return func(c *Client) { c.retries = max(n, 0) } }

// New returns a client for the API at a URL, such as https://mail.example.com or http://127.0.0.1:3000. The key is an
// API key or an access token of a connected app.
func New(baseURL, key string, options ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	switch {
	case err != nil: // err contains the URL, which may have a password
		return nil, errors.New("the URL of the API cannot be parsed; write it as https://mail.example.com")
	case u.User != nil:
		return nil, errors.New("the URL of the API must have no user and password")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("the URL of the API is %q; it must begin with https:// or http:// and name a host", baseURL)
	case u.RawQuery != "" || u.Fragment != "":
		return nil, errors.New("the URL of the API must have no query or fragment")
	case key == "":
		return nil, errors.New("the API key is empty")
	case strings.ContainsAny(key, " \t\r\n"):
		return nil, errors.New("the API key contains white space")
	}
	c := &Client{base: strings.TrimRight(u.String(), "/"), key: key, userAgent: ownUserAgent(), retries: defaultRetries}
	for _, o := range options {
		o(c)
	}
	if c.http == nil {
		c.http = newHTTPClient()
	}
	c.Services = newServices(c)
	return c, nil
}

// newHTTPClient returns an HTTP client with its own connections. It follows no redirects, because a redirected POST
// would become a GET.
func newHTTPClient() *http.Client {
	h := &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if t, ok := http.DefaultTransport.(*http.Transport); ok {
		t = t.Clone()
		t.ResponseHeaderTimeout = 2 * time.Minute
		h.Transport = t
	}
	return h
}

// ownUserAgent returns the name and the version of this package.
func ownUserAgent() string {
	const module = "github.com/postrider/postrider"
	version := ""
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range append(info.Deps, &info.Main) {
			if m.Path == module {
				version = m.Version
			}
		}
	}
	return "postrider-go/" + strings.Trim(cmp.Or(version, "devel"), "()")
}

// RequestOption changes one request.
type RequestOption func(r *requestOptions)

type requestOptions struct {
	key     string
	headers http.Header
	header  *http.Header // receives the header of the response
}

// WithIdempotencyKey sends a key of 1 to 256 characters. A second request with the same key and the same content within
// 24 hours has no effect and gets the response of the first request, so that the request can be repeated safely. The
// documentation of each method says whether its operation honors keys; other operations ignore them.
func WithIdempotencyKey(key string) RequestOption { return func(r *requestOptions) { r.key = key } }

// WithHeader sets a header of the request, such as x-batch-validation.
func WithHeader(name, value string) RequestOption {
	return func(r *requestOptions) { r.headers.Set(name, value) }
}

// WithResponseHeader stores the header of the response in h. Some headers contain quotas (x-resend-daily-quota) or a
// warning (Postrider-Warning).
func WithResponseHeader(h *http.Header) RequestOption {
	return func(r *requestOptions) { r.header = h }
}
