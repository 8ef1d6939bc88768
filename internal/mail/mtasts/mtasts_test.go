package mtasts_test

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/mail/mtasts"
)

func TestDomain(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{
		"example.com":                   "example.com",
		"EXAMPLE.Com.":                  "example.com",
		"bücher.example":                "xn--bcher-kva.example",
		"Bücher.Example":                "xn--bcher-kva.example",
		"XN--BCHER-KVA.example":         "xn--bcher-kva.example",
		"a_b.example":                   "a_b.example",
		"[192.0.2.1]":                   "",
		"[IPv6:2001:db8::1]":            "",
		"192.0.2.1":                     "",
		"2001:db8::1":                   "",
		"":                              "",
		".":                             "",
		"a..example":                    "",
		".example":                      "",
		"a/b.example":                   "",
		"a@b.example":                   "",
		"a b.example":                   "",
		"a:443":                         "",
		"a%2e.example":                  "",
		strings.Repeat("a", 64):         "",
		strings.Repeat("a.", 121) + "a": "a" + strings.Repeat(".a", 121),
		strings.Repeat("a.", 122) + "a": "", // with _mta-sts, it has 254 bytes
	} {
		got, err := mtasts.Domain(name)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("Domain(%q) = %q, %v; want %q", name, got, err, want)
		}
	}
}

func TestFindRecord(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("a", 32)
	for _, c := range []struct {
		records []string
		want    string // "" means that there is no usable record
		none    bool   // whether there is no record at all
	}{
		{[]string{"v=STSv1; id=20260101T000000;"}, "20260101T000000", false},
		{[]string{"v=STSv1;id=1"}, "1", false},
		{[]string{"v=STSv1 ;\tid=1 ; "}, "1", false},
		{[]string{"v=STSv1; id=" + long}, long, false},
		{[]string{"v=spf1 -all", "v=STSv1; id=1;", "other"}, "1", false},
		{[]string{"v=STSv10; id=2", "v=STSv1; id=1"}, "1", false},
		{[]string{"v=STSv1; x=y; a.b-c_d=!~; id=1"}, "1", false},
		{[]string{"v=STSv1; id=1; id=2"}, "1", false},
		{nil, "", true},
		{[]string{"v=spf1 -all"}, "", true},
		{[]string{"v=stsv1; id=1"}, "", true},
		{[]string{"V=STSv1; id=1"}, "", true},
		{[]string{" v=STSv1; id=1"}, "", true},
		{[]string{"v= STSv1; id=1"}, "", true},
		{[]string{"id=1; v=STSv1"}, "", true},
		{[]string{"v=STSv2; id=1"}, "", true},
		{[]string{"v=STSv1"}, "", true},
		{[]string{"v=STSv1;"}, "", false},
		{[]string{"v=STSv1; id="}, "", false},
		{[]string{"v=STSv1; id=" + long + "a"}, "", false},
		{[]string{"v=STSv1; id=2026-01-01"}, "", false},
		{[]string{"v=STSv1; id=ü"}, "", false},
		{[]string{"v=STSv1; ID=1"}, "", false},
		{[]string{"v=STSv1; id = 1"}, "", false},
		{[]string{"v=STSv1; id=1; x"}, "", false},
		{[]string{"v=STSv1; id=1; x="}, "", false},
		{[]string{"v=STSv1; id=1; x=a=b"}, "", false},
		{[]string{"v=STSv1; id=1; _x=a"}, "", false},
		{[]string{"v=STSv1;; id=1"}, "", false},
		{[]string{"v=STSv1; id=1; x=a b"}, "", false},
		{[]string{"v=STSv1; id=1", "v=STSv1; id=1"}, "", false},
	} {
		got, err := mtasts.FindRecord(c.records)
		if got != c.want || (err == nil) != (c.want != "") || errors.Is(err, mtasts.ErrNoRecord) != c.none {
			t.Errorf("FindRecord(%q) = %q, %v; want %q, no record %v", c.records, got, err, c.want, c.none)
		}
	}
}

func TestCheckMediaType(t *testing.T) {
	t.Parallel()
	for text, ok := range map[string]bool{"text/plain": true, "Text/Plain; charset=utf-8": true,
		"text/plain; charset": true, "text/plain;": true, "": false, "text/html": false, "text/plainer": false,
		"text": false} {
		if err := mtasts.CheckMediaType(text); (err == nil) != ok {
			t.Errorf("CheckMediaType(%q) = %v", text, err)
		}
	}
}

func TestCertificateResult(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want mtasts.Result
	}{
		{&tls.CertificateVerificationError{Err: x509.HostnameError{Certificate: &x509.Certificate{}}}, mtasts.HostMismatch},
		{x509.CertificateInvalidError{Reason: x509.Expired}, mtasts.CertificateExpired},
		{x509.CertificateInvalidError{Reason: x509.NotAuthorizedToSign}, mtasts.NotTrusted},
		{fmt.Errorf("handshake: %w", x509.UnknownAuthorityError{}), mtasts.NotTrusted},
		{&tls.CertificateVerificationError{Err: errors.New("x")}, mtasts.NotTrusted},
		{&tls.CertificateVerificationError{Err: x509.SystemRootsError{}}, ""},
		{errors.New("connection reset"), ""},
		{nil, ""},
	} {
		if got, ok := mtasts.CertificateResult(c.err); got != c.want || ok != (c.want != "") {
			t.Errorf("CertificateResult(%v) = %q, %v; want %q", c.err, got, ok, c.want)
		}
	}
}

func FuzzRecord(f *testing.F) {
	for _, text := range []string{"v=STSv1; id=1;", "v=STSv1 ; x=y; id=1 ", "v=STSv1;id=", "v=STSv1;;", "="} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, err := mtasts.FindRecord([]string{text})
		if err != nil {
			return
		}
		if len(id) == 0 || len(id) > 32 || strings.ContainsFunc(id, func(r rune) bool { return r < '0' || r > 'z' }) {
			t.Errorf("%q has the id %q", text, id)
		}
		if again, err := mtasts.ParseRecord("v=STSv1; id=" + id); again != id || err != nil {
			t.Errorf("the id %q is read as %q, %v", id, again, err)
		}
		if _, err := mtasts.FindRecord([]string{text, text}); err == nil {
			t.Errorf("%q counts twice", text)
		}
	})
}
