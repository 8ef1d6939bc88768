package cli

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/postrider/postrider/internal/lib/config"
)

// The masker finds every secret of the settings, whole or in parts, and values whose names say that they are secret.
func TestMasker(t *testing.T) {
	t.Parallel()
	c := config.Config{DataDir: t.TempDir(), SecretKey: "first-key-of-all,second-key-of-all",
		DatabaseURL: "postgres://postrider:dbsecret@db.example.com/postrider",
		AlertTo:     []config.Secret{"https://hooks.example.com/services/alpha/beta", "ops@example.com"},
		OTLPHeaders: "x-tenant=tenantvalue,authorization=Bearer qwertzui", ACMEDNSKeySecret: "dnskeysecret",
		DoctorNameLists: []string{"abcd1234efgh5678ijkl90mnop.dbl.list.example", "dbl.list.example"}}
	keys := "current-key-in-file\nformer-key-in-file\n"
	if err := os.WriteFile(filepath.Join(c.DataDir, "secret.key"), []byte(keys), 0o600); err != nil {
		t.Fatal(err)
	}
	m := newMasker(c)
	for _, x := range []struct{ text, secret, kept string }{
		{"key second-key-of-all is wrong", "second-key", "is wrong"},
		{"key first-key-of-all is wrong", "first-key", "is wrong"},
		{"key former-key-in-file!", "former-key", "!"}, {"key current-key-in-file!", "current-key", "!"},
		{`Post "https://hooks.example.com/services/alpha/beta": refused`, "alpha", "refused"},
		{"the path /services/alpha/beta is gone", "alpha", "is gone"}, {"tell ops@example.com", "ops@", "tell"},
		{"x-tenant: tenantvalue", "tenantvalue", "x-tenant"},
		{"Authorization: Bearer qwertzui", "qwertzui", "Authorization"},
		{"the header qwertzui", "qwertzui", "the header"}, {"tsig dnskeysecret", "dnskeysecret", "tsig"},
		{"look up test.abcd1234efgh5678ijkl90mnop.dbl.list.example", "efgh", ".dbl.list.example"},
		{"Get https://files.example.com/a?key=hunter: refused", "hunter", "/a?key="},
		{"dial with dbsecret", "dbsecret", "dial"}, {"open /var/lib/postrider/lock", "<secret>", "/var/lib/postrider/lock"},
		{`{"password":"hunter two","a":"b"}`, "hunter", `"a":"b"`},
		{`{"client_secret": "hunter"}`, "hunter", "client_secret"}, {"{'token': 'hunter'}", "hunter", "token"},
		{`msg="{\"api_key\":\"hunter two\",\"a\":\"b\"}"`, "hunter", `\"a\":\"b\"`},
		{`{"accessToken":"hunter"}`, "hunter", "accessToken"}, {"POSTRIDER_RELAY_PASSWORD=hunter x", "hunter", " x"},
		{"oidc_client_secret=hunter x", "hunter", " x"}, {"Cookie: session=hunter", "hunter", "Cookie"},
		{"Set-Cookie: hunter; Path=/", "hunter", "Path=/"}, {"X-API-Key: hunter", "hunter", "X-API-Key"},
		{`password="hunter \" two" x=1`, "two", "x=1"}, {"the password is wrong", "<secret>", "the password is wrong"},
	} {
		if got := m.text(x.text); strings.Contains(got, x.secret) || !strings.Contains(got, x.kept) {
			t.Errorf("%q became %q", x.text, got)
		}
	}
}
