package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

const (
	firstWait = 500 * time.Millisecond // wait before the first repetition, if the server names none
	maxWait   = 30 * time.Second       // a longer wait is left to the caller
	// maxResponse is the maximum length of a response, of a row and of an event, in bytes. Downloads have no limit.
	maxResponse = 64 << 20
)

// limitedReader is like io.LimitedReader, but returns an error at the limit, so that a cut response is not mistaken for
// a whole one.
type limitedReader struct {
	r    io.Reader
	left int
}

func (l *limitedReader) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, fmt.Errorf("the response is longer than %d MB", maxResponse>>20)
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}

// operation is a call of an operation of the API.
type operation struct {
	method, path string   // the path has parameters in braces
	args         []string // values of the parameters in the path
	query        url.Values
	body         any   // encoded as JSON; nil for none
	form         *form // instead of body
	keyed        bool  // the operation honors idempotency keys
	accept       string
	header       http.Header // further headers
}

var pathParam = regexp.MustCompile(`\{\w+\}`)

// url returns the path and the query of the operation.
func (o *operation) url() (string, error) {
	n, missing := 0, ""
	path := pathParam.ReplaceAllStringFunc(o.path, func(name string) string {
		value := o.args[n]
		n++
		if value == "" || value == "." || value == ".." {
			missing = strings.Trim(name, "{}")
		}
		return url.PathEscape(value)
	})
	if missing != "" {
		return "", fmt.Errorf("%s %s: the argument for %s is empty or consists of dots", o.method, o.path, missing)
	}
	if len(o.query) > 0 {
		path += "?" + o.query.Encode()
	}
	return path, nil
}

// call calls an operation and decodes its response.
func call[T any](ctx context.Context, c *Client, o operation, options []RequestOption) (*T, error) {
	o.accept = "application/json"
	response, err := c.send(ctx, &o, options)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	out := new(T)
	if err := json.NewDecoder(&limitedReader{response.Body, maxResponse}).Decode(out); err != nil {
		return nil, fmt.Errorf("%s %s: read the response: %w", o.method, o.path, err)
	}
	io.Copy(io.Discard, io.LimitReader(response.Body, 1024)) // so that the connection can be reused
	return out, nil
}

// send sends a request, repeats it if that is safe and useful, and returns the successful response.
func (c *Client) send(ctx context.Context, o *operation, options []RequestOption) (*http.Response, error) {
	ro := requestOptions{headers: http.Header{}}
	for _, option := range options {
		option(&ro)
	}
	path, err := o.url()
	if err != nil {
		return nil, err
	}
	var body []byte
	if o.body != nil {
		if body, err = json.Marshal(o.body); err != nil {
			return nil, fmt.Errorf("%s %s: encode the request: %w", o.method, o.path, err)
		}
	}
	safe := o.method == http.MethodGet || o.keyed && ro.key != ""
	for attempt := 0; ; attempt++ {
		response, err := c.try(ctx, o, path, body, &ro)
		if err == nil {
			if ro.header != nil {
				*ro.header = response.Header
			}
			return response, nil
		}
		if attempt >= c.retries || ctx.Err() != nil || !mayRepeat(err, safe, attempt) || !o.form.rewind(ctx) {
			return nil, err
		}
		wait := firstWait<<min(attempt, 5) + rand.N(firstWait/2)
		if e, ok := errors.AsType[*Error](err); ok && e.RetryAfter > 0 {
			wait = e.RetryAfter
		}
		if wait > maxWait {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), err)
		case <-time.After(wait):
		}
	}
}

// mayRepeat reports whether a request that failed can be repeated. The parameter safe means that a repetition has no
// second effect.
func mayRepeat(err error, safe bool, attempt int) bool {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		return safe
	}
	switch e.Status {
	case http.StatusTooManyRequests:
		// The API applies its rate limits before a request has an effect. Quotas do not recover soon.
		return e.Name == "rate_limit_exceeded" || e.Name == "" && safe
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return safe
	case http.StatusConflict:
		// The first attempt, whose response was lost, may still be in progress.
		return safe && attempt > 0 && e.Name == "concurrent_idempotent_requests"
	}
	return false
}

// try sends a request once. A response that is not a success is returned as an error.
func (c *Client) try(ctx context.Context, o *operation, path string, body []byte, ro *requestOptions) (*http.Response,
	error) {
	var src io.Reader
	contentType := ""
	switch {
	case o.form != nil:
		reader, media := o.form.encode()
		defer reader.Close() // ends the goroutine that encodes the form
		src, contentType = reader, media
	case o.body != nil:
		src, contentType = bytes.NewReader(body), "application/json"
	}
	r, err := http.NewRequestWithContext(ctx, o.method, c.base+path, src)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.method, o.path, err)
	}
	for name, values := range o.header {
		r.Header[name] = values
	}
	for name, values := range ro.headers {
		r.Header[name] = values
	}
	r.Header.Set("Authorization", "Bearer "+c.key)
	r.Header.Set("User-Agent", c.userAgent)
	r.Header.Set("Accept", o.accept)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	if ro.key != "" {
		r.Header.Set("Idempotency-Key", ro.key)
	}
	response, err := c.http.Do(r)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", o.method, o.path, err)
	}
	if response.StatusCode/100 != 2 {
		return nil, readError(r, response)
	}
	return response, nil
}
