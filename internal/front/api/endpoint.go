package api

import (
	"context"
	"math"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-chi/chi/v5"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/erasure"
	"github.com/postrider/postrider/internal/platform/page"
	"github.com/postrider/postrider/internal/sending/emails"
)

// open takes the place of a scope for operations without authentication. No actor has it.
const open = teams.Scope(math.MaxUint8)

// op is one operation of the API.
type op struct {
	method, path string
	scope        teams.Scope // that an actor needs, or open
	status       int         // of a successful response
	tag, summary string
	query        []string // names of query parameters, for the document; openapi.go describes them
	bound
}

// isAlias reports whether the operation is another name for one that has a tag.
func (o op) isAlias() bool { return o.tag == "" && o.scope != open }

// bound is a function of the API with its types erased.
type bound struct {
	in, out reflect.Type
	form    bool     // the body is a form, which call reads
	media   []string // of an answer that is a stream; nil means JSON that is made whole
	act     act      // how it is recorded in the audit log
	call    func(ctx context.Context, c *Call) (any, error)
}

// none is the request type of operations without input: the body is ignored.
type none struct{}

// takesBody reports whether the operation has input in a body.
func (b bound) takesBody() bool { return b.in != reflect.TypeFor[none]() }

// Call is one request to an operation.
type Call struct {
	teams.Actor
	Request *http.Request
	Header  http.Header // of the response
	Status  int         // of a successful response; an operation may change it
	body    []byte
	query   url.Values
	w       *recorder   // of an operation that reads a form
	scope   teams.Scope // of the operation
	path    string      // that is logged in place of the request's, when it is set
	done    func()      // set by an operation whose answer is made of counted memory; called when it is made
	memory  answerMemory
}

// endpoint makes an operation of a function. It panics if In has a list or a map without a limit.
func endpoint[In, Out any](f func(ctx context.Context, c *Call, in In) (Out, error)) bound {
	b := bound{in: reflect.TypeFor[In](), out: reflect.TypeFor[Out]()}
	if at := unbounded(b.in, b.in.String()); at != "" {
		panic("api: " + at + " has no limit: make it a type of bounded.go")
	}
	takesBody := b.takesBody()
	b.call = func(ctx context.Context, c *Call) (any, error) {
		var in In
		if takesBody {
			if err := decode(c.body, c.Request.Header.Get("Content-Type"), &in); err != nil {
				return nil, err
			}
			if c.Request.Method == http.MethodPatch {
				if err := changesNothing(c.body, b.in, in); err != nil {
					return nil, err
				}
			}
		}
		return f(ctx, c, in)
	}
	return b
}

// serve answers a request to one operation.
func (a *API) serve(w *recorder, r *http.Request, o *op) {
	if o.scope != open {
		if err := a.enter(w, r); err != nil {
			a.fail(w, r, err)
			return
		}
	}
	a.perform(w, r, o)
}

// perform executes one operation for the authenticated actor.
func (a *API) perform(w *recorder, r *http.Request, o *op) {
	c := &Call{Actor: w.actor, Request: r, Header: w.Header(), Status: o.status, w: w, scope: o.scope,
		memory: answerMemory{pool: a.answers, team: w.actor.TeamID}}
	var err error
	if o.scope != open {
		if err = c.Require(o.scope); err != nil {
			a.fail(w, r, err)
			return
		}
	}
	if c.query, err = readURL(r.URL); err != nil {
		a.fail(w, r, err)
		return
	}
	if o.takesBody() && !o.form {
		began := time.Now()
		c.body, w.done, err = a.read(w, r)
		if err == nil && o.scope != open && time.Since(began) > slowBody {
			err = a.still(w, r, o.scope)
		}
		if err != nil {
			a.fail(w, r, err)
			return
		}
		w.body = c.body
	}
	defer c.finished()
	before := w.done
	w.done = func() {
		c.memory.shrink(0)
		if before != nil {
			before()
		}
	}
	ctx := r.Context()
	if o.act.action != "" && !o.act.shown {
		ctx = audit.With(ctx, c.entry(o.act))
	}
	out, err := o.call(ctx, c)
	w.path = c.path
	if err == nil && o.act.shown {
		err = a.Services.Audit.Write(ctx, c.entry(o.act))
	}
	if o.showsQuota() {
		a.showQuota(r.Context(), c, err)
	}
	if err != nil {
		a.fail(w, r, err)
		return
	}
	s, streams := out.(stream)
	if l, ok := out.(interface{ long() (stream, bool) }); ok {
		s, streams = l.long()
	}
	if streams {
		a.stream(w, r, o, s)
		return
	}
	answer, err := encode(out)
	if err != nil {
		a.fail(w, r, err)
		return
	}
	a.answer(w, r, c, answer)
}

// finished gives back the memory of what the answer is made of.
func (c *Call) finished() {
	if done := c.done; done != nil {
		c.done = nil
		done()
	}
}

// Bounds of a query. An operation bounds the values of its own parameters.
const (
	maxParameters = 1000
	maxParameter  = 8 << 10 // octets of a value: a hundred ids are less than 4,000
)

// readURL reads the query and refuses text that the database cannot store: in the path and in every parameter,
// whether an operation uses it or not.
func readURL(u *url.URL) (url.Values, error) {
	if !isText(u.Path) {
		return nil, fault.New(fault.BadID, "", "The path must be UTF-8 text without NUL characters.")
	}
	if u.RawQuery == "" {
		return nil, nil
	}
	if strings.Count(u.RawQuery, "&") >= maxParameters {
		return nil, fault.Invalidf("", "The query has more than %d parameters.", maxParameters)
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fault.Invalidf("",
			"The query cannot be read: write a percent sign as %%25 and a semicolon as %%3B.").Because(err)
	}
	for name, values := range q {
		if len(name) > maxParameter || !isText(name) {
			return nil, fault.Invalidf("", "The names of parameters must be short UTF-8 text without NUL characters.")
		}
		for _, v := range values {
			switch {
			case !isText(v):
				return nil, fault.Invalidf(name, "The `%s` parameter must be UTF-8 text without NUL characters.", name)
			case len(v) > maxParameter:
				return nil, fault.Invalidf(name, "The `%s` parameter is longer than %d octets.", name, maxParameter)
			}
		}
	}
	return q, nil
}

func isText(s string) bool { return utf8.ValidString(s) && strings.IndexByte(s, 0) < 0 }

// Param returns a segment of the path, decoded; a plus in a path is a plus.
func (c *Call) Param(name string) string {
	text := chi.URLParam(c.Request, name)
	if c.Request.URL.RawPath == "" {
		return text // the router saw the decoded path
	}
	if decoded, err := url.PathUnescape(text); err == nil {
		return decoded
	}
	return text
}

// conceal keeps an address that stands in the path out of the logs.
func (c *Call) conceal(address string) {
	if a, err := erasure.Parse(address); err == nil {
		c.path = a.Replace(c.Request.URL.Path)
	}
}

// ID returns a segment of the path that must be an id, in lower case.
func (c *Call) ID(name string) (string, error) {
	text := c.Param(name)
	if !id.Valid(text) {
		return "", fault.New(fault.BadID, name, "The `%s` must be a valid UUID.", name)
	}
	return strings.ToLower(text), nil
}

// Query returns the parameters of the query. An operation ignores those that are not its own.
func (c *Call) Query() url.Values { return c.query }

// Page reads the cursor and the limit. Without a limit the default applies; 0 means all.
func (c *Call) Page(deflt int) (page.Page, error) {
	q := c.Query()
	p := page.Page{Limit: deflt, After: strings.ToLower(q.Get("after")), Before: strings.ToLower(q.Get("before"))}
	if q.Has("limit") {
		n, err := strconv.Atoi(q.Get("limit"))
		if err != nil || n < 1 || n > 100 {
			return p, fault.Invalidf("limit", "The `limit` parameter must be a number from 1 to 100.")
		}
		p.Limit = n
	}
	if q.Has("after") && q.Has("before") {
		return p, fault.Invalidf("after", "The `after` and `before` parameters cannot be used together.")
	}
	for _, name := range [...]string{"after", "before"} {
		if q.Has(name) && !id.Valid(q.Get(name)) {
			return p, fault.Invalidf(name, "The `%s` parameter must be the id of an item: the pagination cursor is invalid.",
				name)
		}
	}
	return p, nil
}

// Idempotency returns the request's idempotency key for an operation that sends emails in a mode.
func (c *Call) Idempotency(scope, mode string, all ...emails.Send) (emails.Idempotency, error) {
	return c.idempotency(scope, func() string { return emails.Digest(mode, all...) })
}

// idempotency returns the request's idempotency key. digest is called if it has one.
func (c *Call) idempotency(scope string, digest func() string) (emails.Idempotency, error) {
	if _, given := c.Request.Header["Idempotency-Key"]; !given {
		return emails.Idempotency{}, nil
	}
	key := c.Request.Header.Get("Idempotency-Key")
	if key == "" || utf8.RuneCountInString(key) > 256 || !isText(key) {
		return emails.Idempotency{}, fault.New(fault.BadIdempotencyKey, "Idempotency-Key",
			"The idempotency key must have 1 to 256 characters.")
	}
	return emails.Idempotency{Scope: scope, Key: key, Hash: digest()}, nil
}
