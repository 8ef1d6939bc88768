package preflight

import (
	"net/netip"
	"strings"

	"golang.org/x/net/idna"
	"golang.org/x/net/publicsuffix"
)

// target is the destination of a link or of an image.
type target struct {
	scheme string // in lower case; "" if there is none
	host   string // host of an http or https URL, in lower-case ASCII
}

// maxURL is the maximum number of leading bytes of a URL that are parsed to find its scheme and host.
const maxURL = 2000

// parseTarget parses a URL as browsers do, which accept more URLs than net/url. Browsers ignore spaces around a URL and
// line breaks within it, and treat backslashes as slashes.
func parseTarget(address string) target {
	address = strings.TrimSpace(address[:min(len(address), maxURL)])
	if strings.ContainsAny(address, "\t\r\n") {
		address = strings.NewReplacer("\t", "", "\r", "", "\n", "").Replace(address)
	}
	end := strings.IndexAny(address, ":/?#\\")
	if end <= 0 || address[end] != ':' || !isScheme(address[:end]) {
		return target{}
	}
	t := target{scheme: strings.ToLower(address[:end])}
	if t.scheme != "http" && t.scheme != "https" {
		return t
	}
	t.host = hostOf(strings.TrimLeft(address[end+1:], `/\`))
	return t
}

// hostOf returns the host from the part of a URL that follows the slashes, or "" if the host is invalid.
func hostOf(authority string) string {
	if end := strings.IndexAny(authority, `/\?#`); end >= 0 {
		authority = authority[:end]
	}
	authority = authority[strings.LastIndexByte(authority, '@')+1:]
	if strings.HasPrefix(authority, "[") {
		inner, _, _ := strings.Cut(authority[1:], "]")
		if a, err := netip.ParseAddr(inner); err != nil || a.Zone() != "" {
			return ""
		}
		return strings.ToLower(inner)
	}
	host, _, _ := strings.Cut(authority, ":")
	return cleanHost(host)
}

// cleanHost returns a host name in lower-case ASCII without a final dot, or "" if it is invalid.
func cleanHost(host string) string {
	if len(host) > 1000 {
		return ""
	}
	if strings.Contains(host, "%") || strings.ContainsFunc(host, func(r rune) bool { return r >= 0x80 }) {
		ascii, err := idna.Lookup.ToASCII(host)
		if err != nil {
			return ""
		}
		host = ascii
	}
	host = strings.ToLower(strings.TrimSuffix(host, "."))
	if host == "" || len(host) > 253 || strings.ContainsFunc(host, notHostRune) || strings.Contains("."+host+".", "..") {
		return ""
	}
	return host
}

func notHostRune(r rune) bool {
	return !(r >= 'a' && r <= 'z' || r >= '0' && r <= '9' || r == '-' || r == '.' || r == '_')
}

func isScheme(s string) bool {
	for i, c := range []byte(s) {
		switch {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case i > 0 && ('0' <= c && c <= '9' || c == '+' || c == '-' || c == '.'):
		default:
			return false
		}
	}
	return s != ""
}

// isLocal reports whether a host can exist only in the recipient's own network.
func isLocal(host string) bool {
	if a, err := netip.ParseAddr(host); err == nil {
		return a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsUnspecified()
	}
	for _, name := range []string{"localhost", "local", "internal", "lan", "home.arpa"} {
		if host == name || strings.HasSuffix(host, "."+name) {
			return true
		}
	}
	return !strings.Contains(host, ".")
}

// shownHost returns the host name that a link's text shows, or "". The boolean result is true if the text consists only
// of a name, such as example.com. A bare name is not necessarily meant as a host name.
func shownHost(text string) (host string, bare bool) {
	text = strings.TrimSpace(text)
	if text == "" || len(text) > maxURL || strings.ContainsAny(text, " \t\r\n\u00a0") {
		return "", false // several words
	}
	if t := parseTarget(text); t.scheme == "http" || t.scheme == "https" {
		if strings.Contains(text, "://") && strings.Contains(t.host, ".") {
			return t.host, false
		}
		return "", false
	}
	if strings.Contains(text, "@") {
		return "", false
	}
	host = hostOf(text)
	if rest, ok := strings.CutPrefix(host, "www."); ok && strings.Contains(rest, ".") {
		return host, false
	}
	if !isRegistered(host) {
		return "", false
	}
	return host, true
}

// isRegistered reports whether a host name is, or is below, a domain that can be registered. The result is false for
// names with an unknown suffix, such as setup.exe.
func isRegistered(host string) bool {
	if host == "" {
		return false
	}
	suffix, icann := publicsuffix.PublicSuffix(host)
	return suffix != host && (icann || strings.Contains(suffix, "."))
}

// shorteners lists the domains of public link shorteners. Spam filters refuse or distrust shortened links, because they
// hide the target.
var shorteners = map[string]bool{"bit.ly": true, "buff.ly": true, "cutt.ly": true, "goo.gl": true, "is.gd": true,
	"ow.ly": true, "rb.gy": true, "rebrand.ly": true, "shorturl.at": true, "t.co": true, "t.ly": true, "tiny.cc": true,
	"tinyurl.com": true, "v.gd": true}
