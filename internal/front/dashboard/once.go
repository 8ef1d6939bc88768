package dashboard

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/postrider/postrider/internal/lib/id"
	"github.com/postrider/postrider/internal/sending/emails"
)

// once returns the value of the hidden field "once" of a form that sends an email: an id of the form that was shown. A
// refused form keeps its id.
func (c *call) once() string {
	if x := c.form.Get("once"); id.Valid(x) {
		return x
	}
	return id.New()
}

// idempotency returns a key for the submitted form, so that a form that is submitted twice, for example by a reload,
// sends one email. The key also depends on what was typed: a form that was changed meanwhile sends another email.
func (c *call) idempotency() emails.Idempotency {
	once := c.form.Get("once")
	if !id.Valid(once) {
		return emails.Idempotency{}
	}
	sum := sha256.Sum256([]byte(c.form.Encode()))
	hash := hex.EncodeToString(sum[:])
	return emails.Idempotency{Scope: c.r.Method + " " + c.r.URL.Path, Key: once + "-" + hash[:32], Hash: hash}
}
