// Package opendkimtest lets OpenDKIM verify messages in tests. The program gets public keys from a file and asks no DNS
// server. On Linux, where make test installs the program, a test without it fails.
package opendkimtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Verify checks that OpenDKIM finds a valid RSA signature of a domain in a message. The keys are DKIM records by their
// names, such as s1._domainkey.acme.example; other names are left out.
func Verify(t testing.TB, domain string, keys map[string]string, message []byte) {
	t.Helper()
	program, err := exec.LookPath("opendkim")
	if err != nil {
		program, err = exec.LookPath("/usr/sbin/opendkim")
	}
	switch {
	case err != nil && runtime.GOOS == "linux":
		t.Fatal("opendkim is not installed: run make deps, or install the package opendkim")
	case err != nil:
		t.Log("opendkim is not installed, so only a library has verified the signature")
		return
	}
	var list strings.Builder
	for name, record := range keys {
		if strings.Contains(name, "._domainkey.") {
			fmt.Fprintf(&list, "%s %s\n", name, record)
		}
	}
	folder := t.TempDir()
	for name, text := range map[string]string{"keys": list.String(), "message": string(message),
		"conf": "Mode v\nTestPublicKeys " + filepath.Join(folder, "keys") + "\n"} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := exec.CommandContext(t.Context(), program, "-x", filepath.Join(folder, "conf"), "-vv", "-t",
		filepath.Join(folder, "message")).CombinedOutput()
	if err != nil || !strings.Contains(string(out), "d="+domain+", 2048-bit key) succeeded") {
		t.Errorf("opendkim: %v\n%s", err, out)
	}
}
