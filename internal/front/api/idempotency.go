package api

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
	"github.com/postrider/postrider/internal/platform/audit"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/sending/emails"
)

// idempotencyOf returns the idempotency key of a request that sends emails. For batches, mode is the validation mode.
func idempotencyOf(c *wire.Call, scope, mode string, all ...emails.Send) (emails.Idempotency, error) {
	return idempotency(c, scope, func() string { return emails.Digest(mode, all...) })
}

// idempotency returns the idempotency key of a request, or the zero value if the request has no key. If the request has
// a key, idempotency calls digest to compute a hash of the request.
func idempotency(c *wire.Call, scope string, digest func() string) (emails.Idempotency, error) {
	if _, given := c.Request.Header["Idempotency-Key"]; !given {
		return emails.Idempotency{}, nil
	}
	key := c.Request.Header.Get("Idempotency-Key")
	if key == "" || utf8.RuneCountInString(key) > 256 || !wire.IsText(key) {
		return emails.Idempotency{}, fault.New(fault.BadIdempotencyKey, "Idempotency-Key",
			"The idempotency key must have 1 to 256 characters.")
	}
	return emails.Idempotency{Scope: scope, Key: key, Hash: digest()}, nil
}

// creations lists the operations that create an object and honor idempotency keys. Operations that send emails or
// events, and imports, honor idempotency keys too, but do not need this list. The function rebuilds the operation's
// response from the object's id. It is needed only if the process was killed after the effect and before the response
// was stored.
var creations = map[string]func(ctx context.Context, a *API, c *wire.Call, id string) (any, error){
	"POST /broadcasts": refTo("broadcast"),
	"POST /broadcasts/{broadcast_id}/send": func(_ context.Context, _ *API, _ *wire.Call, id string) (any, error) {
		return sentBroadcast{id}, nil
	},
	"POST /templates":   refTo("template"),
	"POST /automations": refTo("automation"),
	"POST /segments": func(ctx context.Context, a *API, c *wire.Call, id string) (any, error) {
		g, err := a.Services.Contacts.Segments.Get(ctx, c.TeamID, id)
		return segmentMade{"segment", id, g.Name}, err
	},
	"POST /topics":             refTo("topic"),
	"POST /contact-properties": refTo("contact_property"),
	importOperation:            refTo("contact_import"),
	"POST /events":             refTo("event"),
	"POST /domains": func(ctx context.Context, a *API, c *wire.Call, id string) (any, error) {
		d, err := a.Services.Domains.Get(ctx, c.TeamID, id)
		if err == nil {
			a.warnOfTracking(c, d)
		}
		return a.domainToWire(d), err
	},
}

const importOperation = "POST /contacts/imports"

func refTo(object string) func(context.Context, *API, *wire.Call, string) (any, error) {
	return func(_ context.Context, _ *API, _ *wire.Call, id string) (any, error) { return ref{object, id}, nil }
}

// honorKeys makes an operation honor idempotency keys if it is listed in creations. Uploads call [API.once] themselves,
// because their bodies are not read in advance.
func (a *API) honorKeys(r *route) wire.Handler {
	if name := r.method + " " + r.path; creations[name] == nil || name == importOperation {
		return r.Handler
	}
	return r.Handler.Around(func(ctx context.Context, c *wire.Call, call func(context.Context) (any, error)) (any, error) {
		if _, given := c.Request.Header["Idempotency-Key"]; !given {
			return call(ctx)
		}
		if n := int64(len(c.Body())); n > wire.LargeResponse { // hashing makes a copy
			if err := c.ReserveMemory(ctx, n); err != nil {
				return nil, err
			}
		}
		hash, err := hashJSON(c.Body())
		if err != nil {
			return call(ctx) // refuses the body
		}
		scope := r.method + " " + r.path
		if strings.Contains(r.path, "{broadcast_id}") {
			id, err := c.ID("broadcast_id")
			if err != nil {
				return nil, err
			}
			scope = strings.Replace(scope, "{broadcast_id}", id, 1)
		}
		key, err := idempotency(c, scope, func() string { return hash })
		if err != nil {
			return nil, err
		}
		if r.path == "/broadcasts" && sendsNow(c.Body()) {
			// The stored response is returned without the operation, which would check this.
			if err := requireSending(c); err != nil {
				return nil, err
			}
		}
		return a.once(ctx, c, key, call)
	})
}

// once calls an operation unless its response is stored under the idempotency key.
func (a *API) once(ctx context.Context, c *wire.Call, key emails.Idempotency,
	call func(context.Context) (any, error)) (jsontext.Value, error) {
	r, err := a.Services.Emails.OnceResponse(ctx, c.Actor, key, func(remember func(context.Context, *db.Tx, string)) (
		emails.Response, error) {
		ctx := db.WithFurtherAddition(ctx, func(ctx context.Context, tx *db.Tx) { remember(ctx, tx, audit.TargetOf(ctx)) })
		out, err := call(ctx)
		if err != nil {
			return emails.Response{}, err
		}
		body, err := wire.Encode(out)
		return emails.Response{Body: body, Warning: c.Header.Get(wire.WarningHeader)}, err
	})
	if err != nil {
		return nil, err
	}
	if r.Body == nil {
		out, err := creations[c.Operation.Method+" "+c.Operation.Path](ctx, a, c, r.ID)
		if err != nil {
			return nil, err
		}
		return wire.Encode(out)
	}
	if r.Warning != "" {
		c.Header.Set(wire.WarningHeader, r.Warning)
	}
	return r.Body, nil
}

// hashJSON returns a hash of a JSON body that does not depend on white space or the order of members. An empty body has
// the hash of an empty object. hashJSON returns an error if the body is not JSON.
func hashJSON(body []byte) (string, error) {
	v := jsontext.Value(slices.Clone(body))
	if len(bytes.TrimSpace(v)) == 0 {
		v = jsontext.Value("{}")
	}
	if err := v.Canonicalize(); err != nil {
		return "", err
	}
	return emails.DigestTexts(string(v)), nil
}

// sendsNow reports whether the body of a new broadcast asks to send the broadcast.
func sendsNow(body []byte) bool {
	var in struct {
		Send bool `json:"send"`
	}
	return json.Unmarshal(body, &in) == nil && in.Send
}
