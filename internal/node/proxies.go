package node

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// behindProxies replaces the remote address of requests from trusted proxies with the client's address, which is needed
// for rate limits and tracking. The client's address is the last address in X-Forwarded-For that does not belong to a
// trusted proxy. Each proxy appends the address of its client, so a client can forge only earlier entries.
func behindProxies(proxies []netip.Prefix, h http.Handler) http.Handler {
	if len(proxies) == 0 {
		return h
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !fromProxy(proxies, r) {
			h.ServeHTTP(w, r)
			return
		}
		client, _ := netip.ParseAddrPort(r.RemoteAddr) // fromProxy has parsed it
		named := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
		for _, text := range slices.Backward(named) {
			a, ok := forwardedFor(strings.TrimSpace(text))
			if !ok {
				break
			}
			client = netip.AddrPortFrom(a, 0)
			if !isProxy(proxies, a) {
				break
			}
		}
		of := *r
		of.RemoteAddr = client.String()
		h.ServeHTTP(w, &of)
	})
}

// fromProxy reports whether a trusted proxy sent a request. The request's remote address must not be replaced yet.
func fromProxy(proxies []netip.Prefix, r *http.Request) bool {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	return err == nil && isProxy(proxies, peer.Addr().Unmap().WithZone(""))
}

func isProxy(proxies []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(a) })
}

// forwardedFor parses an entry in X-Forwarded-For, which is an address with or without a port.
func forwardedFor(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		var with netip.AddrPort
		with, err = netip.ParseAddrPort(text)
		a = with.Addr()
	}
	return a.Unmap().WithZone(""), err == nil
}
