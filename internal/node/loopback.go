package node

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"

	"github.com/postrider/postrider/internal/lib/config"
)

// onlyLoopback refuses requests whose Host header is not a loopback name or address. The development pages do not
// require an API key, so only this check protects them against DNS rebinding.
func onlyLoopback(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !isLoopbackName(r.Host) {
			http.Error(w, "Open this page at localhost or 127.0.0.1; it is not served at other host names.",
				http.StatusMisdirectedRequest)
			return
		}
		h.ServeHTTP(w, r)
	})
}

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
