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
	isProxy := func(a netip.Addr) bool {
		return slices.ContainsFunc(proxies, func(p netip.Prefix) bool { return p.Contains(a) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		peer, err := netip.ParseAddrPort(r.RemoteAddr)
		if err != nil || !isProxy(peer.Addr().Unmap().WithZone("")) {
			h.ServeHTTP(w, r)
			return
		}
		client := peer
		named := strings.Split(strings.Join(r.Header["X-Forwarded-For"], ","), ",")
		for _, text := range slices.Backward(named) {
			a, ok := forwardedFor(strings.TrimSpace(text))
			if !ok {
				break
			}
			client = netip.AddrPortFrom(a, 0)
			if !isProxy(a) {
				break
			}
		}
		of := *r
		of.RemoteAddr = client.String()
		h.ServeHTTP(w, &of)
	})
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
