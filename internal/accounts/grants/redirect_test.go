package grants

import (
	"net/url"
	"strings"
	"testing"
)

func TestCheckRedirect(t *testing.T) {
	t.Parallel()
	for uri, ok := range map[string]bool{
		"https://a.example": true, "https://a.example:8443/cb?x=1": true, "http://127.0.0.1/cb": true,
		"http://127.0.0.1:1/cb": true, "http://[::1]:4711/cb": true, "http://localhost": true,
		"http://localhost?x":  true,
		"com.example.app:/cb": true, "com.example.app://cb": true, "vscode://vendor.app/cb": true, "cursor:cb": true,

		"": false, "a.example": false, "/cb": false, "//a.example/cb": false, "https:": false, "https:///cb": false,
		"http://a.example/cb": false, "http://127.0.0.1.a.example/": false, "http://127.0.0.1@a.example/": false,
		"http://localhost.a.example/": false, "http://localhost:/": false, "http://localhost:123456/": false,
		"http://127.1/cb": false, "http://2130706433/cb": false, "HTTP://127.0.0.1/cb": false,
		"https://user@a.example/": false, "https://user:secret@a.example/": false, "https://a.example/#x": false,
		"https://a.example/#": false, "https://a.example/ x": false, "https://a.example/\n": false,
		"https://a.example\\@b.example/": false, "https://é.example/": false, "https://a.example/\x00": false,
		"javascript:alert(1)": false, "JavaScript:alert(1)": false, "data:text/html,x": false,
		"file:///etc/passwd": false,
		"ftp://a.example/":   false, "intent://a.example/#Intent": false, "Intent:x": false,
		"ms-appinstaller:?source=x": false, "itms-services://?url=x": false, "blob:https://a.example/x": false,
		"about:blank": false, "vbscript:x": false,
		"view-source:https://a.example": false, "https://a.example/" + strings.Repeat("x", 2048): false,
	} {
		if problem := checkRedirect(uri); (problem == "") != ok {
			t.Errorf("%q: %q", uri, problem)
		}
	}
}

// Schemes that operating systems or browsers handle themselves are refused. Private schemes of apps are allowed.
func TestRefusedSchemes(t *testing.T) {
	t.Parallel()
	for _, scheme := range append(strings.Fields(`microsoft-edge search search-ms ms-settings ms-word ms-excel ms-msdt
		ms-officecmd ms-appinstaller ms-windows-store ms-new-one mailto tel sms ldap ldaps smb intent android-app
		itms-apps itms-services market facetime sip ssh telnet rdp view-source chrome chrome-extension webcal
		onenote-cmd onenotedesktop microsoft.windows.camera microsoft.windows.photos.crop microsoftmusic outlook.url.mailto
		explorer.zipselection xboxgames zune stssync content android.resource google.navigation google.streetview itunes
		xbox-store onenote.url.16 x-apple-reminderkit com.apple.tv vnd.ms.radio otpauth magnet trash
		web+anything x-apple.systempreferences shell data javascript`), refusedSchemes...) {
		for _, uri := range []string{scheme + ":x", scheme + "://a.example/cb", strings.ToUpper(scheme) + ":/cb"} {
			if checkRedirect(uri) == "" {
				t.Errorf("%s is allowed", uri)
			}
		}
	}
	for _, scheme := range strings.Fields(`cursor vscode vscode-insiders vscodium windsurf zed claude chatgpt warp raycast
		goose jetbrains com.example.app com.googleusercontent.apps.123-abc com.google.example com.microsoft.example
		msteams-agent microsoft365agent outlooker onenoter xboxer google.example vnd.example.app vnd.youtube androidapp
		explorer searching mailtool x-agent x-applet`) {
		if problem := checkRedirect(scheme + "://callback"); problem != "" || !IsPrivate(scheme+"://callback") {
			t.Errorf("%s: %q", scheme, problem)
		}
	}
	for _, uri := range []string{"https://a.example/cb", "http://127.0.0.1/cb"} {
		if IsPrivate(uri) {
			t.Errorf("%s is private", uri)
		}
	}
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	c := Client{RedirectURIs: []string{"https://a.example/cb", "http://127.0.0.1:80/cb?x=1", "http://[::1]/cb",
		"app:/cb"}}
	for uri, ok := range map[string]bool{
		"https://a.example/cb": true, "http://127.0.0.1/cb?x=1": true, "http://127.0.0.1:65535/cb?x=1": true,
		"http://[::1]:1/cb": true, "app:/cb": true,

		"https://a.example/cb/": false, "https://a.example/cb?": false, "https://a.example:443/cb": false,
		"https://A.example/cb": false, "https://a.example/x/../cb": false, "https://a.example/cb#": false,
		"http://a.example/cb": false, "http://127.0.0.1/cb": false, "http://127.0.0.1/cb?x=2": false,
		"http://localhost/cb?x=1": false, "http://[::1]/cb?x=1": false, "http://127.0.0.1:1@a.example/cb?x=1": false,
		"https://127.0.0.1/cb?x=1": false, "app:/cb2": false, "APP:/cb": false,
	} {
		if got := c.redirects(uri); got != ok {
			t.Errorf("%q: %v", uri, got)
		}
	}
}

// For any combination of registered and requested URIs, a browser is redirected only to a registered URI. Only the port
// of a loopback URI may differ.
func FuzzRedirects(f *testing.F) {
	for _, s := range []string{"https://a.example/cb", "http://127.0.0.1/cb", "http://[::1]:1/cb?x",
		"http://localhost:1@a.example/",
		"http://localhost:80/cb", "app:/cb", "http://127.0.0.1:80@a.example:1/cb", "http://127.0.0.1:/cb",
		"https://a.example:1\\@b"} {
		f.Add(s, s)
		f.Add(s, s+"x")
		f.Add("http://127.0.0.1/cb", s)
	}
	f.Fuzz(func(t *testing.T, registered, given string) {
		if checkRedirect(registered) != "" {
			return
		}
		c := Client{RedirectURIs: []string{registered}}
		if !c.redirects(registered) {
			t.Fatalf("%q does not lead to itself", registered)
		}
		if !c.redirects(given) || given == registered {
			return
		}
		a, err := url.Parse(registered)
		if err != nil {
			t.Fatal(err)
		}
		b, err := url.Parse(given)
		if err != nil {
			t.Fatal(err)
		}
		if b.Scheme != "http" || a.Scheme != b.Scheme || a.Hostname() != b.Hostname() ||
			a.EscapedPath() != b.EscapedPath() ||
			a.RawQuery != b.RawQuery || b.User != nil || b.Fragment != "" ||
			(b.Hostname() != "127.0.0.1" && b.Hostname() != "::1" && b.Hostname() != "localhost") {
			t.Errorf("%q leads to %q", registered, given)
		}
	})
}
