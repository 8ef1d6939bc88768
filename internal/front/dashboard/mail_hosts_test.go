package dashboard_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/accounts/teams"
	"github.com/postrider/postrider/internal/mail/dane"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
)

// The settings show the TLSA records of the installation's mail hosts to owners and admins of the operator's team only.
func TestMailHosts(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{SerialNumber: big.NewInt(1),
		DNSNames: []string{"mail.postrider.test"}, NotAfter: time.Now().Add(time.Hour)}, &x509.Certificate{}, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{"data_dir": folder, "roles": "api,delivery,jobs,receiving", "smtp_in_listen": "127.0.0.1:0"}
	for setting, block := range map[string]*pem.Block{"tls_cert_file": {Type: "CERTIFICATE", Bytes: cert},
		"tls_key_file": {Type: "PRIVATE KEY", Bytes: private}} {
		vars[setting] = filepath.Join(folder, setting)
		if err := os.WriteFile(vars[setting], pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	dbtest.WriteSQLite(t, filepath.Join(folder, "postrider.db"))
	b := newBoard(t, vars)
	record, err := dane.For(key.Public())
	if err != nil {
		t.Fatal(err)
	}
	b.visitor(teams.Owner).shows("/app/settings", 200, "_25._tcp.mail.postrider.test", record.String(), "(DNSSEC)")
	for _, v := range []*visitor{b.visitor(teams.Member), b.visitorOf(b.other.TeamID, teams.Owner)} {
		if page := v.shows("/app/settings", 200); strings.Contains(page, "_25._tcp.") {
			t.Errorf("somebody else sees the hosts:\n%s", page)
		}
	}
}
