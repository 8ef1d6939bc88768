package node

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// writeCertificate writes a new certificate and its key to the given files, and returns the certificate in DER
// encoding.
func writeCertificate(t *testing.T, certFile, keyFile string, at time.Time) []byte {
	t.Helper()
	cert, err := selfSigned("mx.test")
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

func TestCertificateFiles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slog.New(slog.DiscardHandler)
		certFile, keyFile := filepath.Join(t.TempDir(), "cert.pem"), filepath.Join(t.TempDir(), "key.pem")
		if _, err := newCertificates(certFile, keyFile, "mx.test", log); err == nil {
			t.Error("files that do not exist were taken")
		}
		first := writeCertificate(t, certFile, keyFile, time.Now())
		c, err := newCertificates(certFile, keyFile, "mx.test", log)
		if err != nil {
			t.Fatal(err)
		}
		is := func(want []byte, why string) {
			t.Helper()
			if got, err := c.get(&tls.ClientHelloInfo{}); err != nil || !bytes.Equal(got.Certificate[0], want) {
				t.Errorf("%s: another certificate, or %v", why, err)
			}
		}
		is(first, "at first")
		second := writeCertificate(t, certFile, keyFile, time.Now().Add(time.Second))
		is(first, "before it is looked at again")
		time.Sleep(lookAgain + time.Second)
		is(second, "after the files changed")
		if err := os.WriteFile(certFile, []byte("half a cert"), 0o600); err != nil {
			t.Fatal(err)
		}
		os.Chtimes(certFile, time.Now(), time.Now())
		time.Sleep(lookAgain + time.Second)
		is(second, "after the files were broken")
	})
}

func TestSelfSigned(t *testing.T) {
	c, err := newCertificates("", "", "mx.test", slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	cert, err := c.get(&tls.ClientHelloInfo{})
	if err != nil {
		t.Fatal(err)
	}
	leaf, err := x509.ParseCertificate(cert.Certificate[0])
	if err != nil || leaf.VerifyHostname("mx.test") != nil {
		t.Errorf("it is not for the host: %v", err)
	}
}
