package grants

import (
	"net/url"
	"slices"
	"strings"
)

const uriMax = 2048 // maximum length of a client's redirect URIs and other URIs, in characters

// refusedSchemes are URI schemes that are not allowed in redirect URIs, in addition to those with a prefix in
// refusedPrefixes. Operating systems or browsers handle these schemes themselves: they open a document or a web page,
// or start a call, an installation or a search. A redirect to such a scheme does not lead back to the app. Each scheme
// has a source; add no scheme from memory, because private schemes of apps must stay allowed.
var refusedSchemes = strings.Fields("" +
	// Schemes that browsers load themselves: the Fetch and URL standards, Chromium's url_constants.cc, and Gecko's
	// protocol handlers.
	" about blob data file filesystem ftp javascript view-source ws wss" +
	" chrome chrome-distiller chrome-error chrome-extension chrome-native chrome-search chrome-untrusted devtools" +
	" isolated-app brave edge opera vivaldi cached-favicon jar moz-extension moz-icon moz-page-thumb page-icon resource" +
	" wyciwyg livescript mocha safari-extension safari-web-extension" +
	// Schemes with which other apps open a page in a browser on iOS.
	" firefox firefox-focus googlechrome googlechrome-x-callback googlechromes x-safari-http x-safari-https x-web-search" +
	// Schemes that Chromium (kDeniedSchemes) and Firefox (network.protocol-handler.external) never pass to an app.
	" afp disk disks hcp help ie.http iehistory ierss mk nntp res search search-ms shell vbscript vnd.ms.radio" +
	// The safelisted schemes of the HTML standard, which any website may register to handle.
	" bitcoin ftps geo im irc ircs magnet mailto matrix mms news openpgp4fpr sftp sip sms smsto ssh tel urn webcal wtai" +
	" xmpp" +
	// Windows: Microsoft's list "Reserved file and URI scheme names".
	" application.manifest application.reference batfile bing callto cerfile chm.file cmdfile comfile cplfile dllfile" +
	" drvfile dtmf exefile fonfile hlpfile htafile inffile insfile internetshortcut jscript jsefile ldap lnkfile maps" +
	" microsoft.powershellscript.1 msi.package msi.patch ocxfile office onenote piffile regfile rlogin scrfile" +
	" scriptletfile shbfile shcmdfile shsfile smb stickynotes sysfile telnet tn3270 ttffile unknown usertileprovider" +
	" vbefile vbsfile wallet windows.gadget windowsmediacenterapp windowsmediacenterssl windowsmediacenterweb" +
	" wmp11.assocprotocol.mms wsffile wsfile wshfile xbls zune" +
	// Windows: "Launch the default app for a URI", the registrations of Microsoft in the IANA registry of URI schemes,
	// and the schemes in the registry of Windows 10 and 11 with Office.
	" bingmaps bingweather browserext calculator dlna-playcontainer dlna-playsingle feed feedback-hub feeds" +
	" first-run-pen-experience ie.https insiderhub its ldaps mapi mapi16 mhtml microsoft-edge microsoft-edge-holographic" +
	" microsoft.workfolders microsoftmusic microsoftvideo msnweather mswindowsmusic mswindowsvideo odopen onenote-cmd" +
	" onenotedesktop outlookaccounts outlookcal outlookmail rdp read sips skype skype-meetnow skypewin stssync tbauth" +
	" webcals windows-feedback windows.tbauth windowsdefender xbox xboxgames" +
	// macOS and iOS: Apple's "URL Scheme Reference", and Launch Services (lsregister -dump URLSchemeBinding).
	" addressbook apconfig apple-otpauth applefeedback applenews applenewss applescript apupdate cifs cloudphoto daap" +
	" dict facetime facetime-audio facetime-group facetime-open-link findmy findmyfriends fmf1 fmip1 grenada ibooks ical" +
	" ichat imessage ipp ipps itals italss itls itlss itms itms-apps itms-appss itms-beta itms-books itms-bookss" +
	" itms-messages itms-messagess itms-podcasts itms-services itmss itsradio itunes itunesradio itvls itvlss" +
	" macappstore macappstores map mapitem message messages music musics notes nwnode otpauth pcast photos" +
	" photos-navigation podcast podcasts prefs shortcuts shortcuts-production sms-private stocks videos vnc workflow" +
	" x-com-apple-playgrounds x-dictionary x-help-action x-man-page x-maps-ac-auth x-maps-bulletin" +
	" x-maps-mapitemhandles" +
	// Schemes of the apps of iOS.
	" app-prefs app-settings calshow icloud-sharing mobilenotes photos-redirect shareddocuments telprompt" +
	// Android: "Reference of Available Intents", "Google Maps Intents", and android.content.Intent and ContentResolver.
	" android android-app android.resource content google.navigation google.streetview intent market mmsto package" +
	" voicemail" +
	// Linux: the schemes of GVfs, of GNOME's help viewer, and of the stores and package managers.
	" admin afc archive burn cdda computer dav dav+sd davs davs+sd dns-sd fish ftpis google-drive gphoto2 mtp network" +
	" nfs onedrive recent trash ghelp info man appstream apt flatpak flatpak+https snap" +
	// IANA: protocols of networks, which no app owns.
	" gopher jabber mid cid")

// refusedPrefixes are prefixes of refused schemes. Each prefix is a namespace of one vendor, or, in the case of "web+",
// the namespace in which the HTML standard lets any website register handlers.
var refusedPrefixes = []string{"ms-", "microsoft.windows.", "explorer.", "onenote.url.", "onenotedesktop.url.",
	"outlook.url.", "xbox-", "x-apple.", "x-apple-", "com.apple.", "web+"}

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
