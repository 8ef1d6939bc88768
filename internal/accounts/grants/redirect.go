package grants

import (
	"net/url"
	"slices"
	"strings"
)

const uriMax = 2048 // characters of a redirect URI and other URIs of a client

// refusedSchemes are schemes that a browser opens as a document or a local file. They also include schemes that do not
// lead back to the app but, for example, install something or make a phone call.
var refusedSchemes = []string{"file", "ftp", "data", "javascript", "blob", "about", "vbscript", "filesystem",
	"view-source", "mailto", "tel", "sms", "ws", "wss", "intent", "android-app", "itms-services", "ms-appinstaller",
	"ms-msdt", "search-ms", "shell", "chrome", "resource", "jar", "feed", "callto", "facetime", "sip", "sips"}

// loopbacks are the hosts of the user's own machine. Apps on the user's own machine do not know their port before they
// run (RFC 8252 section 7.3).
var loopbacks = []string{"127.0.0.1", "[::1]", "localhost"}

// checkRedirect returns why a redirect URI is refused, or "". It allows https, http on the user's own machine, and
// private schemes of apps (RFC 8252 section 7.1).
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

// isURIText reports whether a text has only characters that are allowed in a URI (RFC 3986 appendix A). The allowed
// characters do not include spaces, which separate stored redirect URIs.
func isURIText(uri string) bool {
	return !strings.ContainsFunc(uri, func(r rune) bool {
		return r <= ' ' || r > '~' || strings.ContainsRune("\"<>\\^`{|}", r)
	})
}

// withoutPort returns a loopback http URI without the scheme and the port.
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

// redirects reports whether the client registered a redirect URI. It must be identical, except for the port of a
// loopback URI (RFC 9700 section 2.1).
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
