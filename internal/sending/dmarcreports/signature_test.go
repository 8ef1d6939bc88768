package dmarcreports_test

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/internal/mail/dkim"
	"github.com/postrider/postrider/internal/platform/db/dbtest"
	"github.com/postrider/postrider/internal/sending/dmarcreports"
)

// opendkim verifies the signature of an email with a report, as package delivery adds it.
func TestOpenDKIM(t *testing.T) {
	t.Parallel()
	program, err := exec.LookPath("opendkim")
	if err != nil {
		t.Skip("opendkim is not installed")
	}
	f := newFixture(t, dbtest.SQLite(t))
	f.publish("example.net", "p=none; rua=mailto:a@example.net")
	var raw []byte
	s := f.node(func(_ *dmarcreports.Config, p *dmarcreports.Deps) {
		p.Mail = func(_ context.Context, _, _ string, message []byte) error {
			raw = append(raw, message...)
			return nil
		}
	})
	fill(s)
	s.Count(f.facts("example.net", "192.0.2.2"))
	f.Flush(s)
	f.At(later)
	f.Send(s)
	key, err := dkim.GenerateRSA()
	if err != nil {
		t.Fatal(err)
	}
	header, err := dkim.Sign(raw, time.Now(), dkim.Signer{Domain: "acme.example", Selector: "s1", Key: key})
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	write := func(name, text string) string {
		file := filepath.Join(folder, name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	conf := write("conf", "Mode v\nTestPublicKeys "+write("keys", "s1._domainkey.acme.example "+key.Record()+"\n")+"\n")
	message := write("message", string(header)+string(raw))
	out, err := exec.CommandContext(t.Context(), program, "-x", conf, "-vv", "-t", message).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "verification (s=s1, d=acme.example, 2048-bit key) succeeded") {
		t.Errorf("opendkim: %v\n%s", err, out)
	}
}
