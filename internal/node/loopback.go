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

// ListenHere listens at an address and returns the URL by which programs on this machine reach it. At 127.0.0.1 it
// listens at ::1 too, if the machine has it, so that localhost leads here whichever of them a browser tries first. If
// another program has that one, the URL has the address instead of the name.
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

// aliases returns other addresses that lead to the same place as the public URL: those of the loopback interface, if the
// public URL has the name localhost.
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

// addressOf returns a function that returns the address by which a request came: one of the aliases of the public URL,
// or that itself. Clients of OAuth compare who answers with whom they have asked, and people type both.
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

// byName leads visitors of pages who come by an address of the loopback interface to localhost, if that is the name in
// the public URL: passkeys work there alone.
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
