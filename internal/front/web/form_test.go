package web

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/fault"
)

func TestLocal(t *testing.T) {
	for _, text := range []string{"/", "/account",
		"/oauth/authorize?client_id=x&redirect_uri=https%3A%2F%2Fa.example%2F",
		"/people?q=//evil.example", "/a//b", "/a:b"} {
		if got := Local(text); got != text {
			t.Errorf("Local(%q) = %q", text, got)
		}
	}
	for _, text := range []string{"", "account", "//evil.example", "///evil.example",
		`/\evil.example`, `\/evil.example`,
		"/\t/evil.example", "/\n/evil.example", "/\r/evil.example", " //evil.example", "https://evil.example",
		"https:/evil.example", "javascript:alert(1)", "/%zz", "/a b", "/" + strings.Repeat("a", nextMaxBytes)} {
		if got := Local(text); got != "" {
			t.Errorf("Local(%.40q) = %.40q", text, got)
		}
	}
}

// FuzzLocal parses accepted paths in the same way as browsers do. Browsers ignore tabs and line endings, and treat a
// backslash as a slash.
func FuzzLocal(f *testing.F) {
	for _, text := range []string{"/account", "//evil.example", "/\t/evil.example", `/\evil.example`, "/a?b#c"} {
		f.Add(text)
	}
	own, err := url.Parse("https://postrider.test/sign-in")
	if err != nil {
		f.Fatal(err)
	}
	read := strings.NewReplacer("\t", "", "\n", "", "\r", "", `\`, "/")
	f.Fuzz(func(t *testing.T, text string) {
		path := Local(text)
		if path == "" {
			return
		}
		u, err := own.Parse(strings.TrimSpace(read.Replace(path)))
		if err != nil || u.Host != own.Host || u.Scheme != own.Scheme || u.User != nil {
			t.Errorf("%q leads to %v (%v)", text, u, err)
		}
	})
}

func TestSetError(t *testing.T) {
	f := NewForm(&Field{Name: "email"}, &Field{Name: "password", Type: "password"})
	f.Fill(url.Values{"email": {"a@b.example"}, "password": {"secret"}})
	if f.Fields[0].Value != "a@b.example" || f.Fields[1].Value != "" {
		t.Errorf("the form keeps %q and %q", f.Fields[0].Value, f.Fields[1].Value)
	}
	status, err := f.SetError(fault.Invalidf("email", "No address."))
	if status != 422 || err != nil || f.Fields[0].Error != "No address." || f.Problem != "" {
		t.Errorf("%d %v: %+v", status, err, f)
	}
	status, err = f.SetError(fmt.Errorf("look: %w", fault.New(fault.TooFast, "", "Wait.")))
	if status != 429 || err != nil || f.Problem != "Wait." {
		t.Errorf("%d %v: %+v", status, err, f)
	}
	broken := fmt.Errorf("the disk is full")
	if _, err := f.SetError(broken); err != broken {
		t.Errorf("a failure of the server became %v", err)
	}
}

func TestPolicyOfRedirects(t *testing.T) {
	for address, want := range map[string]string{
		"https://app.example/cb?x=1":     "https://app.example",
		"https://app.example:8443/cb":    "https://app.example:8443",
		"http://127.0.0.1:4711/callback": "http://127.0.0.1:4711",
		"http://[::1]:4711/callback":     "http:",
		"com.example.app:/callback":      "com.example.app:",
		"cursor://anysphere/callback":    "cursor:",
		"https://a.example;x/":           "",
		"/only/a/path":                   "",
	} {
		if got := source(address); got != want {
			t.Errorf("%s is allowed as %q, want %q", address, got, want)
		}
	}
}
