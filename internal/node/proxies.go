package node

import (
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// behindProxies sets the address of a request that comes from one of the proxies to that of the client, so that limits
// by address and tracking see the client. A proxy adds the address that it sees to the end of X-Forwarded-For; what
// stands before the first address that is no proxy's, seen from the end, is the client's own claim.
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

// forwardedFor reads an address as proxies write it, some with the port.
func forwardedFor(text string) (netip.Addr, bool) {
	a, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		var with netip.AddrPort
		with, err = netip.ParseAddrPort(text)
		a = with.Addr()
	}
	return a.Unmap().WithZone(""), err == nil
}
