package wire

import (
	"context"
	"math"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/platform/audit"
)

// Open is the scope of operations that do not require authentication. No actor has this scope.
const Open = teams.Scope(math.MaxUint8)

// Operation is a single API operation.
type Operation struct {
	Method, Path string
	Scope        teams.Scope // scope that the actor needs, or Open
	// Further lists the scopes that the actor needs besides Scope, and RefusesApps means that no OAuth client may use
	// the operation. Both describe what the handler checks.
	Further     []teams.Scope
	RefusesApps bool
	Status      int      // status of a successful response
	Tag         string   // group in the OpenAPI document; "" omits the operation
	Summary     string   // summary in the OpenAPI document
	ID          string   // operation ID in the OpenAPI document; "" derives it from the summary
	Query       []string // names of the documented query parameters
	Audit       AuditAction

	// WhileSuspended means that a suspended team may use the operation.
	WhileSuspended bool
	Handler
}

// scopes returns the names of the scopes that the actor needs.
func (o *Operation) scopes() (names []string) {
	if o.Scope == Open {
		return nil
	}
	for _, s := range append([]teams.Scope{o.Scope}, o.Further...) {
		names = append(names, s.String())
	}
	return names
}

// roles returns the names of the roles that have all of these scopes, starting with the most powerful.
func (o *Operation) roles() (names []string) {
	if o.Scope == Open {
		return nil
	}
	for _, role := range teams.Roles {
		user := teams.Actor{Kind: teams.UserActor, Scopes: role.Scopes()}
		if !slices.ContainsFunc(append([]teams.Scope{o.Scope}, o.Further...), func(s teams.Scope) bool {
			return user.Require(s) != nil
		}) {
			names = append(names, string(role))
		}
	}
	return names
}

// IsAlias reports whether the operation is an undocumented alternative path to another operation.
func (o *Operation) IsAlias() bool { return o.Tag == "" && o.Scope != Open }

// AuditAction describes an operation's audit log entry.
type AuditAction struct {
	Name   string // such as domain.created; "" if the operation is not recorded
	Target string // path parameter that contains the ID of the action's target; "" for none
	// ReadOnly means that the operation changes nothing. The audit entry for a read operation is written after the
	// operation succeeds, because such an operation has no transaction.
	ReadOnly bool
}

// Handler is an operation's function, whose types are known only at run time. [Endpoint], [Streaming] and [Upload]
// create handlers.
type Handler struct {
	in, out reflect.Type
	form    bool     // the body is a form, which call reads using Call.ReceiveForm
	media   []string // media types of a streamed response; nil if the response is encoded as JSON
	call    func(ctx context.Context, c *Call) (any, error)
}

// None is the request type of operations without input. If a request to such an operation has a body, the body is
// ignored.
type None struct{}

// TakesBody reports whether the operation reads a request body.
func (h Handler) TakesBody() bool { return h.in != reflect.TypeFor[None]() }

// MediaTypes returns the media types of a streamed response, or nil if the response is JSON and not streamed.
func (h Handler) MediaTypes() []string { return h.media }

// ResponseType returns the Go type of the response.
func (h Handler) ResponseType() reflect.Type { return h.out }

// Endpoint returns a handler that calls f. Endpoint panics if the type In contains a list or a map without a limit.
func Endpoint[In, Out any](f func(ctx context.Context, c *Call, in In) (Out, error)) Handler {
	h := Handler{in: reflect.TypeFor[In](), out: reflect.TypeFor[Out]()}
	if at := unbounded(h.in, h.in.String()); at != "" {
		panic("wire: " + at + " has no limit: make it an Array, Strings or Object")
	}
	takesBody := h.TakesBody()
	h.call = func(ctx context.Context, c *Call) (any, error) {
		var in In
		if takesBody {
			if err := c.readBody(&in); err != nil {
				return nil, err
			}
		}
		return f(ctx, c, in)
	}
	return h
}

// readBody decodes the request's body into the struct that in points to.
func (c *Call) readBody(in any) error {
	if err := decode(c.body, c.Request.Header.Get("Content-Type"), in); err != nil {
		return err
	}
	if c.Request.Method != http.MethodPatch {
		return nil
	}
	v := reflect.ValueOf(in).Elem()
	return requireChange(c.body, v.Type(), v.Interface())
}

// Around returns a handler that calls f, to which it passes the function of h. The function f may return that
// function's result, or its encoded form as a jsontext.Value. An upload's function can be called only once.
func (h Handler) Around(
	f func(ctx context.Context, c *Call, call func(context.Context) (any, error)) (any, error)) Handler {
	inner := h.call
	h.call = func(ctx context.Context, c *Call) (any, error) {
		return f(ctx, c, func(ctx context.Context) (any, error) { return inner(ctx, c) })
	}
	return h
}

// serve handles a request for an operation.
func (s *Server) serve(w *recorder, r *http.Request, o *Operation,
	authenticate func(*recorder, *http.Request) error) {
	if o.Scope != Open {
		err := authenticate(w, r)
		if err == nil {
			err = o.checkSuspended(&w.actor)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
	}
	s.perform(w, r, o)
}

// checkSuspended returns a fault if the actor's team is suspended and a suspended team may not use the operation.
func (o *Operation) checkSuspended(by *teams.Actor) error {
	if o.WhileSuspended {
		return nil
	}
	return checkSuspended(by)
}

// perform executes an operation for the actor in w.
func (s *Server) perform(w *recorder, r *http.Request, o *Operation) {
	c := &Call{Actor: w.actor, Request: r, Header: w.Header(), Status: o.Status, Operation: o, server: s, w: w}
	var err error
	if o.Scope != Open {
		if err = c.Require(o.Scope); err != nil {
			s.fail(w, r, err)
			return
		}
	}
	if c.query, err = readURL(r.URL); err != nil {
		s.fail(w, r, err)
		return
	}
	if o.TakesBody() && !o.form {
		began := time.Now()
		c.body, w.release, err = s.readBody(w, r)
		if err == nil && o.Scope != Open && time.Since(began) > slowBody {
			err = s.reauthenticate(w, r, o)
		}
		if err != nil {
			s.fail(w, r, err)
			return
		}
		w.body = c.body
	}
	defer c.releaseSource()
	releaseBody := w.release
	w.release = func() {
		c.shrinkReservation(0)
		if releaseBody != nil {
			releaseBody()
		}
	}
	ctx := r.Context()
	if o.Audit.Name != "" && !o.Audit.ReadOnly {
		ctx = audit.With(ctx, c.auditEntry())
	}
	out, err := o.call(ctx, c)
	w.path = c.loggedPath
	if err == nil && o.Audit.ReadOnly && !c.Unaudited {
		err = s.opts.Audit.Write(ctx, c.auditEntry())
	}
	if s.opts.AfterCall != nil {
		s.opts.AfterCall(r.Context(), c, err)
	}
	if err != nil {
		s.fail(w, r, err)
		return
	}
	o.warnUnknown(c.Header, c.query)
	stream, streams := out.(Stream)
	if l, ok := out.(interface{ stream() (Stream, bool) }); ok {
		stream, streams = l.stream()
	}
	if streams {
		s.writeStream(w, r, o, stream)
		return
	}
	response, err := Encode(out)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.writeResponse(w, r, c, response)
}
