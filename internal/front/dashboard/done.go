package dashboard

import (
	"encoding/base64"
	"strings"
	"time"
)

// doneCookie holds the sentence that the next page shows after a form. It holds nothing secret.
const (
	doneCookie = "done"
	doneFor    = time.Minute
	doneMax    = 300 // bytes
)

// done returns the sentence that the form before has left for this page, and deletes it.
func (c *call) done() string {
	text, err := base64.RawURLEncoding.DecodeString(c.Site.Cookie(c.r, doneCookie))
	if err != nil || len(text) == 0 || len(text) > doneMax {
		return ""
	}
	c.Site.DeleteCookie(c.w, doneCookie)
	return string(text)
}

// encodeDone makes a sentence a cookie's value.
func encodeDone(text string) string {
	return base64.RawURLEncoding.EncodeToString([]byte(strings.ToValidUTF8(text[:min(len(text), doneMax)], "")))
}
