package certs

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/mholt/acmez/v3/acme"

	"github.com/postrider/postrider/internal/platform/certs/certstest"
)

// request returns a request for a certificate.
func request(t *testing.T, name string) *x509.CertificateRequest {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	der, err := x509.CreateCertificateRequest(rand.Reader, &x509.CertificateRequest{DNSNames: []string{name}}, key)
	if err != nil {
		t.Fatal(err)
	}
	csr, err := x509.ParseCertificateRequest(der)
	if err != nil {
		t.Fatal(err)
	}
	return csr
}

var aChallenge = acme.Challenge{Type: acme.ChallengeTypeDNS01, Token: "token", KeyAuthorization: "token.print",
	Identifier: acme.Identifier{Type: "dns", Value: host}}

func TestDNSUpdate(t *testing.T) {
	a := certstest.New(t, 0)
	good := DNSUpdate{Server: a.DNS.Addr, Zone: certstest.Zone, KeyName: "ACME.postrider.test",
		Algorithm: certstest.Algorithm, Secret: certstest.Secret, Addrs: noAddrs}
	name := aChallenge.DNS01TXTRecordName()
	a.DNS.Set(name, "other")
	if err := good.Present(t.Context(), aChallenge); err != nil || len(a.DNS.TXT(name)) != 2 {
		t.Errorf("%v: %q", err, a.DNS.TXT(name))
	}
	if err := good.Wait(t.Context(), aChallenge); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := good.CleanUp(ended, aChallenge); err != nil || len(a.DNS.TXT(name)) != 1 {
		t.Errorf("%v: %q", err, a.DNS.TXT(name))
	}
	if !good.covers(host) || !good.covers(certstest.Zone) || good.covers("notpostrider.test") {
		t.Error("the zone covers other hosts")
	}
	for _, c := range []struct {
		change func(*DNSUpdate)
		say    string
	}{
		{func(u *DNSUpdate) { u.Secret = "b3RoZXI=" }, "NOTAUTH: check acme_dns_zone, acme_dns_key_name"},
		{func(u *DNSUpdate) { u.Zone = "other.test" }, "NOTZONE: check acme_dns_zone"},
		{func(u *DNSUpdate) { u.Server = "127.0.0.1:1" }, "at acme_dns_server 127.0.0.1:1"},
	} {
		bad := good
		c.change(&bad)
		if err := bad.Present(t.Context(), aChallenge); err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%v; want %q", err, c.say)
		}
	}
}

// The wait ends when the name servers that answer have the record.
func TestDNSWait(t *testing.T) {
	a := certstest.New(t, 0)
	name, value := aChallenge.DNS01TXTRecordName(), aChallenge.DNS01KeyAuthorization()
	if !lacks(t.Context(), a.DNS.Addr, name, value) {
		t.Error("a record that is not published was found")
	}
	a.DNS.Set(name, "other", value)
	if lacks(t.Context(), a.DNS.Addr, name, value) {
		t.Error("a record that is published was not found")
	}
	if lacks(t.Context(), "127.0.0.1:1", name, value) {
		t.Error("a name server that does not answer counts")
	}
	u := DNSUpdate{Server: a.DNS.Addr, Zone: certstest.Zone,
		Addrs: func(_ context.Context, host string) ([]netip.Addr, error) {
			if host != "ns."+certstest.Zone {
				t.Errorf("the name server is %s", host)
			}
			return []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()}, nil
		}}
	if got := strings.Join(u.nameServers(t.Context()), " "); got != "127.0.0.1:53 [::1]:53" {
		t.Errorf("the name servers are %s", got)
	}
}

// A program that fails, or does not end, makes an error with its output.
func TestHook(t *testing.T) {
	t.Setenv("POSTRIDER_SECRET_KEY", "secret of the test")
	dir := t.TempDir()
	write := func(name, text string) hook {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
		return hook{path}
	}
	out := filepath.Join(dir, "out")
	good := write("good", `echo "$@$POSTRIDER_SECRET_KEY" >> `+out)
	if err := good.Present(t.Context(), aChallenge); err != nil {
		t.Error(err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := good.CleanUp(ended, aChallenge); err != nil {
		t.Error(err)
	}
	args := " " + aChallenge.DNS01TXTRecordName() + " " + aChallenge.DNS01KeyAuthorization() + "\n"
	if text, err := os.ReadFile(out); err != nil || string(text) != "present"+args+"cleanup"+args {
		t.Errorf("the program got %q, %v", text, err)
	}
	err := write("bad", "echo no such zone >&2; yes | head -c 100000; exit 3").Present(t.Context(), aChallenge)
	if err == nil || !strings.Contains(err.Error(), "acme_dns_hook") || !strings.Contains(err.Error(), "no such zone") ||
		!strings.Contains(err.Error(), "exit status 3") || len(err.Error()) > 2*hookOutput {
		t.Errorf("a program that fails: %.300v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	began := time.Now()
	err = write("endless", "sleep 100 & sleep 100").Present(short, aChallenge)
	if err == nil || time.Since(began) > 4*time.Second {
		t.Errorf("a program that does not end: %v after %v", err, time.Since(began))
	}
}
