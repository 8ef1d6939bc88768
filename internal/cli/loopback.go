package cli

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// onlyLoopback serves requests that were made to a name of this machine. What development shows needs no key, so the
// name is all that keeps out a web page elsewhere whose own name was made to lead here (DNS rebinding).
func onlyLoopback(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopbackName(r.Host) {
			http.Error(w, "These pages are served at names of this machine only, such as localhost and 127.0.0.1.",
				http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isLoopbackName reports whether a Host header, with or without a port, is an address of the loopback interface, or a
// name that never leads elsewhere (RFC 6761 section 6.3).
func isLoopbackName(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	} else if inner, ok := strings.CutPrefix(host, "["); ok {
		host = strings.TrimSuffix(inner, "]")
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
