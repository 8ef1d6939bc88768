package links

import (
	"io"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/postrider/postrider/internal/sending/emails"
	"github.com/postrider/postrider/internal/sending/tracking"
)

// Tracked serves the tracked links in sent emails, /c/{token}, and their tracking pixels, /o/{token}. Each token works
// only at the host name that it was issued for.
//
// Tracked does not use the database: a link's target is part of its token, and a hit is recorded after the response.
// Tracked is not an open redirect, because it redirects only to targets in tokens that this installation has signed.
type Tracked struct {
	emails *emails.Service
	hits   *tracking.Service
}

// NewTracked returns the handler for tracked links and pixels.
func NewTracked(e *emails.Service, hits *tracking.Service) *Tracked { return &Tracked{e, hits} }

const (
	clickPath = "/c/"
	openPath  = "/o/"
)

// Serves reports whether Tracked serves the path.
func (t *Tracked) Serves(path string) bool {
	return strings.HasPrefix(path, clickPath) || strings.HasPrefix(path, openPath)
}

// pixel is a transparent 1x1 GIF.
const pixel = "GIF89a\x01\x00\x01\x00\x80\x00\x00\x00\x00\x00\x00\x00\x00!\xf9\x04\x01\x00\x00\x00\x00" +
	",\x00\x00\x00\x00\x01\x00\x01\x00\x00\x02\x02D\x01\x00;"

// ServeHTTP responds to a request, and then queues the hit for recording.
func (t *Tracked) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "private, no-store, max-age=0")
	h.Set("Referrer-Policy", "no-referrer") // the referrer would reveal the webmail page that contains the link
	h.Set("X-Robots-Tag", "noindex, nofollow")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		h.Set("Allow", "GET, HEAD")
		http.Error(w, "Open this address in a browser.", http.StatusMethodNotAllowed)
		return
	}
	token, click := strings.CutPrefix(r.URL.Path, clickPath)
	if !click {
		token = strings.TrimPrefix(r.URL.Path, openPath)
	}
	to, err := t.emails.ReadTracked(token, host(r))
	target, ok := location(to.URL)
	if err != nil || click && !ok || !click && to.URL != "" {
		http.Error(w, "There is nothing at this address.", http.StatusNotFound)
		return
	}
	if click {
		h.Set("Location", target)
		w.WriteHeader(http.StatusFound)
	} else {
		h.Set("Content-Type", "image/gif")
		h.Set("Content-Length", strconv.Itoa(len(pixel)))
		w.WriteHeader(http.StatusOK)
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, pixel) // the hit counts even if the client has disconnected
		}
	}
	t.hits.Add(tracking.Hit{Ref: to.Ref, Position: to.Position, URL: to.URL, Addr: client(r),
		UserAgent: r.UserAgent(), Prefetch: isPrefetch(r.Header), Head: r.Method == http.MethodHead})
}

// location returns a link's target as an http or https URL in printable ASCII, so that it is valid in a header. Like
// browsers, location removes tabs and line breaks and escapes other invalid bytes.
func location(target string) (string, bool) {
	scheme, rest, ok := strings.Cut(target, "://")
	if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") ||
		rest == "" || strings.IndexByte("/\\?#", rest[0]) >= 0 {
		return "", false
	}
	const hex = "0123456789ABCDEF"
	escaped := make([]byte, 0, len(target))
	for i := range len(target) {
		switch c := target[i]; {
		case c == '\t' || c == '\r' || c == '\n':
		case c <= ' ' || c > '~':
			escaped = append(escaped, '%', hex[c>>4], hex[c&15])
		default:
			escaped = append(escaped, c)
		}
	}
	return string(escaped), true
}

// host returns the requested host name, in lower case and without a port.
func host(r *http.Request) string {
	name := strings.ToLower(r.Host)
	if bare, _, err := net.SplitHostPort(name); err == nil {
		name = bare
	}
	return strings.Trim(strings.TrimSuffix(name, "."), "[]")
}

// client returns the client's IP address, or the zero Addr if the address is unknown.
func client(r *http.Request) netip.Addr {
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return at.Addr().Unmap().WithZone("")
}

// isPrefetch reports whether a request's headers say that the browser is only prefetching or previewing the page.
func isPrefetch(h http.Header) bool {
	for _, name := range []string{"Sec-Purpose", "Purpose", "X-Purpose", "X-Moz"} {
		for _, value := range h[name] {
			value = strings.ToLower(value)
			for _, word := range []string{"prefetch", "prerender", "preview"} {
				if strings.Contains(value, word) {
					return true
				}
			}
		}
	}
	return false
}
