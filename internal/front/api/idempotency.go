package api

import (
	"unicode/utf8"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/fault"
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
