package node

import (
	"crypto/subtle"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"syscall"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/lib/config"
	"github.com/postrider/postrider/internal/lib/fault"
)

// forDeveloper refuses requests for the development pages that come from another machine, unless they have the
// development key as a bearer token.
func (n *Node) forDeveloper(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isFromHere(r) && !n.hasDevelopmentKey(r) {
			const message = "Open this page on the machine that runs `postrider dev`, at localhost or 127.0.0.1. From " +
				"elsewhere, send the header `Authorization: Bearer` with the key that `postrider dev` prints."
			w.Header().Set("WWW-Authenticate", `Bearer realm="postrider dev"`)
			if strings.Contains(r.Header.Get("Accept"), "text/html") {
				http.Error(w, message, http.StatusUnauthorized)
			} else {
				wire.WriteError(w, fault.New(fault.NoCredential, "", message))
			}
			return
		}
		h.ServeHTTP(w, r)
	})
}

// hasDevelopmentKey reports whether the bearer token is the development key.
func (n *Node) hasDevelopmentKey(r *http.Request) bool {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	return n.outboxKey != "" && strings.EqualFold(scheme, "Bearer") &&
		subtle.ConstantTimeCompare([]byte(strings.TrimSpace(token)), []byte(n.outboxKey)) == 1
}

// isFromHere reports whether a request comes directly from a program on this machine. The Host header must be a
// loopback name or address too, because DNS rebinding makes a browser on this machine send requests for an attacker's
// web page. Headers that proxies add show that the client may be on another machine.
func isFromHere(r *http.Request) bool {
	from, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil || !from.Addr().Unmap().IsLoopback() || !isLoopbackName(r.Host) {
		return false
	}
	for name := range r.Header {
		if slices.Contains(proxyHeaders, name) || strings.HasPrefix(name, "X-Forwarded") {
			return false
		}
	}
	return true
}

// proxyHeaders lists headers that proxies add to requests, besides those whose names start with X-Forwarded.
var proxyHeaders = []string{"Forwarded", "Via", "X-Real-Ip", "X-Client-Ip", "X-Cluster-Client-Ip", "True-Client-Ip",
	"Client-Ip", "Cf-Connecting-Ip", "Fastly-Client-Ip", "Fly-Client-Ip", "X-Original-Forwarded-For",
	"X-Original-Host", "X-Envoy-External-Address", "Tailscale-User-Login"}

// ListenHere listens at an address and returns the URL that programs on this machine can use. If the address is
// 127.0.0.1 and the machine has IPv6, ListenHere also listens at ::1, because browsers may resolve localhost to either
// address. If another program uses the same port at ::1, the URL contains 127.0.0.1 instead of localhost.
func ListenHere(address string) (all []net.Listener, url string, err error) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, "", err
	}
	all, at := []net.Listener{l}, l.Addr().(*net.TCPAddr)
	if !at.IP.Equal(net.IPv4(127, 0, 0, 1)) {
		return all, config.LocalURL(at.String()), nil
	}
	second, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv6loopback, Port: at.Port})
	switch {
	case err == nil:
		all = append(all, second)
	case errors.Is(err, syscall.EADDRINUSE):
		return all, "http://" + at.String(), nil
	}
	return all, config.LocalURL(at.String()), nil
}

// aliases returns URLs with loopback addresses that reach the same server as the public URL, or nil if the public URL's
// host is not localhost.
func aliases(publicURL string) []string {
	public, err := url.Parse(publicURL)
	if err != nil || public.Hostname() != "localhost" || public.Path != "" {
		return nil
	}
	var all []string
	for _, address := range []string{"127.0.0.1", "[::1]"} {
		alias := *public
		if alias.Host = address; public.Port() != "" {
			alias.Host += ":" + public.Port()
		}
		all = append(all, alias.String())
	}
	return all
}

// addressOf returns a function that determines the base URL of a request: the public URL or one of its aliases. Aliases
// are needed because developers use both localhost and 127.0.0.1, and OAuth clients compare the issuer in the metadata
// with the URL that they requested.
func addressOf(publicURL string) func(r *http.Request) string {
	others := aliases(publicURL)
	return func(r *http.Request) string {
		for _, alias := range others {
			if _, host, _ := strings.Cut(alias, "://"); host == r.Host {
				return alias
			}
		}
		return publicURL
	}
}

// byName redirects requests for a loopback address to localhost if the public URL's host is localhost. The redirect is
// needed because passkeys work only at the public URL's host name.
func byName(publicURL string, h http.Handler) http.Handler {
	address := addressOf(publicURL)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if (r.Method == http.MethodGet || r.Method == http.MethodHead) && address(r) != publicURL {
			http.Redirect(w, r, publicURL+r.URL.RequestURI(), http.StatusSeeOther)
			return
		}
		h.ServeHTTP(w, r)
	})
}

// isLoopbackName reports whether a Host header is a loopback address, or a name that always resolves to a loopback
// address (RFC 6761 section 6.3). The Host header may contain a port.
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
