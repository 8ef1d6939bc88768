package web

import "net/http"

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
