package certs

import (
	"context"
	"crypto/tls"
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/caddyserver/certmagic"

	"github.com/postrider/postrider/internal/platform/certs/certstest"
	"github.com/postrider/postrider/internal/platform/db"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// by returns the settings for an authority with the given challenges.
func by(a *certstest.Authority, challenges ...string) *ACME {
	return &ACME{Directory: a.Directory, CAFile: a.CAFile, Email: "admin@postrider.test", Challenges: challenges}
}

// noAddrs is a resolver for name servers that finds none.
func noAddrs(context.Context, string) ([]netip.Addr, error) { return nil, errors.New("no such host") }

// Each challenge leads to a certificate, which a second node finds in the database.
func TestChallenges(t *testing.T) {
	hook := hookProgram(t)
	for name, ask := range map[string]func(*testing.T, *certstest.Authority) *ACME{
		"http-01":     func(_ *testing.T, a *certstest.Authority) *ACME { return by(a, "http-01") },
		"tls-alpn-01": func(_ *testing.T, a *certstest.Authority) *ACME { return by(a, "tls-alpn-01") },
		"rfc2136": func(_ *testing.T, a *certstest.Authority) *ACME {
			o := by(a, "http-01")
			o.DNS = &DNSUpdate{Server: a.DNS.Addr, Zone: certstest.Zone, KeyName: certstest.KeyName,
				Algorithm: certstest.Algorithm, Secret: certstest.Secret, Addrs: noAddrs}
			return o
		},
		"hook": func(t *testing.T, a *certstest.Authority) *ACME {
			o := by(a, "http-01")
			o.Hook = hook.path
			hook.publish(t, a)
			return o
		},
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, d *db.DB) {
				a := certstest.New(t, 0)
				o := Options{Web: []string{host}, Mail: []string{"mx.postrider.test", "vm"}, ACME: ask(t, a)}
				m := start(t, d, o)
				a.HTTP.To(m.http)
				a.TLS.To(m.https)
				m.run()
				covered(t, m.https, host, a)
				covered(t, m.https, "mx.postrider.test", a)
				if state, err := dial(m.https, host, a); err != nil || state.Version < tls.VersionTLS12 ||
					state.PeerCertificates[0].VerifyHostname("mx.postrider.test") == nil {
					t.Errorf("%v, %v", state.Version, err)
				}
				if n := a.Issued(); n != 2 {
					t.Errorf("%d certificates were issued for two hosts; the log is %s", n, m.log)
				}
				if name == "rfc2136" || name == "hook" {
					eventually(t, "no record left", func() bool { return len(a.DNS.TXT("_acme-challenge."+host)) == 0 })
					if a.HTTP.Uses() > 0 {
						t.Error("the authority connected to the host")
					}
				}
				all, err := m.Certificates(t.Context())
				if err != nil || len(all) != 2 || !all[0].Own || all[0].Names[0] != host || all[0].LastError != "" ||
					!strings.Contains(all[0].Issuer, "Pebble") || time.Until(all[0].NotAfter) < 24*time.Hour {
					t.Errorf("the list is %+v, %v", all, err)
				}
				m.stop()
				again := start(t, d, o) // as after a restart
				again.run()
				covered(t, again.https, host, a)
				if n := a.Issued(); n != 2 {
					t.Errorf("after a restart, %d certificates were issued", n)
				}
			})
		})
	}
}

// program is a hook program that publishes records with files, which the test copies to the DNS server.
type program struct{ path, dir string }

func hookProgram(t *testing.T) program {
	t.Helper()
	p := program{filepath.Join(t.TempDir(), "hook"), t.TempDir()}
	// The program waits until the test has published the record, as a real one waits for the name servers.
	text := `#!/bin/sh
set -e
printf '%s %s %s' "$1" "$2" "$3" > ` + p.dir + `/$$.new
mv ` + p.dir + `/$$.new ` + p.dir + `/$$.call
while [ -e ` + p.dir + `/$$.call ]; do sleep 0.02; done
`
	if err := os.WriteFile(p.path, []byte(text), 0o700); err != nil {
		t.Fatal(err)
	}
	return p
}

// publish executes the program's calls at the DNS server until the test ends.
func (p program) publish(t *testing.T, a *certstest.Authority) {
	ctx := t.Context()
	go func() {
		for ctx.Err() == nil {
			calls, _ := filepath.Glob(filepath.Join(p.dir, "*.call"))
			for _, call := range calls {
				text, err := os.ReadFile(call)
				if err != nil {
					continue
				}
				f := strings.Fields(string(text))
				if f[0] == "present" {
					a.DNS.Set(f[1], f[2])
				} else {
					a.DNS.Set(f[1])
				}
				os.Remove(call)
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
}

// Nodes of one database get one certificate together, also if the authority connects to the node that did not request
// it, and if the node that began was killed.
func TestNodesShareCertificates(t *testing.T) {
	url := dbtest.PostgresURL(t)
	a := certstest.New(t, 0)
	o := Options{Web: []string{host}, ACME: by(a, "http-01")}
	one, two := start(t, dbtest.Open(t, url), o), start(t, dbtest.Open(t, url), o)
	a.HTTP.To(two.http)
	killed, err := one.storage.take(t.Context(), "issue_cert_"+host, "a killed node")
	if err != nil || !killed {
		t.Fatal(killed, err)
	}
	err = one.storage.db.Update(t.Context(), func(tx *db.Tx) error {
		_, err := tx.Exec(t.Context(), `UPDATE certificate_locks SET expires_at = $1`,
			db.Micros(tx.Now().Add(time.Second)))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	one.run()
	covered(t, one.https, host, a)
	two.run()
	covered(t, two.https, host, a)
	if a.Issued() != 1 || strings.Contains(two.log.String(), "requesting") {
		t.Errorf("%d certificates were issued; the logs are %s %s", a.Issued(), one.log, two.log)
	}

	// Both begin at the same time with another host.
	three := Options{Web: []string{"www.postrider.test"}, ACME: o.ACME}
	four, five := start(t, dbtest.Open(t, url), three), start(t, dbtest.Open(t, url), three)
	four.run()
	five.run()
	covered(t, four.https, "www.postrider.test", a)
	covered(t, five.https, "www.postrider.test", a)
	if n := a.Issued(); n != 2 {
		t.Errorf("%d certificates were issued for two hosts", n)
	}
}

// Hosts of customers get a certificate in the handshake, if they are verified. Others cost one look-up a minute.
func TestCustomersHosts(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := certstest.New(t, 0)
		var asked atomic.Int64
		m := start(t, d, Options{Web: []string{host}, ACME: by(a, "http-01", "tls-alpn-01"),
			Allowed: func(_ context.Context, host string) (bool, error) {
				asked.Add(1)
				return strings.HasPrefix(host, "links."), nil
			}})
		a.HTTP.To(m.http)
		a.TLS.To(m.https)
		m.run()
		covered(t, m.https, host, a)
		if _, err := dial(m.https, "links.customer.test", a); err != nil {
			t.Errorf("a verified host: %v; the log is %s", err, m.log)
		}
		issued, asks := a.Issued(), asked.Load()
		for range 5 {
			if _, err := dial(m.https, "evil.test", a); err == nil {
				t.Error("a host that is not verified has a certificate")
			}
			if _, err := dial(m.https, "links.customer.test", a); err != nil {
				t.Error(err)
			}
		}
		if asked.Load() != asks+1 || a.Issued() != issued || issued != 2 {
			t.Errorf("%d look-ups and %d certificates for one new host", asked.Load()-asks, a.Issued())
		}
		long, before := "evil."+strings.Repeat("x", 30_000)+".test", asked.Load()
		if _, err := dial(m.https, long, a); err == nil || asked.Load() != before || m.strangers.isRefused(long) {
			t.Errorf("a host that is too long to exist was looked up or is kept in memory: %v", err)
		}
		// SMTP never requests certificates of customers.
		c, err := m.forMail(&tls.ClientHelloInfo{ServerName: "links.other.test"})
		if err != nil || a.Issued() != issued {
			t.Errorf("SMTP requested a certificate: %v, %v", c, err)
		}
	})
}

// A failed request is not repeated before its time, and everybody sees its reason.
func TestFailedRequests(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, d *db.DB) {
		a := certstest.New(t, 0)
		a.DNS.Hide(host, true)
		a.DNS.Hide("links.customer.test", true)
		m := start(t, d, Options{Web: []string{host}, Mail: []string{host}, ACME: by(a, "http-01"),
			Allowed: func(context.Context, string) (bool, error) { return true, nil }})
		a.HTTP.To(m.http)
		m.run()
		var own Status
		eventually(t, "a failure", func() bool {
			all, err := m.Certificates(t.Context())
			if err != nil || len(all) != 1 {
				t.Fatal(all, err)
			}
			own = all[0]
			return own.LastError != ""
		})
		if own.RetryAt.Sub(own.FailedAt) != waitAfter(1) || !own.NotAfter.IsZero() || !own.Own {
			t.Errorf("the failure is %+v", own)
		}
		eventually(t, "a line in the log", func() bool { // written after the failure is stored
			return strings.Contains(m.log.String(), "level=ERROR") && strings.Contains(m.log.String(), host)
		})
		if c, err := m.forMail(&tls.ClientHelloInfo{ServerName: host}); err != nil || c.Leaf.Issuer.CommonName != host {
			t.Errorf("SMTP has no self-signed certificate: %v", err)
		}
		for range 2 {
			if _, err := dial(m.https, "links.customer.test", a); err == nil {
				t.Error("a host without an address has a certificate")
			}
		}
		if f, err := m.storage.failureOf(t.Context(), "links.customer.test"); err != nil || f.count != 1 {
			t.Errorf("two handshakes made %d requests, %v", f.count, err)
		}
		if all, err := m.Certificates(t.Context()); err != nil || len(all) != 2 || all[1].Own {
			t.Errorf("the list is %+v, %v", all, err)
		}

		// The host works again, and its time comes.
		a.DNS.Hide(host, false)
		if _, err := m.acme.Issue(t.Context(), request(t, host)); !errors.As(err, new(certmagic.ErrNoRetry)) ||
			!strings.Contains(err.Error(), "the next one is made after") {
			t.Errorf("a request before its time: %v", err)
		}
		if err := m.storage.soonen(t.Context(), []string{host}, 0); err != nil {
			t.Fatal(err)
		}
		m.manage(t.Context())
		covered(t, m.https, host, a)
		if f, err := m.storage.failureOf(t.Context(), host); err != nil || f.count != 0 {
			t.Errorf("after a success: %+v, %v", f, err)
		}
	})
}

// Certificates are renewed before they expire, and replace the ones in memory.
func TestRenewal(t *testing.T) {
	d := dbtest.SQLite(t)
	a := certstest.New(t, 3) // Pebble tells when to renew by the first two thirds of this time
	m := start(t, d, Options{Web: []string{host}, ACME: by(a, "http-01")})
	a.HTTP.To(m.http)
	m.run()
	covered(t, m.https, host, a)
	first := m.ownCache.AllMatchingCertificates(host)[0].Leaf.SerialNumber
	eventually(t, "a renewed certificate", func() bool {
		if err := m.ownCache.RenewManagedCertificates(t.Context()); err != nil {
			t.Fatal(err)
		}
		state, err := dial(m.https, host, a)
		return err == nil && state.PeerCertificates[0].SerialNumber.Cmp(first) != 0
	})
}

// An account that the authority no longer has is created again.
func TestLostAccount(t *testing.T) {
	d := dbtest.SQLite(t)
	one := certstest.New(t, 0)
	m := start(t, d, Options{Web: []string{host}, ACME: by(one, "http-01")})
	one.HTTP.To(m.http)
	m.run()
	covered(t, m.https, host, one)
	m.stop()

	two := certstest.New(t, 0) // as if the first one had been installed again
	o := by(two, "http-01")
	again := start(t, d, Options{Web: []string{"www.postrider.test"}, ACME: o})
	two.HTTP.To(again.http)
	for _, name := range []string{accountKey, accountDoc} {
		value, err := again.storage.Load(t.Context(), m.acme.accountPath()+"/"+name)
		if err != nil {
			t.Fatal(err)
		}
		value = []byte(strings.ReplaceAll(string(value), strings.TrimSuffix(one.Directory, "/dir"),
			strings.TrimSuffix(two.Directory, "/dir")))
		if err := again.storage.Store(t.Context(), again.acme.accountPath()+"/"+name, value); err != nil {
			t.Fatal(err)
		}
	}
	again.run()
	covered(t, again.https, "www.postrider.test", two)
}

// An authority that needs an external account binding gives certificates to an account that is bound, and to no other.
func TestExternalAccount(t *testing.T) {
	t.Parallel()
	const id, key = "kid-1", "zWNDZM6eQGHWpSRTPal5eIUYFTu7EajVIoguysqZ9wG44nMEtx3MUAsUDkMTQ12W"
	a := certstest.NewBound(t, map[string]string{id: key})
	for _, x := range []struct{ id, key, failure string }{
		{"", "", "externalAccountRequired"}, {"kid-2", key, "not known"}, {id, key, ""},
	} {
		o := by(a, "http-01")
		o.EABKeyID, o.EABKey = x.id, x.key
		m := start(t, dbtest.SQLite(t), Options{Web: []string{host}, ACME: o})
		a.HTTP.To(m.http)
		m.run()
		if x.failure == "" {
			covered(t, m.https, host, a)
			continue
		}
		eventually(t, "a failure", func() bool {
			all, err := m.Certificates(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return all[0].LastError != ""
		})
		if !strings.Contains(m.log.String(), x.failure) || a.Issued() > 0 {
			t.Errorf("with the key %q: %d certificates, %s", x.id, a.Issued(), m.log)
		}
		m.stop()
	}
}

// The operator's certificate is used for the hosts that it covers; the authority issues those of the others.
func TestFilesBesideACME(t *testing.T) {
	d := dbtest.SQLite(t)
	a := certstest.New(t, 0)
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	writeCertificate(t, certFile, keyFile, "www.postrider.test", time.Now())
	m := start(t, d, Options{CertFile: certFile, KeyFile: keyFile, Web: []string{"www.postrider.test", host},
		ACME: by(a, "http-01")})
	a.HTTP.To(m.http)
	m.run()
	covered(t, m.https, host, a)
	if c, err := m.forWeb(&tls.ClientHelloInfo{}); err != nil || c.Leaf.Issuer.CommonName != "www.postrider.test" {
		t.Errorf("the first host has another certificate: %v", err)
	}
	if a.Issued() != 1 || strings.Contains(m.log.String(), "level=ERROR") {
		t.Errorf("%d certificates; the log is %s", a.Issued(), m.log)
	}
}

// Mistakes in the settings of the authority stop the start, or are told with the name of the setting.
func TestACMEMistakes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	if err := os.WriteFile(text, []byte("hello"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		acme ACME
		say  string
	}{
		{ACME{CAFile: dir + "/none"}, "read acme_ca_file: open"},
		{ACME{CAFile: text}, "read acme_ca_file: " + text + " contains no certificate in PEM"},
		{ACME{Hook: dir + "/none"}, "find acme_dns_hook"},
		{ACME{Hook: text}, "acme_dns_hook: " + text + " is not a program"},
		{ACME{Hook: dir}, "acme_dns_hook: " + dir + " is not a program"},
	} {
		if _, err := New(Options{Log: (&logged{}).logger(), ACME: &c.acme}); err == nil ||
			!strings.Contains(err.Error(), c.say) {
			t.Errorf("%+v: %v; want %q", c.acme, err, c.say)
		}
	}
}
