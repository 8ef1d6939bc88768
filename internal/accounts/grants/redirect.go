package grants

import (
	"net/url"
	"slices"
	"strings"
)

const uriMax = 2048 // maximum length of a client's redirect URIs and other URIs, in characters

// refusedSchemes are URI schemes that are not allowed in redirect URIs. A browser would open URIs with some of these
// schemes as a document or a local file. URIs with other refused schemes would not lead back to the app but, for
// example, make a phone call.
var refusedSchemes = []string{"file", "ftp", "data", "javascript", "blob", "about", "vbscript", "filesystem",
	"view-source", "mailto", "tel", "sms", "ws", "wss", "intent", "android-app", "itms-services", "ms-appinstaller",
	"ms-msdt", "search-ms", "shell", "chrome", "resource", "jar", "feed", "callto", "facetime", "sip", "sips"}

// loopbacks are the host names and addresses of the user's own machine. Apps on the user's machine do not know their
// port in advance, so loopback redirect URIs may have any port (RFC 8252 section 7.3).
var loopbacks = []string{"127.0.0.1", "[::1]", "localhost"}

// checkRedirect returns the reason why a redirect URI is refused, or "" if it is allowed. The allowed schemes are
// https, http on loopback hosts, and private-use URI schemes of apps (RFC 8252 section 7.1).
func checkRedirect(uri string) (problem string) {
	u, err := url.Parse(uri)
	switch {
	case len(uri) > uriMax:
		return "must have at most 2048 characters"
	case err != nil || !isURIText(uri) || u.Scheme == "":
		return "must be an absolute URI in ASCII"
	case strings.Contains(uri, "#"):
		return "must not have a fragment"
	case u.User != nil:
		return "must not have a user name"
	case slices.Contains(refusedSchemes, u.Scheme):
		return "must not have the scheme " + u.Scheme
	case u.Scheme == "https" && u.Hostname() == "":
		return "must have a host"
	case u.Scheme == "http":
		if _, ok := withoutPort(uri); !ok {
			return "must be https, unless its host is 127.0.0.1, [::1] or localhost"
		}
	}
	return ""
}

// isURIText reports whether a string has only characters that are allowed in a URI (RFC 3986 appendix A). Spaces are
// not allowed, so redirect URIs can be stored separated by spaces.
func isURIText(uri string) bool {
	return !strings.ContainsFunc(uri, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r)
	})
}

// withoutPort returns a loopback http URI without its scheme and port.
func withoutPort(uri string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(uri, "http://")
	if !ok {
		return "", false
	}
	for _, host := range loopbacks {
		after, is := strings.CutPrefix(rest, host)
		if !is {
			continue
		}
		if port, numbered := strings.CutPrefix(after, ":"); numbered {
			after = strings.TrimLeft(port, "0123456789")
			if n := len(port) - len(after); n == 0 || n > 5 {
				return "", false
			}
		}
		if after == "" || strings.ContainsAny(after[:1], "/?") {
			return host + after, true
		}
	}
	return "", false
}

// redirects reports whether the client registered a redirect URI. The redirect URI must be identical to a registered
// one, except for the port of a loopback URI (RFC 9700 section 2.1).
func (c *Client) redirects(uri string) bool {
	if checkRedirect(uri) != "" {
		return false
	}
	given, local := withoutPort(uri)
	return slices.ContainsFunc(c.RedirectURIs, func(known string) bool {
		if known == uri {
			return true
		}
		registered, ok := withoutPort(known)
		return local && ok && registered == given
	})
}
