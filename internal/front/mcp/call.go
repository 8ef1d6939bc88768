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

// caller is who calls a tool.
type caller struct {
	teams.Actor
	from, token, agent string // of the request: where it came from, its credential, its program
	server             *mcp.Server
	s                  *Server
}

type callerKey struct{}

// callerOf returns who sent the request of a context. The SDK passes its values on to tools.
func callerOf(ctx context.Context) *caller { return ctx.Value(callerKey{}).(*caller) }

// operation is one request to the API.
type operation struct {
	method string
	path   string // escaped
	query  url.Values
	body   any    // made into JSON; nil is none
	key    string // for idempotency; "" is none
}

const (
	replyMax   = 2 << 20 // octets of an answer of the API
	replyTries = 4       // of a request that is over the rate and changes nothing
)

// refusal is an error of the API.
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

// perform does an operation as the caller and reads the answer into out. The error is a *refusal if the API refuses. A
// request that changes nothing and comes too soon waits, because models do not.
func (c *caller) perform(ctx context.Context, o operation, out any) error {
	for try := 1; ; try++ {
		err := c.once(ctx, o, out)
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

func (c *caller) once(ctx context.Context, o operation, out any) error {
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
		return fmt.Errorf("the answer is longer than %d MB; read it by the API: %s %s", replyMax>>20, o.method, o.path)
	case w.status >= http.StatusBadRequest:
		e := &refusal{Status: w.status, Name: "application_error", request: w.header.Get("X-Request-Id")}
		if json.Unmarshal(w.body.Bytes(), e) != nil || e.Name == "" {
			e.Message = "The API has answered in a form that is not its own."
		}
		return e
	}
	if err := json.Unmarshal(w.body.Bytes(), out); err != nil {
		return fmt.Errorf("read the answer of %s %s: %w", o.method, o.path, err)
	}
	return nil
}

// reply keeps an answer of the API.
type reply struct {
	header http.Header
	status int
	body   bytes.Buffer
	over   bool // it was too long, and is not whole
}

// Header implements http.ResponseWriter.
func (w *reply) Header() http.Header { return w.header }

// WriteHeader implements http.ResponseWriter.
func (w *reply) WriteHeader(status int) {
	if w.status == 0 {
		w.status = status
	}
}

// Write implements http.ResponseWriter. What is too much ends the answer.
func (w *reply) Write(p []byte) (int, error) {
	w.WriteHeader(http.StatusOK)
	if w.over = w.over || w.body.Len()+len(p) > replyMax; w.over {
		return 0, errors.New("the answer is too long")
	}
	return w.body.Write(p)
}

// may reports whether the caller has what an operation needs.
func (c *caller) may(op string) bool {
	method, path, _ := strings.Cut(op, " ")
	scope, ok := c.s.Scope(method, path)
	return ok && c.Require(scope) == nil
}

// rest is the whole of a tool that performs one operation: arguments that stand in its path are put there, those of
// query into the query, and the others are the body.
func rest(op string, query ...string) func(ctx context.Context, c *caller, in arguments) (result, error) {
	return func(ctx context.Context, c *caller, in arguments) (result, error) {
		var found any
		err := c.perform(ctx, request(op, in, query...), &found)
		return result{data: found}, err
	}
}

// strange is rest for answers that have text of people who do not belong to the team.
func strange(op string, query ...string) func(ctx context.Context, c *caller, in arguments) (result, error) {
	plain := rest(op, query...)
	return func(ctx context.Context, c *caller, in arguments) (result, error) {
		found, err := plain(ctx, c, in)
		found.strangers = true
		return found, err
	}
}

// request makes the request of rest.
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
			o.query.Set(name, cmp.Or(left.text(name), string(value))) // a number is itself
			delete(left, name)
		}
	}
	if method != http.MethodGet {
		o.body = left
	}
	return o
}

// pages are the names of the arguments of lists.
func pages(more ...string) []string { return append([]string{"limit", "after", "before"}, more...) }

// listed is strange for lists: without a limit they have 20 items.
func listed(op string, query ...string) func(ctx context.Context, c *caller, in arguments) (result, error) {
	all := strange(op, pages(query...)...)
	return func(ctx context.Context, c *caller, in arguments) (result, error) {
		in = maps.Clone(in)
		if _, given := in["limit"]; !given {
			in["limit"] = json.RawMessage("20")
		}
		return all(ctx, c, in)
	}
}
