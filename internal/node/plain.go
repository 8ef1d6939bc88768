package node

import (
	"net"
	"net/http"
	"net/netip"
	"strings"

	"github.com/postrider/postrider/internal/front/api/wire"
	"github.com/postrider/postrider/internal/front/signin"
	"github.com/postrider/postrider/internal/front/web"
	"github.com/postrider/postrider/internal/lib/fault"
)

// onlyEncrypted passes on only requests that need no encryption, or that a trusted proxy received over HTTPS. Pages are
// redirected to HTTPS. A request to the API is refused instead: clients would follow a redirect each time, and so send
// their keys in clear each time.
func (n *Node) onlyEncrypted(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case needsNoEncryption(r.URL.Path), cameEncrypted(n.Config.HTTPProxyFrom, r):
			h.ServeHTTP(w, r)
		case r.Header.Get("Authorization") == "" && n.isPage(r):
			http.Redirect(w, r, n.secureURL(r), http.StatusPermanentRedirect)
		default:
			n.refusePlain(w, r)
		}
	})
}

// needsNoEncryption reports whether requests for a path have no secrets. Mail programs may open tracked links over
// HTTP, because a customer's host may have no certificate yet; the target of a link has a scheme of its own.
func needsNoEncryption(path string) bool {
	return isHealth(path) || isTracked(path) || path == "/tls/ask"
}

func isTracked(path string) bool {
	return strings.HasPrefix(path, "/c/") || strings.HasPrefix(path, "/o/")
}

// isPage reports whether people open the path of a request, so that a redirect reaches them.
func (n *Node) isPage(r *http.Request) bool {
	path := r.URL.Path
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	return isBrowser(r) || isPublicLink(path) || isDocumentation(r) || web.IsAsset(path) || signin.Serves(path) ||
		web.AppPath(path) || reads && n.oauth.Serves(path)
}

// refusePlain refuses a request to the API that was not encrypted.
func (n *Node) refusePlain(w http.ResponseWriter, r *http.Request) {
	text := "This API is served over HTTPS only. Send the request to " + n.Config.PublicURL + "."
	if r.Header.Get("Authorization") != "" {
		text = "This API is served over HTTPS only. Others may have read the key of this request, because it was not " +
			"encrypted: revoke the key, create another one, and send requests to " + n.Config.PublicURL + "."
	}
	w.Header().Set("Connection", "close") // the rest of the body is not needed
	wire.WriteError(w, fault.New(fault.Forbidden, "", "%s", text))
}

// secureURL returns the address of a request over HTTPS. The port is known only for the host of public_url; other hosts
// have the usual one.
func (n *Node) secureURL(r *http.Request) string {
	host := bareHost(r.Host)
	public, name := publicHost(n.Config)
	switch {
	case host == "" || strings.EqualFold(host, name):
		host = public
	case strings.Contains(host, ":"):
		host = "[" + host + "]"
	}
	return "https://" + host + r.URL.RequestURI()
}

// bareHost returns the host of a Host header without a port and without the brackets of an IPv6 address.
func bareHost(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		return name
	}
	return strings.Trim(host, "[]")
}

// cameEncrypted reports whether a trusted proxy received a request over HTTPS. The last value of X-Forwarded-Proto is
// the one that the proxy itself wrote; a client can forge only earlier ones.
func cameEncrypted(proxies []netip.Prefix, r *http.Request) bool {
	if len(proxies) == 0 || !fromProxy(proxies, r) {
		return false
	}
	all := strings.Split(strings.Join(r.Header["X-Forwarded-Proto"], ","), ",")
	return strings.EqualFold(strings.TrimSpace(all[len(all)-1]), "https")
}
