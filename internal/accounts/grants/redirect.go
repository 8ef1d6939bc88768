package grants

import (
	"net/url"
	"slices"
	"strings"
)

const uriMax = 2048 // maximum length of a client's redirect URIs and other URIs, in characters

// refusedSchemes are URI schemes that are not allowed in redirect URIs, in addition to those with a prefix in
// refusedPrefixes. Operating systems or browsers handle these schemes themselves: they open a document or a web page,
// or start a call, an installation or a search. A redirect to such a scheme does not lead back to the app.
var refusedSchemes = strings.Fields(`
	about blob chrome chrome-extension chrome-search data devtools edge feed file filesystem ftp ftps gopher jar
	javascript livescript moz-extension mocha nntp news resource view-source vbscript vivaldi brave opera firefox
	safari-extension safari-web-extension wyciwyg microsoft-edge microsoft-edge-holographic googlechrome googlechromes
	firefox-focus brave-browser x-safari-http x-safari-https x-web-search x-google-search ws wss
	mailto tel telprompt sms smsto mms mmsto callto facetime facetime-audio facetime-group imessage sip sips skype xmpp
	im irc ircs geo maps map market
	intent android-app itms itms-apps itms-appss itms-beta itms-books itms-bookss itms-services itmss macappstore
	macappstores apt snap appstream flatpak
	search search-ms shell ldap ldaps smb cifs nfs afp sftp ssh telnet rlogin rdp vnc webdav webdavs
	dav davs x-apple.systempreferences x-apple-reminderkit x-help-action x-man-page applescript help hcp
	res mk mhtml its onenote tbauth bingmaps bingnews bingweather calculator outlookcal outlookmail
	windowsdefender xbox read odopen prefs app-settings shortcuts workflow
	stssync mapi windows-feedback feedback-hub insiders iehistory ierss ie.http ie.https ie.ftp mswindowsmusic
	mswindowsvideo skypewin skype-meetnow
	itunes daap dict addressbook ichat ical photos photos-redirect music applenews applenewss ibooks mobilenotes
	freeform findmy fmf1 fmip1 diagnostics shareddocuments icloud-sharing app-prefs
	content package voicemail chrome-native chrome-untrusted chrome-distiller isolated-app moz-icon page-icon
	trash admin computer recent man info fish
	calshow message feeds podcast pcast videos music webcal webcals vcard vnd.ms.radio cid mid
	`)

// refusedPrefixes are prefixes of refused schemes. Windows and Office handle the schemes that begin with "ms-",
// "microsoft", "onenote", "outlook", "explorer.", "xbox" and "zune", and Android those with "android." and "google.".
var refusedPrefixes = []string{"ms-", "microsoft", "onenote", "outlook", "explorer.", "xbox", "zune", "android.",
	"google.", "vnd.", "web+", "x-apple", "com.apple."}

// isRefusedScheme reports whether a redirect URI must not have the scheme.
func isRefusedScheme(scheme string) bool {
	return slices.Contains(refusedSchemes, scheme) ||
		slices.ContainsFunc(refusedPrefixes, func(prefix string) bool { return strings.HasPrefix(scheme, prefix) })
}

// IsPrivate reports whether a redirect URI has a private scheme (RFC 8252 section 7.1). No program is known to own the
// scheme, so a browser must not follow such a redirect URI without a click.
func IsPrivate(uri string) bool {
	u, err := url.Parse(uri)
	return err != nil || u.Scheme != "https" && u.Scheme != "http"
}

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
	case isRefusedScheme(u.Scheme):
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
