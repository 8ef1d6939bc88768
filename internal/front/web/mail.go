package web

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
)

// imagesParameter names the query parameter that allows the frame of an email to load images from other servers.
const imagesParameter = "images"

// ImagesToken returns the value of the parameter images that allows the visitor's session to load the images of an
// email from other servers. Loading them tells these servers that the email was read. The value depends on the
// session's secret, so that a link from someone else loads nothing.
func (s *Site) ImagesToken(r *http.Request, emailID string) string {
	return s.linkToken(r, "images of "+emailID)
}

// linkToken returns a code for a link that may have an effect only in the visitor's own session. It is made from the
// session's secret and from what the link does, so that no one else can make such a link.
func (s *Site) linkToken(r *http.Request, does string) string {
	mac := hmac.New(sha256.New, []byte(s.Cookie(r, "")))
	mac.Write([]byte(does))
	return base64.RawURLEncoding.EncodeToString(mac.Sum(nil)[:16])
}

// UndoToken returns a code for the address of a page that offers to undo what the visitor has done to an object, so
// that a link from someone else offers nothing.
func (s *Site) UndoToken(r *http.Request, done string) string { return s.linkToken(r, "undo "+done) }

// MayUndo reports whether a code is that of [Site.UndoToken] for the visitor's session.
func (s *Site) MayUndo(r *http.Request, done, token string) bool {
	return s.Cookie(r, "") != "" && hmac.Equal([]byte(token), []byte(s.UndoToken(r, done)))
}

// MayLoadImages returns the token of the request if it allows the frame of an email to load images, and "" otherwise.
func (s *Site) MayLoadImages(r *http.Request, emailID string) (token string) {
	token = r.URL.Query().Get(imagesParameter)
	if s.Cookie(r, "") == "" || !hmac.Equal([]byte(token), []byte(s.ImagesToken(r, emailID))) {
		return ""
	}
	return token
}

// MailHeaders sets the headers of a response with mail, which pages show in a frame. The mail is a document of its own
// origin without scripts, forms and navigation. It loads images from elsewhere only if images is true.
func MailHeaders(h http.Header, images bool) {
	from := "data:"
	if images {
		from = "data: https: http:"
	}
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src "+from+
		"; base-uri 'none'; form-action 'none'; frame-ancestors 'self'")
	h.Del("X-Frame-Options") // frame-ancestors takes its place
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Content-Type", "text/html; charset=utf-8")
}

// FileHeaders sets the headers of a response with a file from an email or of a whole message. Even if a browser shows
// the file, the file is a document of its own origin that loads and runs nothing.
func FileHeaders(h http.Header) {
	h.Set("Content-Security-Policy", "sandbox; default-src 'none'; base-uri 'none'; form-action 'none'; "+
		"frame-ancestors 'none'")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
}
