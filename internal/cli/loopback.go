package cli

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// onlyLoopback serves requests for a name of this machine only. The development pages need no key, so this check
// alone keeps out other web pages whose names resolve to this machine (DNS rebinding).
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
// name that always resolves to one (RFC 6761 section 6.3).
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
