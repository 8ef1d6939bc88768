package certs

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// writeCertificate writes a new certificate for a host and its key to the given files, and returns the certificate in
// DER encoding.
func writeCertificate(t *testing.T, certFile, keyFile, name string, at time.Time) []byte {
	t.Helper()
	cert, err := selfSigned(name)
	if err != nil {
		t.Fatal(err)
	}
	key, err := x509.MarshalPKCS8PrivateKey(cert.PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: cert.Certificate[0]},
		keyFile: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(b), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(name, at, at); err != nil {
			t.Fatal(err)
		}
	}
	return cert.Certificate[0]
}

func TestFilesAreReloaded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &logged{}
		certFile, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
		first := writeCertificate(t, certFile, keyFile, host, time.Now())
		f, err := openFiles(certFile, keyFile, log.logger())
		if err != nil {
			t.Fatal(err)
		}
		is := func(want []byte, why string) {
			t.Helper()
			if !bytes.Equal(f.get().Certificate[0], want) {
				t.Errorf("%s: another certificate", why)
			}
		}
		is(first, "at first")
		second := writeCertificate(t, certFile, keyFile, host, time.Now().Add(time.Second))
		is(first, "before it is looked at again")
		time.Sleep(lookAgain + time.Second)
		is(second, "after the files changed")
		if err := os.WriteFile(certFile, []byte("half a cert"), 0o600); err != nil {
			t.Fatal(err)
		}
		os.Chtimes(certFile, time.Now(), time.Now())
		time.Sleep(lookAgain + time.Second)
		is(second, "after the files were broken")
		if !strings.Contains(log.String(), "tls_cert_file") || !strings.Contains(log.String(), "level=ERROR") {
			t.Errorf("the log does not say which setting is wrong: %s", log)
		}
	})
}

// A node does not start with files that cannot work, and the error names the setting.
func TestUnusableFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	in := func(name string) string { return filepath.Join(dir, name) }
	writeCertificate(t, in("cert"), in("key"), host, time.Now())
	writeCertificate(t, in("other-cert"), in("other-key"), host, time.Now())
	for name, text := range map[string]string{"empty": "", "text": "hello",
		"half": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"} {
		if err := os.WriteFile(in(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct{ cert, key, say string }{
		{"none", "key", "read tls_cert_file: open " + in("none")},
		{"cert", "none", "read tls_key_file: open " + in("none")},
		{"empty", "key", "tls_cert_file: " + in("empty") + ": the file contains no certificate in PEM"},
		{"text", "key", "the file contains no certificate in PEM"},
		{"key", "key", "the file contains no certificate in PEM"},
		{"half", "key", "read tls_cert_file: " + in("half")},
		{"cert", "cert", "read tls_key_file: " + in("cert") + " is not the unencrypted PEM key"},
		{"cert", "text", "is not the unencrypted PEM key of the certificate in tls_cert_file"},
		{"cert", "other-key", "private key does not match public key"},
		{".", "key", "read tls_cert_file"},
	} {
		_, err := New(Options{Log: slog.New(slog.DiscardHandler), CertFile: in(c.cert), KeyFile: in(c.key)})
		if err == nil || !strings.Contains(err.Error(), c.say) {
			t.Errorf("%s and %s: %v; want %q", c.cert, c.key, err, c.say)
		}
	}
}

// An expired certificate, or one for another host, is used all the same, because mail must go on.
func TestDoubtfulFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
	want := writeCertificate(t, certFile, keyFile, "other.test", time.Now())
	log := &logged{}
	m, err := New(Options{DB: dbtest.SQLite(t), Log: log.logger(), CertFile: certFile, KeyFile: keyFile,
		Mail: []string{host, "other.test", "vm"}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	for _, text := range []string{"level=ERROR", "tls_cert_file: the certificate does not cover the host " + host} {
		if !strings.Contains(log.String(), text) || strings.Contains(log.String(), "the host other.test") {
			t.Errorf("the log does not say %q: %s", text, log)
		}
	}
	if c, err := m.forMail(&tls.ClientHelloInfo{ServerName: host}); err != nil || !bytes.Equal(c.Certificate[0], want) {
		t.Errorf("another certificate is used: %v", err)
	}
	all, err := m.Certificates(t.Context())
	if err != nil || len(all) != 1 || all[0].Source != FromFiles || !strings.Contains(all[0].LastError, host) {
		t.Errorf("the list is %+v, %v", all, err)
	}
	leaf := &x509.Certificate{NotBefore: time.Now().AddDate(0, -3, 0), NotAfter: time.Now().AddDate(0, 0, -1),
		DNSNames: []string{host}}
	if all := complaints(leaf, []string{host}, time.Now()); len(all) != 1 || !strings.Contains(all[0], "expired on") {
		t.Errorf("an expired certificate: %q", all)
	}
	if all := complaints(leaf, []string{host}, time.Now().AddDate(-1, 0, 0)); len(all) != 1 ||
		!strings.Contains(all[0], "check the clock") {
		t.Errorf("a certificate of the future: %q", all)
	}
}

// A changed file that does not cover all hosts leaves none of them without a valid certificate: the one before stays in
// use for the others, until the file covers them again or it expires. The log says so.
func TestChangedFileCoversFewerHosts(t *testing.T) {
	t.Parallel()
	for name, authority := range map[string]*ACME{"files alone": nil,
		"authority": {Directory: "https://127.0.0.1:1/", Challenges: []string{"http-01"}}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, log := t.TempDir(), &logged{}
			certFile, keyFile := filepath.Join(dir, "cert"), filepath.Join(dir, "key")
			at := time.Now().Add(-time.Hour)
			former := writeCertificate(t, certFile, keyFile, host, at)
			m, err := New(Options{DB: dbtest.SQLite(t), Keys: testKeys(t), Log: log.logger(), CertFile: certFile,
				KeyFile: keyFile, Web: []string{host, "other.test"}, Mail: []string{host, "other.test"}, ACME: authority})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			change := func(name string) []byte {
				t.Helper()
				at = at.Add(time.Minute)
				der := writeCertificate(t, certFile, keyFile, name, at)
				m.files.mu.Lock()
				defer m.files.mu.Unlock()
				m.files.looked = time.Time{}
				return der
			}
			uses := func(when, name string, want []byte) {
				t.Helper()
				for protocol, choose := range map[string]func(*tls.ClientHelloInfo) (*tls.Certificate, error){
					"HTTPS": m.forWeb, "SMTP": m.forMail} {
					if c, err := choose(&tls.ClientHelloInfo{ServerName: name}); err != nil || !bytes.Equal(c.Certificate[0], want) {
						t.Errorf("%s, %s uses another certificate for %s: %v", when, protocol, name, err)
					}
				}
			}
			uses("at first", host, former)
			other := change("other.test")
			uses("after the change", host, former)
			uses("after the change", "other.test", other)
			if s := log.String(); strings.Count(s, "does not cover these hosts any more") != 1 || !strings.Contains(s, host) ||
				len(m.reloaded) != 1 {
				t.Errorf("the log is %s", s)
			}
			if m.fromFiles(host) != nil {
				t.Error("no certificate is requested")
			}
			other = change("other.test")
			uses("after another change", host, former)
			uses("after another change", "other.test", other)
			m.files.former.Leaf.NotAfter = time.Now().Add(-time.Minute)
			if c, err := m.forWeb(&tls.ClientHelloInfo{ServerName: host}); err == nil && !bytes.Equal(c.Certificate[0], other) {
				t.Error("an expired certificate is used")
			}
			uses("after the right file", host, change(host))
			if m.files.former == nil || m.files.former.Leaf.VerifyHostname("other.test") != nil {
				t.Error("the hosts of the last file have no certificate now")
			}
		})
	}
}

// Without any certificate, SMTP uses a self-signed one, and HTTPS none.
func TestSelfSigned(t *testing.T) {
	t.Parallel()
	m, err := New(Options{DB: dbtest.SQLite(t), Log: slog.New(slog.DiscardHandler), Mail: []string{host}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	c, err := m.forMail(&tls.ClientHelloInfo{ServerName: "any.test"})
	if err != nil || c.Leaf.VerifyHostname(host) != nil {
		t.Errorf("it is not for the host: %v", err)
	}
	again, err := m.forMail(&tls.ClientHelloInfo{})
	if err != nil || again != c {
		t.Errorf("another one: %v", err)
	}
	if c, err := m.forWeb(&tls.ClientHelloInfo{ServerName: host}); err == nil {
		t.Errorf("HTTPS has %v", c.Leaf.DNSNames)
	}
}
