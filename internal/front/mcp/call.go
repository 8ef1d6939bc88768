package mcp

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/postrider/postrider/internal/accounts/teams"
)

// caller is the actor who calls a tool.
type caller struct {
	teams.Actor
	from, token, agent string // client address, Authorization header and User-Agent of the HTTP request
	server             *mcp.Server
	s                  *Server
}

type callerKey struct{}

// callerOf returns the caller stored in a request's context. The SDK passes the context's values to tools.
func callerOf(ctx context.Context) *caller { return ctx.Value(callerKey{}).(*caller) }

// operation is a single request to the API.
type operation struct {
	method string
	path   string // escaped
	query  url.Values
	body   any    // encoded as JSON; nil means no body
	key    string // idempotency key; "" means none
}

const (
	replyMax   = 2 << 20 // maximum size of an API response in bytes
	replyTries = 4       // maximum number of attempts for a GET request that exceeds the rate limit
)

// refusal is an error response from the API.
type refusal struct {
	Status  int    `json:"statusCode"`
	Name    string `json:"name"`
	Message string `json:"message"`
	request string
}

func (e *refusal) Error() string {
	text := fmt.Sprintf("%s (%d): %s", e.Name, e.Status, e.Message)
	if e.Status >= http.StatusInternalServerError {
		text += " The request is " + e.request + "."
	}
	return text
}

// perform performs an API operation as the caller and decodes the response into out. If the API returns an error
// response, the error is a *refusal. If a GET request exceeds the rate limit, perform waits and retries, because models
// do not wait on their own.
func (c *caller) perform(ctx context.Context, o operation, out any) error {
	for try := 1; ; try++ {
		err := c.performOnce(ctx, o, out)
		e, ok := errors.AsType[*refusal](err)
		if !ok || e.Name != "rate_limit_exceeded" || o.method != http.MethodGet || try == replyTries {
			return err
		}
		wait := time.NewTimer(time.Second)
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return err
		}
	}
}

func (c *caller) performOnce(ctx context.Context, o operation, out any) error {
	var body io.Reader
	if o.body != nil {
		text, err := encoded(o.body)
		if err != nil {
			return fmt.Errorf("encode the request: %w", err)
		}
		body = bytes.NewReader(text)
	}
	target := o.path
	if len(o.query) > 0 {
		target += "?" + o.query.Encode()
	}
	r, err := http.NewRequestWithContext(ctx, o.method, target, body)
	if err != nil {
		return fmt.Errorf("make the request: %w", err)
	}
	r.RequestURI, r.RemoteAddr = target, c.from
	r.Header.Set("Authorization", c.token)
	r.Header.Set("User-Agent", strings.TrimSpace("Postrider-MCP/"+c.s.Version+" "+c.agent))
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	if o.key != "" {
		r.Header.Set("Idempotency-Key", o.key)
	}
	w := &reply{header: http.Header{}}
	c.s.API.ServeHTTP(w, r)
	switch {
	case w.over:
		return fmt.Errorf("the answer is longer than %d MB; use the API instead: %s %s", replyMax>>20, o.method, o.path)
	case w.status >= http.StatusBadRequest:
		e := &refusal{Status: w.status, Name: "application_error", request: w.header.Get("X-Request-Id")}
		if json.Unmarshal(w.body.Bytes(), e) != nil || e.Name == "" {
			e.Message = "The API returned an answer that is not an error object."
		}
		return e
	}
	if err := json.Unmarshal(w.body.Bytes(), out); err != nil {
		return fmt.Errorf("read the answer of %s %s: %w", o.method, o.path, err)
	}
	return nil
}

// reply collects an API response in memory.
type reply struct {
	header http.Header
	status int
	body   bytes.Buffer
	over   bool // the response exceeded replyMax, so body is incomplete
}

// Header implements http.ResponseWriter.
func (w *reply) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *reply) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write implements http.ResponseWriter. Write fails if the response exceeds replyMax.
func (w *reply) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.over = w.over || w.body.Len()+len(p) > replyMax; w.over {
		return 0, errors.New("the answer is too long")
	}
	return w.body.Write(p)
}

// may reports whether the caller has the scope that the operation requires.
func (c *caller) may(op string) bool {
	method, path, _ := strings.Cut(op, " ")
	scope, ok := c.s.Scope(method, path)
	return ok && c.Require(scope) == nil
}

// runOperation returns the run function for a tool that performs one API operation. Arguments named in the path pattern
// replace path parameters, and arguments listed in query become query parameters. All other arguments become the
// request body.
func runOperation(op string, query ...string) func(ctx context.Context, c *caller, in arguments) (result, error) {
	return func(ctx context.Context, c *caller, in arguments) (result, error) {
		var found any
		err := c.perform(ctx, request(op, in, query...), &found)
		return result{data: found}, err
	}
}

// request returns the API request that runOperation sends.
func request(op string, in arguments, query ...string) operation {
	method, path, _ := strings.Cut(op, " ")
	left := maps.Clone(in)
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if name, ok := strings.CutPrefix(s, "{"); ok {
			name = strings.TrimSuffix(name, "}")
			segments[i] = url.PathEscape(in.text(name))
			delete(left, name)
		}
	}
	o := operation{method: method, path: strings.Join(segments, "/"), query: url.Values{}}
	for _, name := range query {
		if value, ok := left[name]; ok {
			o.query.Set(name, cmp.Or(left.text(name), string(value))) // numbers are passed as JSON
			delete(left, name)
		}
	}
	if method != http.MethodGet {
		o.body = left
	}
	return o
}

// pages returns the names of the pagination arguments, followed by the names in more.
func pages(more ...string) []string { return append([]string{"limit", "after", "before"}, more...) }

// runList is like runOperation, but for lists. The default limit is 20 items.
func runList(op string, query ...string) func(ctx context.Context, c *caller, in arguments) (result, error) {
	all := runOperation(op, pages(query...)...)
	return func(ctx context.Context, c *caller, in arguments) (result, error) {
		in = maps.Clone(in)
		if _, given := in["limit"]; !given {
			in["limit"] = json.RawMessage("20")
		}
		return all(ctx, c, in)
	}
}
